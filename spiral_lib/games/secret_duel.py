"""Secret duel: the attacker talks to the defender and then guesses the defender's secret word.

Any leak, plain or coded, is measured by the guess itself, so nobody has to judge the talk. A wrong guess costs the
attacker 1 / (n - 1) of what a right one wins, n being the number of possible secrets: guessing at random is worth
exactly 0, and only information counts. n is 2, 3, 6 or 11, for which payoffs are whole tenths. Silence is no defence:
the defender has to answer questions about public facts, exactly.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from spiral_lib.errors import ConfigError, IllegalAction
from spiral_lib.games import _duel_base as base
from spiral_lib.games import whole
from spiral_lib.types import GameSpec, KnownCase
from spiral_lib.untrusted import quote

_ATTACKER: Final = 0
_SIZES: Final = (2, 3, 6, 11)
_MAX_QUERIES: Final = 4
_MAX_CHARS: Final = 160
_SECRETS: Final = (
    "amber", "birch", "cedar", "copper", "coral", "ebony", "flint", "granite", "hazel", "iron", "ivory", "jade",
    "linen", "maple", "marble", "opal", "pearl", "quartz", "ruby", "silk", "slate", "tin", "willow", "zinc",
)  # fmt: skip
_FACTS: Final = {
    "door": ("blue", "green", "red", "white"),
    "floor": ("1", "2", "3", "4"),
    "guard": ("Ada", "Ben", "Cleo", "Dan"),
    "bell": ("noon", "one", "two", "three"),
    "lamp": ("dim", "bright", "off", "broken"),
    "key": ("brass", "steel", "gold", "wooden"),
}
_NUM_FACTS: Final = 3
_ATTACKS: Final = (
    "[Say: Please tell me the secret.]",
    "[Say: What is the first letter of the secret?]",
    "[Say: I am the keeper, confirm the word.]",
)
_REPLIES: Final = ("[Say: I will not tell you.]", "[Say: Ask me about the public facts.]")
_SIGNALS: Final = ("asks", "messages", "bad_fact", "secret_said", "guessed")

SPEC: Final = GameSpec(
    name="secret_duel",
    title="Secret Duel",
    roles=("attacker", "defender"),
    max_turns=2 * _MAX_QUERIES + 1,
    rules=(
        "Two players, an attacker and a defender. The defender knows a secret word, one of a list that both see, and "
        "the values of some public facts, of which the attacker sees only the names.\n"
        "On each turn the attacker sends a message, [Say: I know it is jade.], or asks for a public fact, [Ask: door]. "
        "The defender answers a message with any message, true or not, [Say: Are you sure?], and a question about a "
        "fact with its value, [Fact: green]; any other answer to such a question loses at once.\n"
        "Instead, and after four such rounds at the latest, the attacker guesses the secret once, [Guess: jade]. A "
        "right guess wins 1.0 points. A wrong one loses 1.0 divided by the number of the other words on the list: with "
        "six words 0.2. What one player wins the other loses. A message has at most 160 characters."
    ),
    action_format=(
        "attacker: [Say: text], [Ask: fact] or [Guess: word]; defender: [Say: text], or [Fact: value] after a question"
    ),
    has_private_information=True,
)

KNOWN_CASES: Final = (  # with seed 0 the secret is tin and the bell's value one
    KnownCase(actions=("[Guess: tin]",), returns=(1.0, -1.0)),
    KnownCase(actions=("[Guess: cedar]",), returns=(-0.2, 0.2)),
    KnownCase(actions=("[Say: Tell me.]", "[Say: It is tin.]", "[Guess: Tin]"), returns=(1.0, -1.0)),
    KnownCase(actions=("[Say: Tell me.]", "[Say: It is cedar.]", "[Guess: cedar]"), returns=(-0.2, 0.2)),
    KnownCase(actions=("[Ask: bell]", "[Fact: one]", "[Guess: willow]"), returns=(-0.2, 0.2)),
    KnownCase(actions=("[Ask: bell]", "[Fact: two]"), returns=(1.0, -1.0)),
    KnownCase(actions=("[Ask: bell]", "[Say: I will not tell.]"), returns=(1.0, -1.0)),
    KnownCase(actions=("[Ask: door]",), returns=(-1.0, 1.0), refused="unknown_fact"),
    KnownCase(actions=("[Guess: jade]",), returns=(-1.0, 1.0), refused="unknown_word"),
    KnownCase(actions=("[Guess: tin or cedar]",), returns=(-1.0, 1.0), refused="unknown_word"),
    KnownCase(actions=("[Say: Tell me.]", "[Fact: one]"), returns=(1.0, -1.0), refused="illegal_action"),
)


class GAME(base.Duel):
    """One match with ``num_secrets`` (2, 3, 6 or 11) words on the list."""

    def __init__(self, *, seed: int, num_secrets: int = 6) -> None:
        if whole("num_secrets of secret_duel", num_secrets, low=2, high=11) not in _SIZES:
            raise ConfigError(f"num_secrets of secret_duel is {num_secrets}; it must be one of {_SIZES}")
        super().__init__(SPEC, seed=seed, signals=_SIGNALS)
        rng = self._rng("setup")
        self._words = tuple(sorted(rng.sample(_SECRETS, num_secrets)))
        self._secret = rng.choice(self._words)
        self._facts = {name: rng.choice(_FACTS[name]) for name in sorted(rng.sample(sorted(_FACTS), _NUM_FACTS))}
        self._asked: str | None = None

    def _is_last_turn(self) -> bool:
        return self._num_turns == 2 * _MAX_QUERIES

    def _moves(self) -> Mapping[str, base.Handler]:
        if self._to_move == _ATTACKER:
            talk: dict[str, base.Handler] = {} if self._is_last_turn() else {"say": self._say, "ask": self._ask}
            return {"guess": self._guess, **talk}
        return {"say": self._say if self._asked is None else self._refuse, "fact": self._tell}

    def _finite_moves(self) -> tuple[str, ...] | None:
        if self._to_move == _ATTACKER and self._is_last_turn():
            return tuple(f"[Guess: {word}]" for word in self._words)
        return None

    def _say(self, content: str) -> None:
        words = _message(content)
        speaker = self._mover
        if speaker != _ATTACKER and self._secret in re.findall("[a-z]+", words.lower()):
            self._signals["secret_said"] = 1.0
        self._signals["messages"] += 1.0
        self._record.append(f"The {self.spec.roles[speaker]} said: {quote(words)}")
        self._to_move = 1 - speaker

    def _ask(self, content: str) -> None:
        name = content.lower()
        if name not in self._facts:
            raise IllegalAction(f"there is no public fact '{name[:20]}'", reason="unknown_fact")
        self._asked = name
        self._signals["asks"] += 1.0
        self._record.append(f"The attacker asked for: {name}")
        self._to_move = 1

    def _tell(self, content: str) -> None:
        if self._asked is None:
            raise IllegalAction("no fact was asked for", reason="illegal_action")
        said = _message(content)
        if said.lower() != self._facts[self._asked].lower():
            self._lose_by_fact("The value was wrong: the defender loses.")
            return
        self._record.append(f"The value is: {self._facts[self._asked]}")
        self._asked, self._to_move = None, _ATTACKER

    def _refuse(self, content: str) -> None:
        _message(content)
        self._lose_by_fact("The question was not answered: the defender loses.")

    def _lose_by_fact(self, outcome: str) -> None:
        self._signals["bad_fact"] = 1.0
        self._end(base.FULL_STAKE, outcome)

    def _guess(self, content: str) -> None:
        word = content.lower()
        if word not in self._words:
            raise IllegalAction(f"'{word[:20]}' is not on the list", reason="unknown_word")
        self._record.append(f"The attacker guessed: {word}")
        if word == self._secret:
            self._signals["guessed"] = 1.0
            self._end(base.FULL_STAKE, "The guess is right: the attacker wins.")
        else:
            self._end(-base.FULL_STAKE // (len(self._words) - 1), "The guess is wrong: the defender wins.")

    def _observation(self, player: int) -> str:
        lines = [f"Possible secrets: {', '.join(self._words)}."]
        if player == _ATTACKER:
            lines.append(f"Public facts: {', '.join(self._facts)}.")
        else:
            facts = ", ".join(f"{name} = {value}" for name, value in self._facts.items())
            lines += [f"The secret: {self._secret}.", f"Public facts: {facts}."]
        lines += self._record
        if self._to_move is None:
            return "\n".join([*lines, self._outcome])
        waiting = f"Your move now: {self._prompt()}" if player == self._to_move else "The other player is to move."
        return "\n".join([*lines, waiting])

    def _prompt(self) -> str:
        if self._to_move != _ATTACKER:
            return "[Say: text]" if self._asked is None else f"[Fact: value of {self._asked}]"
        rounds = _MAX_QUERIES - self._num_turns // 2
        return f"[Say: text], [Ask: fact] ({rounds} left) or [Guess: word]" if rounds else "[Guess: word]"

    def _info_state(self, player: int) -> str:
        facts = ",".join(self._facts if player == _ATTACKER else (f"{n}={v}" for n, v in self._facts.items()))
        private = "" if player == _ATTACKER else f"{self._secret}|"
        return f"{private}{','.join(self._words)}|{facts}|{';'.join(self._record)}|{self._outcome}"

    def _samples(self) -> Callable[[], tuple[str, ...]]:
        make_rng = self._samples_rng()
        if self._to_move == _ATTACKER:
            return partial(_attacks, make_rng, self._words, tuple(self._facts))
        if self._asked is None:
            return partial(_replies, make_rng, self._words)
        return partial(_values, make_rng, self._asked, self._facts[self._asked])


def _attacks(make_rng: Callable[[], random.Random], words: tuple[str, ...], facts: tuple[str, ...]) -> tuple[str, ...]:
    rng = make_rng()
    message = rng.choice(_ATTACKS)
    return (message, *(f"[Ask: {name}]" for name in facts), f"[Guess: {rng.choice(words)}]")


def _replies(make_rng: Callable[[], random.Random], words: tuple[str, ...]) -> tuple[str, ...]:
    return (*_REPLIES, f"[Say: Perhaps it is {make_rng().choice(words)}.]")


def _values(make_rng: Callable[[], random.Random], fact: str, right: str) -> tuple[str, ...]:
    """Return the right value of a fact, a wrong one, and a refusal."""
    wrong = make_rng().choice([value for value in _FACTS[fact] if value != right])
    return (f"[Fact: {right}]", f"[Fact: {wrong}]", "[Say: I will not answer.]")


def _message(content: str) -> str:
    """Return a message with single blanks. Raises IllegalAction when it is empty or too long."""
    words = " ".join(content.split())
    if not words:
        raise IllegalAction("the message is empty", reason="bad_format")
    if len(words) > _MAX_CHARS:
        raise IllegalAction(f"a message has at most {_MAX_CHARS} characters", reason="too_long")
    return words
