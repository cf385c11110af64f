"""Charts are plain SVG and HTML: what is drawn, what is left out, what is escaped."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spiral_lib import charts
from spiral_lib.charts import Cell, Mark, Series

LINE = Series(name="a", points=((0.0, 0.1), (1.0, 0.4), (2.0, 0.2)))


def test_nothing_finite_gives_no_figure() -> None:
    assert charts.line_chart("t", [Series(name="a", points=((0.0, math.nan), (1.0, math.inf)))]) == ""
    assert charts.line_chart("t", []) == ""


def test_points_that_are_no_numbers_are_dropped_with_their_interval() -> None:
    series = Series(
        name="a",
        points=((0.0, 1.0), (1.0, math.nan), (2.0, 3.0)),
        interval=((0.5, 1.5), (math.nan, math.nan), (2.5, 3.5)),
    )
    chart = charts.line_chart("t", [series])
    assert chart.count("<circle") == 2
    assert "nan" not in chart


def test_series_differ_by_dash_as_well_as_by_colour() -> None:
    chart = charts.line_chart("t", [LINE, Series(name="b", points=LINE.points)])
    assert 'stroke-dasharray=""' in chart and 'stroke-dasharray="6 3"' in chart
    assert "var(--c0)" in chart and "var(--c1)" in chart


def test_a_mark_is_drawn_and_spoken_where_it_lies_on_the_axis() -> None:
    chart = charts.line_chart("t", [LINE], marks=[Mark(x=1.0, name="short responses"), Mark(x=7.0, name="outside")])
    assert chart.count('class="mark"') == 1
    assert "! short responses" in chart
    assert "short responses at 1" in chart
    assert "outside" not in chart


def test_names_cannot_break_out_of_a_chart() -> None:
    evil = '"><script>alert(1)</script>'
    chart = charts.line_chart(evil, [Series(name=evil, points=LINE.points), LINE], note=evil, references=[(evil, 0.3)])
    assert "<script" not in chart
    ElementTree.fromstring(chart)


def test_an_interval_band_reaches_from_its_least_low_to_its_greatest_high() -> None:
    series = Series(name="a", points=((0.0, 0.5), (1.0, 0.5)), interval=((0.0, 1.0), (0.0, 1.0)))
    band = charts.line_chart("t", [series]).split('<polygon points="')[1].split('"')[0]
    ys = [float(pair.split(",")[1]) for pair in band.split()]
    assert ys[0] == ys[1] == min(ys) and ys[2] == ys[3] == max(ys)
    assert charts.TOP - 1 <= min(ys) < max(ys) <= charts.HEIGHT - charts.BOTTOM + 1


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
def test_ticks_are_inside_their_bounds_and_few(low: float, width: float) -> None:
    values = charts.ticks(low, low + width)
    assert 1 <= len(values) <= 7
    assert all(low - 1e-6 * width <= v <= low + width + 1e-6 * width for v in values)


def test_a_heat_map_shows_every_number_and_its_sign_by_colour() -> None:
    cells = {("a", "x"): Cell(value=0.5, low=0.2, high=0.8), ("b", "x"): Cell(value=-1.0)}
    table = charts.heat_map(["a", "b"], ["x", "y"], cells, "against")
    assert "+0.50" in table and "+0.20 to +0.80" in table and "-1.00" in table
    assert "var(--win) 28%" in table or "var(--win) 27%" in table
    assert "var(--loss) 55%" in table
    assert table.count("–") == 2
    assert charts.heat_map([], [], {}, "") == ""


@pytest.mark.parametrize(("share", "width"), [(0.25, "25.0%"), (7.0, "100.0%"), (math.nan, "0.0%")])
def test_a_bar_stays_within_its_box(share: float, width: str) -> None:
    assert f"width:{width}" in charts.bar(share)
