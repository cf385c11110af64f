"""Pig: roll to collect points, hold to keep them, a 1 loses those of the turn; a race to the target score.

Differs from OpenSpiel's ``pig`` in three declared points: one must roll before holding (else two players who hold
could stall for ever), reaching the target wins at once, and at the limit of actions the score decides.
"""

from __future__ import annotations

import dataclasses
from typing import Final

from spiral_lib import seeds
from spiral_lib.errors import IllegalAction
from spiral_lib.games import make_view, no_seat, whole
from spiral_lib.types import GameSpec, KnownCase, Returns, View, zero_sum

_SIDES: Final = 6
_ROLL: Final = "[roll]"
_HOLD: Final = "[hold]"

SPEC: Final = GameSpec(
    name="pig_dice",
    title="Pig",
    roles=("player 0", "player 1"),
    max_turns=100,
    rules=(
        "The players race to a target score with one six-sided die; player 0 begins. "
        "[roll] throws the die: 2 to 6 adds that number to the points at risk, and you go on; "
        "1 loses all points at risk, and the turn passes to the opponent. "
        "[hold] adds the points at risk to your score and passes the turn; you must have points at risk to hold. "
        "You win as soon as your score plus your points at risk reaches the target. "
        "The number of actions is limited: after the last one, points at risk are added to the score of the player who "
        "has them, the higher score wins, and equal scores are a draw."
    ),
    action_format="[roll] or [hold]",
    has_private_information=False,
)
KNOWN_CASES: Final = (  # with seed 0 the first rolls are 3, 5 and 5
    KnownCase(actions=("[roll]",) * 3, returns=(1.0, -1.0), params=(("target", 10),)),
    KnownCase(actions=("[roll]", "[hold]"), returns=(1.0, -1.0), params=(("max_turns", 2),)),
    KnownCase(actions=("[roll]", "[hold]", "[roll]"), returns=(-1.0, 1.0), params=(("max_turns", 3),)),
    KnownCase(actions=("[hold]",), returns=(-1.0, 1.0), refused="illegal_action"),
)


class GAME:
    """One match to ``target`` points, at most ``max_turns`` actions of both players together."""

    def __init__(self, *, seed: int, target: int = 50, max_turns: int = SPEC.max_turns) -> None:
        self._seed = seed
        self._target = whole("target of pig_dice", target, low=10, high=100)
        max_turns = whole("max_turns of pig_dice", max_turns, low=2, high=400)
        self.spec = SPEC if max_turns == SPEC.max_turns else dataclasses.replace(SPEC, max_turns=max_turns)
        self._scores = [0, 0]
        self._at_risk = 0
        self._to_move = 0
        self._turns = 0
        self._num_rolls = 0

    @property
    def current_player(self) -> int | None:
        """Seat to move, or None when the match is over."""
        reached = self._scores[self._to_move] + self._at_risk >= self._target
        return None if reached or self._turns == self.spec.max_turns else self._to_move

    def view(self, player: int) -> View:
        """Return what a player sees: everything but the dice to come."""
        if player not in (0, 1):
            raise no_seat(SPEC, player)
        mine, theirs = self._scores[player], self._scores[1 - player]
        whose = "Your" if player == self._to_move else "The opponent's"
        left = self.spec.max_turns - self._turns
        over = "The match is over. " if self.current_player is None else ""
        legal: tuple[str, ...] = ()
        if player == self.current_player:
            legal = (_ROLL, _HOLD) if self._at_risk else (_ROLL,)
        return make_view(
            SPEC,
            player,
            observation=(
                f"{over}Target: {self._target}. Your score: {mine}. The opponent's score: {theirs}.\n"
                f"{whose} points at risk in this turn: {self._at_risk}. Actions left in the match: {left}."
            ),
            legal_actions=legal,
            info_state=(
                f"target={self._target} scores={self._scores[0]},{self._scores[1]} "
                f"mover={self._to_move} risk={self._at_risk} left={left}"
            ),
        )

    def apply(self, action: str) -> None:
        """Roll or hold for the player to move. Raises IllegalAction for anything else."""
        if self.current_player is None:
            raise IllegalAction("the match is over")
        if action != _ROLL and not (action == _HOLD and self._at_risk):
            raise IllegalAction(f"{action[:20]!r} is not legal now; [hold] needs points at risk")
        self._turns += 1
        if action == _HOLD:
            self._pass_turn(self._at_risk)
            return
        # The n-th roll of a match depends on the seed and n alone, whoever rolls.
        face = 1 + int(seeds.uniform(self._seed, SPEC.name, self._num_rolls) * _SIDES)
        self._num_rolls += 1
        if face == 1:
            self._pass_turn(0)
        else:
            self._at_risk += face

    def returns(self) -> Returns:
        """Return +1/-1 by the score with the points at risk; equal scores give zeros."""
        if self.current_player is not None:
            raise ValueError("the match is not over")
        totals = list(self._scores)
        totals[self._to_move] += self._at_risk
        return zero_sum(float((totals[0] > totals[1]) - (totals[0] < totals[1])))

    def _pass_turn(self, gain: int) -> None:
        self._scores[self._to_move] += gain
        self._at_risk = 0
        self._to_move = 1 - self._to_move
