"""What a segment has done so far, saved on the way, so that a killed task goes on instead of beginning again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from spiral_lib import checkpoints
from spiral_lib.config import RunConfig, config_hash
from spiral_lib.durable import new_folder, sha256_file
from spiral_lib.state import State

if TYPE_CHECKING:
    from spiral_lib.learner.update import Learner

_PROGRESS = "progress.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """Where a segment stands after some of its steps; with the learner's weights and optimizer it goes on exactly."""

    history: tuple[tuple[int, Mapping[str, float]], ...]
    baselines: str
    problems: Mapping[str, tuple[str, ...]]


class SegmentSaves:
    """The newest save of one segment, in a folder of its own that is gone when the segment is done.

    A save counts only for the same configuration, code and state that it was made with, and while the shards of the
    steps before it are what they were.
    """

    def __init__(self, config: RunConfig, state: State, *, run: Path) -> None:
        self.folder = run / "partial" / f"{state.iteration + 1:04d}"
        self._every = config.rollout.save_every if config.learner.backend == "torch" else 0
        self._key = {
            "config": config_hash(config),
            "code": checkpoints.code_version(),
            "checkpoint": checkpoints.read_manifest(state.checkpoint).id,
            "ledger": sha256_file(state.ledger),
        }

    def write(self, learner: Learner, progress: Progress, shards: Sequence[Path], *, steps: int) -> bool:
        """Save after every so many steps; ``shards`` are those of the steps done, ``steps`` how many there will be.

        Returns whether this step was one to save.
        """
        done = len(progress.history)
        if not self._every or done % self._every or done == steps:
            return False
        content = {
            "key": self._key,
            "history": progress.history,
            "baselines": progress.baselines,
            "problems": progress.problems,
            "shards": {path.name: sha256_file(path) for path in shards},
        }
        with new_folder(self.folder) as folder:
            learner.save(folder / "checkpoint", iteration=0)
            learner.save_optimizer(folder / "optimizer")
            (folder / _PROGRESS).write_text(json.dumps(content, sort_keys=True), encoding="utf-8")
        return True

    def resume(self, learner: Learner, shards: Sequence[Path]) -> Progress | None:
        """Bring the learner to the save and return the rest of it, or None where there is none that fits."""
        try:
            content = json.loads((self.folder / _PROGRESS).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        now = {path.name: sha256_file(path) for path in shards if path.is_file()}
        same = all(now.get(name) == digest for name, digest in content["shards"].items())
        if content["key"] != self._key or not same:
            return None
        learner.restore(self.folder / "checkpoint", self.folder / "optimizer")
        return Progress(
            history=tuple((int(step), metrics) for step, metrics in content["history"]),
            baselines=content["baselines"],
            problems={name: tuple(texts) for name, texts in content["problems"].items()},
        )

    def remove(self) -> None:
        """Forget the save."""
        shutil.rmtree(self.folder, ignore_errors=True)
