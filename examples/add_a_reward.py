"""A shaping reward in one file: a small bonus for the winner of a short match.

It is named by its dotted path, in ``custom_run.yaml`` or on the command line:

    spiral train --preset smoke --set "rewards.terms=[{name: examples.add_a_reward:shape, weight: 0.5}]"

The outcome of the match always counts in full; terms are added to it, each times its weight. Keep them small and few:
a term that can be earned without winning will be.
"""

from __future__ import annotations

from spiral_lib.types import EndReason, Episode


def shape(episode: Episode, player: int, *, bonus: float = 0.2, turns: int = 6) -> float:
    """Return the bonus for a win, shrinking linearly to 0 at ``turns`` turns; a win by forfeit earns none."""
    if episode.end_reason is not EndReason.FINISHED or episode.returns[player] <= 0:
        return 0.0
    return bonus * max(0.0, 1.0 - len(episode.turns) / turns)
