"""Matches against frozen opponents, in seat-swapped pairs whose seeds are the same for every checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spiral_lib import stats
from spiral_lib.config import Named
from spiral_lib.rollout import play_matches
from spiral_lib.seeds import seed_for
from spiral_lib.types import EndReason, Episode, MatchSpec, Policy, RefKind

SELF = RefKind.SELF.value


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What the checkpoint's matches in one game against one opponent came to; ``returns`` are None where void."""

    game: str
    opponent: str
    returns: tuple[float | None, ...]
    own_forfeits: int
    opponent_forfeits: int


def plan(game: Named, opponent: str, *, opponent_ref: str, matches: int, seed: int) -> list[MatchSpec]:
    """Return an even number of matches: entries 2k and 2k+1 share a seed, the checkpoint sits first and then second.

    Seeds depend on the run's seed, the game, the opponent's name and k, never on the checkpoint or the iteration.
    """
    specs = []
    for index in range(matches + matches % 2):
        pair, seat = divmod(index, 2)
        specs.append(
            MatchSpec(
                id=f"evaluation-{game.name}-{opponent}-{index:06d}",
                game=game.name,
                seed=seed_for(seed, "evaluation match", game.name, opponent, pair),
                policies=(SELF, opponent_ref) if seat == 0 else (opponent_ref, SELF),
                trainable=(False, False),
                params=tuple(sorted(game.params.items())),
            )
        )
    return specs


def play(specs: Sequence[MatchSpec], policies: Mapping[str, Policy], *, concurrency: int) -> list[Episode]:
    """Return the episodes in the order of the specs."""
    by_id = {episode.id: episode for episode in play_matches(specs, policies, concurrency=concurrency)}
    return [by_id[spec.id] for spec in specs]


def outcome(game: str, opponent: str, episodes: Sequence[Episode]) -> Outcome:
    """Return the outcome of planned matches; an illegal move of either side is a loss for it and counts."""
    seats = [index % 2 for index in range(len(episodes))]
    forfeits = [e.forfeited_by == seat for e, seat in zip(episodes, seats, strict=True) if e.forfeited_by is not None]
    return Outcome(
        game=game,
        opponent=opponent,
        returns=tuple(
            None if e.end_reason is EndReason.OPPONENT_ERROR else e.returns[seat]
            for e, seat in zip(episodes, seats, strict=True)
        ),
        own_forfeits=sum(forfeits),
        opponent_forfeits=len(forfeits) - sum(forfeits),
    )


def metrics(found: Outcome) -> dict[str, float]:
    """Return the ``eval/<game>/vs_<opponent>/*`` metrics over all matches that are not void, with 95 % intervals.

    Wins by the opponent's forfeit are wins; ``opponent_invalid_rate`` says how many there were. Matches that an
    endpoint error voided are neither won nor lost; ``void_n`` counts them. Nothing else leaves the denominator.
    Without a match that counts, only ``void_n`` and an ``_n`` of 0 are given.
    """
    prefix = prefix_of(found.game, found.opponent)
    played = [value for value in found.returns if value is not None]
    n = len(played)
    counts = {f"{prefix}/win_rate_n": float(n), f"{prefix}/void_n": float(len(found.returns) - n)}
    if n == 0:
        return counts
    wins = sum(value > 0 for value in played)
    low, high = stats.wilson(wins, n)
    mean_return, return_low, return_high = stats.mean_interval(played)
    return counts | {
        f"{prefix}/win_rate": wins / n,
        f"{prefix}/win_rate_low": low,
        f"{prefix}/win_rate_high": high,
        f"{prefix}/draw_rate": sum(value == 0 for value in played) / n,
        f"{prefix}/loss_rate": sum(value < 0 for value in played) / n,
        f"{prefix}/mean_return": mean_return,
        f"{prefix}/mean_return_low": return_low,
        f"{prefix}/mean_return_high": return_high,
        f"{prefix}/invalid_rate": found.own_forfeits / n,
        f"{prefix}/opponent_invalid_rate": found.opponent_forfeits / n,
    }


def prefix_of(game: str, opponent: str) -> str:
    """Return what the metrics of a game against an opponent begin with; its text form makes one part of the name."""
    return f"eval/{game}/vs_{opponent.replace(':', '_').replace('/', '_')}"
