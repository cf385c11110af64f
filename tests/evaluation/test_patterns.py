"""The pattern classifier against traces labelled before it was written; its metrics and the transfer view."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from spiral_lib.evaluation import patterns
from spiral_lib.evaluation.patterns import Pattern

TRACES = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "golden" / "patterns_traces.jsonl").read_text("utf-8").splitlines()
]
# Right, wrong and missed on the traces that the rules were not written against. Rules and traces have one author, so
# this is an upper bound for other people's wording.
HELD_OUT = {
    Pattern.EXPECTED_VALUE: (7, 0, 2),
    Pattern.CASE_BY_CASE: (13, 1, 0),
    Pattern.PATTERN_RECOGNITION: (11, 1, 1),
    Pattern.DECOMPOSITION: (11, 0, 5),
}


def counts(split: str, pattern: Pattern) -> tuple[int, int, int]:
    rows = [r for r in TRACES if r["split"] == split]
    pairs = [(pattern in patterns.classify(r["text"]), pattern.value in r["labels"]) for r in rows]
    return pairs.count((True, True)), pairs.count((True, False)), pairs.count((False, True))


def test_the_fixture_has_enough_traces_with_and_without_each_label_in_both_parts() -> None:
    for split, size, labelled in (("development", 180, 35), ("held_out", 60, 9)):
        rows = [r for r in TRACES if r["split"] == split]
        assert len(rows) == size
        assert sum(not r["labels"] for r in rows) >= size / 5
        assert all(sum(p.value in r["labels"] for r in rows) >= labelled for p in Pattern)
    assert len({r["text"] for r in TRACES}) == 240


@pytest.mark.parametrize("pattern", Pattern)
def test_held_out_precision_and_recall_are_the_published_ones(pattern: Pattern) -> None:
    assert counts("held_out", pattern) == HELD_OUT[pattern]


@pytest.mark.parametrize("pattern", Pattern)
def test_precision_and_recall_are_at_least_nearly_nine_in_ten_on_the_development_part(pattern: Pattern) -> None:
    right, wrong, missed = counts("development", pattern)
    assert right / (right + wrong) >= 0.87
    assert right / (right + missed) >= 0.87


@pytest.mark.parametrize(
    "unit",
    ["a", "if ", "case a: ", "0.5 * 2 + ", "1 in 2 ", "call " + "x" * 40, "always", "\\boxed{", "9" * 50, "one of two"],
)
def test_a_text_of_a_million_characters_is_read_within_a_second(unit: str) -> None:
    started = time.process_time()
    patterns.classify(unit * (1_000_000 // len(unit)))
    assert time.process_time() - started < 1


def test_time_grows_in_proportion_to_length() -> None:
    def seconds(n: int) -> float:
        text = "if he holds the king, a call costs 2 with probability 0.5, otherwise " * n
        assert len(text) < patterns.MAX_CHARS
        return min(_seconds(text) for _ in range(5))

    assert seconds(800) < 40 * seconds(50)  # sixteen times the text


def _seconds(text: str) -> float:
    started = time.process_time()
    patterns.classify(text)
    return time.process_time() - started


def test_metrics_give_shares_with_intervals_and_a_number_free_of_length() -> None:
    texts = ["On average it is worth two.", "I bet.", "I check.", "I fold."]
    found = patterns.metrics(texts, "games")
    name = "reasoning/pattern/games/expected_value"
    assert found[name] == 0.25 and found[f"{name}_n"] == 4.0
    assert found[f"{name}_low"] < 0.25 < found[f"{name}_high"]
    assert found[f"{name}_per_1000_words"] == pytest.approx(1000 / 12)
    assert found["reasoning/pattern/games/decomposition"] == 0.0


def test_nothing_to_read_gives_a_count_of_none_and_no_share() -> None:
    assert patterns.metrics([], "bank") == {f"reasoning/pattern/bank/{p}_n": 0.0 for p in Pattern}
    assert "reasoning/pattern/bank/decomposition" in patterns.metrics([""], "bank")


def evaluation(games: int, bank: int, n: int = 200) -> dict[str, Any]:
    hit, miss = "On average it is worth two.", "I bet."
    return patterns.metrics([hit] * games + [miss] * (n - games), "games") | patterns.metrics(
        [hit] * bank + [miss] * (n - bank), "bank"
    )


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ((20, 20), (90, 80), "grew in both"),
        ((20, 20), (90, 22), "grew in play only"),
        ((20, 20), (25, 90), "no significant change in play"),
        ((90, 20), (20, 90), "fell in play"),
    ],
)
def test_transfer_says_what_the_intervals_allow(
    before: tuple[int, int], after: tuple[int, int], expected: str
) -> None:
    rows = {t.pattern: t for t in patterns.transfer(evaluation(*before), evaluation(*after))}
    assert rows[Pattern.EXPECTED_VALUE].verdict == expected
    assert rows[Pattern.DECOMPOSITION].verdict == "no significant change in play"


def test_newcombes_interval_is_the_published_one() -> None:
    # Newcombe 1998, method 10: 56/70 against 48/80 is 0.2 with interval 0.0524 to 0.3339.
    hit, miss = "On average it is worth two.", "I bet."
    last = patterns.metrics([hit] * 56 + [miss] * 14, "games") | patterns.metrics([], "bank")
    first = patterns.metrics([hit] * 48 + [miss] * 32, "games")
    row = patterns.transfer(first, last)[0]
    assert row.play is not None and row.elsewhere is None
    assert row.verdict == "not measured"
    assert (row.play.difference, row.play.low, row.play.high) == pytest.approx((0.2, 0.0524, 0.3339), abs=1e-4)
