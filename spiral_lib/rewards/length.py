"""Shaping for the length of replies: a penalty outside a band of response tokens."""

from __future__ import annotations

from spiral_lib.types import Episode, mean


def shape(episode: Episode, player: int, *, shortest: int = 0, longest: int = 0, penalty: float = 0.05) -> float:
    """Return 0 inside the band, falling linearly outside it to ``-penalty`` at no tokens or at twice ``longest``.

    The player's mean number of response tokens counts. A bound of 0 is off; scripted turns, which have no tokens, are
    left out.
    """
    lengths = [len(turn.response_ids) for turn in episode.turns if turn.player == player and turn.response_ids]
    if not lengths:
        return 0.0
    tokens = mean(lengths)
    if shortest and tokens < shortest:
        return -penalty * (shortest - tokens) / shortest
    if longest and tokens > longest:
        return -penalty * min(1.0, (tokens - longest) / longest)
    return 0.0
