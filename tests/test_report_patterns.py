"""The report's view of reasoning patterns: by iteration, and whether what grew in play grew elsewhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from spiral_lib import report, report_patterns
from spiral_lib.evaluation import patterns

HIT, MISS = "On average it is worth two.", "I bet."


def measured(games: int, bank: int) -> dict[str, float]:
    """Return the metrics of two hundred replies in each place, of which so many show the pattern."""
    counts = {"games": games, "bank": bank}
    return {
        name: value
        for place, n in counts.items()
        for name, value in patterns.metrics([HIT] * n + [MISS] * (200 - n), place).items()
    }


def test_growth_in_play_and_on_the_bank_is_told_from_growth_in_play_only(micro_run: Path) -> None:
    files = report.read(micro_run)
    both = replace(files, iterations=((0, measured(20, 20)), (1, measured(20, 20)), (2, measured(120, 110))))
    shown = report_patterns.section(both)
    assert "grew in both" in shown and "grew in play only" not in shown
    assert "+0.500 [" in shown and "<svg" in shown and "Expected value" in shown
    alone = replace(files, iterations=((0, measured(20, 20)), (2, measured(120, 21))))
    assert "grew in play only" in report_patterns.section(alone)


def test_one_evaluation_shows_levels_and_no_transfer(micro_run: Path) -> None:
    files = replace(report.read(micro_run), iterations=((0, measured(20, 20)),))
    shown = report_patterns.section(files)
    assert "not measured" in shown and "grew" not in shown
    assert report_patterns.section(replace(files, iterations=((0, {"eval/bank/accuracy": 0.5}),))) == ""


def test_the_section_stands_in_a_runs_report(micro_run: Path) -> None:
    page = report.body(report.read(micro_run))
    assert 'id="reasoning-patterns"' in page and "change in play" in page
