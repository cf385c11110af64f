"""The Flyte-typed records that travel between tasks, and their way to and from local paths."""


import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from flytekit import FlyteContextManager, current_context
from flytekit.types.directory import FlyteDirectory
from flytekit.types.file import FlyteFile

from spiral_lib import lineage, publish
from spiral_lib.errors import LineageError
from spiral_lib.state import State


@dataclass
class TrainState:
    """Where a run stands after an iteration; ``history`` holds its small files (metrics, ledger, lineage, report).

    ``optimizer`` is None where AdamW starts without moments; ``replies`` are those of the iteration's evaluation.
    """

    iteration: int
    checkpoint: FlyteDirectory
    champion: FlyteDirectory
    champion_scores: FlyteFile
    cold_start: FlyteDirectory
    cold_start_scores: FlyteFile
    opponents: list[FlyteDirectory]
    ledger: FlyteFile
    history: FlyteDirectory
    optimizer: FlyteDirectory | None = None
    replies: FlyteDirectory | None = None

    def __str__(self) -> str:
        """What ``pyflyte run`` prints at the end."""
        places = {"champion": self.champion, "checkpoint": self.checkpoint, "cold start": self.cold_start}
        report = f"{str(self.history.path).rstrip('/')}/report.html"
        rows = {"iteration": self.iteration, **{name: place.path for name, place in places.items()}, "report": report}
        return "\n".join(f"{name:<11} {value}" for name, value in rows.items())


@dataclass
class Shard:
    """One shard's turns as Parquet, and the record of the step that made it."""

    turns: FlyteFile
    record: FlyteFile


@dataclass
class Learned:
    """A candidate checkpoint with its optimizer state, training metrics, turns and step records."""

    checkpoint: FlyteDirectory
    optimizer: FlyteDirectory
    training: FlyteFile
    shards: list[FlyteFile]
    records: list[FlyteFile]


@dataclass
class Scores:
    """What was measured outside self-play, the record of the step, and the benchmark replies where a benchmark ran."""

    evaluation: FlyteFile
    record: FlyteFile
    replies: FlyteDirectory | None = None


def is_remote(out: str) -> bool:
    """Return whether outputs leave this machine: ``out`` is a store's URL, or empty (Flyte's own raw data prefix)."""
    return not out or "://" in out


def is_local() -> bool:
    """Return whether this runs through ``pyflyte run`` without ``--remote``."""
    execution = FlyteContextManager.current_context().execution_state
    return execution is not None and execution.is_local_execution()


@contextmanager
def run_folder(out: str, image: str = "") -> Iterator[Path]:
    """Yield the folder that steps write into: ``out`` when it is a local folder, else this task's own scratch folder.

    ``image`` is what step records name, where this runs in a container of it.
    Scratch is not removed here: Flyte uploads the outputs after the task's body has returned, from the pod's own disk.
    """
    if image and not is_local():
        os.environ[lineage.IMAGE_VARIABLE] = image
    if is_remote(out):
        yield Path(tempfile.mkdtemp(prefix="run-", dir=current_context().working_directory))
        return
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    yield folder


def directory(path: Path, run: Path, out: str) -> FlyteDirectory:
    """Return a typed folder; with a remote store root in ``out`` it goes to the same place below that root."""
    if "://" in out:
        return FlyteDirectory(str(path), remote_directory=f"{out.rstrip('/')}/{path.relative_to(run)}")
    return FlyteDirectory(str(path))


def file(path: Path, run: Path, out: str) -> FlyteFile:
    """Return a typed file, placed like ``directory``."""
    if "://" in out:
        return FlyteFile(str(path), remote_path=f"{out.rstrip('/')}/{path.relative_to(run)}")
    return FlyteFile(str(path))


def history(run: Path, out: str, iteration: int) -> FlyteDirectory:
    """Return the run's small files: the run folder itself when it is local, else a copy without weights and turns.

    In a store every iteration has its own copy, since what a cached task returned must never change.
    """
    if is_remote(out):
        return directory(publish.copy_history(run, run / "history" / f"{iteration:04d}"), run, out)
    return FlyteDirectory(str(run))


def local(item: FlyteDirectory | FlyteFile) -> Path:
    """Return the item's local path, downloading it when it is remote."""
    return Path(item.download())


def placed(item: FlyteDirectory | FlyteFile, run: Path, out: str) -> Path:
    """Return the item's local path; what comes from the run's store lies in the run folder as it does in the store.

    So the step records of a remote run name the same paths as those of a local one, and can be audited like them.
    """
    source, root = str(item.remote_source or ""), f"{out.rstrip('/')}/"
    if "://" not in out or not source.startswith(root):
        return local(item)
    target = run / source.removeprefix(root)
    if not target.exists():
        access = FlyteContextManager.current_context().file_access
        if not access.get_filesystem_for_path(source).exists(source):
            raise LineageError(
                f"'{source}' is gone from the store, though the step that made it counts as done; restore it, or have "
                "all steps done again with pyflyte run --overwrite-cache"
            )
        access.get_data(source, str(target), is_multipart=isinstance(item, FlyteDirectory))
    return target


def fetch(url: str) -> Path:
    """Return the local copy of a folder, or of a JSON file, in a store."""
    return local(FlyteFile(url) if url.endswith(".json") else FlyteDirectory(url))


def paths_of(state: TrainState, run: Path, out: str) -> State:
    """Return the state with everything on the local disk."""
    return State(
        iteration=state.iteration,
        checkpoint=placed(state.checkpoint, run, out),
        optimizer=placed(state.optimizer, run, out) if state.optimizer is not None else None,
        champion=placed(state.champion, run, out),
        champion_scores=placed(state.champion_scores, run, out),
        cold_start=placed(state.cold_start, run, out),
        cold_start_scores=placed(state.cold_start_scores, run, out),
        opponents=tuple(placed(o, run, out) for o in state.opponents),
        ledger=placed(state.ledger, run, out),
    )
