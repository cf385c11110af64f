"""Benchmarks through lm-eval: verdicts per item, seeds per request, limits that fit the window."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import pytest

from spiral_lib import bank_items as bank
from spiral_lib.config import EvaluationConfig, PromptConfig
from spiral_lib.engines.scripted import ScriptedEngine, decode_bytes, encode_bytes
from spiral_lib.errors import ConfigError, EngineError
from spiral_lib.evaluation import benchmarks
from spiral_lib.types import Request

pytest.importorskip("lm_eval", reason="needs the extra 'eval' (lm-eval)")

SETTINGS = EvaluationConfig(bank_limit=48, bank_max_new_tokens=200)


class TextRenderer:
    """The user's text is the prompt, one token a byte."""

    config = PromptConfig()

    def encode_text(self, user_text: str) -> tuple[int, ...]:
        return encode_bytes(user_text)


class Recorder(ScriptedEngine):
    """Keeps the requests it was given."""

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        self.requests: list[Request] = []

    def submit(self, request: Request) -> None:
        self.requests.append(request)
        super().submit(request)


def run(engine: ScriptedEngine, *, context_tokens: int = 4096, seed: int = 0) -> benchmarks.BenchmarkResult:
    return benchmarks.run(
        "bank", engine, TextRenderer(), SETTINGS, context_tokens=context_tokens, seed=seed  # type: ignore[arg-type]
    )


def gold() -> dict[str, str]:
    return {bank.user_text(item): bank.reply_text(item) for item in bank.items()}


def test_gold_answers_score_all_and_empty_answers_none() -> None:
    answers = gold()
    right = run(ScriptedEngine(lambda prompt, seed: answers[decode_bytes(prompt)], slots=48))
    empty = run(ScriptedEngine(lambda prompt, seed: "", slots=48))
    assert benchmarks.metrics(right)["eval/bank/accuracy"] == 1.0
    assert benchmarks.metrics(right)["eval/bank/extraction_failure_rate"] == 0.0
    assert benchmarks.metrics(empty)["eval/bank/accuracy"] == 0.0
    assert benchmarks.metrics(empty)["eval/bank/extraction_failure_rate"] == 1.0
    assert len(right.correct) == 48


def test_verdicts_stand_in_the_banks_order() -> None:
    answers = gold()
    wrong = {bank.user_text(item) for item in bank.limited(48) if item.family in ("add", "gcd")}

    def reply(prompt: Sequence[int], seed: int) -> str:
        text = decode_bytes(prompt)
        return "\\boxed{none}" if text in wrong else answers[text]

    found = run(ScriptedEngine(reply, slots=5))
    assert found.correct == tuple(item.family not in ("add", "gcd") for item in bank.limited(48))
    metrics = benchmarks.metrics(found)
    assert metrics["eval/bank/add/accuracy"] == 0.0
    assert metrics["eval/bank/parity/accuracy"] == 1.0
    assert metrics["eval/bank/accuracy_low"] < metrics["eval/bank/accuracy"] < metrics["eval/bank/accuracy_high"]


def test_another_checkpoint_gets_its_own_answers_and_not_cached_ones() -> None:
    answers = gold()
    first = run(ScriptedEngine(lambda prompt, seed: "\\boxed{7}", slots=48))
    second = run(ScriptedEngine(lambda prompt, seed: answers[decode_bytes(prompt)], slots=48))
    assert first.correct != second.correct
    assert all(second.correct)


def test_requests_are_greedy_and_have_seeds_of_their_own_that_a_rerun_repeats() -> None:
    engines = [Recorder(lambda prompt, seed: "", slots=48) for _ in range(3)]
    for engine, seed in zip(engines, (0, 0, 1), strict=True):
        run(engine, seed=seed)
    one, two, other = ([r.seed for r in engine.requests] for engine in engines)
    assert one == two
    assert set(one).isdisjoint(other)
    assert len(set(one)) == 48
    assert {r.temperature for r in engines[0].requests} == {0.0}


def test_a_token_limit_beyond_the_window_is_lowered_and_counted() -> None:
    engine = Recorder(lambda prompt, seed: "", slots=48)
    found = run(engine, context_tokens=150)
    assert found.clamped > 0
    assert benchmarks.metrics(found)["eval/bank/clamped_n"] == found.clamped
    assert all(len(r.prompt_ids) + r.max_new_tokens <= 150 for r in engine.requests if len(r.prompt_ids) < 150)
    assert all(r.max_new_tokens >= 1 for r in engine.requests)


def test_an_unknown_benchmark_is_named_at_once() -> None:
    engine = ScriptedEngine(lambda prompt, seed: "")
    with pytest.raises(ConfigError, match="bamk"):
        benchmarks.run("bamk", engine, TextRenderer(), SETTINGS, context_tokens=512, seed=0)  # type: ignore[arg-type]


def test_without_lm_eval_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    with pytest.raises(EngineError, match=r"spiral-pipeline\[eval\]"):
        run(ScriptedEngine(lambda prompt, seed: ""))
