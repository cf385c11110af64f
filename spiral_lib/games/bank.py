"""Bank questions as a game with one decision: training on a verifier's verdict, without an opponent (route rlvr).

The seed draws a question of the bank's training side and the seat that answers it; the other seat only keeps the match
zero-sum and never moves. The prompt is word for word that of the evaluated bank, and the verdict its verifier's. It is
no game to choose between two players, so ``games.names()`` leaves it out.
"""

from __future__ import annotations

from typing import Final

from spiral_lib import bank_items
from spiral_lib.errors import IllegalAction
from spiral_lib.seeds import seed_for
from spiral_lib.types import GameSpec, Returns, View, zero_sum

SPEC: Final = GameSpec(
    name="bank",
    title="Bank question",
    roles=("answerer", "bystander"),
    max_turns=1,
    rules="One player answers a short question. The exact answer wins, any other loses.",
    action_format="the answer, an integer or one word, for example [42]",
    has_private_information=False,
)
_SAMPLES: Final = ("[0]", "[1]", "[yes]", "[no]")


class GAME:
    """One question. The answerer's role is the question's kind, so that every kind has a baseline of its own."""

    def __init__(self, *, seed: int) -> None:
        self.spec = SPEC
        self._item = bank_items.training_item(seed)
        self._answerer = seed_for(seed, "answerer") % 2
        self._is_correct: bool | None = None

    @property
    def current_player(self) -> int | None:
        """Seat to answer, or None when the match is over."""
        return self._answerer if self._is_correct is None else None

    def view(self, player: int) -> View:
        """Return what a player sees: the question, worded as in the evaluation."""
        is_answering = player == self.current_player
        kind = f"{self._item.family} {self._item.level}"
        return View(
            game=SPEC.name,
            role=kind if player == self._answerer else SPEC.roles[1],
            player=player,
            rules=SPEC.rules,
            action_format=SPEC.action_format,
            observation=bank_items.user_text(self._item),
            legal_actions=None if is_answering else (),
            info_state=self._item.question,
            sample_actions=_SAMPLES if is_answering else (),
            is_whole_prompt=True,
        )

    def apply(self, action: str) -> None:
        """Take the answer, right or wrong. Raises IllegalAction for what is no ``[answer]``."""
        if self._is_correct is not None:
            raise IllegalAction("the match is over")
        if not (action.startswith("[") and action.endswith("]")):
            raise IllegalAction(f"{action[:20]!r} is no answer in brackets")
        self._is_correct = bank_items.is_answer(self._item, action[1:-1])

    def returns(self) -> Returns:
        """Return +1 for the answerer where the answer is exact, else -1."""
        if self._is_correct is None:
            raise ValueError("the match is not over")
        return zero_sum(1.0 if self._is_correct == (self._answerer == 0) else -1.0)
