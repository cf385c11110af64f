"""Rows that share a header equal the same rows one by one: log-probs, gradients and weights."""

import dataclasses

import pytest
import torch
from learner_cases import furthest, gradients, random_model, sample, settings, weights

from spiral_lib.learner import logprobs, packing, shared_prefix
from spiral_lib.learner.batch import Sample
from spiral_lib.learner.logprobs import score
from spiral_lib.learner.loop import PolicyUpdate


def rows(model: torch.nn.Module, *, header: int = 64, count: int = 9) -> list[Sample]:
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


def replies_to_few_prompts() -> list[Sample]:
    """Samples of which many answer the very same prompt."""
    drawn = [rows(random_model(), count=2)[i].prompt_ids for i in range(2)]
    g = torch.Generator().manual_seed(1)
    replies = [tuple(torch.randint(0, 30, (1 + i % 5,), generator=g).tolist()) for i in range(9)]
    return [sample(drawn[i % 2], reply, 1.0 - i / 3, episode=str(i)) for i, reply in enumerate(replies)]


@pytest.mark.parametrize("kind", ["qwen3", "mistral", "whole prompts"])
def test_shared_headers_give_the_log_probs_and_gradients_of_separate_rows(kind: str) -> None:
    model = random_model(kind="mistral", sliding_window=None) if kind == "mistral" else random_model()
    samples = replies_to_few_prompts() if kind == "whole prompts" else rows(model)
    assert packing.prepare(model)
    results = []
    for packs in (
        [packing.make(samples, [i], packed=False) for i in range(len(samples))],
        shared_prefix.packs(samples, 512),
        shared_prefix.packs(samples, 50),
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
    packs = shared_prefix.packs(samples, 512)
    assert [p.header for p in packs] == [64, 64]
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
        logprobs.token_logprobs(model, shared_prefix.make(s, range(len(s)), 64), temperature=1.0, chunk=64)[0]
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
    assert {p.header for p in shared_prefix.packs(samples, 512)} == {0}
    lonely = rows(random_model(), count=2)
    assert {p.header for p in shared_prefix.packs(lonely, 512)} == {0}


def test_rows_that_answer_the_same_prompts_share_them_whole() -> None:
    # One beginning of 64 tokens for all: 30 * 104 - 29 * 64 + 128; three whole prompts: 3 * (104 + 9 + 128).
    states = [tuple(range(64)) + (i,) * 40 for i in range(3)]
    prompts = [states[i % 3] for i in range(30)]
    assert shared_prefix.groups(prompts) == [(103, list(range(i, 30, 3))) for i in range(3)]
    assert shared_prefix.groups(prompts[:6]) == [(64, list(range(6)))], "two rows a prompt are not worth three groups"


def test_a_history_that_grows_is_shared_where_that_saves_tokens() -> None:
    history = tuple(range(500))
    prompts = [(*history[: 200 + 150 * turn], 600 + match) for match in range(6) for turn in range(3)]
    found = shared_prefix.groups(prompts)
    assert sorted(i for _, rows in found for i in rows) == list(range(18))
    run = sum(header + sum(len(prompts[i]) - header for i in rows) for header, rows in found)
    one = 200 + sum(len(p) - 200 for p in prompts)
    assert run < one < sum(map(len, prompts))


def test_nothing_to_group_is_no_group() -> None:
    assert shared_prefix.groups([]) == []
    assert shared_prefix.groups([(1, 2)]) == [(0, [0])]


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
