"""Suites: the paper's rows for any checkpoint, with n and intervals, and what cannot be measured said in words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from spiral_lib import checkpoint_sources, evaluation, presets
from spiral_lib.config import EvaluationConfig, RunConfig
from spiral_lib.errors import ConfigError
from spiral_lib.evaluation import suite

pytest.importorskip("lm_eval", reason="needs the extra 'eval' (lm-eval)")
BENCHMARKS = Path(__file__).resolve().parents[3] / "shared" / "benchmarks"


def config(**evaluated: object) -> RunConfig:
    base = presets.smoke()
    settings = EvaluationConfig(
        matches=2, minimax_states=4, bank_limit=24, bank_max_new_tokens=4, benchmark_max_new_tokens=4,
        benchmark_limit=3, exploitability_games=(),
    )  # fmt: skip
    rollout = replace(base.rollout, max_new_tokens=4)
    return replace(base, rollout=rollout, evaluation=replace(settings, **evaluated))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("suite") / "untrained"
    checkpoint_sources.init_tiny(config(), ["I hold K. I must call or fold. \\boxed{[call]} 0123456789"] * 20, out)
    return out


def test_the_papers_rows_are_all_there_and_missing_data_are_no_zeros(checkpoint: Path, tmp_path: Path) -> None:
    result = suite.run(checkpoint, ["paper"], config=config(data_dir=str(tmp_path)))
    assert [row.name for row in result.benchmarks] == [*suite.PAPER_BENCHMARKS, "average"]
    assert all(row.value is None and row.note for row in result.benchmarks)
    assert "only 0 of 8" in result.benchmarks[-1].note
    assert {row.name for row in result.games} == set(suite.PAPER_GAMES)
    measured = [row for row in result.games if row.value is not None]
    assert {row.name for row in measured if row.opponent == "random"} == set(suite.PAPER_GAMES)
    assert all(row.n == 2 and row.low is not None and row.low <= row.value <= row.high for row in measured)  # type: ignore[operator]
    # Two lost matches prove nothing.
    assert {row.note for row in measured} == {"wins and losses: no significant difference"}
    assert {"reasoning/pattern/games/expected_value", "eval/kuhn_poker/regret"} <= set(result.evaluation.metrics)
    shown = suite.text(result)
    assert "math500" in shown and "not measured" in shown and "kuhn_poker vs random" in shown
    assert str(tmp_path / "aime24.jsonl") in shown


@pytest.mark.skipif(not BENCHMARKS.is_dir(), reason="the benchmark files are not beside the repository")
def test_single_benchmarks_are_measured_without_playing_and_leave_their_replies(
    checkpoint: Path, tmp_path: Path
) -> None:
    result = suite.run(
        checkpoint, ["aime24", "bank"], config=config(data_dir=str(BENCHMARKS)), records=tmp_path / "replies"
    )
    assert result.games == () and result.evaluation.match_returns == {}
    assert [(row.name, row.n) for row in result.benchmarks] == [("aime24", 3), ("bank", 24)]
    assert "a part of its items" in result.benchmarks[0].note
    assert result.benchmarks[0].extraction_failure_rate == 1.0
    assert result.evaluation.metrics["reasoning/pattern/aime24/decomposition_n"] == 3.0
    assert pq.read_table(tmp_path / "replies" / "aime24.parquet").num_rows == 3
    assert pq.read_table(tmp_path / "replies" / "bank.parquet").num_rows == 24


def test_missing_data_are_named_before_a_checkpoint_is_loaded(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"math500\.jsonl"):
        evaluation.evaluate(
            tmp_path / "none",
            cold_start=tmp_path / "none",
            config=config(data_dir=str(tmp_path), benchmarks=("bank", "math500")),
            iteration=0,
        )


def test_unknown_names_and_no_names_are_refused(checkpoint: Path) -> None:
    with pytest.raises(ConfigError, match="aime24"):
        suite.run(checkpoint, ["aime2"], config=config())
    with pytest.raises(ConfigError, match="paper"):
        suite.run(checkpoint, [], config=config())


@pytest.mark.parametrize(
    ("returns", "expected"),
    [
        ((1.0, 1.0, 1.0, 1.0, 1.0), "wins and losses: no significant difference"),
        ((1.0,) * 6, "wins more than it loses"),
        ((-1.0,) * 6 + (0.0, None), "loses more than it wins"),
        ((1.0, -1.0) * 50, "wins and losses: no significant difference"),
        ((), "wins and losses: no significant difference"),
    ],
)
def test_the_verdict_is_that_of_the_exact_sign_test(returns: tuple[float | None, ...], expected: str) -> None:
    assert suite.verdict(returns) == expected


def row(name: str, value: float | None, n: int = 100) -> suite.Row:
    return suite.Row(name=name, value=value, n=n)


def test_an_average_needs_all_eight_benchmarks() -> None:
    rows = [row(name, 0.5) for name in suite.PAPER_BENCHMARKS]
    whole = suite._average(rows)
    # Eight independent shares with error 0.05 each: 0.05 / sqrt(8).
    assert whole.value == 0.5 and whole.n == 800
    assert whole.high == pytest.approx(0.5 + 1.959964 * 0.05 / 8**0.5)
    assert suite._average(rows[:-1]).value is None
    assert suite._average([*rows[:-1], row("mmlu_pro", None)]).value is None
