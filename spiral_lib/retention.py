"""Which of a run's checkpoints, optimizer states and shards may be deleted, and deleting them with a tombstone each.

What stays, whatever the rule: all that the run needs to go on (its state and its opponent pool), the champion and the
cold start; and of every checkpoint that is kept for its own sake, what the step read and wrote that made it, so that
this step can be replayed. Records, ledgers, evaluations and reports are small and always stay.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from spiral_lib import durable, expired, lineage
from spiral_lib.config import RunConfig
from spiral_lib.errors import ConfigError, LineageError
from spiral_lib.expired import Tombstone
from spiral_lib.ledger import Ledger
from spiral_lib.lineage import StepRecord

log = logging.getLogger(__name__)

KINDS = ("checkpoints/", "optimizer/", "trajectories/")
COLD_START = "checkpoints/0000"


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """How many newest checkpoints stay, every how many-th besides (0: none), and how many newest iterations' turns."""

    keep_recent: int = 2
    keep_every: int = 0
    keep_shards: int = 2

    def __post_init__(self) -> None:
        if min(self.keep_recent, self.keep_every, self.keep_shards) < 0:
            raise ConfigError(f"a retention rule counts what stays, so no number in it is negative: {self}")

    @classmethod
    def of(cls, config: RunConfig) -> Rule | None:
        """Return the rule of a run's configuration, None where it keeps everything."""
        kept = config.retention
        if not kept.enabled:
            return None
        return cls(keep_recent=kept.keep_recent, keep_every=kept.keep_every, keep_shards=kept.keep_shards)

    def __str__(self) -> str:
        return f"keep_recent={self.keep_recent} keep_every={self.keep_every} keep_shards={self.keep_shards}"


def due(run: Path, rule: Rule) -> list[Tombstone]:
    """Return what the rule lets go, largest first. Raises LineageError where the run cannot say what it still needs."""
    found, known = [], expired.read(run)
    for tombstone in _let_go(run, rule, _state(run)):
        place = run / tombstone.path
        if place.exists() and (expired.is_there(place) or tombstone.path not in known):
            found.append(dataclasses.replace(tombstone, bytes=_size(place)))
    return sorted(found, key=lambda t: (-t.bytes, t.path))


def due_in_store(run: Path, rule: Rule, store: str, *, before: int) -> list[Tombstone]:
    """Return what the rule lets go of a run whose files lie below a store's URL; ``run`` holds the small ones.

    Only what steps before an iteration made, since steps of it may have to be repeated; and what no tombstone stands
    for is due even where it is gone, since a killed attempt may have deleted it and not told.
    """
    known, root = expired.read(run), f"{store.rstrip('/')}/"
    state = {
        name: [str(v).removeprefix(root) for v in value] if isinstance(value, list) else str(value).removeprefix(root)
        for name, value in _state(run).items()
    }
    return [tombstone for tombstone in _let_go(run, rule, state, before) if tombstone.path not in known]


def _let_go(
    run: Path, rule: Rule, state: Mapping[str, object], before: float = math.inf
) -> Iterator[Tombstone]:
    """Yield all on record from before an iteration that the rule does not keep, by path, with 0 bytes.

    What iterations made that are newer than the run's state is not its to judge, and stays.
    """
    records = lineage.read_all(run)
    last = _ledger(run, state).iteration
    needed = _needed(records, rule, state, last)
    before = min(before, last + 1)
    day = datetime.now(UTC).date().isoformat()
    seen: set[str] = set()
    for artifact in (a for record in records if record.order < before for a in record.outputs.values()):
        if artifact.path not in needed | seen and artifact.path.startswith(KINDS):
            seen.add(artifact.path)
            yield Tombstone(path=artifact.path, sha256=artifact.sha256, bytes=0, day=day, rule=str(rule))


def tidy(config: RunConfig, run: Path, iteration: int) -> None:
    """Expire what the configuration lets go, at the end of an iteration, where that is the newest one of the run.

    A run that is started again passes through iterations which it has gone on from: later ones may have to be repeated.
    """
    rule = Rule.of(config)
    if rule is None or not (run / "state.json").is_file() or _ledger(run, _state(run)).iteration != iteration:
        return
    if gone := expire(run, rule):
        log.info("expired by rule: %s", ", ".join(t.path for t in gone))


def expire_in_store(run: Path, tombstones: Iterable[Tombstone], files: Any, store: str) -> None:
    """Delete outputs below a store's URL through its fsspec file system; their tombstones go into ``run``."""
    told = []
    for tombstone in tombstones:
        place = f"{store.rstrip('/')}/{tombstone.path}"
        found = {p: d for p, d in files.find(place, detail=True).items() if not p.endswith(f"/{expired.STUB}")}
        told.append((dataclasses.replace(tombstone, bytes=sum(int(d["size"]) for d in found.values())), list(found)))
    expired.add(run, (tombstone for tombstone, _ in told))
    for _, paths in told:
        if paths:
            files.rm(paths)


def expire(run: Path, rule: Rule) -> list[Tombstone]:
    """Delete what the rule lets go and return it. Killed at any moment, nothing is gone without a tombstone."""
    tombstones = due(run, rule)
    expired.add(run, tombstones)
    for tombstone in tombstones:
        place = run / tombstone.path
        if place.is_dir():
            for name in durable.list_files(place):
                if name != expired.STUB:
                    (place / name).unlink()
        else:
            place.unlink()
    return tombstones


def _needed(records: Sequence[StepRecord], rule: Rule, state: Mapping[str, object], last: int) -> set[str]:
    """Return the paths, relative to the run, that must stay as long as it stands at iteration ``last``."""
    kept = {f"checkpoints/{i:04d}" for i in range(max(0, last - rule.keep_recent + 1), last + 1)}
    if rule.keep_every:
        kept |= {f"checkpoints/{i:04d}" for i in range(0, last + 1, rule.keep_every)}
    kept |= {COLD_START, str(state["champion"]), str(state["checkpoint"])}
    needed = kept | _paths(state.values())
    for record in records:
        if kept & {artifact.path for artifact in record.outputs.values()}:
            needed |= {artifact.path for artifact in record.inputs.values()}
            needed |= {artifact.path for name, artifact in record.outputs.items() if name != "optimizer"}
    recent = tuple(f"trajectories/iteration={i:04d}/" for i in range(max(0, last - rule.keep_shards + 1), last + 1))
    shards = (a.path for record in records for a in record.outputs.values() if a.path.startswith("trajectories/"))
    return needed | {path for path in shards if recent and path.startswith(recent)}


def _state(run: Path) -> dict[str, object]:
    try:
        content = json.loads((run / "state.json").read_text(encoding="utf-8"))
        return {str(name): value for name, value in content.items()}
    except (OSError, ValueError, AttributeError) as error:
        raise LineageError(f"'{run}' is no run folder that knows where it stands: {error}; nothing expires") from error


def _ledger(run: Path, state: Mapping[str, object]) -> Ledger:
    return Ledger.from_json((run / str(state["ledger"])).read_text(encoding="utf-8"))


def _paths(values: Iterable[object]) -> set[str]:
    """Return all texts among the values and in the lists among them."""
    found: set[str] = set()
    for value in values:
        found |= {value} if isinstance(value, str) else {str(v) for v in value} if isinstance(value, list) else set()
    return found


def _size(place: Path) -> int:
    """Return the bytes of a file or folder that only this path holds: hard links elsewhere keep theirs."""
    files = [place / name for name in durable.list_files(place)] if place.is_dir() else [place]
    return sum(stat.st_size for stat in (file.stat() for file in files) if stat.st_nlink == 1)
