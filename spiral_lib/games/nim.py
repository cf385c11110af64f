"""Nim with OpenSpiel's rules and action order; taking the last object wins unless ``misere`` is set.

``info_state`` is the piles, the player to move and what the last object does: ``piles=3,4,5 mover=0 last=wins``.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Final

from spiral_lib.errors import ConfigError, IllegalAction
from spiral_lib.games import make_view, no_seat
from spiral_lib.types import GameSpec, KnownCase, Returns, View, zero_sum

_MAX_PILES: Final = 6
_MAX_OBJECTS: Final = 20

SPEC: Final = GameSpec(
    name="nim",
    title="Nim",
    roles=("player 0", "player 1"),
    max_turns=12,
    rules=(
        "Some piles of objects lie on the table. In turn, each player takes one or more objects from one pile; "
        "player 0 moves first. The match ends when no object is left. "
        "Whether taking the last object wins or loses is stated with the piles."
    ),
    action_format="[pile number], pile and number of objects to take, for example [2 1]",
    has_private_information=False,
    openspiel="nim(pile_sizes=3;4;5,is_misere=False)",
)
KNOWN_CASES: Final = (
    KnownCase(actions=("[1 3]", "[2 4]", "[3 5]"), returns=(1.0, -1.0)),
    KnownCase(actions=("[1 3]", "[2 4]", "[3 5]"), returns=(-1.0, 1.0), params=(("misere", True),)),
    KnownCase(actions=("[1 2]", "[1 1]", "[2 4]", "[3 5]"), returns=(-1.0, 1.0)),
    KnownCase(actions=("[1 4]",), returns=(-1.0, 1.0), refused="illegal_action"),
    KnownCase(actions=("[1 3]", "[1 1]"), returns=(1.0, -1.0), refused="illegal_action"),
)


class GAME:
    """One match. ``piles`` are sizes such as "3 4 5"; with ``misere`` taking the last object loses."""

    def __init__(self, *, seed: int, piles: str = "3 4 5", misere: bool = False) -> None:
        del seed  # no chance in this game
        self._piles = _sizes(piles)
        if not isinstance(misere, bool):
            raise ConfigError(f"misere of nim is {misere!r}; it must be true or false")
        self._misere = misere
        self._num_moves = 0
        self.spec = _spec(self._piles, misere)

    @property
    def current_player(self) -> int | None:
        """Seat to move, or None when the match is over."""
        return self._num_moves % 2 if any(self._piles) else None

    def view(self, player: int) -> View:
        """Return what a player sees: all piles."""
        if player not in (0, 1):
            raise no_seat(SPEC, player)
        table, key = _texts(self._piles)
        to_move = self.current_player
        over = "The match is over. " if to_move is None else ""
        mover = "-" if to_move is None else to_move
        end = "loses" if self._misere else "wins"
        return make_view(
            SPEC,
            player,
            observation=f"{over}Objects: {table}. Whoever takes the last object {end}.",
            legal_actions=_legal_actions(self._piles) if player == to_move else (),
            info_state=f"piles={key} mover={mover} last={end}",
        )

    def apply(self, action: str) -> None:
        """Take objects for the player to move. Raises IllegalAction for anything but a canonical legal action."""
        if self.current_player is None:
            raise IllegalAction("the match is over")
        if action not in _legal_actions(self._piles):
            raise IllegalAction(f"{action[:20]!r} does not take one or more objects of one pile")
        pile, take = map(int, action[1:-1].split())
        self._piles = (*self._piles[: pile - 1], self._piles[pile - 1] - take, *self._piles[pile:])
        self._num_moves += 1

    def returns(self) -> Returns:
        """Return +1 for the player who took the last object (-1 in misere play)."""
        if self.current_player is not None:
            raise ValueError("the match is not over")
        last = (self._num_moves - 1) % 2
        return zero_sum(1.0 if (last == 0) != self._misere else -1.0)


@functools.lru_cache(maxsize=4096)
def _legal_actions(piles: tuple[int, ...]) -> tuple[str, ...]:
    takes = range(1, max(piles) + 1)
    return tuple(f"[{p} {take}]" for take in takes for p, size in enumerate(piles, 1) if size >= take)


@functools.lru_cache(maxsize=4096)
def _texts(piles: tuple[int, ...]) -> tuple[str, str]:
    """Return the piles as players see them, and as keys name them."""
    return ", ".join(f"pile {p} has {size}" for p, size in enumerate(piles, 1)), ",".join(map(str, piles))


@functools.lru_cache(maxsize=64)
def _spec(piles: tuple[int, ...], misere: bool) -> GameSpec:
    openspiel = f"nim(pile_sizes={';'.join(map(str, piles))},is_misere={misere})"
    return dataclasses.replace(SPEC, max_turns=sum(piles), openspiel=openspiel)


def _sizes(text: str) -> tuple[int, ...]:
    sizes = _read(text) if isinstance(text, str) else ()
    if not sizes:
        form = f"write 2 to {_MAX_PILES} sizes from 1 to {_MAX_OBJECTS}, such as '3 4 5'"
        raise ConfigError(f"piles of nim is {text!r}; {form}")
    return sizes


@functools.lru_cache(maxsize=64)
def _read(text: str) -> tuple[int, ...]:
    """Return the sizes, or () where the text is not of their form."""
    words = text.split()
    sizes = tuple(int(word) for word in words if word.isascii() and word.isdigit() and len(word) <= 2)
    fine = len(sizes) == len(words) and 2 <= len(sizes) <= _MAX_PILES and all(1 <= s <= _MAX_OBJECTS for s in sizes)
    return sizes if fine else ()
