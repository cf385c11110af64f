"""The table of routes: what is compared pair by pair, what is said in words, and what is written."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from spiral_lib import measures, route_table
from spiral_lib.errors import LineageError
from spiral_lib.route_table import Arm
from spiral_lib.types import Decision, Evaluation

WIN_RATE = "eval/kuhn_poker/vs_random/win_rate"


def share(name: str, value: float, half: float) -> dict[str, float]:
    return {name: value, f"{name}_low": value - half, f"{name}_high": value + half}


def evaluation(exploitability: float, right: int, pairs: list[tuple[float | None, float | None]]) -> Evaluation:
    returns = tuple(value for pair in pairs for value in pair)
    metrics = share("eval/kuhn_poker/exploitability", exploitability, 0.01)
    metrics |= share("eval/bank/accuracy", right / 40, 0.15) | share(WIN_RATE, 0.5, 0.1)
    metrics |= {"reasoning/invalid_share": 0.0125, "reasoning/median_tokens": 21.0}
    return Evaluation(
        metrics=metrics,
        bank_correct=(True,) * right + (False,) * (40 - right),
        match_returns={"kuhn_poker/random": returns},
    )


def arm(name: str, found: Evaluation, **rest: Any) -> Arm:
    values: dict[str, Any] = {"learner_steps": 60, "optimizer_steps": 240, "tokens": 345_678, "seconds": 200.4}
    values |= {"decisions": (Decision.ACCEPT, Decision.HOLD, Decision.ACCEPT), "champion": 3} | rest
    return Arm(name=name, about="Preset tiny, kuhn_poker, seed 0.", evaluation=found, **values)


START = arm("cold_start", evaluation(0.3, 10, [(0.5, -0.5)] * 20), learner_steps=0, decisions=(), champion=0)
SFT = arm("sft", evaluation(0.1, 9, [(1.0, -0.5)] * 20))
RLVR = arm("rlvr", evaluation(0.305, 20, [(0.5, -1.0)] * 20))
SELF_PLAY = arm("self_play", evaluation(0.08, 11, [(0.5, -0.5)] * 20))
ARMS = [START, SFT, RLVR, SELF_PLAY]


def verdict(name: str, first: Arm, second: Arm) -> str:
    wanted = [m for m in measures.outside_self_play(first.evaluation.metrics) if m.name == name]
    return route_table.change(wanted[0], first, second).verdict


def test_the_bank_is_compared_item_by_item() -> None:
    assert verdict("eval/bank/accuracy", START, RLVR) == "better", "10 items gained, none lost"
    assert verdict("eval/bank/accuracy", RLVR, START) == "worse"
    assert verdict("eval/bank/accuracy", START, SFT) == "not significant"
    assert verdict("eval/bank/accuracy", START, arm("x", evaluation(0.3, 17, []))) == "better", "7 to 0, p=0.016"


def test_win_rates_are_judged_by_the_returns_of_the_same_pairs_of_matches() -> None:
    assert verdict(WIN_RATE, START, SFT) == "better"
    assert verdict(WIN_RATE, START, RLVR) == "worse"
    assert verdict(WIN_RATE, START, SELF_PLAY) == "not significant"
    void = [(None, 1.0)] * 16 + [(1.0, -0.5)] * 4
    assert verdict(WIN_RATE, START, arm("x", evaluation(0.3, 10, void))) == "not significant", "4 pairs are left"


def test_exploitability_is_judged_by_its_intervals_and_lower_is_better() -> None:
    name = "eval/kuhn_poker/exploitability"
    assert [verdict(name, START, a) for a in (SFT, RLVR, SELF_PLAY)] == ["better", "not significant", "better"]


def test_few_items_are_not_judged() -> None:
    few = {**RLVR.evaluation.metrics, "eval/bank/accuracy_n": 8.0}
    other = dataclasses.replace(RLVR, evaluation=dataclasses.replace(RLVR.evaluation, metrics=few))
    assert verdict("eval/bank/accuracy", START, other) == measures.TOO_FEW
    assert "of 2 measures" in route_table.summary([START, other])[0]
    nothing = dataclasses.replace(RLVR, evaluation=Evaluation(metrics={}))
    assert route_table.summary([nothing, nothing]) == ["RLVR against the cold start: too few items to say."]


def test_every_route_is_a_column_and_every_measure_and_cost_a_row() -> None:
    text = route_table.markdown(ARMS)
    assert "|  | cold start | SFT | RLVR | self-play |" in text
    lines = {line.split("|")[1].strip(): line for line in text.splitlines() if line.startswith("|")}
    assert "0.300 (0.290 to 0.310) | 0.100 (0.090 to 0.110), better | 0.305" in text
    assert "| 1.2% | 1.2% |" in lines["Illegal turns in evaluation matches"]
    assert lines["Learner steps"].endswith("| 0 | 60 | 60 | 60 |")
    assert "345,678" in lines["Response tokens to learn from"]
    assert lines["Gate"].endswith("| – | accept 2, hold 1 | accept 2, hold 1 | accept 2, hold 1 |")
    assert lines["Champion"].endswith("| cold start | iteration 3 | iteration 3 | iteration 3 |")
    assert "SFT against the cold start: 2 of 3 measures significantly better, 0 worse." in text
    assert "worse (+0.205, p<0.001)" in text, "RLVR against SFT, exploitability"
    assert "self-play against SFT" in text and "one seed" in text
    assert "18 comparisons" in text


def test_what_was_not_measured_is_said_to_be_missing() -> None:
    metrics = {k: v for k, v in SFT.evaluation.metrics.items() if "bank" not in k}
    without = dataclasses.replace(SFT, evaluation=dataclasses.replace(SFT.evaluation, metrics=metrics, bank_correct=()))
    row = next(r for r in route_table.results([START, without]) if r[0].startswith("Fixed bank"))
    assert row[2] == "not measured"
    assert "cannot be told" in route_table.markdown([START, without, SELF_PLAY])


def test_a_single_route_has_nothing_to_be_compared_with_but_the_cold_start() -> None:
    assert route_table.duels([START, SFT]) == []
    assert "Route against route" not in route_table.body([START, SFT])


def test_the_page_is_self_contained_and_escapes_names() -> None:
    page = route_table.body([START, arm("<script>", SFT.evaluation)])
    assert "<script>" not in page and "&lt;script&gt;" in page
    assert "http" not in page


def test_a_folder_without_an_evaluation_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LineageError, match="not a run folder"):
        route_table.read_arm("sft", tmp_path)


def test_rows_in_long_form_load_with_their_verdicts(tmp_path: Path) -> None:
    rows = list(route_table.long_rows(ARMS))
    found = {(r["route"], r["measure"]): r for r in rows}
    assert found["sft", "eval/kuhn_poker/exploitability"]["against_cold_start"] == "better"
    assert "p" not in found["cold_start", "eval/bank/accuracy"]
    assert found["self_play", "response_tokens"]["value"] == 345_678
    path = route_table.write_rows(ARMS, tmp_path / "routes.parquet")
    assert pq.read_table(path).num_rows == len(rows)
