"""Claims that hold at every point of a grid or not: one player makes one, the other accepts it or names a failure."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Final

import numpy as np

from spiral_lib.games import _duel_base as base
from spiral_lib.games._duel_tree import Array
from spiral_lib.games._duel_values import Universe
from spiral_lib.games.duel_dsl import Expression

MAX_COUNTERS: Final = 3
MISS_COST: Final = 2
"""Tenths that the checker loses for each point at which the claim holds."""
MAX_FALSE_SHARE: Final = 0.3
"""A false claim may fail at most at this share of the points: showing that it fails has to take thought."""


class ClaimDuel(base.Duel):
    """The checker's side of a match; subclasses define how player 0 makes the claim and what a point shows."""

    accept_word = "accept"
    counter_word = "counter"
    claim_word = "claim"
    true_word = "true"

    _claim: Expression | None = None
    _holds: Array
    _is_true = False
    _stake = base.FULL_STAKE

    def _start_checking(
        self, claim: Expression, holds: Array, share: float, digest: Callable[[], str], bank: frozenset[str]
    ) -> None:
        """Show the claim to the checker; ``share`` is the share of points at which it fails."""
        self._claim, self._holds, self._is_true = claim, holds, share == 0.0
        self._stake = base.stake(digest, bank)
        self._signals["problem_length"] = float(len(str(claim)))
        self._signals["duplicate"] = float(self._stake == base.KNOWN_STAKE)
        self._signals["true_claim"] = float(self._is_true)
        self._tried: list[tuple[int, ...]] = []
        self._to_move = 1

    def _checker_moves(self) -> Mapping[str, base.Handler]:
        return {self.accept_word: self._accept, self.counter_word: self._counter}

    def _accept(self, content: str) -> None:
        base.no_content(content)
        word = self.accept_word.capitalize()
        self._record.append(f"[{word}]")
        if self._is_true:
            self._checker_wins(f"The {self.claim_word} is {self.true_word}: the {{checker}} wins.")
        else:
            self._signals["fooled"] = 1.0
            self._end(self._stake, self._told(f"The {self.claim_word} is not {self.true_word}: the {{poser}} wins."))

    def _counter(self, content: str) -> None:
        assert self._claim is not None
        names = tuple(name for name, _, _ in self._claim.variables)
        found = base.assignments(content, names, separator="," if len(names) > 1 else " ")
        point = tuple(found[name] for name in names)
        place = self._claim.index(point)
        shown = ", ".join([f"{name}={value}" for name, value in zip(names, point, strict=True)])
        if place is not None and not self._holds[place]:
            self._record.append(f"{shown}: {self._point_text(point, place)}")
            self._checker_wins(f"The {self.claim_word} fails there: the {{checker}} wins.")
            return
        if place is None:
            reply = "out of range"
        elif point in self._tried:
            reply = "tried before"
        else:
            reply = self._point_text(point, place)
        self._tried.append(point)
        self._record.append(f"{shown}: {reply}")
        self._signals["misses"] += 1.0
        if len(self._tried) == MAX_COUNTERS:
            self._end(self._stake, self._told("No try is left: the {poser} wins."))

    def _point_text(self, point: tuple[int, ...], place: int) -> str:
        """Return what is shown about a point of the grid."""
        raise NotImplementedError

    def _checker_wins(self, outcome: str) -> None:
        self._signals["solved"] = 1.0
        self._end(MISS_COST * int(self._signals["misses"]) - self._stake, self._told(outcome))

    def _told(self, outcome: str) -> str:
        poser, checker = self.spec.roles
        return outcome.format(poser=poser, checker=checker)

    def _check_lines(self, player: int, ask: str) -> list[str]:
        """Return the lines that end an observation: record, stake, and whose move it is or how it ended."""
        lines = list(self._record)
        if self._claim is not None:
            lines.append(f"At stake: {self._stake / 10} points. Misses: {len(self._tried)} of {MAX_COUNTERS}.")
        if self._to_move is None:
            return [*lines, self._outcome]
        return [*lines, f"Your move now: {ask}" if player == self._to_move else "The other player is to move."]

    def _sample_checks(self, claim: Expression) -> Callable[[], tuple[str, ...]]:
        words = (self.accept_word.capitalize(), self.counter_word.capitalize())
        return partial(_checks, self._samples_rng(), claim, self._holds, *words)


def failing_share(holds: Array) -> float:
    """Return the share of points at which a claim fails."""
    return 1.0 - float(np.count_nonzero(holds) / holds.size)


def _checks(
    make_rng: Callable[[], random.Random], claim: Expression, holds: Array, accept: str, counter: str
) -> tuple[str, ...]:
    """Return the acceptance, a point where the claim fails (if any), one where it holds, and one out of range."""
    rng = make_rng()
    counters = _counters(claim.variables, counter)
    groups = ((~holds).nonzero()[0], holds.nonzero()[0])
    chosen = [counters[places[rng.randrange(len(places))]] for places in groups if len(places)]
    return (f"[{accept}]", *chosen, counters[-1])


@lru_cache(maxsize=4)
def _counters(variables: Universe, counter: str) -> tuple[str, ...]:
    """Return the counter at every point of the grid, and a last one out of range."""
    points = itertools.product(*(range(low, high + 1) for _, low, high in variables))
    beyond = tuple(high + 1 for _, _, high in variables)
    return tuple(
        f"[{counter}: {', '.join(f'{name}={value}' for (name, _, _), value in zip(variables, point, strict=True))}]"
        for point in (*points, beyond)
    )
