"""What outlives a killed attempt of a task: one archive in Flyte's intra-task checkpoint.

One object in the store is there whole or not at all, which a folder of them would not be.
"""

import logging
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from flytekit import current_context
from flytekit.exceptions.base import FlyteException

log = logging.getLogger("spiral_lib.run")

ARCHIVE = "saved.tar"


def continued(run: Path) -> Callable[[Sequence[Path]], None]:
    """Lay what an earlier attempt saved into the run folder; return the function that saves paths of it anew."""
    checkpoint = current_context().checkpoint

    def save(paths: Sequence[Path]) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            archive = Path(scratch) / ARCHIVE
            with tarfile.open(archive, "w") as tar:
                for path in paths:
                    tar.add(path, arcname=path.relative_to(run).as_posix())
            checkpoint.save(archive)

    try:
        found = checkpoint.restore() if checkpoint.prev_exists() else None
    except (FlyteException, OSError) as error:
        log.info("the earlier attempt saved nothing: %s", type(error).__name__)
        found = None
    if found is not None and (found / ARCHIVE).is_file():
        with tarfile.open(found / ARCHIVE) as tar:
            tar.extractall(run, filter="data")
        checkpoint.save(found / ARCHIVE)  # the next attempt looks at this one's place only
    return save
