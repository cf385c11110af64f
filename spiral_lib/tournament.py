"""A tournament: every pair of policies in every game, in seat-swapped pairs; ratings, payoffs, cycles, intervals.

The unit of every interval is the pair of matches with one seed and swapped seats: the two share their chance events.
Intervals are Wilson's on the mean score (return + 1) / 2, whose variance is at most that of a share, so they are
cautious, and honest where a side won everything.
"""

from __future__ import annotations

import itertools
import statistics
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spiral_lib import seeds, stats
from spiral_lib.config import Named
from spiral_lib.errors import ConfigError
from spiral_lib.opponents import OpponentPool, with_ratings
from spiral_lib.seeds import seed_for
from spiral_lib.types import EndReason, Episode, MatchSpec, PolicyRef, RefKind

ALL_GAMES = ""
_LEVEL = 0.05


@dataclass(frozen=True, kw_only=True, slots=True)
class Payoff:
    """The mean return of ``row`` against ``column``, with its 95 % interval over ``pairs`` units."""

    game: str
    row: str
    column: str
    pairs: int
    void: int
    mean: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Rating:
    """A policy's rating (openskill's mu, with mu +- 1.96 sigma) and its results; ``game`` is "" for all games together.

    ``mean`` is the mean return over all opponents with a 95 % interval; ``invalid`` the share of matches it forfeited.
    """

    game: str
    policy: str
    mu: float
    sigma: float
    low: float
    high: float
    matches: int
    wins: int
    draws: int
    losses: int
    mean: float
    mean_low: float
    mean_high: float
    invalid: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Cycle:
    """Policies of which each beats the next, and the last the first, beyond chance."""

    game: str
    policies: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Standings:
    """What a tournament came to. Ratings stand best first, all games before single ones."""

    policies: tuple[str, ...]
    games: tuple[str, ...]
    seed: int
    matches: int
    ratings: tuple[Rating, ...]
    payoffs: tuple[Payoff, ...]
    cycles: tuple[Cycle, ...]
    skipped: tuple[str, ...]


def plan(refs: Sequence[PolicyRef], games: Sequence[Named], *, pairs: int, seed: int) -> list[MatchSpec]:
    """Return two matches with swapped seats for every unit, pair of policies and game.

    Seeds depend on the tournament's seed, the game and the two policies' texts. Pairs in which a policy cannot play the
    game (``skipped``) are left out. Raises ConfigError for fewer than two policies, a repeated one or a person.
    """
    texts = [str(ref) for ref in refs]
    if len(texts) < 2 or len(set(texts)) < len(texts):
        raise ConfigError(f"a tournament needs two or more different policies, given are {', '.join(texts) or 'none'}")
    if any(ref.kind in (RefKind.HUMAN, RefKind.SELF) for ref in refs):
        raise ConfigError("scripted policies and checkpoints play a tournament; 'human' and 'self' cannot enter")
    if pairs < 1 or not games:
        raise ConfigError("a tournament needs at least one game and one pair of matches")
    specs = []
    for game in games:
        able = [text for text in texts if _can_play(text, game)]
        for (i, first), (j, second) in itertools.combinations(enumerate(able), 2):
            for index in range(2 * pairs):
                unit, swapped = divmod(index, 2)
                specs.append(
                    MatchSpec(
                        id=f"{game.name}-{i:02d}-{j:02d}-{index:06d}",
                        game=game.name,
                        seed=seed_for(seed, "tournament", game.name, first, second, unit),
                        policies=(second, first) if swapped else (first, second),
                        trainable=(False, False),
                        params=tuple(sorted(game.params.items())),
                    )
                )
    if not specs:
        raise ConfigError(f"there is nothing to play: {'; '.join(skipped(refs, games))}")
    return specs


def skipped(refs: Sequence[PolicyRef], games: Sequence[Named]) -> tuple[str, ...]:
    """Return in words who cannot play what."""
    return tuple(
        f"{ref} does not play {game.name}: no optimal play is known"
        for game in games
        for ref in refs
        if not _can_play(str(ref), game)
    )


def _can_play(policy: str, game: Named) -> bool:
    from spiral_lib import games as registry
    from spiral_lib.policies import optimal

    return policy != RefKind.OPTIMAL.value or registry.spec(game.name).name in optimal.STRATEGIES


def score(
    episodes: Sequence[Episode], refs: Sequence[PolicyRef], games: Sequence[Named], *, seed: int
) -> Standings:
    """Return the standings of a plan's episodes, in any order. Raises ConfigError where openskill is not installed."""
    played = sorted(episodes, key=lambda e: e.id)
    policies, names = tuple(str(ref) for ref in refs), tuple(dict.fromkeys(game.name for game in games))
    payoffs = tuple(p for name in names for p in _payoffs(name, [e for e in played if e.game == name]))
    groups = (ALL_GAMES, *names) if len(names) > 1 else names
    ratings: list[Rating] = []
    for group in groups:
        ratings += _ratings(group, [e for e in played if group in (ALL_GAMES, e.game)], policies, seed)
    return Standings(
        policies=policies,
        games=names,
        seed=seed,
        matches=len(played),
        ratings=tuple(ratings),
        payoffs=payoffs,
        cycles=tuple(c for name in names for c in cycles(name, [p for p in payoffs if p.game == name])),
        skipped=skipped(refs, games),
    )


def rated(pool: OpponentPool, standings: Standings) -> OpponentPool:
    """Return the pool with the ratings, over all games, of the snapshots that entered a tournament as ``pool:<id>``."""
    overall = standings.ratings[0].game if standings.ratings else ALL_GAMES
    found = {r.policy.removeprefix("pool:"): r.mu for r in standings.ratings if r.game == overall}
    known = {name: mu for name, mu in found.items() if sum(e.id.startswith(name) for e in pool.entries) == 1}
    return with_ratings(pool, known)


def interval(values: Sequence[float], level: float = _LEVEL) -> tuple[float, float, float]:
    """Return mean, low and high of returns in [-1, 1]; (nan, -1, 1) for none."""
    if not values:
        return float("nan"), -1.0, 1.0
    total = sum((value + 1) / 2 for value in values)
    z = statistics.NormalDist().inv_cdf(1 - level / 2)
    low, high = stats.wilson(total, len(values), z)
    return 2 * total / len(values) - 1, 2 * low - 1, 2 * high - 1


def _units(episodes: Sequence[Episode]) -> dict[tuple[str, str], list[float | None]]:
    """Return the first policy's mean return in every unit, None where one of its matches is void, by pair."""
    found: dict[tuple[str, str], list[float | None]] = {}
    for one, two in zip(episodes[::2], episodes[1::2], strict=True):
        first, second = one.policies
        void = EndReason.OPPONENT_ERROR in (one.end_reason, two.end_reason)
        found.setdefault((first, second), []).append(None if void else (one.returns[0] + two.returns[1]) / 2)
    return found


def _payoffs(game: str, episodes: Sequence[Episode]) -> list[Payoff]:
    out = []
    for (first, second), units in _units(episodes).items():
        values = [value for value in units if value is not None]
        mean, low, high = interval(values)
        counted: dict[str, Any] = {"game": game, "pairs": len(values), "void": len(units) - len(values)}
        out.append(Payoff(row=first, column=second, mean=mean, low=low, high=high, **counted))
        # The mirror image, not a sum of its own: the matrix is antisymmetric to the last bit.
        out.append(Payoff(row=second, column=first, mean=-mean, low=-high, high=-low, **counted))
    return out


def cycles(game: str, payoffs: Sequence[Payoff]) -> list[Cycle]:
    """Return the shortest cycle through every "beats beyond chance", each once.

    All pairs are looked at together, so each is held to the level divided by their number (Bonferroni).
    """
    level = 2 * _LEVEL / max(1, len(payoffs))
    beats: dict[str, list[str]] = {}
    for p in payoffs:
        if p.pairs and _clearly_positive(p, level):
            beats.setdefault(p.row, []).append(p.column)
    found: dict[tuple[str, ...], Cycle] = {}
    for winner, losers in beats.items():
        for loser in losers:
            way = _way(beats, loser, winner)
            if way:
                start = way.index(min(way))
                order = (*way[start:], *way[:start])
                found[order] = Cycle(game=game, policies=order)
    return [found[order] for order in sorted(found, key=lambda o: (len(o), o))]


def _clearly_positive(payoff: Payoff, level: float) -> bool:
    z = statistics.NormalDist().inv_cdf(1 - level / 2)
    low, _ = stats.wilson((payoff.mean + 1) / 2 * payoff.pairs, payoff.pairs, z)
    return 2 * low - 1 > 0


def _way(beats: Mapping[str, Sequence[str]], start: str, end: str) -> tuple[str, ...]:
    """Return the shortest chain of wins from start to end, both included; () where there is none."""
    before: dict[str, str | None] = {start: None}
    queue = deque([start])
    while queue:
        here = queue.popleft()
        if here == end:
            chain = [here]
            while (step := before[chain[-1]]) is not None:
                chain.append(step)
            return tuple(reversed(chain))
        for there in beats.get(here, ()):
            if there not in before:
                before[there] = here
                queue.append(there)
    return ()


def _ratings(game: str, episodes: Sequence[Episode], policies: Sequence[str], seed: int) -> list[Rating]:
    """Return the ratings of those who played, best first."""
    rated = _rate(episodes, policies, seed)
    means: dict[str, list[float]] = {policy: [] for policy in policies}
    for name in dict.fromkeys(e.game for e in episodes):
        for (first, second), units in _units([e for e in episodes if e.game == name]).items():
            means[first] += [value for value in units if value is not None]
            means[second] += [-value for value in units if value is not None]
    out = []
    for policy in policies:
        own = [(e, seat) for e in episodes for seat in (0, 1) if e.policies[seat] == policy]
        counted = [e.returns[seat] for e, seat in own if e.end_reason is not EndReason.OPPONENT_ERROR]
        if not own:
            continue
        mean, low, high = interval(means[policy])
        mu, sigma = rated[policy]
        out.append(
            Rating(
                game=game,
                policy=policy,
                mu=mu,
                sigma=sigma,
                low=mu - stats.Z95 * sigma,
                high=mu + stats.Z95 * sigma,
                matches=len(counted),
                wins=sum(value > 0 for value in counted),
                draws=sum(value == 0 for value in counted),
                losses=sum(value < 0 for value in counted),
                mean=mean,
                mean_low=low,
                mean_high=high,
                invalid=sum(e.forfeited_by == seat for e, seat in own) / len(own),
            )
        )
    return sorted(out, key=lambda r: (-r.mu, r.policy))


def _rate(episodes: Sequence[Episode], policies: Sequence[str], seed: int) -> dict[str, tuple[float, float]]:
    """Return (mu, sigma) of every policy after all matches, in one keyed order: the updates depend on the order."""
    model = rating_model()
    table = {policy: model.rating() for policy in policies}
    for e in sorted(episodes, key=lambda e: seeds.seed_for(seed, "rating order", e.id)):
        if e.end_reason is EndReason.OPPONENT_ERROR:
            continue
        first, second = e.policies
        ranks = [float(e.returns[1] > e.returns[0]), float(e.returns[0] > e.returns[1])]
        [[table[first]], [table[second]]] = model.rate([[table[first]], [table[second]]], ranks=ranks)
    return {policy: (float(r.mu), float(r.sigma)) for policy, r in table.items()}


def rating_model() -> Any:
    """Return openskill's model for skills that do not change. Raises ConfigError where openskill is not installed."""
    try:
        from openskill.models import PlackettLuce
    except ImportError as error:
        raise ConfigError("ratings need openskill; install the extra: pip install 'spiral-pipeline[ladder]'") from error
    return PlackettLuce(tau=0.0)
