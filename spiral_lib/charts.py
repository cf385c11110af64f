"""Charts as inline SVG and HTML text: no scripts, no fonts, readable in light, dark and print.

Series differ in colour and in dash, marks and cells also carry words or numbers, so nothing depends on colour alone.
Colours are the style sheet's variables ``--c0`` to ``--c5`` (``report_style``).
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

DASHES = ("", "6 3", "2 2", "8 3 2 3", "1 3", "10 4")
WIDTH, HEIGHT = 460, 240
LEFT, RIGHT, TOP, BOTTOM = 62, 14, 16, 38

Place = Callable[[float, float], tuple[float, float]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """Points (x, y) in order of x, optionally with an interval (low, high) for each."""

    name: str
    points: tuple[tuple[float, float], ...]
    interval: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """Something that happened at x: drawn as a line with its name over the whole height of a chart."""

    x: float
    name: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One number of a heat map with its 95 % interval, where it has one."""

    value: float
    low: float = math.nan
    high: float = math.nan


def line_chart(
    title: str,
    series: Sequence[Series],
    *,
    note: str = "",
    references: Sequence[tuple[str, float]] = (),
    marks: Sequence[Mark] = (),
    x_label: str = "iteration",
) -> str:
    """Return a figure: a line per series, intervals as bands, dotted reference lines; "" without any finite point."""
    kept = [s for s in map(_finite, series) if s.points]
    if not kept:
        return ""
    x_low, x_high, y_low, y_high = _bounds(kept, references)
    sx = (WIDTH - LEFT - RIGHT) / (x_high - x_low)
    sy = (HEIGHT - TOP - BOTTOM) / (y_high - y_low)

    def place(x: float, y: float) -> tuple[float, float]:
        return LEFT + (x - x_low) * sx, HEIGHT - BOTTOM - (y - y_low) * sy

    inside = [m for m in marks if x_low <= m.x <= x_high]
    parts = [_axes(x_low, x_high, y_low, y_high, place, x_label)]
    parts += [_reference(name, value, x_low, x_high, place) for name, value in references]
    parts += [_draw(s, i, place) for i, s in enumerate(kept)]
    parts += [_mark(mark, place(mark.x, y_low)[0]) for mark in inside]
    changes = "; ".join(f"{s.name}: {s.points[0][1]:.3g} to {s.points[-1][1]:.3g}" for s in kept)
    happened = "".join(f"; {m.name} at {m.x:g}" for m in inside)
    label = html.escape(f"{title}. {changes}{happened}")
    svg = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{"".join(parts)}</svg>'
    legend = "".join(_legend(s.name, i) for i, s in enumerate(kept)) if len(kept) > 1 else ""
    shown = f" <span>{html.escape(note)}</span>" if note else ""
    caption = f"<figcaption><b>{html.escape(title)}</b>{shown}</figcaption>"
    return f'<figure>{caption}{svg}<div class="legend">{legend}</div></figure>'


def heat_map(rows: Sequence[str], columns: Sequence[str], cells: Mapping[tuple[str, str], Cell], corner: str) -> str:
    """Return a table of values in [-1, 1]: blue above 0, vermilion below, every cell with its number; "" if empty."""
    if not cells:
        return ""
    head = "".join(f"<th>{html.escape(column)}</th>" for column in columns)
    lines = [
        f"<tr><th>{html.escape(row)}</th>{''.join(_cell(cells.get((row, column))) for column in columns)}</tr>"
        for row in rows
    ]
    return f'<table class="heat"><tr><th>{html.escape(corner)}</th>{head}</tr>{"".join(lines)}</table>'


def bar(share: float) -> str:
    """Return a horizontal bar for a share in [0, 1], beside which its number should stand."""
    width = 100 * min(1.0, max(0.0, share)) if math.isfinite(share) else 0.0
    return f'<span class="bar"><span style="width:{width:.1f}%"></span></span>'


def _cell(cell: Cell | None) -> str:
    if cell is None or not math.isfinite(cell.value):
        return '<td class="n soft">–</td>'
    colour = "var(--win)" if cell.value > 0 else "var(--loss)"
    strength = 55 * min(1.0, abs(cell.value))
    shade = f"background:color-mix(in srgb,{colour} {strength:.0f}%,transparent)"
    known = math.isfinite(cell.low) and math.isfinite(cell.high)
    interval = f"<br><small>{cell.low:+.2f} to {cell.high:+.2f}</small>" if known else ""
    return f'<td class="n" style="{shade}"><b>{cell.value:+.2f}</b>{interval}</td>'


def _finite(s: Series) -> Series:
    """Drop points that are not numbers, each together with its interval."""
    keep = [i for i, (_, y) in enumerate(s.points) if math.isfinite(y)]
    interval = tuple(s.interval[i] for i in keep) if s.interval else ()
    return Series(name=s.name, points=tuple(s.points[i] for i in keep), interval=interval)


def _bounds(series: Sequence[Series], references: Sequence[tuple[str, float]]) -> tuple[float, float, float, float]:
    xs = [x for s in series for x, _ in s.points]
    ys = [y for s in series for _, y in s.points] + [
        v for s in series for pair in s.interval for v in pair if math.isfinite(v)
    ]
    ys += [v for _, v in references]
    x_low, x_high = min(xs), max(xs)
    low, high = min([*ys, 0.0]) if min(ys) < 0.4 * max(ys) else min(ys), max(ys)
    margin = 0.06 * (high - low) or 0.1 * abs(high) or 1.0
    low = low - margin if low < 0 or (low > 0 and min(ys) == low) else low
    return x_low, x_high if x_high > x_low else x_low + 1.0, low, high + margin


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Return about ``count`` round numbers between two bounds."""
    raw = (high - low) / max(count, 1)
    magnitude = 10.0 ** math.floor(math.log10(raw))
    step = next(m * magnitude for m in (1, 2, 2.5, 5, 10) if m * magnitude >= raw)
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]


def _axes(x_low: float, x_high: float, y_low: float, y_high: float, place: Place, x_label: str) -> str:
    parts = []
    for value in ticks(y_low, y_high):
        x, y = place(x_low, value)
        parts.append(f'<line class="rule" x1="{x:.1f}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:.4g}</text>')
    whole = x_high - x_low >= 2  # iterations and learner steps are counted
    for value in ticks(x_low, x_high, 6):
        if whole and value != int(value):
            continue
        x, _ = place(value, y_low)
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 15}" text-anchor="middle">{value:.4g}</text>')
    parts.append(f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 2}" text-anchor="end">{html.escape(x_label)}</text>')
    return "".join(parts)


def _reference(name: str, value: float, x_low: float, x_high: float, place: Place) -> str:
    (x0, y), (x1, _) = place(x_low, value), place(x_high, value)
    line = f'<line class="ref" x1="{x0:.1f}" x2="{x1:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'
    return f'{line}<text class="ref-name" x="{x1:.1f}" y="{y - 4:.1f}" text-anchor="end">{html.escape(name)}</text>'


def _mark(mark: Mark, x: float) -> str:
    anchor, at = ("end", x - 4) if x > WIDTH * 0.6 else ("start", x + 4)
    line = f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 10}" y2="{HEIGHT - BOTTOM}"/>'
    name = html.escape(mark.name)
    return f'{line}<text class="mark-name" x="{at:.1f}" y="{TOP - 2}" text-anchor="{anchor}">! {name}</text>'


def _draw(s: Series, index: int, place: Place) -> str:
    colour, dash = _colour(index), DASHES[index % len(DASHES)]
    parts = []
    if s.interval:
        upper = [place(x, high) for (x, _), (_, high) in zip(s.points, s.interval, strict=True)]
        lower = [place(x, low) for (x, _), (low, _) in zip(s.points, s.interval, strict=True)]
        area = " ".join(f"{x:.1f},{y:.1f}" for x, y in [*upper, *reversed(lower)])
        parts.append(f'<polygon points="{area}" style="fill:{colour}" opacity="0.16"/>')
    line = " ".join("{:.1f},{:.1f}".format(*place(x, y)) for x, y in s.points)
    look = f'style="stroke:{colour}" stroke-width="2" stroke-dasharray="{dash}"'
    parts.append(f'<polyline points="{line}" fill="none" {look}/>')
    if len(s.points) <= 30:
        for x, y in s.points:
            cx, cy = place(x, y)
            title = f"<title>{html.escape(s.name)} at {x:g}: {y:.4g}</title>"
            parts.append(f'<circle cx="{cx:.1f}" cy="{cy:.1f}" r="2.6" style="fill:{colour}">{title}</circle>')
    return "".join(parts)


def _legend(name: str, index: int) -> str:
    look = f'style="stroke:{_colour(index)}" stroke-width="2.5" stroke-dasharray="{DASHES[index % len(DASHES)]}"'
    stroke = f'<svg width="26" height="8" aria-hidden="true"><line x1="0" x2="26" y1="4" y2="4" {look}/></svg>'
    return f"<span>{stroke} {html.escape(name)}</span>"


def _colour(index: int) -> str:
    return f"var(--c{index % len(DASHES)})"
