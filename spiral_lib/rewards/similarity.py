"""Shaping for repetition: a penalty when a player writes nearly the same thing again, or what was known before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from spiral_lib.errors import ConfigError
from spiral_lib.types import Episode

_PIECE: Final = 4
_SHORTEST: Final = 10
_MAX_CHARS: Final = 20_000


def shape(
    episode: Episode,
    player: int,
    *,
    of: str = "text",
    above: float = 0.6,
    penalty: float = 0.05,
    known: str = "",
) -> float:
    """Return 0 up to the similarity ``above``, falling linearly to ``-penalty`` at identical texts.

    The largest similarity between any two of the player's turns counts, and between a turn and any line of ``known``
    (such as problems posed before). ``of`` chooses the whole response (``text``) or the move only (``action``). Texts
    under ten characters are left out, so that ``[Pass]`` and ``[check]`` may be repeated.
    """
    if of not in ("text", "action"):
        raise ConfigError(f"similarity of='{of}'; it must be text or action")
    if not 0.0 <= above < 1.0:
        raise ConfigError(f"similarity above={above}; it must be in [0, 1)")
    turns = [turn for turn in episode.turns if turn.player == player]
    written = [turn.text if of == "text" else turn.action for turn in turns]
    closest = largest(written, [line for line in known.splitlines() if line.strip()])
    return -penalty * max(0.0, closest - above) / (1.0 - above)


def largest(texts: Sequence[str], known: Sequence[str] = ()) -> float:
    """Return the largest similarity of a text to another one or to a known one, 0 when there is none to compare."""
    pieces = [_pieces(t) for t in texts if len(_dense(t)) >= _SHORTEST]
    old = [_pieces(t) for t in known]
    found = [_overlap(a, b) for i, a in enumerate(pieces) for b in (*pieces[:i], *old)]
    return max(found, default=0.0)


def similarity(first: str, second: str) -> float:
    """Return how much two texts share, from 0 to 1: common pieces of four characters by all pieces.

    Blanks and letter case are left out; two empty texts are not alike.
    """
    return _overlap(_pieces(first), _pieces(second))


def _dense(text: str) -> str:
    return "".join(text[:_MAX_CHARS].lower().split())


def _pieces(text: str) -> frozenset[str]:
    dense = _dense(text)
    return frozenset(dense[i : i + _PIECE] for i in range(max(1, len(dense) - _PIECE + 1)) if dense)


def _overlap(first: frozenset[str], second: frozenset[str]) -> float:
    union = len(first | second)
    return len(first & second) / union if union else 0.0
