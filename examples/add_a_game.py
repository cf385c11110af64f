"""A whole game in one file: take one, two or three from a pile; whoever takes the last one loses.

It needs no registration. Its name is its dotted path, wherever a game's name is asked for:

    spiral games check examples.add_a_game:GAME
    spiral play examples.add_a_game:GAME --vs random
    spiral train --preset smoke --set "games=[{name: examples.add_a_game:GAME}]"

A game inside the package (``spiral_lib/games/my_game.py``) is found by its module's name and tested by being there.
"""

from __future__ import annotations

import dataclasses

from spiral_lib.errors import ConfigError, IllegalAction
from spiral_lib.games import no_seat
from spiral_lib.seeds import generator
from spiral_lib.types import GameSpec, KnownCase, Returns, View, zero_sum

SPEC = GameSpec(
    name="last_loses",
    title="Last one loses",
    roles=("first", "second"),
    max_turns=21,
    rules=(
        "A pile of stones lies on the table. In turn, each player takes one, two or three stones; first moves first. "
        "Whoever takes the last stone loses."
    ),
    action_format="[n], the number of stones to take, for example [2]",
    has_private_information=False,
)

KNOWN_CASES = (
    KnownCase(actions=("[1]", "[1]", "[1]"), returns=(-1.0, 1.0), params=(("stones", 3),)),
    KnownCase(actions=("[2]", "[1]"), returns=(1.0, -1.0), params=(("stones", 3),)),
)


class GAME:
    """One match. ``stones`` is the size of the pile; 0 draws it from 5 to 21 with the match's seed."""

    def __init__(self, *, seed: int, stones: int = 0) -> None:
        if not isinstance(stones, int) or isinstance(stones, bool) or not 0 <= stones <= 21:
            raise ConfigError(f"stones of {SPEC.name} is {stones!r}; it must be an integer from 0 to 21")
        # All chance comes from the seed, never from the process-wide generator: equal seeds give equal matches.
        self._left = stones or generator(seed, SPEC.name).randint(5, 21)
        self._player = 0
        self.spec = dataclasses.replace(SPEC, max_turns=self._left)

    @property
    def current_player(self) -> int | None:
        """Seat to move, or None when the match is over."""
        return self._player if self._left else None

    def view(self, player: int) -> View:
        """Return what a player sees; a policy gets nothing else."""
        if player not in (0, 1):
            raise no_seat(SPEC, player)
        return View(
            game=SPEC.name,
            role=SPEC.roles[player],
            player=player,
            rules=SPEC.rules,
            action_format=SPEC.action_format,
            observation=f"Stones left: {self._left}.",
            legal_actions=self._legal_actions() if player == self.current_player else (),
            # Exactly what this player knows: equal keys must mean equal choices.
            info_state=f"{self._left} mover={self.current_player}",
        )

    def apply(self, action: str) -> None:
        """Take stones. Raises IllegalAction, with the match unchanged, for anything but an offered action."""
        if action not in self._legal_actions():
            raise IllegalAction(f"{action[:20]!r} does not take one, two or three of the {self._left} stones left")
        self._left -= int(action[1:-1])
        self._player = 1 - self._player

    def returns(self) -> Returns:
        """Return -1 for the player who took the last stone."""
        if self._left:
            raise ValueError("the match is not over")
        return zero_sum(1.0 if self._player == 0 else -1.0)

    def _legal_actions(self) -> tuple[str, ...]:
        return tuple(f"[{n}]" for n in (1, 2, 3) if n <= self._left)
