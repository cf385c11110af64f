"""What counts as progress: the measures outside self-play, and whether a difference in one is more than chance.

Reports, comparisons and the live view all judge with this module.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spiral_lib.stats import Z95, normal_tail, wilson

Metrics = Mapping[str, float]

_LOWER_IS_BETTER = ("exploitability", "regret")
_KINDS = ("exploitability", "minimax_agreement", "regret", "win_rate", "accuracy")
_LEVEL = 0.05
_WIDEST = 0.4
_NOTHING = "Nothing has been measured on both sides yet."
TOO_FEW, NOT_SIGNIFICANT = "too few items to say", "not significant"


@dataclass(frozen=True, kw_only=True, slots=True)
class Measure:
    """A metric with its label for readers; ``rank`` orders measures, the most telling first."""

    name: str
    label: str
    lower_is_better: bool
    rank: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """Two values of a measure with their 95 % intervals (nan where there are none), and how sure the difference is.

    ``verdict`` is better, worse, "not significant", "too few items to say", or "" where a side has no interval; ``p``
    is two-sided.
    """

    measure: Measure
    before: float
    after: float
    before_interval: tuple[float, float]
    after_interval: tuple[float, float]
    p: float
    verdict: str


def outside_self_play(*rows: Metrics) -> list[Measure]:
    """Return the measures that any of the rows holds, the most telling first."""
    names = {name for row in rows for name in row if name.startswith("eval/")}
    found = [measure for name in names if (measure := _measure(name)) is not None]
    return sorted(found, key=lambda m: (m.rank, m.name))


def _measure(name: str) -> Measure | None:
    parts = name.split("/")
    kind = parts[-1]
    if kind not in _KINDS or len(parts) != (4 if kind == "win_rate" else 3):
        return None
    subject = parts[1].replace("_", " ")
    labels = {
        "exploitability": f"Exploitability, {subject} (exact; 0 is perfect play)",
        "minimax_agreement": f"Agreement with minimax, {subject}",
        "regret": f"Regret a move, {subject} (0 is perfect play)",
        "win_rate": f"Win rate, {subject} {parts[2].replace('_', ' ')}",
        "accuracy": "Fixed bank, accuracy" if subject == "bank" else f"{subject}, accuracy",
    }
    return Measure(
        name=name, label=labels[kind], lower_is_better=kind in _LOWER_IS_BETTER, rank=_KINDS.index(kind)
    )


def change(measure: Measure, before: Metrics, after: Metrics) -> Change:
    """Return how a measure differs between two rows of metrics, taken as independent.

    Both intervals count: a value measured on few matches proves nothing, on whichever side it stands. Checkpoints that
    answer the same items are in truth compared more sharply than this, as the gate does. On fewer than about twenty
    items or matches nothing is judged: an interval of two halves of them is 0.4 wide.
    """
    old, new = before.get(measure.name, math.nan), after.get(measure.name, math.nan)
    intervals = interval(before, measure.name), interval(after, measure.name)
    p = _p_value(new - old, intervals)
    if math.isnan(p):
        verdict = ""
    elif any(_are_few(row, measure.name) for row in (before, after)):
        verdict = TOO_FEW
    elif p >= _LEVEL:
        verdict = NOT_SIGNIFICANT
    else:
        verdict = "better" if (new < old) == measure.lower_is_better else "worse"
    return Change(
        measure=measure,
        before=old,
        after=new,
        before_interval=intervals[0],
        after_interval=intervals[1],
        p=p,
        verdict=verdict,
    )


def _are_few(row: Metrics, name: str) -> bool:
    """Return whether a value rests on so few items that the interval of an even share of them says nothing."""
    n = row.get(f"{name}_n", math.inf)
    if not math.isfinite(n):
        return False
    low, high = wilson(n / 2, int(n))
    return high - low > _WIDEST


def interval(row: Metrics, name: str) -> tuple[float, float]:
    """Return a metric's 95 % interval, nan where it has none."""
    return row.get(f"{name}_low", math.nan), row.get(f"{name}_high", math.nan)


def _p_value(difference: float, intervals: Sequence[tuple[float, float]]) -> float:
    error = math.hypot(*((high - low) / (2 * Z95) for low, high in intervals))
    if not math.isfinite(difference) or not math.isfinite(error) or error == 0.0:
        return math.nan
    return 2 * normal_tail(abs(difference) / error)


def answer(changes: Sequence[Change]) -> tuple[str, str]:
    """Return (good, bad or soft; one sentence) on whether the second side is better outside self-play."""
    few = sum(c.verdict == TOO_FEW for c in changes)
    judged = [c for c in changes if c.verdict not in ("", TOO_FEW)]
    better = sum(c.verdict == "better" for c in judged)
    worse = sum(c.verdict == "worse" for c in judged)
    tally = f"{better} of {len(judged)} measures significantly better, {worse} worse"
    if few:
        tally += f", {few} on too few items to say"
    if not judged:
        return "soft", f"Too few items to say: {few} measures, none on enough." if few else _NOTHING
    if better and not worse:
        return "good", f"Better outside self-play: {tally}."
    if worse and not better:
        return "bad", f"Worse outside self-play: {tally}."
    if better and worse:
        return "soft", f"Mixed outside self-play: {tally}."
    return "soft", f"No significant change outside self-play: {tally}."
