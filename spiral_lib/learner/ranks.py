"""Processes that somebody else started for the learner, as Flyte's Elastic does: the first leads, the others follow.

All run the same task on one machine. The first does everything, and the others wait until it has a job of
``learner.launch``, which all of them then work on together. A process that fails is the starter's business: it ends the
others.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Final

from spiral_lib.config import RunConfig
from spiral_lib.durable import write_text
from spiral_lib.errors import LearnerError

_WAIT_S: Final = 0.2
_DONE: Final = "done"


def are_given() -> bool:
    """Return whether this process is one of several that torch's elastic launcher started."""
    return "TORCHELASTIC_RUN_ID" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1


def follows() -> bool:
    """Return whether this process only helps another one."""
    return are_given() and int(os.environ["RANK"]) > 0


def lead(job: Path, config: RunConfig) -> None:
    """Work on a job together with the others. Raises LearnerError where the configuration counts other processes."""
    given, wanted = int(os.environ["WORLD_SIZE"]), config.learner.processes
    if wanted not in (0, given):
        raise LearnerError(
            f"learner.processes={wanted}, but the learner's task has {given} processes; "
            f"set learner.processes={given} or 0, or give the task {wanted}"
        )
    write_text(_post(), str(job))
    _work(job)


def dismiss() -> None:
    """Let the others end: there are no more jobs."""
    write_text(_post(), _DONE)


def follow() -> None:
    """Work on the jobs of the leading process until it says that there are no more."""
    last = ""
    while last != _DONE:
        now = _post().read_text(encoding="utf-8") if _post().is_file() else ""
        if now in ("", last):
            time.sleep(_WAIT_S)
        elif now != _DONE:
            _work(Path(now))
        last = now


def _work(job: Path) -> None:
    import torch

    from spiral_lib.learner import launch

    if not torch.cuda.is_available():
        os.environ["DS_ACCELERATOR"] = "cpu"
    launch.main(job)


def _post() -> Path:
    """Return where the leading process says what to do: the processes of one machine have one parent."""
    return Path(tempfile.gettempdir()) / f"spiral-ranks-{os.getppid()}-{os.environ['MASTER_PORT']}"
