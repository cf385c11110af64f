"""Benchmarks on an endpoint, through the same adapter as on any engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import micro_runs
import pyarrow.parquet as pq
import pytest
from endpoint_server import running

from spiral_lib import bank_items as bank
from spiral_lib import cli, evaluation
from spiral_lib.config import EvaluationConfig
from spiral_lib.engines.openai import OpenAiEngine
from spiral_lib.errors import EngineError
from spiral_lib.evaluation import benchmarks, suite
from spiral_lib.settings import EndpointConfig

pytest.importorskip("lm_eval", reason="needs the extra 'eval' (lm-eval)")

GOLD = {bank.user_text(item): bank.reply_text(item) for item in bank.items()}
ASKED = bank.limited(24)
SETTINGS = EvaluationConfig(bank_limit=24, bank_max_new_tokens=20_000)


def answered(number: int, body: dict[str, Any]) -> str:
    """Every question gets its answer, but those of one family a wrong one."""
    text = body["messages"][-1]["content"]
    wrong = {bank.user_text(item) for item in ASKED if item.family == "gcd"}
    return "say \\boxed{none}" if text in wrong else f"say {GOLD[text]}"


def test_an_endpoint_is_asked_with_texts_and_graded_like_any_engine() -> None:
    with running(answered) as server:
        engine = OpenAiEngine("m", EndpointConfig(base_url=server.url, backoff_s=0.001))
        result = benchmarks.run("bank", engine, None, SETTINGS, context_tokens=16, seed=3)
        engine.close()
    assert result.correct == tuple(item.family != "gcd" for item in ASKED)
    assert len(server.bodies) == 24 and {len(body["messages"]) for body in server.bodies} == {1}
    assert {body["max_tokens"] for body in server.bodies} == {20_000}, "its window is its own"
    assert len({body["seed"] for body in server.bodies}) == 24, "each reply has its own"
    assert benchmarks.metrics(result)["eval/bank/clamped_n"] == 0


def test_an_endpoint_that_fails_gives_no_score() -> None:
    with running(lambda number, body: "500" if number > 3 else answered(number, body)) as server:
        engine = OpenAiEngine("m", EndpointConfig(base_url=server.url, backoff_s=0.001, retries=1))
        with pytest.raises(EngineError, match="http_500"):
            benchmarks.run("bank", engine, None, SETTINGS, context_tokens=16, seed=3)
        engine.close()


def test_a_hosted_model_is_an_opponent_with_its_own_row(micro_checkpoint: Path) -> None:
    more = 'evaluation.bank=false evaluation.exploitability_games=[] evaluation.opponents=["api:some/model"]'
    with running("say I fold. \\boxed{[fold]}") as server:
        config = micro_runs.config(micro_checkpoint, f"{more} evaluation.matches=4 endpoint.base_url={server.url}")
        made = evaluation.evaluate(micro_checkpoint, cold_start=micro_checkpoint, config=config, iteration=0)
    (row,) = suite._game("kuhn_poker", made, ["api:some/model"])
    assert (row.opponent, row.n) == ("api:some/model", 4) and row.value is not None and row.note
    assert made.metrics["eval/kuhn_poker/vs_api_some_model/win_rate_n"] == 4
    assert server.bodies, "it was asked"


def test_the_command_line_measures_a_model_at_an_endpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running(answered) as server:
        settings = f"endpoint.base_url={server.url} evaluation.bank_limit=24"
        argv = ["eval", "api:m", "--suite", "bank", "--preset", "smoke", "--set", settings]
        code = cli.run([*argv, "--records", str(tmp_path), "--json"])
    (row,) = json.loads(capsys.readouterr().out)["benchmarks"]
    assert code == 0 and row["name"] == "bank" and row["n"] == 24
    right = sum(item.family != "gcd" for item in ASKED)
    assert row["value"] == pytest.approx(right / 24) and row["value"] < 1
    assert pq.read_table(tmp_path / "bank.parquet").num_rows == 24
    assert cli.run(["eval", "api:m", "--suite", "bank"]) == 2
