"""Reasoning patterns in the report: how often each shows in play and elsewhere, and whether growth transfers."""

from __future__ import annotations

import html
from collections.abc import Mapping

from spiral_lib import stats
from spiral_lib.charts import Series, line_chart
from spiral_lib.measures import interval
from spiral_lib.report_files import Rows, RunFiles
from spiral_lib.report_style import grid, table

_PREFIX = "reasoning/pattern/"
_PLAY = "games"


def section(files: RunFiles) -> str:
    """Return curves by pattern, a line for each place, and the transfer table; "" where no pattern was measured."""
    measured = tuple((i, m) for i, m in files.iterations if any(name.startswith(_PREFIX) for name in m))
    if not measured:
        return ""
    places, patterns = _measured(measured[-1][1])
    charts = [_chart(measured, pattern, places) for pattern in patterns]
    return grid(charts) + _transfer(measured, places, patterns)


def _measured(metrics: Mapping[str, float]) -> tuple[list[str], list[str]]:
    """Return the places and patterns that have a share with an interval."""
    names = [n.removeprefix(_PREFIX).split("/") for n in metrics if n.startswith(_PREFIX) and f"{n}_n" in metrics]
    places = sorted({place for place, _ in names}, key=lambda place: (place != _PLAY, place))
    return places, sorted({pattern for _, pattern in names})


def _chart(rows: Rows, pattern: str, places: list[str]) -> str:
    series = []
    for place in places:
        name = f"{_PREFIX}{place}/{pattern}"
        found = [(i, m) for i, m in rows if name in m]
        points = tuple((float(i), m[name]) for i, m in found)
        series.append(Series(name=place, points=points, interval=tuple(interval(m, name) for _, m in found)))
    return line_chart(f"{_title(pattern)}, share of replies", series)


def _transfer(rows: Rows, places: list[str], patterns: list[str]) -> str:
    lines = []
    for place in places:
        if place == _PLAY:
            continue
        for pattern in patterns:
            play, elsewhere = (_change(rows, where, pattern) for where in (_PLAY, place))
            verdict = stats.transfer(play, elsewhere)
            lines.append((html.escape(_title(pattern)), html.escape(place), _cell(play), _cell(elsewhere), verdict))
    if not lines:
        return ""
    note = (
        "From the first to the last iteration that measured both, with the 95 % interval of the difference. Read "
        "changes, not levels: the classifier reads words and cannot tell whether the reasoning is sound."
    )
    headings = ("pattern", "place", "change in play", "change there", "transfer")
    return f'<p class="soft">{note}</p>{table(headings, lines)}'


def _change(rows: Rows, place: str, pattern: str) -> stats.ShareChange | None:
    name = f"{_PREFIX}{place}/{pattern}"
    found = [m for _, m in rows if name in m]
    return stats.share_change(found[0], found[-1], name) if len(found) > 1 else None


def _cell(change: stats.ShareChange | None) -> str:
    if change is None:
        return "–"
    return f"{change.difference:+.3f} [{change.low:+.3f}, {change.high:+.3f}], {change.verdict}"


def _title(name: str) -> str:
    return name.replace("_", " ").capitalize()
