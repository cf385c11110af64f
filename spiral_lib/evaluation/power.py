"""How many items or matches it takes to see an effect, and what effect a given number can show.

Normal approximations for two-sided tests, pure functions. ``effect`` is a difference of shares or of mean returns.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from spiral_lib.errors import ConfigError

SIZES: Mapping[str, int] = {
    "aime24": 30,
    "aime25": 30,
    "amc23": 40,
    "gpqa_diamond": 198,
    "minerva272": 272,
    "math500": 500,
    "bank": 600,
    "olympiadbench": 675,
    "gsm8k": 1319,
    "mmlu_pro": 12032,
}
"""Items of the benchmarks that this package knows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One question, the assumption under which it is answered, and the answer: ``n`` of ``unit`` each."""

    question: str
    assumption: str
    n: int
    unit: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Detectable:
    """The smallest rise of a benchmark's accuracy that its items can show, None where none can."""

    benchmark: str
    n: int
    effect: float | None


def share_difference(baseline: float, effect: float, *, alpha: float = 0.05, power: float = 0.8) -> int:
    """Return n per side to tell a share of ``baseline + effect`` from ``baseline`` on different items or matches."""
    _check(baseline, effect, alpha, power)
    p, q = baseline, baseline + effect
    mean = (p + q) / 2
    wide = _z(1 - alpha / 2) * math.sqrt(2 * mean * (1 - mean))
    return _up(((wide + _z(power) * math.sqrt(p * (1 - p) + q * (1 - q))) / effect) ** 2)


def share_against(reference: float, effect: float, *, alpha: float = 0.05, power: float = 0.8) -> int:
    """Return n to tell a share of ``reference + effect`` from a fixed ``reference``, such as a win rate from 0.5."""
    _check(reference, effect, alpha, power)
    p, q = reference, reference + effect
    wide = _z(1 - alpha / 2) * math.sqrt(p * (1 - p))
    return _up(((wide + _z(power) * math.sqrt(q * (1 - q))) / effect) ** 2)


def paired_difference(effect: float, discordant: float, *, alpha: float = 0.05, power: float = 0.8) -> int:
    """Return the number of items that both checkpoints answer (McNemar's test, Connor 1987).

    ``discordant`` is the share of items on which exactly one of the two is right, at least the effect.
    """
    _check(None, effect, alpha, power)
    if not abs(effect) <= discordant <= 1:
        raise ConfigError(
            f"discordant={discordant} is impossible with effect={effect}; give at least the effect, at most 1"
        )
    spread = math.sqrt(max(0.0, discordant - effect**2))
    return _up(((_z(1 - alpha / 2) * math.sqrt(discordant) + _z(power) * spread) / effect) ** 2)


def mean_difference(effect: float, deviation: float, *, alpha: float = 0.05, power: float = 0.8) -> int:
    """Return n per side to tell two mean returns apart, each with this standard deviation per match."""
    _check(None, effect, alpha, power)
    if deviation <= 0:
        raise ConfigError(f"deviation={deviation} must be above 0; returns of won and lost matches have 1")
    return _up(2 * ((_z(1 - alpha / 2) + _z(power)) * deviation / effect) ** 2)


def smallest_effect(n: int, baseline: float, *, alpha: float = 0.05, power: float = 0.8) -> float | None:
    """Return the smallest rise of a share that n items a side can show, None where even certainty is not enough."""
    low, high = 0.0, 1.0 - baseline
    if n < 1 or high <= 0 or share_difference(baseline, high, alpha=alpha, power=power) > n:
        return None
    for _ in range(60):
        middle = (low + high) / 2
        if middle > 0 and share_difference(baseline, middle, alpha=alpha, power=power) <= n:
            high = middle
        else:
            low = middle
    return high


def table(
    effect: float,
    *,
    baseline: float = 0.5,
    discordant: float | None = None,
    deviation: float = 1.0,
    alpha: float = 0.05,
    power: float = 0.8,
) -> tuple[Row, ...]:
    """Return the sample sizes for one effect. ``discordant`` defaults to twice the effect, at least 0.2 (at most 1)."""
    assumed = min(1.0, max(0.2, 2 * abs(effect))) if discordant is None else discordant
    level = {"alpha": alpha, "power": power}
    return (
        Row(
            question=f"accuracy {baseline:.3g} or {baseline + effect:.3g}, both checkpoints on the same items",
            assumption=f"they differ on {assumed:.3g} of the items",
            n=paired_difference(effect, assumed, **level),
            unit="items",
        ),
        Row(
            question=f"accuracy {baseline:.3g} or {baseline + effect:.3g}, different items",
            assumption="one reply an item",
            n=share_difference(baseline, effect, **level),
            unit="items per checkpoint",
        ),
        Row(
            question=f"win rate {baseline:.3g} or {baseline + effect:.3g} of two checkpoints against one opponent",
            assumption="independent matches",
            n=_even(share_difference(baseline, effect, **level)),
            unit="matches per checkpoint",
        ),
        Row(
            question=f"win rate {baseline + effect:.3g} against a fixed {baseline:.3g}",
            assumption="independent matches",
            n=_even(share_against(baseline, effect, **level)),
            unit="matches",
        ),
        Row(
            question=f"mean returns that differ by {effect:.3g}",
            assumption=f"standard deviation {deviation:.3g} a match",
            n=_even(mean_difference(effect, deviation, **level)),
            unit="matches per checkpoint",
        ),
    )


def detectable(baseline: float = 0.5, *, alpha: float = 0.05, power: float = 0.8) -> tuple[Detectable, ...]:
    """Return what each benchmark can show at a baseline accuracy, checkpoints compared without pairing."""
    return tuple(
        Detectable(benchmark=name, n=n, effect=smallest_effect(n, baseline, alpha=alpha, power=power))
        for name, n in SIZES.items()
    )


def text(rows: Sequence[Row]) -> str:
    """Return the rows as aligned lines of plain text."""
    width = max((len(f"{row.n} {row.unit}") for row in rows), default=0)
    return "\n".join(f"{f'{row.n} {row.unit}':<{width}}  {row.question} ({row.assumption})" for row in rows)


def _z(p: float) -> float:
    return NormalDist().inv_cdf(p)


def _up(n: float) -> int:
    return max(2, math.ceil(n - 1e-9))


def _even(n: int) -> int:
    """Matches are played in seat-swapped pairs."""
    return n + n % 2


def _check(baseline: float | None, effect: float, alpha: float, power: float) -> None:
    if effect == 0 or not -2 <= effect <= 2:
        raise ConfigError(f"effect={effect} must be a difference between -2 and 2, and not 0")
    if baseline is not None and not (0 <= baseline <= 1 and 0 <= baseline + effect <= 1):
        raise ConfigError(f"effect={effect} at baseline={baseline} leaves [0, 1], where shares lie; give a smaller one")
    if not 0 < alpha < 1 or not 0 < power < 1:
        raise ConfigError(f"alpha={alpha} and power={power} must lie between 0 and 1")
