"""How ``spiral eval`` lays out an evaluation: headline first, every metric once."""

from __future__ import annotations

from dataclasses import replace

from spiral_lib import presets
from spiral_lib.cli import _scores
from spiral_lib.cli import eval as eval_command

METRICS = {
    "eval/nim/vs_random/win_rate": 0.5, "eval/nim/vs_random/win_rate_low": 0.4, "eval/nim/vs_random/win_rate_high": 0.6,
    "eval/nim/vs_random/win_rate_n": 100.0, "eval/nim/vs_random/void_n": 0.0, "eval/bank/accuracy": 0.25,
    "eval/bank/accuracy_n": 40.0, "eval/bank/gcd/accuracy": 0.1, "reasoning/turns": 7.0,
    "reasoning/pattern/games/decomposition": 0.2, "reasoning/pattern/aime24/decomposition": 0.3,
    "eval/kuhn_poker/exploitability": 0.1, "eval/kuhn_poker/legal_mass": 0.9,
}  # fmt: skip


def test_the_headline_comes_first_and_every_metric_stands_once() -> None:
    groups = _scores.grouped(METRICS)
    assert [title for title, _ in groups] == [
        "What tells most", "bank", "kuhn poker", "nim", "reasoning", "reasoning patterns, aime24",
        "reasoning patterns, games",
    ]  # fmt: skip
    headline = [name for name, _ in groups[0][1]]
    assert headline[0].startswith("Exploitability, kuhn poker") and len(headline) == 3
    rows = [row for _, group in groups[1:] for row in group]
    assert [name for name, _ in rows] == [
        "eval/bank/gcd/accuracy", "eval/kuhn_poker/legal_mass", "eval/nim/vs_random/void_n", "reasoning/turns",
        "reasoning/pattern/aime24/decomposition", "reasoning/pattern/games/decomposition",
    ]  # fmt: skip


def test_intervals_and_counts_stand_beside_their_metric() -> None:
    assert _scores.shown("eval/nim/vs_random/win_rate", METRICS) == "0.500 [0.400, 0.600] (n=100)"
    assert _scores.shown("eval/bank/accuracy", METRICS) == "0.250 (n=40)"
    assert _scores.shown("reasoning/turns", METRICS) == "7.000"


def test_nothing_measured_outside_play_has_no_headline() -> None:
    assert _scores.grouped({"reasoning/turns": 1.0}) == [("reasoning", [("reasoning/turns", "1.000")])]
    assert _scores.grouped({}) == []


def test_a_limit_changes_nothing_but_the_number_of_items() -> None:
    config = presets.smoke()
    assert eval_command._limited(config, None) is config
    limited = eval_command._limited(config, 7)
    assert limited.evaluation.benchmark_limit == 7
    assert replace(limited, evaluation=replace(limited.evaluation, benchmark_limit=0)) == config
