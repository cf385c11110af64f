"""Shaping for the form of replies: a bonus when every reply of a player could be read, a penalty when one could not."""

from __future__ import annotations

from spiral_lib.types import Episode

UNREADABLE = frozenset({"no_box", "unclosed_box", "unfinished_thinking", "non_ascii", "bad_format"})
"""Reasons that concern the form. A readable but illegal move already loses by forfeit and is not punished twice."""


def shape(episode: Episode, player: int, *, bonus: float = 0.0, penalty: float = 0.05) -> float:
    """Return ``bonus`` when all replies of the player are readable, ``-penalty`` when any is not, 0 without replies."""
    reasons = [turn.invalid_reason for turn in episode.turns if turn.player == player]
    if not reasons:
        return 0.0
    return -penalty if any(reason in UNREADABLE for reason in reasons) else bonus
