"""Which of a run's checkpoints, optimizer states and shards may be deleted, and deleting them with a tombstone each.

What stays, whatever the rule: all that the run needs to go on (its state and its opponent pool), the champion and the
cold start; and of every checkpoint that is kept for its own sake, what the step read and wrote that made it, so that
this step can be replayed. Records, ledgers, evaluations and reports are small and always stay.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from spiral_lib import durable, expired, lineage
from spiral_lib.errors import ConfigError, LineageError
from spiral_lib.expired import Tombstone
from spiral_lib.ledger import Ledger
from spiral_lib.lineage import StepRecord

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

    def __str__(self) -> str:
        return f"keep_recent={self.keep_recent} keep_every={self.keep_every} keep_shards={self.keep_shards}"


def due(run: Path, rule: Rule) -> list[Tombstone]:
    """Return what the rule lets go, largest first. Raises LineageError where the run cannot say what it still needs."""
    records = lineage.read_all(run)
    needed = _needed(run, records, rule)
    day = datetime.now(UTC).date().isoformat()
    found = []
    for record in records:
        for artifact in record.outputs.values():
            place = run / artifact.path
            if artifact.path in needed or not artifact.path.startswith(KINDS) or not place.exists():
                continue
            if expired.hash_of(run, artifact.path) is not None:
                continue
            size = _size(place)
            found.append(
                Tombstone(path=artifact.path, sha256=artifact.sha256, bytes=size, day=day, rule=str(rule))
            )
    return sorted(found, key=lambda t: (-t.bytes, t.path))


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


def _needed(run: Path, records: list[StepRecord], rule: Rule) -> set[str]:
    """Return the paths, relative to the run, that must stay."""
    state = _state(run)
    ledger = Ledger.from_json((run / str(state["ledger"])).read_text(encoding="utf-8"))
    last = ledger.iteration
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
