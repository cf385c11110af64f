"""Truth and Deception: one player knows which of two facts is true and misleads the other, who must guess it.

Each pair is a true statement and a false one about the same thing. What is said is shown quoted, never as game text.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Final

from spiral_lib import seeds
from spiral_lib.errors import ConfigError, IllegalAction
from spiral_lib.games import make_view, no_seat, whole
from spiral_lib.games._facts import FACTS
from spiral_lib.types import GameSpec, KnownCase, Returns, View, zero_sum
from spiral_lib.untrusted import quote

_DECEIVER: Final = 0
_GUESSER: Final = 1
_GUESSES: Final = ("[Guess: 1]", "[Guess: 2]")
_MAX_SAID: Final = 300
_MAX_ACTION: Final = _MAX_SAID + 40  # checked before the patterns, which may then be careless about blanks
_SAY: Final = re.compile(r"\[ *say *:([^\[\]]+)\]", re.IGNORECASE)
_GUESS: Final = re.compile(r"\[ *guess *: *([12]) *\]", re.IGNORECASE)
_DECEIVER_LINES: Final = (
    "[Say: I am sure that fact 1 is the true one.]",
    "[Say: I am sure that fact 2 is the true one.]",
    "[Say: I read about this: fact 1 is false.]",
    "[Say: I read about this: fact 2 is false.]",
)
_GUESSER_LINES: Final = ("[Say: Why do you think so?]", "[Say: Which fact would you choose?]")

SPEC: Final = GameSpec(
    name="truth_and_deception",
    title="Truth and Deception",
    roles=("deceiver", "guesser"),
    max_turns=6,
    rules=(
        "Two facts are shown to both players; one is true, the other is false. The deceiver (player 0) knows which one "
        "is true, the guesser (player 1) does not. They talk in turn, the deceiver first. The guesser may guess "
        "instead of talking, which ends the match, and must guess in the last turn. The guesser wins by naming the "
        "true fact; otherwise the deceiver wins. Nothing that is said has to be true."
    ),
    action_format=(
        f"[Say: your words] with at most {_MAX_SAID} characters and no square brackets; "
        "the guesser may also answer [Guess: 1] or [Guess: 2]"
    ),
    has_private_information=True,
)

_TALK: Final = "[Say: Fact 1 is the true one.]"
KNOWN_CASES: Final = (  # with seed 0 fact 2 is true, with seed 1 fact 1
    KnownCase(actions=(_TALK, "[Guess: 2]"), returns=(-1.0, 1.0)),
    KnownCase(actions=(_TALK, "[Guess: 1]"), returns=(1.0, -1.0)),
    KnownCase(seed=1, actions=(_TALK, "[ guess : 1 ]"), returns=(-1.0, 1.0)),
    KnownCase(actions=(_TALK, "[Say: Really?]", _TALK, "[Say: Hm.]", _TALK, "[Guess: 2]"), returns=(-1.0, 1.0)),
    KnownCase(actions=(_TALK, "[Guess: 1] [Guess: 2]"), returns=(1.0, -1.0), refused="several_actions"),
    KnownCase(actions=(_TALK, "[Guess: 1, 2]"), returns=(1.0, -1.0), refused="bad_format"),
    KnownCase(actions=(_TALK, "[Guess: 3]"), returns=(1.0, -1.0), refused="bad_format"),
    KnownCase(actions=(_TALK, "[Guess: two]"), returns=(1.0, -1.0), refused="bad_format"),
    KnownCase(actions=("[Guess: 2]",), returns=(-1.0, 1.0), refused="illegal_action"),
    KnownCase(params=(("turns", 2),), actions=(_TALK, "[Say: Hm.]"), returns=(1.0, -1.0), refused="illegal_action"),
)


class GAME:
    """One match over ``turns`` turns of both players together; the last one is the guesser's."""

    def __init__(self, *, seed: int, turns: int = SPEC.max_turns) -> None:
        turns = whole("turns of truth_and_deception", turns, low=2, high=20)
        if turns % 2:
            raise ConfigError(f"turns of truth_and_deception is {turns}; it must be even: the last turn is a guess")
        self.spec = SPEC if turns == SPEC.max_turns else dataclasses.replace(SPEC, max_turns=turns)
        pair = FACTS[int(seeds.uniform(seed, SPEC.name, 0) * len(FACTS))]
        self._true = 1 + int(seeds.uniform(seed, SPEC.name, 1) * 2)
        self._facts = pair if self._true == 1 else (pair[1], pair[0])
        self._said: list[str] = []  # quoted
        self._guess: int | None = None

    @property
    def current_player(self) -> int | None:
        """Seat to move, or None when the match is over."""
        return None if self._guess is not None else len(self._said) % 2

    def view(self, player: int) -> View:
        """Return both facts and what was said; only the deceiver, or both after the guess, see which is true."""
        if player not in (0, 1):
            raise no_seat(SPEC, player)
        legal, samples = self._choices(player)
        return make_view(
            SPEC,
            player,
            observation=self._observation(player),
            legal_actions=legal,
            info_state=self._key(player),
            sample_actions=samples,
        )

    def apply(self, action: str) -> None:
        """Say something or guess. Raises IllegalAction where the text is not exactly one allowed action."""
        player = self.current_player
        if player is None:
            raise IllegalAction("the match is over")
        if len(action) > _MAX_ACTION:
            raise IllegalAction(f"the action has {len(action)} characters", reason="too_long")
        if not (action.isascii() and action.isprintable()):
            raise IllegalAction("only printable ASCII characters are allowed", reason="non_ascii")
        if guess := _GUESS.fullmatch(action):
            if player != _GUESSER:
                raise IllegalAction("only the guesser may guess")
            self._guess = int(guess[1])
            return
        self._said.append(quote(self._words(action)))

    def returns(self) -> Returns:
        """Return +1 for the guesser and -1 for the deceiver if the guess is right, else the reverse."""
        if self._guess is None:
            raise ValueError("the match is not over")
        return zero_sum(-1.0 if self._guess == self._true else 1.0)

    def _words(self, action: str) -> str:
        """Return what the action says. Raises IllegalAction for several actions, other forms or the last turn."""
        if action.count("[") > 1 or action.count("]") > 1:
            raise IllegalAction("one action a turn, without further brackets", reason="several_actions")
        said = _SAY.fullmatch(action)
        words = " ".join(said[1].split()) if said else ""
        if not words:
            raise IllegalAction(f"{action[:20]!r} is neither [Say: words] nor a guess of 1 or 2", reason="bad_format")
        if len(words) > _MAX_SAID:
            raise IllegalAction(f"{len(words)} characters were said", reason="too_long")
        if self._is_last_turn():
            raise IllegalAction("the last turn must be a guess")
        return words

    def _is_last_turn(self) -> bool:
        return len(self._said) == self.spec.max_turns - 1

    def _choices(self, player: int) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
        """Return the legal actions (None: free words) and, for free words, some legal ones."""
        if player != self.current_player:
            return (), ()
        if self._is_last_turn():
            return _GUESSES, ()
        return None, _DECEIVER_LINES if player == _DECEIVER else (*_GUESSER_LINES, *_GUESSES)

    def _observation(self, player: int) -> str:
        lines = [f"Fact {number}: {fact}" for number, fact in enumerate(self._facts, 1)]
        if player == _DECEIVER or self._guess is not None:
            lines.append(f"Fact {self._true} is the true one.")
        lines.append(f"Turns over: {len(self._said)} of {self.spec.max_turns}.")
        for turn, words in enumerate(self._said):
            who = "You" if turn % 2 == player else f"The {SPEC.roles[turn % 2]}"
            lines.append(f"{who} said: {words}")
        if self._guess is not None:
            lines.append(f"The match is over. The guess was fact {self._guess}.")
        return "\n".join(lines)

    def _key(self, player: int) -> str:
        known = str(self._true) if player == _DECEIVER or self._guess is not None else "?"
        guess = "" if self._guess is None else f" guess={self._guess}"
        said = "".join([f" {words}" for words in self._said])
        return f"{self._facts[0]} / {self._facts[1]} / true={known} turns={self.spec.max_turns}{said}{guess}"
