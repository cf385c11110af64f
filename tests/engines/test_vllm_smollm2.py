"""Engine vllm over real weights, SmolLM2-135M, on the CPU: make test-vllm runs these where both are installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spiral_lib import checkpoints, engines, policies, presets, rollout
from spiral_lib.config import ModelConfig, PromptConfig, RolloutConfig, RunConfig
from spiral_lib.engines import parity
from spiral_lib.engines.hf import HfEngine
from spiral_lib.errors import CheckpointError
from spiral_lib.prompts import Renderer
from spiral_lib.types import EndReason, MatchSpec, PolicyRef, Request

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("vllm") is None, reason="vllm is not installed here; make test-vllm has its own place"
    ),
]

QUESTIONS = ("What is the capital of France?", "Name a primary colour.", "How many days has a week?", "Say hello.")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("smollm2") / "checkpoint"
    try:
        checkpoints.fetch(presets.smollm2(), out)
    except CheckpointError as error:
        pytest.skip(str(error))
    return out


def config(dtype: str) -> RunConfig:
    base = presets.smollm2()
    model = ModelConfig(source="smollm2", dtype=dtype, context_tokens=320)
    return replace(base, model=model, rollout=RolloutConfig(engine="vllm", concurrency=8, max_new_tokens=24))


@pytest.fixture(scope="module")
def exact(folder: Path) -> Iterator[Any]:
    engine = engines.make("vllm", folder, config("float32"))
    yield engine
    engine.close()


def asked(folder: Path, *, temperature: float = 1.0, limit: int = 24) -> list[Request]:
    renderer = Renderer(checkpoints.load_tokenizer(folder), PromptConfig())
    return [
        Request(id=n, prompt_ids=renderer.encode_text(text), header_len=0, seed=n, temperature=temperature,
                max_new_tokens=limit)
        for n, text in enumerate(QUESTIONS)
    ]  # fmt: skip


def test_log_probs_are_those_of_the_hf_engine(exact: Any, folder: Path) -> None:
    found = parity.measure(exact, HfEngine(folder, config("float32")), asked(folder, temperature=0.8))
    assert found.tokens > 40
    assert found.max_abs < 2e-3
    assert found.mean_abs < 1e-4
    assert found.outside == 0


def test_a_question_is_answered(exact: Any, folder: Path) -> None:
    question = asked(folder, temperature=0.0)[0]
    done = parity.finish(exact, [question])
    assert "Paris" in done[0].text and done[0].finish_reason == "stop"


def test_updated_weights_of_the_tied_head_are_served(exact: Any, folder: Path) -> None:
    import torch

    model = checkpoints.load_model(folder)
    weights = {name: weight.clone() for name, weight in model.state_dict().items() if name != "lm_head.weight"}
    draw = torch.Generator().manual_seed(3)
    embedding = weights["model.embed_tokens.weight"]
    embedding += 0.02 * torch.randn(embedding.shape, generator=draw)
    before = exact.score([(asked(folder)[0].prompt_ids, (40, 41, 42))])[0]
    exact.load_weights(weights, "moved")  # the canary compares with transformers
    try:
        reference = HfEngine(folder, config("float32"))
        reference.load_weights(weights | {"lm_head.weight": embedding}, "moved")
        after = exact.score([(asked(folder)[0].prompt_ids, (40, 41, 42))])[0]
        expected = reference.score([(asked(folder)[0].prompt_ids, (40, 41, 42))])[0]
        assert max(abs(a - b) for a, b in zip(after, expected, strict=True)) < 2e-3
        assert max(abs(a - b) for a, b in zip(after, before, strict=True)) > 0.05
    finally:
        exact.load_weights(model.state_dict(), "as it was")


def test_matches_end_and_are_counted(exact: Any, folder: Path) -> None:
    prompt = PromptConfig(style="compact")
    renderer = Renderer(checkpoints.load_tokenizer(folder), prompt)
    own = policies.make(PolicyRef.parse("self"), engine=exact, renderer=renderer, max_new_tokens=24)
    specs = [
        MatchSpec(id=str(n), game="kuhn_poker", seed=n, policies=("self", "self"), trainable=(True, True))
        for n in range(6)
    ]
    episodes = list(rollout.play_matches(specs, {"self": own}, concurrency=6))
    assert sorted(e.id for e in episodes) == [s.id for s in specs]
    assert {e.end_reason for e in episodes} <= {EndReason.FINISHED, EndReason.ILLEGAL_ACTION, EndReason.TRUNCATED}
    assert all(t.response_ids and len(t.logprobs) == len(t.response_ids) for e in episodes for t in e.turns)


def test_half_precision_differs_from_the_same_precision_in_transformers_by_rounding_alone(folder: Path) -> None:
    engine = engines.make("vllm", folder, config("bfloat16"))
    try:
        found = parity.measure(engine, HfEngine(folder, config("bfloat16")), asked(folder))
    finally:
        engine.close()
    assert found.tokens > 40
    assert found.mean_abs < 0.1
    assert found.kl < 0.02
