"""Nim with OpenSpiel's rules and action order; taking the last object wins unless ``misere`` is set.

``info_state`` is the piles, the player to move and what the last object does: ``piles=3,4,5 mover=0 last=wins``.
"""

from __future__ import annotations

import dataclasses
from typing import Final

from spiral_lib.errors import ConfigError, IllegalAction
from spiral_lib.types import GameSpec, Returns, View, zero_sum

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


class GAME:
    """One match. ``piles`` are sizes such as "3 4 5"; with ``misere`` taking the last object loses."""

    def __init__(self, *, seed: int, piles: str = "3 4 5", misere: bool = False) -> None:
        del seed  # no chance in this game
        self._piles = _sizes(piles)
        if not isinstance(misere, bool):
            raise ConfigError(f"misere of nim is {misere!r}; it must be true or false")
        self._misere = misere
        self._num_moves = 0
        openspiel = f"nim(pile_sizes={';'.join(map(str, self._piles))},is_misere={misere})"
        self.spec = dataclasses.replace(SPEC, max_turns=sum(self._piles), openspiel=openspiel)

    @property
    def current_player(self) -> int | None:
        """Seat to move, or None when the match is over."""
        return self._num_moves % 2 if any(self._piles) else None

    def view(self, player: int) -> View:
        """Return what a player sees: all piles."""
        piles = ", ".join(f"pile {number} has {size}" for number, size in enumerate(self._piles, 1))
        to_move = self.current_player
        over = "The match is over. " if to_move is None else ""
        mover = "-" if to_move is None else to_move
        end = "loses" if self._misere else "wins"
        return View(
            game=SPEC.name,
            role=SPEC.roles[player],
            player=player,
            rules=SPEC.rules,
            action_format=SPEC.action_format,
            observation=f"{over}Objects: {piles}. Whoever takes the last object {end}.",
            legal_actions=self._legal_actions() if player == to_move else (),
            info_state=f"piles={','.join(map(str, self._piles))} mover={mover} last={end}",
        )

    def apply(self, action: str) -> None:
        """Take objects for the player to move. Raises IllegalAction for anything but a canonical legal action."""
        if self.current_player is None:
            raise IllegalAction("the match is over")
        if action not in self._legal_actions():
            raise IllegalAction(f"{action[:20]!r} does not take one or more objects of one pile")
        pile, take = map(int, action[1:-1].split())
        self._piles[pile - 1] -= take
        self._num_moves += 1

    def returns(self) -> Returns:
        """Return +1 for the player who took the last object (-1 in misere play)."""
        if self.current_player is not None:
            raise ValueError("the match is not over")
        last = (self._num_moves - 1) % 2
        return zero_sum(1.0 if (last == 0) != self._misere else -1.0)

    def _legal_actions(self) -> tuple[str, ...]:
        takes = range(1, max(self._piles) + 1)
        return tuple(f"[{p} {take}]" for take in takes for p, size in enumerate(self._piles, 1) if size >= take)


def _sizes(text: str) -> list[int]:
    words = text.split() if isinstance(text, str) else []
    sizes = [int(word) for word in words if word.isascii() and word.isdigit() and len(word) <= 2]
    if len(sizes) != len(words) or not 2 <= len(sizes) <= _MAX_PILES or not all(1 <= s <= _MAX_OBJECTS for s in sizes):
        form = f"write 2 to {_MAX_PILES} sizes from 1 to {_MAX_OBJECTS}, such as '3 4 5'"
        raise ConfigError(f"piles of nim is {text!r}; {form}")
    return sizes
