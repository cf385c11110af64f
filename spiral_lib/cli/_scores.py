"""How ``spiral eval`` lays out an evaluation: the measures that tell most first, then the rest by subject."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from spiral_lib import measures

Rows = list[tuple[str, str]]
_BESIDE = ("_low", "_high", "_n", "_se")


def grouped(metrics: Mapping[str, float]) -> list[tuple[str, Rows]]:
    """Return titles and rows of (measure, value with interval and n): headline, then each game and benchmark by name.

    Reasoning comes last. A metric stands in one group only; ends of intervals and counts stand beside their metric.
    """
    headline = measures.outside_self_play(metrics)
    told = {measure.name for measure in headline}
    groups: dict[tuple[int, str], Rows] = defaultdict(list)
    for name in sorted(metrics):
        if name not in told and not _is_beside(name, metrics):
            groups[_subject(name)].append((name, shown(name, metrics)))
    rows = [(measure.label, shown(measure.name, metrics)) for measure in headline]
    found = [("What tells most", rows)] if rows else []
    return found + [(title, groups[rank, title]) for rank, title in sorted(groups)]


def shown(name: str, metrics: Mapping[str, float]) -> str:
    """Return a metric with its interval and n, where it has them."""
    low, high, n = (metrics.get(f"{name}{end}") for end in ("_low", "_high", "_n"))
    interval = f" [{low:.3f}, {high:.3f}]" if low is not None and high is not None else ""
    return f"{metrics[name]:.3f}{interval}" + (f" (n={n:.0f})" if n is not None else "")


def _subject(name: str) -> tuple[int, str]:
    """Return a group's place and title for a metric's name."""
    first, _, rest = name.partition("/")
    second = rest.partition("/")[0]
    if first == "eval" and second:
        return 0, second.replace("_", " ")
    if name.startswith("reasoning/pattern/"):
        return 2, f"reasoning patterns, {rest.split('/')[1]}"
    return (1, "reasoning") if first == "reasoning" else (3, first)


def _is_beside(name: str, metrics: Mapping[str, float]) -> bool:
    return any(name.endswith(end) and name.removesuffix(end) in metrics for end in _BESIDE)
