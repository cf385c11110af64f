"""Engine vllm, for real on the CPU: make test-vllm runs these in the environment that has it."""

from __future__ import annotations

import importlib.util
import random
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny_checkpoints as tiny
import torch

from spiral_lib import checkpoints, engines, games, policies, rollout
from spiral_lib.config import EvaluationConfig, Named, PromptConfig, RunConfig
from spiral_lib.engines import parity
from spiral_lib.engines.hf import HfEngine
from spiral_lib.engines.parity import finish
from spiral_lib.errors import EngineError
from spiral_lib.evaluation import benchmarks
from spiral_lib.prompts import Renderer
from spiral_lib.settings import EngineConfig
from spiral_lib.types import Completion, EndReason, MatchSpec, PolicyRef, Request

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("vllm") is None, reason="vllm is not installed here; make test-vllm has its own place"
    ),
]

WINDOW = 256
# vLLM's attention kernels on the CPU know few head sizes.
SHAPE = {"hidden_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32, "intermediate_size": 96}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Three checkpoints of one shape; the tied ones are written without an explicit head, as transformers does."""
    root = tmp_path_factory.mktemp("vllm")
    return {
        "one": tiny.save(root / "one", "qwen3", 1, **SHAPE),
        "two": tiny.save(root / "two", "qwen3", 2, **SHAPE),
        "player": tiny.save_player(root / "player", moves=("[check]", "[bet]"), **SHAPE),
    }


@pytest.fixture(scope="module")
def one(folders: dict[str, Path]) -> Iterator[Any]:
    """Keeps vLLM started for the whole file: engines of the same shape share it."""
    engine = make(folders["one"])
    yield engine
    engine.close()


def config(**settings: Any) -> RunConfig:
    return replace(tiny.config(slots=8, window=WINDOW), **settings)


def make(folder: Path, **settings: Any) -> Any:
    return engines.make("vllm", folder, config(**settings))


def ask(number: int, prompt: tuple[int, ...], *, limit: int = 16, temperature: float = 1.0) -> Request:
    return Request(
        id=number, prompt_ids=prompt, header_len=0, seed=1000 + number, temperature=temperature, max_new_tokens=limit
    )


def requests(count: int, *, temperature: float = 1.0, length: int = 30) -> list[Request]:
    draw = random.Random(0)
    prompts = [tuple(draw.randrange(3, 280) for _ in range(draw.randint(5, length))) for _ in range(count)]
    return [ask(n, p, temperature=temperature, limit=draw.randint(1, 24)) for n, p in enumerate(prompts)]


def test_log_probs_are_those_of_the_hf_engine_at_the_sampling_temperature(one: Any, folders: dict[str, Path]) -> None:
    reference = HfEngine(folders["one"], config())
    for temperature in (1.0, 0.7):
        found = parity.measure(one, reference, requests(24, temperature=temperature))
        assert found.tokens > 100
        assert found.max_abs < 1e-3
        assert found.mean_abs < 1e-4


def test_a_wrong_temperature_is_seen_by_the_parity_report(one: Any, folders: dict[str, Path]) -> None:
    done = finish(one, requests(24, temperature=0.7)).values()
    wrong = HfEngine(folders["one"], config()).score([(c.prompt_ids, c.response_ids) for c in done])
    found = parity.compare([x for c in done for x in c.logprobs], [x for scored in wrong for x in scored])
    assert found.kl > 0.02
    assert found.outside > 0.01


def test_equal_requests_give_equal_tokens_in_any_order(one: Any) -> None:
    asked = requests(16)
    first = finish(one, asked)
    again = finish(one, asked[::-1])
    alone = finish(one, asked[3:4])
    assert {n: c.response_ids for n, c in first.items()} == {n: c.response_ids for n, c in again.items()}
    assert alone[3].response_ids == first[3].response_ids
    assert len({c.response_ids for c in first.values()}) > 8


def test_a_completion_ends_with_its_stop_id_or_says_why_not(one: Any) -> None:
    done = finish(one, requests(40))
    assert all(len(c.response_ids) == len(c.logprobs) > 0 for c in done.values())
    assert all((c.response_ids[-1] in one.stop_ids) == (c.finish_reason == "stop") for c in done.values())
    assert "<|im_end|>" not in "".join(c.text for c in done.values() if c.finish_reason == "stop")


def test_the_window_is_never_exceeded(one: Any) -> None:
    fits, full, over = (tuple(range(3, 3 + n % 250)) * 2 for n in (125, 128, 130))
    done = finish(one, [ask(0, fits, limit=200), ask(1, full), ask(2, over), ask(3, fits[:20], limit=2)])
    assert len(done[0].response_ids) <= WINDOW - len(fits)
    assert done[0].finish_reason in ("context", "stop")
    assert (done[1].finish_reason, done[1].response_ids) == ("context", ())
    assert (done[2].finish_reason, done[2].response_ids) == ("context", ())
    assert 1 <= len(done[3].response_ids) <= 2


def test_benchmarks_run_through_the_adapter_of_every_engine(one: Any, folders: dict[str, Path]) -> None:
    pytest.importorskip("lm_eval", reason="needs the extra 'eval' (lm-eval)")
    renderer = Renderer(checkpoints.load_tokenizer(folders["one"]), PromptConfig())
    settings = EvaluationConfig(bank_limit=5, bank_max_new_tokens=8)
    first, again = (
        benchmarks.run("bank", one, renderer, settings, context_tokens=WINDOW, seed=0) for _ in range(2)
    )
    assert first == again and len(first.items) == 5
    assert all(0 < g.reply.response_tokens <= 8 or g.reply.finish_reason == "too_long" for g in first.graded)
    reference = HfEngine(folders["one"], config())
    same = benchmarks.run("bank", reference, renderer, settings, context_tokens=WINDOW, seed=0)
    assert [g.reply.text for g in same.graded] == [g.reply.text for g in first.graded], "greedy"


def test_prompts_longer_than_a_usual_chunk_take_seeds(folders: dict[str, Path], one: Any) -> None:
    # 8 prompts of 250 ids in one step: with chunked prefill such requests crash on the CPU.
    draw = random.Random(3)
    prompts = [tuple(draw.randrange(3, 280) for _ in range(250)) for _ in range(40)]
    done = finish(one, [ask(n, p, limit=4) for n, p in enumerate(prompts)])
    assert len(done) == 40


def test_engines_of_several_checkpoints_share_one_model_and_are_not_mixed_up(
    one: Any, folders: dict[str, Path]
) -> None:
    two = make(folders["two"])
    try:
        assert two.digest != one.digest
        asked = requests(12)
        for request in asked:
            one.submit(request)
            two.submit(request)
        done: dict[str, dict[int, Completion]] = {"one": {}, "two": {}}
        while one.num_live or two.num_live:
            done["one"] |= one.step()
            done["two"] |= two.step()
    finally:
        two.close()
    for name, found in done.items():
        engine = HfEngine(folders[name], config())
        scored = engine.score([(found[n].prompt_ids, found[n].response_ids) for n in range(12)])
        theirs = [x for n in range(12) for x in found[n].logprobs]
        assert parity.compare(theirs, [x for s in scored for x in s]).max_abs < 1e-3


def test_new_weights_are_served_although_the_prompts_are_cached(one: Any, folders: dict[str, Path]) -> None:
    engine = make(folders["one"])
    try:
        prompt = tuple(range(10, 210))  # more than one block of the prefix cache
        before = finish(engine, [ask(0, prompt, limit=1)])[0]
        weights = checkpoints.load_model(folders["two"]).state_dict()
        engine.load_weights({n: w for n, w in weights.items() if n != "lm_head.weight"}, "new")
        after = finish(engine, [ask(0, prompt, limit=1)])[0]
        expected = HfEngine(folders["two"], config()).score([(prompt, after.response_ids)])[0]
        assert engine.digest == "new"
        assert abs(after.logprobs[0] - expected[0]) < 1e-3
        assert before != after
        # And the other engine of this process still has its own.
        again = finish(one, [ask(0, prompt, limit=1)])[0]
        assert again == before
    finally:
        engine.close()


@pytest.mark.parametrize("fault", ["stale prefix cache", "old head", "raw log-probs"])
def test_the_canary_finds_each_of_the_known_faults(
    one: Any, folders: dict[str, Path], fault: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    engine = make(folders["one"])
    try:
        finish(engine, [ask(0, (5, 6, 7))])
        runtime = engine._runtime
        new = checkpoints.load_model(folders["two"]).state_dict()
        if fault == "stale prefix cache":
            monkeypatch.setattr(runtime._llm, "reset_prefix_cache", lambda: True)
        elif fault == "old head":
            monkeypatch.setattr(runtime._llm, "collective_rpc", without_head(runtime._llm.collective_rpc, tmp_path))
        else:
            monkeypatch.setattr("spiral_lib.engines._vllm_canary.TEMPERATURE", 1.0, raising=True)
            original = runtime._references
            monkeypatch.setattr(runtime, "_references", dict(original))
            from spiral_lib.engines import _vllm_canary

            def unscaled(self: Any, row: int, token: int) -> float:
                return float((self.logits_PV[row] / 0.7).log_softmax(-1)[token])

            monkeypatch.setattr(_vllm_canary.Reference, "sampled_logprob", unscaled)
        with pytest.raises(EngineError, match="nats from what transformers computes"):
            engine.load_weights(new, "new")
    finally:
        engine.close()
    monkeypatch.undo()
    assert finish(one, [ask(0, (5, 6, 7))])[0].response_ids  # the next hand-over loads and proves again


def without_head(call: Any, tmp_path: Path) -> Any:
    """Return the reload with the head left out of the files, as transformers writes tied checkpoints."""
    from safetensors.torch import load_file, save_file

    def reload(method: str, kwargs: dict[str, str]) -> Any:
        folder = tmp_path / "headless"
        shutil.copytree(kwargs["weights_path"], folder, dirs_exist_ok=True)
        weights = load_file(folder / "model.safetensors")
        del weights["lm_head.weight"]
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
        return call(method, kwargs={"weights_path": str(folder)})

    return reload


def test_matches_of_two_checkpoints_are_played_by_the_same_driver(folders: dict[str, Path]) -> None:
    settings: dict[str, Any] = {"prompt": PromptConfig(style="compact"), "games": (Named(name="kuhn_poker"),)}
    own, other = make(folders["player"], **settings), make(folders["two"], **settings)
    try:
        renderer = Renderer(checkpoints.load_tokenizer(folders["player"]), settings["prompt"])
        refs = {"self": own, "pool:two": other}
        table = {
            ref: policies.make(PolicyRef.parse(ref), engine=engine, renderer=renderer, max_new_tokens=24)
            for ref, engine in refs.items()
        }
        specs = [
            MatchSpec(id=f"{n:03d}", game="kuhn_poker", seed=n, policies=seats, trainable=(True, False))
            for n, seats in enumerate([("self", "pool:two"), ("pool:two", "self"), ("self", "self")] * 8)
        ]
        episodes = list(rollout.play_matches(specs, table, concurrency=8))
        digests = {(t.policy, t.policy_digest) for e in episodes for t in e.turns}
    finally:
        own.close()
        other.close()
    assert sorted(e.id for e in episodes) == [s.id for s in specs]
    assert digests == {("self", own.digest), ("pool:two", other.digest)}


def test_a_match_that_outgrows_the_window_is_truncated_and_the_others_finish(folders: dict[str, Path]) -> None:
    prompt = PromptConfig(style="compact")
    renderer = Renderer(checkpoints.load_tokenizer(folders["player"]), prompt)
    view = games.make("kuhn_poker", seed=0).view(0)
    window = len(renderer.encode(view)[0]) + 6
    small = replace(tiny.config(slots=8, window=window), prompt=prompt)
    engine = engines.make("vllm", folders["player"], small)
    try:
        table = {"self": policies.make(PolicyRef.parse("self"), engine=engine, renderer=renderer, max_new_tokens=24)}
        specs = [
            MatchSpec(id=str(n), game="kuhn_poker", seed=n, policies=("self", "self"), trainable=(True, True))
            for n in range(12)
        ]
        episodes = list(rollout.play_matches(specs, table, concurrency=4))
    finally:
        engine.close()
    assert len(episodes) == 12
    turns = [t for e in episodes for t in e.turns]
    assert all(len(t.prompt_ids) + len(t.response_ids) <= max(window, len(t.prompt_ids)) for t in turns)
    assert EndReason.TRUNCATED in {e.end_reason for e in episodes}


def test_starting_and_ending_leaves_the_process_as_it_was(folders: dict[str, Path], one: Any) -> None:
    import os

    torch.manual_seed(5)
    state, threads, preload = torch.get_rng_state(), torch.get_num_threads(), os.environ.get("LD_PRELOAD")
    engine = make(folders["one"], engine=EngineConfig(prefix_caching=False))  # a runtime of its own
    finish(engine, requests(4))
    engine.close()
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads
    assert os.environ.get("LD_PRELOAD") == preload
    torch.set_num_threads(1)
    assert torch.get_num_threads() == 1
    with pytest.raises(EngineError, match="closed"):
        engine.step()
