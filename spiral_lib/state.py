"""Where a run stands between steps, as local paths, and how that is written down for a later run to go on from."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spiral_lib import durable
from spiral_lib.errors import LineageError

_PATHS = ("checkpoint", "optimizer", "champion", "champion_scores", "cold_start", "cold_start_scores", "ledger")


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """Where a run stands after an iteration, as local paths; iteration 0 is the cold start.

    ``optimizer`` is None where AdamW starts without moments; ``opponents`` are the pool's checkpoints, oldest first.
    """

    iteration: int
    checkpoint: Path
    optimizer: Path | None
    champion: Path
    champion_scores: Path
    cold_start: Path
    cold_start_scores: Path
    opponents: tuple[Path, ...]
    ledger: Path


@dataclass(frozen=True, kw_only=True, slots=True)
class Learned:
    """A candidate: checkpoint folder, optimizer folder, training metrics (JSON) and the turns it learned from."""

    checkpoint: Path
    optimizer: Path
    training: Path
    shards: tuple[Path, ...]


def write_state(state: State, run: Path) -> None:
    """Write ``state.json``: where everything lies that a later run needs to go on from here, relative to the run."""
    paths = {name: getattr(state, name) for name in _PATHS}
    places = {name: None if path is None else _inside(path, run) for name, path in paths.items()}
    write_places(run, iteration=state.iteration, places=places, opponents=[_inside(p, run) for p in state.opponents])


def write_places(
    run: Path, *, iteration: int, places: Mapping[str, str | None], opponents: Sequence[str]
) -> None:
    """Write ``state.json`` for the parts of a State at places that are URLs, or paths relative to ``run``."""
    content: dict[str, Any] = {"iteration": iteration, "opponents": list(opponents)}
    durable.write_text(run / "state.json", json.dumps(content | {name: places[name] for name in _PATHS}, indent=1))


def read_state(run: Path, fetch: Callable[[str], Path] | None = None) -> State:
    """Return the state that ``write_state`` wrote; ``fetch`` turns a URL in it into a local path.

    Raises LineageError where the folder is not a run folder or something it names is gone.
    """
    try:
        content = json.loads((run / "state.json").read_text())
        written = {name: content[name] for name in (*_PATHS, "iteration", "opponents")}
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise LineageError(
            f"'{run}' is no run folder to go on from: {error}; give runs/<run> of an earlier run"
        ) from error

    def place(text: str) -> Path:
        path = fetch(text) if fetch is not None and "://" in text else run / text
        if not path.exists():
            raise LineageError(f"'{run}' cannot be continued: '{text}' is missing; restore it or start a new run")
        return path

    found = {name: None if written[name] is None else place(written[name]) for name in _PATHS}
    opponents = tuple(place(p) for p in written["opponents"])
    return State(iteration=int(written["iteration"]), opponents=opponents, **found)  # type: ignore[arg-type]


def kept_in(run: Path) -> str:
    """Return in words which iterations of a run are finished and kept, whatever moment it was stopped at."""
    try:
        iteration = json.loads((run / "state.json").read_text())["iteration"]
    except (OSError, ValueError, LookupError, TypeError):
        return "the cold start was not finished; whatever step of it was done is kept"
    if not iteration:
        return "the cold start is finished and kept"
    return f"the cold start and {iteration} iteration{'s' if iteration > 1 else ''} are finished and kept"


def _inside(path: Path, run: Path) -> str:
    return path.resolve().relative_to(run.resolve()).as_posix()
