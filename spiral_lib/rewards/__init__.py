"""Rewards: the outcome plus weighted shaping terms. A shaping module defines ``shape(episode, player, **params)``."""

from __future__ import annotations

import logging
from functools import lru_cache

from spiral_lib import plugins
from spiral_lib.config import RewardConfig
from spiral_lib.rewards import outcome
from spiral_lib.types import EndReason, Episode, Returns

MANY_TERMS = 3
_log = logging.getLogger(__name__)


def rewards(episode: Episode, config: RewardConfig) -> Returns:
    """Return both players' rewards: outcome plus the sum of weight times shape over ``config.terms``.

    A void match (opponent_error) gives zeros, whatever the terms. With terms the pair need not sum to zero.
    """
    first, second = outcome.outcome(episode, forfeit=config.forfeit)
    if episode.end_reason is EndReason.OPPONENT_ERROR:
        return (first, second)
    _warn_of_many(tuple(term.name for term in config.terms))
    for term in config.terms:
        if term.weight == 0.0:
            continue
        shape = plugins.load(__name__, term.name, "shape")
        first += term.weight * float(shape(episode, 0, **term.params))
        second += term.weight * float(shape(episode, 1, **term.params))
    return (first, second)


@lru_cache(maxsize=64)
def _warn_of_many(names: tuple[str, ...]) -> None:
    """Warn once for a list of terms: each one more is a further way to score without winning."""
    if len(names) > MANY_TERMS:
        advice = "more than %d invite play for the terms instead of the game"
        _log.warning(f"rewards.terms has %d shaping terms (%s); {advice}", len(names), ", ".join(names), MANY_TERMS)
