"""Shaping for what happened in a game, counted from the actions of an episode alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from spiral_lib.errors import ConfigError
from spiral_lib.types import Episode

_KEYWORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "asks": ("ask",),
    "hints": ("hint",),
    "passes": ("pass",),
    "tries": ("counter", "break"),
    "messages": ("say",),
    "offers": ("offer",),
}
_PROBLEMS: Final = ("pose", "claim", "program")
SIGNALS: Final = (*_KEYWORDS, "problem_length", "turns")


def count(episode: Episode, player: int, signal: str) -> int:
    """Return how often a player did something legal, or how many characters the player's problem has.

    ``asks`` are questions of a duel's solver or attacker, ``hints`` and ``passes`` a proposer's replies, ``tries``
    points named against a claim (a hit included), ``messages`` chat, ``offers`` trade offers, ``turns`` all turns.
    Raises ConfigError for another signal.
    """
    if signal not in SIGNALS:
        raise ConfigError(f"unknown signal '{signal}'. Known: {', '.join(SIGNALS)}")
    parts = [_split(turn.action) for turn in episode.turns if turn.player == player and turn.legal]
    if signal == "turns":
        return len(parts)
    if signal == "problem_length":
        return sum(len(content) for keyword, content in parts if keyword in _PROBLEMS)
    return sum(keyword in _KEYWORDS[signal] for keyword, _ in parts)


def shape(episode: Episode, player: int, *, signal: str, amount: float = -0.01, limit: float = 0.1) -> float:
    """Return ``amount`` for each count of a signal, cut at ``limit`` in size: a cost when negative, else a bonus.

    A solver's asks already cost a tenth in the game itself; this is for terms that the rules do not have.
    """
    return max(-limit, min(limit, amount * count(episode, player, signal)))


def _split(action: str) -> tuple[str, str]:
    keyword, _, content = action.strip().strip("[]").partition(":")
    return keyword.strip().lower(), content.partition("|")[0].strip()
