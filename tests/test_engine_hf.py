"""The local engine against plain forward passes of transformers, and its scheduling."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny_checkpoints as tiny
import torch

from spiral_lib import checkpoints, engines
from spiral_lib.engines import _decoder, _hf_cache
from spiral_lib.engines.hf import HfEngine
from spiral_lib.engines.parity import finish
from spiral_lib.errors import EngineError
from spiral_lib.types import Completion, Request

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
FAMILIES = {
    "qwen3": ("qwen3", {}),
    "qwen3_untied": ("qwen3", {"tie_word_embeddings": False}),
    "llama": ("llama", {}),
    "llama_tied_llama3_rope": ("llama", {"tie_word_embeddings": True, "rope_parameters": LLAMA3_ROPE}),
    "gpt2": ("gpt2", {}),
    "gpt_neox": ("gpt_neox", {}),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    return {name: tiny.save(root / name, family, **changes) for name, (family, changes) in FAMILIES.items()}


def make(folder: Path, **settings: int) -> HfEngine:
    return HfEngine(folder, tiny.config(**settings))


def requests(count: int, *, temperature: float = 1.0, header: int = 0, seed: int = 0) -> list[Request]:
    """Ragged prompts and token limits; the first ``header`` ids are one of two shared ones."""
    draw = random.Random(seed)
    made = []
    for number in range(count):
        start = [20 + number % 2] * header
        prompt = (*start, *(draw.randrange(3, 280) for _ in range(draw.randint(1, 40))))
        made.append(ask(number, prompt, header_len=header, temperature=temperature, limit=draw.randint(1, 24)))
    return made


def ask(
    number: int, prompt: tuple[int, ...], *, header_len: int = 0, temperature: float = 1.0, limit: int = 24
) -> Request:
    return Request(
        id=number,
        prompt_ids=prompt,
        header_len=header_len,
        seed=1000 + number,
        temperature=temperature,
        max_new_tokens=limit,
    )


@torch.no_grad()
def reference(model: object, request: Request, stop_ids: tuple[int, ...]) -> tuple[list[int], list[float]]:
    """Sample one request by whole forward passes: the definition, without cache or batch."""
    uniforms = np.random.Generator(np.random.Philox(key=request.seed)).random(request.max_new_tokens)
    ids: list[int] = []
    logprobs: list[float] = []
    for number in range(request.max_new_tokens):
        logits = model(torch.tensor([[*request.prompt_ids, *ids]])).logits[0, -1].double()  # type: ignore[operator]
        if request.temperature == 0:
            p = logits.softmax(-1)
            token = int(p.argmax())
        else:
            p = (logits / request.temperature).softmax(-1)
            token = int((p.cumsum(0) <= uniforms[number]).sum())
        ids.append(token)
        logprobs.append(float(p[token].log()))
        if token in stop_ids:
            break
    return ids, logprobs


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
def test_completions_are_those_of_whole_forward_passes(
    folders: dict[str, Path], family: str, temperature: float
) -> None:
    engine = make(folders[family], slots=4)
    model = checkpoints.load_model(folders[family])
    asked = requests(7, temperature=temperature, header=3)
    done = finish(engine, asked)
    stop = (checkpoints.load_tokenizer(folders[family]).eos_token_id,)
    for request in asked:
        ids, logprobs = reference(model, request, stop)
        assert list(done[request.id].response_ids) == ids
        assert np.abs(np.array(done[request.id].logprobs) - logprobs).max() < 1e-4


def test_our_decoder_serves_qwen3_and_llama_and_transformers_the_rest(folders: dict[str, Path]) -> None:
    ours = {name for name, folder in folders.items() if isinstance(make(folder)._decoder, _decoder.SlotDecoder)}
    assert ours == {"qwen3", "qwen3_untied", "llama", "llama_tied_llama3_rope"}
    assert isinstance(make(folders["gpt2"])._decoder, _hf_cache.HfCacheDecoder)


def test_rope_that_depends_on_the_length_is_left_to_transformers() -> None:
    rope = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
    assert not _decoder.supports(tiny.model("llama", 64, rope_parameters=rope).config)
    assert not _decoder.supports(tiny.model("llama", 64, attention_bias=True).config)


@pytest.mark.parametrize("family", ["qwen3", "llama", "gpt2"])
@pytest.mark.parametrize("slots", [1, 3, 40])
def test_completions_do_not_depend_on_slots_or_order(folders: dict[str, Path], family: str, slots: int) -> None:
    asked = requests(40, header=4, seed=5)
    expected = finish(make(folders[family], slots=8), asked)
    shuffled = random.Random(slots).sample(asked, len(asked))
    found = finish(make(folders[family], slots=slots), shuffled)
    assert {n: c.response_ids for n, c in found.items()} == {n: c.response_ids for n, c in expected.items()}
    for number, completion in expected.items():
        np.testing.assert_allclose(found[number].logprobs, completion.logprobs, atol=1e-4)


def test_a_request_joins_while_others_decode(folders: dict[str, Path]) -> None:
    asked = requests(20, seed=2)
    expected = finish(make(folders["qwen3"], slots=20), asked)
    engine = make(folders["qwen3"], slots=20)
    found: dict[int, Completion] = {}
    for request in asked:
        engine.submit(request)
        found |= dict(engine.step())
    while engine.num_live:
        found |= dict(engine.step())
    assert {n: c.response_ids for n, c in found.items()} == {n: c.response_ids for n, c in expected.items()}


@pytest.mark.parametrize("family", ["qwen3", "gpt2"])
def test_a_long_request_may_join_short_ones(folders: dict[str, Path], family: str) -> None:
    asked = [ask(0, (5, 6), limit=2), ask(1, (7, 8), limit=60), ask(2, (9, 10) * 70, limit=100)]
    alone = {n: c for request in asked for n, c in finish(make(folders[family]), [request]).items()}
    assert len(alone[1].response_ids) > 10  # still live when the third one comes
    engine = make(folders[family])
    engine.submit(asked[0])
    engine.submit(asked[1])
    found = dict(engine.step())
    engine.submit(asked[2])
    while engine.num_live:
        found |= dict(engine.step())
    assert {n: c.response_ids for n, c in found.items()} == {n: c.response_ids for n, c in alone.items()}


def test_the_header_cache_changes_nothing(folders: dict[str, Path]) -> None:
    asked = requests(24, header=30, seed=3)
    without = [replace(r, header_len=0) for r in asked]
    engine = make(folders["qwen3"])
    cached, plain = finish(engine, asked), finish(make(folders["qwen3"]), without)
    assert {r.prompt_ids[:30] for r in asked} <= set(engine._decoder._known)  # type: ignore[attr-defined]
    assert {n: c.response_ids for n, c in cached.items()} == {n: c.response_ids for n, c in plain.items()}
    for number, completion in plain.items():
        np.testing.assert_allclose(cached[number].logprobs, completion.logprobs, atol=1e-4)


@pytest.mark.parametrize("positions", [0, 150, 1 << 20])
def test_repeated_prompts_are_computed_once_and_answer_as_if_alone(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch, positions: int
) -> None:
    draw = random.Random(12)
    prompts = [tuple(draw.randrange(3, 280) for _ in range(length)) for length in (5, 17, 40)]
    asked = [ask(n, prompts[n % 3], header_len=4 * (n % 2), limit=draw.randint(1, 24)) for n in range(60)]
    expected = finish(make(folders["qwen3"], slots=1, window=128), asked)
    monkeypatch.setattr(_decoder, "_KNOWN_POSITIONS", positions)
    engine = make(folders["qwen3"], slots=16)
    found = finish(engine, asked)
    assert {n: c.response_ids for n, c in found.items()} == {n: c.response_ids for n, c in expected.items()}
    assert len({c.response_ids for c in found.values()}) > 40  # the same prompt, but every request its own seed
    kept = sum(map(len, engine._decoder._known))  # type: ignore[attr-defined]
    assert kept <= positions and (kept > 0) == (positions > 0)


def test_a_prompt_longer_than_a_prefill_chunk_is_exact(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = requests(6, header=20, seed=4)
    expected = finish(make(folders["llama"]), asked)
    monkeypatch.setattr(_decoder, "_PREFILL_TOKENS", 1)
    monkeypatch.setattr(_decoder, "_SMALLEST_CHUNK", 7)
    found = finish(make(folders["llama"]), asked)
    assert {n: c.response_ids for n, c in found.items()} == {n: c.response_ids for n, c in expected.items()}


def test_every_id_has_a_logprob_and_the_stop_id_is_last_and_not_in_the_text(folders: dict[str, Path]) -> None:
    tok = checkpoints.load_tokenizer(folders["qwen3"])
    done = finish(make(folders["qwen3"], slots=64), requests(200, temperature=1.5, seed=6))
    reasons = {c.finish_reason for c in done.values()}
    assert reasons == {"stop", "length"}
    for completion in done.values():
        assert len(completion.response_ids) == len(completion.logprobs) >= 1
        assert all(lp <= 0 for lp in completion.logprobs)
        assert tok.eos_token_id not in completion.response_ids[:-1]
        assert (completion.response_ids[-1] == tok.eos_token_id) == (completion.finish_reason == "stop")
        kept = completion.response_ids[:-1] if completion.finish_reason == "stop" else completion.response_ids
        assert completion.text == tok.decode(list(kept), skip_special_tokens=False)


@pytest.mark.parametrize("family", ["qwen3", "gpt2"])
def test_the_window_is_never_exceeded_and_a_full_one_stops_only_its_own_request(
    folders: dict[str, Path], family: str
) -> None:
    engine = make(folders[family], window=48, max_new_tokens=40)
    lengths = [10, 47, 48, 60, 20, 40]
    asked = [ask(n, (5 + n,) * length, limit=30) for n, length in enumerate(lengths)]
    done = finish(engine, asked)
    assert sorted(done) == list(range(6))
    for number in (2, 3):
        assert done[number].finish_reason == "context" and done[number].response_ids == ()
    for number, length in enumerate(lengths):
        completion = done[number]
        assert length >= 48 or length + len(completion.response_ids) <= 48
        if completion.finish_reason == "context" and completion.response_ids:
            assert length + len(completion.response_ids) == 48
    assert done[1].finish_reason in ("context", "stop") and len(done[1].response_ids) == 1
    alone = finish(make(folders[family]), [asked[0]])
    assert alone[0].response_ids == done[0].response_ids


def test_the_model_window_bounds_the_configured_one(folders: dict[str, Path]) -> None:
    assert make(folders["llama"], window=10_000).window == tiny.WINDOW
    assert make(folders["gpt2"], window=10_000).window == tiny.WINDOW


@pytest.mark.parametrize("family", FAMILIES)
def test_scores_are_the_logprobs_of_sampling_at_temperature_one(folders: dict[str, Path], family: str) -> None:
    engine = make(folders[family])
    done = finish(engine, requests(12, seed=7))
    pairs = [(c.prompt_ids, c.response_ids) for c in done.values()]
    for scored, completion in zip(engine.score(pairs), done.values(), strict=True):
        np.testing.assert_allclose(scored, completion.logprobs, atol=1e-4)


def test_scores_of_many_pairs_come_in_the_order_asked(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make(folders["llama"])
    pairs = [(r.prompt_ids, r.prompt_ids[: 1 + r.id % 5]) for r in requests(30, seed=8)]
    together = engine.score(pairs)
    monkeypatch.setattr("spiral_lib.engines.hf._SCORE_TOKENS", 60)
    for one, other in zip(together, engine.score(pairs), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)
    assert engine.score([]) == []
    with pytest.raises(EngineError, match="at least one id"):
        engine.score([((1,), ())])


@pytest.mark.parametrize("family", ["qwen3", "llama", "gpt2"])
def test_new_weights_answer_as_a_fresh_engine_and_drop_cached_headers(folders: dict[str, Path], family: str) -> None:
    other = tiny.model(family, len(tiny.tokenizer()), seed=9)
    asked = requests(10, header=12, seed=10)
    engine = make(folders[family])
    before = finish(engine, asked)
    engine.load_weights(other.state_dict(), "new")
    after = finish(engine, asked)
    assert engine.digest == "new"
    assert [before[n].response_ids for n in range(10)] != [after[n].response_ids for n in range(10)]
    stop = (checkpoints.load_tokenizer(folders[family]).eos_token_id,)
    for request in asked:
        ids, logprobs = reference(other, request, stop)
        assert list(after[request.id].response_ids) == ids
        np.testing.assert_allclose(after[request.id].logprobs, logprobs, atol=1e-4)


def test_the_engine_keeps_no_view_of_the_learners_weights(folders: dict[str, Path]) -> None:
    other = tiny.model("qwen3", len(tiny.tokenizer()), seed=9)
    engine = make(folders["qwen3"])
    engine.load_weights(other.state_dict(), "new")
    pairs = [((5, 6, 7), (8, 9))]
    before = engine.score(pairs)
    with torch.no_grad():
        for weight in other.parameters():
            weight.mul_(1.5)
    assert engine.score(pairs) == before


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_incomplete_weights_are_refused(folders: dict[str, Path], family: str) -> None:
    weights = tiny.model(family, len(tiny.tokenizer())).state_dict()
    name = next(n for n in weights if "norm.weight" in n or "ln_f.weight" in n)
    with pytest.raises(EngineError, match="missing"):
        make(folders[family]).load_weights({n: w for n, w in weights.items() if n != name}, "broken")


def test_weights_are_not_swapped_under_live_requests(folders: dict[str, Path]) -> None:
    engine = make(folders["qwen3"])
    engine.submit(requests(1)[0])
    with pytest.raises(EngineError, match="live"):
        engine.load_weights({}, "new")


def test_refill_needs_fewer_steps_than_waves(folders: dict[str, Path]) -> None:
    draw = random.Random(1)
    asked = [ask(n, (7, 8, 9), temperature=0.0, limit=draw.randint(2, 24)) for n in range(64)]
    continuous = make(folders["qwen3"], slots=16)
    finish(continuous, asked)
    waves = make(folders["qwen3"], slots=16)
    for begin in range(0, 64, 16):
        finish(waves, asked[begin : begin + 16])
    assert continuous.num_steps < 0.8 * waves.num_steps


def test_sampling_follows_the_distribution(folders: dict[str, Path]) -> None:
    """Chi-square over the first token of 4000 seeds, rare tokens pooled."""
    prompt = (10, 20, 30)
    asked = [ask(n, prompt, header_len=2, temperature=1.3, limit=1) for n in range(4000)]
    done = finish(make(folders["qwen3"], slots=512), asked)
    with torch.no_grad():
        logits = checkpoints.load_model(folders["qwen3"])(torch.tensor([prompt])).logits[0, -1]
    expected = (logits.double() / 1.3).softmax(-1).numpy() * 4000
    seen = np.bincount([c.response_ids[0] for c in done.values()], minlength=len(expected))
    big = expected >= 10
    observed, wanted = np.append(seen[big], seen[~big].sum()), np.append(expected[big], expected[~big].sum())
    statistic = ((observed - wanted) ** 2 / wanted).sum()
    degrees = len(wanted) - 1
    assert degrees >= 5
    assert statistic < degrees + 5 * np.sqrt(2 * degrees)


def test_nothing_touches_the_process_wide_generators_or_threads(folders: dict[str, Path]) -> None:
    torch.manual_seed(3)
    np.random.seed(3)
    random.seed(3)
    before = (torch.random.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate())
    threads = torch.get_num_threads()
    finish(make(folders["llama"]), requests(5))
    after = (torch.random.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate())
    assert after == before and torch.get_num_threads() == threads


def test_bfloat16_scores_stay_close_to_single_precision(folders: dict[str, Path]) -> None:
    settings = tiny.config()
    half = HfEngine(folders["qwen3"], replace(settings, model=replace(settings.model, dtype="bfloat16")))
    pairs = [(c.prompt_ids, c.response_ids) for c in finish(half, requests(8, seed=11)).values()]
    full = make(folders["qwen3"]).score(pairs)
    gap = np.concatenate([np.subtract(a, b) for a, b in zip(half.score(pairs), full, strict=True)])
    assert np.abs(gap).mean() < 0.15


def test_the_digest_is_that_of_the_weights(folders: dict[str, Path], tmp_path: Path) -> None:
    assert make(folders["llama"]).digest == make(tiny.save(tmp_path / "same", "llama")).digest
    assert make(folders["llama"]).digest != make(tiny.save(tmp_path / "other", "llama", seed=1)).digest
    manifest = checkpoints.save(
        tiny.model("llama", len(tiny.tokenizer())), tiny.tokenizer(), tmp_path / "manifest",
        parent=None, iteration=0, base_model="test", config_hash="",
    )  # fmt: skip
    assert make(tmp_path / "manifest").digest == manifest.id


def test_engines_are_made_by_name_and_a_closed_one_says_so(folders: dict[str, Path]) -> None:
    engine = engines.make("hf", folders["qwen3"], tiny.config())
    assert engine.name == "hf"
    engine.close()
    with pytest.raises(EngineError, match="closed"):
        engine.step()


def test_a_request_without_prompt_or_tokens_is_refused(folders: dict[str, Path]) -> None:
    engine = make(folders["qwen3"])
    with pytest.raises(EngineError, match="needs a prompt"):
        engine.submit(ask(0, ()))
    with pytest.raises(EngineError, match="needs a prompt"):
        engine.submit(ask(0, (1,), limit=0))
