"""What all duel games share: bracketed actions, payoffs in tenths, the bank of known problems, signals."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Final

from spiral_lib import seeds
from spiral_lib.errors import ConfigError, IllegalAction
from spiral_lib.games import make_view, no_seat
from spiral_lib.types import GameSpec, Returns, View, zero_sum

FULL_STAKE: Final = 10
"""Tenths won and lost in a match."""
KNOWN_STAKE: Final = 5
"""Tenths at stake when the problem is in the bank of known ones."""
LEVELS: Final = ("template", "free")
NUM_SAMPLE_SETS: Final = 64
"""Different sets of sample problems for scripted play on each topic card."""

_MAX_ACTION_CHARS: Final = 300
_MAX_SLOT: Final = 999
_CARRIED: Final = "carried"
_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]{0,8}")
_DIGEST: Final = re.compile(r"[0-9a-f]{16}")

Handler = Callable[[str], None]


class Duel:
    """A match whose moves have the form ``[Keyword: content]``; subclasses say which and what they do.

    Player 0 moves first. A handler checks everything before it changes anything, so a refused action leaves no trace.
    """

    def __init__(self, spec: GameSpec, *, seed: int, signals: tuple[str, ...]) -> None:
        self.spec = spec
        self._seed = seed
        self._to_move: int | None = 0
        self._tenths = 0  # player 0's result
        self._num_turns = 0
        self._outcome = ""
        self._record: list[str] = []  # public lines
        self._signals = dict.fromkeys(signals, 0.0)

    @property
    def current_player(self) -> int | None:
        """Seat to move, or None when the match is over."""
        return self._to_move

    def apply(self, action: str) -> None:
        """Play one action such as ``[Answer: 4]``; the keyword's letter case does not matter.

        Raises IllegalAction and changes nothing when the form or the content is not allowed.
        """
        if self._to_move is None:
            raise IllegalAction("the match is over", reason="match_over")
        keyword, content = read_action(action)
        handlers = self._moves()
        if keyword not in handlers:
            allowed = ", ".join(sorted(handlers))
            raise IllegalAction(f"'{keyword[:20]}' is not possible now, only {allowed}", reason="illegal_action")
        handlers[keyword](content)
        self._num_turns += 1

    def returns(self) -> Returns:
        """Return both results, whole tenths that sum to exactly 0. Raises ValueError while the match is on."""
        if self._to_move is not None:
            raise ValueError("the match is not over")
        return zero_sum(self._tenths / 10)

    def signals(self) -> dict[str, float]:
        """Return counts and 0/1 marks of what happened, the same names in every match of a game."""
        return dict(self._signals)

    def view(self, player: int) -> View:
        """Return what a player sees; only the player to move has actions."""
        if player not in (0, 1):
            raise no_seat(self.spec, player)
        moving = player == self._to_move
        legal = self._finite_moves() if moving else ()
        return make_view(
            self.spec,
            player,
            observation=self._observation(player),
            legal_actions=legal,
            info_state=self._info_state(player),
            sample_actions=self._samples() if legal is None else (),
        )

    def _moves(self) -> Mapping[str, Handler]:
        """Return what the player to move may do now: keyword (small letters) to handler of the content."""
        raise NotImplementedError

    def _finite_moves(self) -> tuple[str, ...] | None:
        """Return all actions of the player to move where they can be listed."""
        return None

    def _samples(self) -> Callable[[], tuple[str, ...]]:
        """Return what makes some legal actions of the player to move, good and bad ones, in the state as it is now."""
        raise NotImplementedError

    def _observation(self, player: int) -> str:
        raise NotImplementedError

    def _info_state(self, player: int) -> str:
        raise NotImplementedError

    @property
    def _mover(self) -> int:
        """Seat to move, in a match that is not over."""
        assert self._to_move is not None
        return self._to_move

    def _samples_rng(self) -> Callable[[], random.Random]:
        return partial(seeds.generator, self._seed, self.spec.name, "samples", self._num_turns)

    def _rng(self, purpose: str) -> random.Random:
        return seeds.generator(self._seed, self.spec.name, purpose, self._num_turns)

    def _end(self, tenths: int, outcome: str) -> None:
        self._tenths, self._outcome, self._to_move = tenths, outcome, None


def read_action(action: str) -> tuple[str, str]:
    """Return (keyword in small letters, content) of ``[Keyword]`` or ``[Keyword: content]``.

    Raises IllegalAction with reason non_ascii, too_long, bad_format or several_actions.
    """
    if not (action.isascii() and action.isprintable()):
        raise IllegalAction("only printable ASCII characters are allowed", reason="non_ascii")
    if len(action) > _MAX_ACTION_CHARS:
        raise IllegalAction(f"an action has at most {_MAX_ACTION_CHARS} characters", reason="too_long")
    if not (action.startswith("[") and action.endswith("]")):
        raise IllegalAction("an action stands in square brackets", reason="bad_format")
    if action.count("[") > 1 or action.count("]") > 1:
        raise IllegalAction("one action a turn, without further brackets", reason="several_actions")
    keyword, colon, content = action[1:-1].partition(":")
    if colon and not content.strip():
        raise IllegalAction("nothing follows the colon", reason="bad_format")
    return keyword.strip().lower(), content.strip()


def no_content(content: str) -> None:
    """Raise IllegalAction when a bare keyword came with content."""
    if content:
        raise IllegalAction("this action has no content", reason="bad_format")


def integer(text: str) -> int:
    """Return an integer in its one normal form: ``7`` and ``-7``, not ``+7``, ``07`` or ``7.0``."""
    text = text.strip()
    if not _INTEGER.fullmatch(text):
        raise IllegalAction(f"'{text[:12]}' is not a whole number in normal form", reason="bad_integer")
    return int(text)


def commitment(content: str) -> tuple[str, str]:
    """Return the two parts of ``problem | claimed truth``."""
    parts = [part.strip() for part in content.lower().split("|")]
    if len(parts) != 2 or not all(parts):
        raise IllegalAction("write the problem, one bar and your answer", reason="bad_format")
    return parts[0], parts[1]


def assignments(text: str, names: tuple[str, ...], *, separator: str) -> dict[str, int]:
    """Return the integers of ``a=3 b=-5`` (or ``x=3, y=-5``): every name exactly once, in any order."""
    pieces = text.lower().split(separator) if separator.strip() else text.lower().split()
    found: dict[str, int] = {}
    for piece in pieces:
        name, equals, value = piece.partition("=")
        name = name.strip()
        if not equals or name not in names or name in found:
            raise IllegalAction(f"write {example(names, separator)}", reason="bad_format")
        found[name] = integer(value)
    if len(found) < len(names):
        raise IllegalAction(f"write {example(names, separator)}", reason="bad_format")
    return found


@lru_cache(maxsize=64)
def example(names: tuple[str, ...], separator: str) -> str:
    """Return the form of an assignment in words a player can follow."""
    return separator.join(f"{name}=..." for name in names)


def fill(template: str, text: str, names: tuple[str, ...]) -> str:
    """Return a template with its slots filled from ``a=3 b=-5``. Raises IllegalAction when a slot is out of range."""
    slots = assignments(text, names, separator=" ")
    if any(abs(value) > _MAX_SLOT for value in slots.values()):
        raise IllegalAction(f"slots are whole numbers from -{_MAX_SLOT} to {_MAX_SLOT}", reason="bad_integer")
    return template.format(**slots)


@lru_cache(maxsize=64)
def shown_template(template: str) -> str:
    """Return a template as players see it: with its slot letters."""
    return template.replace("{", "").replace("}", "")


def slot_text(slots: Mapping[str, int]) -> str:
    """Return slots in the form that ``fill`` reads."""
    return " ".join([f"{name}={value}" for name, value in slots.items()])


@lru_cache(maxsize=4)
def read_bank(bank: str) -> frozenset[str]:
    """Return the digests of a comma-separated text. Raises ConfigError for anything else.

    ``carried`` stands for the problems of a run's earlier iterations, which a run puts in its place; elsewhere there
    are none.
    """
    if bank == _CARRIED:
        return frozenset()
    digests = frozenset(filter(None, (part.strip() for part in bank.split(","))))
    for digest in sorted(digests):
        if not _DIGEST.fullmatch(digest):
            raise ConfigError(f"bank holds '{digest[:40]}'; it is a comma-separated list of 16-digit digests")
    return digests


def stake(digest: Callable[[], str], bank: frozenset[str]) -> int:
    """Return the tenths at stake: a known problem is worth half to both sides, so the match stays zero-sum.

    The digest is only made where there is a bank.
    """
    return KNOWN_STAKE if bank and digest() in bank else FULL_STAKE
