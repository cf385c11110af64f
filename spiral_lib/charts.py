"""Line charts as inline SVG text: no scripts, no fonts, readable in light, dark and print."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")  # Okabe-Ito: safe for colour-blind readers
DASHES = ("", "6 3", "2 2", "8 3 2 3", "1 3", "10 4")
WIDTH, HEIGHT = 460, 240
LEFT, RIGHT, TOP, BOTTOM = 52, 14, 12, 30


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """Points (x, y) in order of x, optionally with an interval (low, high) for each."""

    name: str
    points: tuple[tuple[float, float], ...]
    interval: tuple[tuple[float, float], ...] = ()


def line_chart(
    title: str,
    series: Sequence[Series],
    *,
    note: str = "",
    references: Sequence[tuple[str, float]] = (),
    x_label: str = "iteration",
) -> str:
    """Return a figure: a line per series, intervals as bands, dotted reference lines; "" without any finite point."""
    kept = [_finite(s) for s in series]
    kept = [s for s in kept if s.points]
    if not kept:
        return ""
    x_low, x_high, y_low, y_high = _bounds(kept, references)
    sx = (WIDTH - LEFT - RIGHT) / (x_high - x_low)
    sy = (HEIGHT - TOP - BOTTOM) / (y_high - y_low)

    def place(x: float, y: float) -> tuple[float, float]:
        return LEFT + (x - x_low) * sx, HEIGHT - BOTTOM - (y - y_low) * sy

    parts = [_axes(x_low, x_high, y_low, y_high, place, x_label)]
    for name, value in references:
        (x0, y0), (x1, _) = place(x_low, value), place(x_high, value)
        parts.append(f'<line class="ref" x1="{x0:.1f}" x2="{x1:.1f}" y1="{y0:.1f}" y2="{y0:.1f}"/>')
        parts.append(
            f'<text class="ref-name" x="{x1:.1f}" y="{y0 - 4:.1f}" text-anchor="end">{html.escape(name)}</text>'
        )
    for i, s in enumerate(kept):
        parts.append(_draw(s, i, place))
    label = html.escape(
        f"{title}. " + "; ".join(f"{s.name}: {s.points[0][1]:.3g} to {s.points[-1][1]:.3g}" for s in kept)
    )
    svg = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{"".join(parts)}</svg>'
    legend = "".join(_legend(s.name, i) for i, s in enumerate(kept)) if len(kept) > 1 else ""
    caption = (
        f"<figcaption><b>{html.escape(title)}</b>{f' <span>{html.escape(note)}</span>' if note else ''}</figcaption>"
    )
    return f'<figure>{caption}{svg}<div class="legend">{legend}</div></figure>'


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


def _axes(x_low: float, x_high: float, y_low: float, y_high: float, place: object, x_label: str) -> str:
    assert callable(place)
    parts = []
    for value in ticks(y_low, y_high):
        x, y = place(x_low, value)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:.4g}</text>')
    for value in ticks(x_low, x_high, 6):
        x, _ = place(value, y_low)
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 15}" text-anchor="middle">{value:.4g}</text>')
    parts.append(f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 2}" text-anchor="end">{html.escape(x_label)}</text>')
    return "".join(parts)


def _draw(s: Series, index: int, place: object) -> str:
    assert callable(place)
    colour, dash = COLOURS[index % len(COLOURS)], DASHES[index % len(DASHES)]
    line = " ".join("{:.1f},{:.1f}".format(*place(x, y)) for x, y in s.points)
    parts = []
    if s.interval:
        upper = [place(x, high) for (x, _), (_, high) in zip(s.points, s.interval, strict=True)]
        lower = [place(x, low) for (x, _), (low, _) in zip(s.points, s.interval, strict=True)]
        area = " ".join(f"{x:.1f},{y:.1f}" for x, y in [*upper, *reversed(lower)])
        parts.append(f'<polygon points="{area}" fill="{colour}" opacity="0.15"/>')
    parts.append(
        f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"/>'
    )
    if len(s.points) <= 30:
        for x, y in s.points:
            cx, cy = place(x, y)
            parts.append(
                f'<circle cx="{cx:.1f}" cy="{cy:.1f}" r="2.6" fill="{colour}"><title>{x:g}: {y:.4g}</title></circle>'
            )
    return "".join(parts)


def _legend(name: str, index: int) -> str:
    colour, dash = COLOURS[index % len(COLOURS)], DASHES[index % len(DASHES)]
    look = f'stroke="{colour}" stroke-width="2.5" stroke-dasharray="{dash}"'
    stroke = f'<svg width="26" height="8"><line x1="0" x2="26" y1="4" y2="4" {look}/></svg>'
    return f"<span>{stroke} {html.escape(name)}</span>"
