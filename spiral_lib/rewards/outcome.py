"""From a match's result to the outcome reward: the one place where forfeits get their price."""

from __future__ import annotations

from spiral_lib.errors import ConfigError
from spiral_lib.types import EndReason, Episode, Returns

FORFEITS: dict[str, tuple[float, float]] = {"zero_sum": (-1.0, 1.0), "upstream": (-1.5, 0.5)}
"""(who forfeits, the other). ``upstream`` is what the SPIRAL release trains with; it is not zero-sum."""


def outcome(episode: Episode, *, forfeit: str = "zero_sum") -> Returns:
    """Return both players' rewards before shaping: the returns, or the forfeit's, or zeros for a void match."""
    if episode.end_reason is EndReason.OPPONENT_ERROR:
        return (0.0, 0.0)
    if episode.forfeited_by is None:
        return episode.returns
    if forfeit not in FORFEITS:
        raise ConfigError(f"unknown forfeit table '{forfeit}'. Known: {', '.join(FORFEITS)}")
    guilty, other = FORFEITS[forfeit]
    return (guilty, other) if episode.forfeited_by == 0 else (other, guilty)
