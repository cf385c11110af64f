"""Rows that share a header equal the same rows one by one: log-probs, gradients and weights."""

import dataclasses

import pytest
import torch
from learner_cases import furthest, gradients, random_model, sample, settings, weights

from spiral_lib.learner import logprobs, packing, shared_prefix
from spiral_lib.learner.batch import Sample
from spiral_lib.learner.logprobs import score
from spiral_lib.learner.loop import PolicyUpdate


def rows(model: torch.nn.Module, *, header: int = 24, count: int = 9) -> list[Sample]:
    """Samples of two roles; all prompts of a role begin alike."""
    g = torch.Generator().manual_seed(0)
    out = []
    for i in range(count):
        start = [(7 * (i % 2) + k) % 30 for k in range(header)]
        p, r = (int(torch.randint(1, n, (1,), generator=g)) for n in (12, 9))
        own = torch.randint(0, 30, (p + r,), generator=g).tolist()
        out.append(sample((*start, *own[:p]), tuple(own[p:]), 1.0 - i / 3, episode=str(i), role=str(i % 2)))
    found = score(model, out, temperature=1.0, chunk=512, budget=512, can_pack=False)
    return [dataclasses.replace(s, old_logprobs=tuple(t.tolist())) for s, t in zip(out, found, strict=True)]


def keys(samples: list[Sample]) -> list[str]:
    return [s.role for s in samples]


@pytest.mark.parametrize("kind", ["qwen3", "mistral"])
def test_shared_headers_give_the_log_probs_and_gradients_of_separate_rows(kind: str) -> None:
    model = random_model(kind=kind, **({"sliding_window": None} if kind == "mistral" else {}))
    samples = rows(model)
    assert packing.prepare(model)
    results = []
    for packs in (
        [packing.make(samples, [i], packed=False) for i in range(len(samples))],
        shared_prefix.packs(samples, keys(samples), 512),
        shared_prefix.packs(samples, keys(samples), 50),
    ):
        found: dict[int, torch.Tensor] = {}
        for pack in packs:
            new, entropy = logprobs.token_logprobs(model, pack, temperature=1.0, chunk=4)
            found |= dict(zip(pack.rows, new.detach().split(pack.response_lengths), strict=True))
            (new.sum() + 0.1 * entropy.sum()).backward()
        assert sorted(found) == list(range(len(samples)))
        results.append((torch.cat([found[i] for i in sorted(found)]), gradients(model)))
    (expected, expected_gradients), *others = results
    scale = max(float(g.abs().max()) for g in expected_gradients.values())
    for new, found_gradients in others:
        assert float((new - expected).abs().max()) < 1e-5
        assert furthest(expected_gradients, found_gradients) < 1e-5 * scale


def test_a_header_is_computed_once_for_all_rows_of_a_role() -> None:
    samples = rows(random_model())
    packs = shared_prefix.packs(samples, keys(samples), 512)
    assert [p.header for p in packs] == [24, 24]
    assert sorted(i for p in packs for i in p.rows) == list(range(len(samples)))
    separate = sum(packing.input_length(s) for s in samples)
    assert sum(p.ids_BT.numel() for p in packs) < 0.6 * separate


def test_one_rows_tokens_do_not_reach_another_through_the_header() -> None:
    model = random_model()
    packing.prepare(model)
    samples = [s for s in rows(model) if s.role == "0"]
    other = dataclasses.replace(samples[0], response_ids=tuple(29 - t for t in samples[0].response_ids))
    changed = [other, *samples[1:]]
    before, after = (
        logprobs.token_logprobs(model, shared_prefix.make(s, range(len(s)), 24), temperature=1.0, chunk=64)[0]
        for s in (samples, changed)
    )
    first = len(samples[0].response_ids)
    assert not torch.equal(before[:first], after[:first])
    assert torch.equal(before[first:], after[first:])


@pytest.mark.parametrize(
    ("prompts", "length"),
    [(((1, 2, 3), (1, 2, 4)), 2), (((1, 2), (1, 2)), 1), (((1, 2, 3), (1, 2)), 1), (((1, 2), (3, 2)), 0), (((5,),), 0)],
)
def test_a_common_beginning_always_leaves_each_row_a_token(prompts: tuple[tuple[int, ...], ...], length: int) -> None:
    assert shared_prefix.common_length(prompts) == length


def test_rows_without_a_long_common_beginning_are_packed_as_usual() -> None:
    samples = rows(random_model(), header=8)
    assert {p.header for p in shared_prefix.packs(samples, keys(samples), 512)} == {0}
    lonely = rows(random_model(), count=2)
    assert {p.header for p in shared_prefix.packs(lonely, keys(lonely), 512)} == {0}


def test_a_learner_step_with_shared_headers_gives_the_same_weights() -> None:
    samples = rows(random_model())
    found = []
    for share in ("false", "true"):
        text = f"share_header={share} epochs=2 minibatch=5 lr=1e-3 kl_coef=0.1 tis_cap=2.0 max_mismatch=100.0"
        loop = PolicyUpdate(random_model(), random_model(1), settings(text))
        metrics = loop.run(samples, step=1)
        found.append((weights(loop.backend.model), metrics))
    assert furthest(found[0][0], found[1][0]) < 1e-5
    assert found[0][1]["learner/loss"] == pytest.approx(found[1][1]["learner/loss"], abs=1e-6)
