"""The opponent pool: frozen snapshots of the learner's own past."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spiral_lib.config import OpponentConfig
from spiral_lib.errors import ConfigError, LineageError
from spiral_lib.ledger import PoolEntry

__all__ = ["OpponentPool", "PoolEntry"]


@dataclass(frozen=True, kw_only=True, slots=True)
class OpponentPool:
    """Snapshots ordered by iteration, each at most once."""

    entries: tuple[PoolEntry, ...] = ()

    def add(self, entry: PoolEntry) -> OpponentPool:
        """Return the pool with one more snapshot; the same weights (or the same iteration) are not added twice."""
        if any(e.id == entry.id or e.iteration == entry.iteration for e in self.entries):
            return self
        return OpponentPool(entries=tuple(sorted((*self.entries, entry), key=lambda e: e.iteration)))

    def retained(self, config: OpponentConfig) -> OpponentPool:
        """Return the pool cut to ``capacity``: the newest ``keep_recent``, and the rest spread over the run's history.

        The oldest stays while there is room for it. Applied at every snapshot, this keeps the gaps between the older
        ones below twice their mean, however long the run gets.
        """
        entries = list(self.entries)
        while len(entries) > config.capacity:
            del entries[_most_crowded(entries, len(entries) - min(config.keep_recent, config.capacity))]
        return OpponentPool(entries=tuple(entries))

    def to_dict(self) -> dict[str, Any]:
        """Return plain dictionaries and scalars for JSON."""
        return {"entries": [dataclasses.asdict(e) for e in self.entries]}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> OpponentPool:
        """Return the pool that ``to_dict`` wrote. Raises LineageError where it is damaged."""
        try:
            return cls(entries=tuple(PoolEntry(**e) for e in content["entries"]))
        except (KeyError, TypeError) as error:
            raise LineageError(f"the opponent pool is damaged: {error!r}; restore it from the last ledger") from error


def with_ratings(pool: OpponentPool, ratings: Mapping[str, float]) -> OpponentPool:
    """Return the pool with the ratings of a tournament, by snapshot id; snapshots that did not play keep theirs.

    An id may be shortened to the form that ``pool:<id>`` uses, as long as it means one snapshot only.
    Raises ConfigError for a name that means none or several.
    """
    rated: dict[str, float] = {}
    for name, rating in ratings.items():
        meant = [e.id for e in pool.entries if name and e.id.startswith(name)]
        if len(meant) != 1:
            ids = ", ".join(e.id[:16] for e in pool.entries) or "none"
            raise ConfigError(f"rating of '{name}' means {len(meant)} snapshots of the pool; its ids are: {ids}")
        rated[meant[0]] = float(rating)
    entries = (dataclasses.replace(e, rating=rated.get(e.id, e.rating)) for e in pool.entries)
    return OpponentPool(entries=tuple(entries))


def _most_crowded(entries: Sequence[PoolEntry], num_older: int) -> int:
    """Return the index among the older entries, the oldest excepted, whose removal leaves the smallest gap."""
    inner = range(1, num_older)
    # Of equal gaps the later goes: the kept ones then settle on a grid.
    return min(inner, key=lambda i: (entries[i + 1].iteration - entries[i - 1].iteration, -i), default=0)
