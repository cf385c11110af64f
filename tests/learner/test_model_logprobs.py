"""Log-probs and gradients of whole models: layouts, chunks, isolation of rows, architectures."""

import math

import pytest
import torch
from learner_cases import (
    GOLDEN_ROWS,
    furthest,
    golden_model,
    gradients,
    packs_of,
    random_model,
    same_bits,
    sample,
    settings,
)
from torch.utils._python_dispatch import TorchDispatchMode

from spiral_lib.learner import logprobs, packing
from spiral_lib.learner.loss import TokenInputs, token_loss

GOLDEN = {
    1.0: [[-4.557646, -3.38519], [-2.705156, -2.686233, -2.541674, -2.640919], [-4.335063]],
    0.7: [[-5.214599, -3.513681], [-2.596503, -2.511482, -2.352081, -2.44433], [-4.874443]],
}
NORM = 3.91061322


def golden_samples():
    return [sample(p, r, a) for p, r, a in GOLDEN_ROWS]


def evaluate(model, rows, how: str, *, chunk: int = 512, temperature: float = 1.0, entropy_coef: float = 0.0):
    """Per-row log-probs, entropies, loss (N = 8) and gradients of the on-policy loss."""
    prepared = packing.prepare(model)
    assert prepared or how != "packed"
    out, entropies, total = {}, {}, 0.0
    config = settings(f"entropy_coef={entropy_coef}").learner
    for pack in packs_of(rows, how):
        new, entropy = logprobs.token_logprobs(model, pack, temperature=temperature, chunk=chunk)
        advantage = [rows[i].advantage for i in pack.rows for _ in rows[i].response_ids]
        everywhere = torch.ones_like(new, dtype=torch.bool)
        inputs = TokenInputs(old_R=new.detach(), advantage_R=torch.tensor(advantage).to(new), mask_R=everywhere)
        loss = token_loss(new, entropy, inputs, config).total / 8 / len(rows)
        loss.backward()
        total += float(loss.detach())
        parts = (t.detach().split(pack.response_lengths) for t in (new, entropy))
        for i, lp, h in zip(pack.rows, *parts, strict=True):
            out[i], entropies[i] = lp, h
    order = range(len(rows))
    return [out[i] for i in order], [entropies[i] for i in order], total, gradients(model)


def total_norm(grads) -> float:
    return math.sqrt(sum(float(g.double().square().sum()) for g in grads.values()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("how", ["packed", "padded", "single"])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
@pytest.mark.parametrize("chunk", [1, 3, 512])
def test_golden_numbers_hold_in_every_layout_order_and_chunk_size(dtype, how, order, chunk) -> None:
    rows = [golden_samples()[i] for i in order]
    found, entropies, loss, grads = evaluate(golden_model(dtype), rows, how, chunk=chunk)
    for i, lp in zip(order, found, strict=True):
        assert lp.tolist() == pytest.approx(GOLDEN[1.0][i], abs=5e-6)
    assert float(torch.cat(entropies).mean()) == pytest.approx(3.138426, abs=5e-6)
    assert loss == pytest.approx(0.04166667, abs=1e-7)
    assert total_norm(grads) == pytest.approx(NORM, rel=2e-6)
    norms = {n: float(g.norm()) for n, g in grads.items()}
    assert norms["model.embed_tokens.weight"] == pytest.approx(0.50949179, rel=1e-5)
    assert norms["model.layers.0.self_attn.q_proj.weight"] == pytest.approx(0.01358072, rel=1e-4)
    assert norms["model.layers.1.mlp.down_proj.weight"] == pytest.approx(0.7893668, rel=1e-5)
    assert norms["model.norm.weight"] == pytest.approx(0.15800674, rel=1e-5)
    first = grads["model.embed_tokens.weight"].flatten()[:3]
    assert first.tolist() == pytest.approx([0.11229911, 0.06410447, 0.06592022], abs=2e-6)


def test_golden_model_has_the_parameters_it_was_computed_with() -> None:
    assert sum(p.numel() for p in golden_model().parameters()) == 5200


@pytest.mark.parametrize("how", ["packed", "padded", "single"])
def test_temperature_divides_the_logits(how: str) -> None:
    found, *_ = evaluate(golden_model(torch.float64), golden_samples(), how, temperature=0.7)
    for lp, expected in zip(found, GOLDEN[0.7], strict=True):
        assert lp.tolist() == pytest.approx(expected, abs=5e-6)


@pytest.mark.parametrize("how", ["packed", "padded", "single"])
def test_a_row_never_sees_another_row(how: str) -> None:
    rows = golden_samples()
    other = [sample((20, 21, 22), (3, 7), 0.5), *rows[1:]]
    before, after = (evaluate(golden_model(), r, how)[0] for r in (rows, other))
    assert float((before[0] - after[0]).abs().min()) > 1e-3
    assert torch.equal(before[1], after[1])
    assert torch.equal(before[2], after[2])


def test_one_line_without_segments_would_mix_rows() -> None:
    # What the isolation test must be able to see: the same ids as one line, attended across the borders.
    model, rows = golden_model(), golden_samples()
    packing.prepare(model)
    pack = packing.make(rows, range(3), packed=True)
    one = logprobs.token_logprobs(model, pack, temperature=1.0, chunk=8)[0]
    hidden = model.model(input_ids=pack.ids_BT, position_ids=pack.positions_BT, use_cache=False).last_hidden_state
    head = model.lm_head.weight
    mixed = logprobs.head_logprobs(hidden[0, pack.where_R], head, pack.target_R, temperature=1.0, chunk=8)[0]
    assert torch.equal(one[:2], mixed[:2])
    assert float((one[2:] - mixed[2:]).abs().min().detach()) > 1e-4


@pytest.mark.parametrize("kind", ["qwen3", "mistral", "gpt2", "gemma2"])
def test_every_architecture_agrees_with_its_own_full_logits(kind: str) -> None:
    rows = golden_samples()
    plain = random_model(kind=kind)
    expected = []
    for row in rows:
        ids = torch.tensor([[*row.prompt_ids, *row.response_ids]])
        logits = plain(ids).logits[0, len(row.prompt_ids) - 1 : -1]
        expected.append(torch.log_softmax(logits.float(), -1).gather(-1, torch.tensor(row.response_ids)[:, None])[:, 0])
    model = random_model(kind=kind)
    layouts = ["packed", "padded"] if packing.prepare(model) else ["padded"]
    for how in layouts:
        found, *_ = evaluate(model, rows, how)
        for lp, reference in zip(found, expected, strict=True):
            assert lp.tolist() == pytest.approx(reference.tolist(), abs=2e-5)


@pytest.mark.parametrize(("kind", "expected"), [("qwen3", True), ("mistral", False), ("gemma2", False)])
def test_only_models_without_a_window_are_packed(kind: str, expected: bool) -> None:
    assert packing.prepare(random_model(kind=kind)) is expected


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("nemotron", {}),  # its layers keep the segments from their attention
        ("gemma2", {"layer_types": ["full_attention"] * 2}),  # its attention caps scores
    ],
)
def test_a_model_whose_attention_cannot_be_replaced_is_padded_and_right(kind: str, settings: dict) -> None:
    model, plain = (random_model(kind=kind, **settings) for _ in range(2))
    assert packing.prepare(model) is False
    assert model.config._attn_implementation == plain.config._attn_implementation
    rows = golden_samples()
    found, *_ = evaluate(model, rows, "padded")
    expected, *_ = evaluate(plain, rows, "single")
    for lp, reference in zip(found, expected, strict=True):
        assert lp.tolist() == pytest.approx(reference.tolist(), abs=2e-5)


def test_segment_attention_refuses_a_cache_instead_of_looking_at_the_wrong_keys() -> None:
    model, ids = random_model(), torch.tensor([[5, 6, 7]])
    packing.prepare(model)
    past = model(input_ids=ids, use_cache=True).past_key_values
    with pytest.raises(ValueError, match="no cache"):
        model(input_ids=ids[:, :1], past_key_values=past, use_cache=True)


def test_entropy_is_float32_where_products_are_bfloat16() -> None:
    g = torch.Generator().manual_seed(0)
    h, w = torch.randn(20, 32, generator=g).bfloat16(), torch.randn(500, 32, generator=g) * 0.5
    y = torch.randint(0, 500, (20,), generator=g)
    expected = logprobs.logits_to_logprobs(h @ w.bfloat16().T, y, 1.0)[1]
    with torch.autocast("cpu", torch.bfloat16):
        entropy = logprobs.head_logprobs(h, w, y, temperature=1.0, chunk=512)[1]
    assert entropy.dtype == torch.float32
    assert float((entropy - expected).abs().max()) < 1e-5


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("chunk", [1, 7, 512])
@pytest.mark.parametrize("cached", [1, 900, 65_536])
def test_the_chunked_head_equals_the_full_log_softmax(
    temperature: float, chunk: int, cached: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logprobs, "CACHED", cached)
    g = torch.Generator().manual_seed(0)
    h, w = torch.randn(50, 24, generator=g), torch.randn(300, 24, generator=g)
    y, a, b = torch.randint(0, 300, (50,), generator=g), torch.randn(50, generator=g), torch.randn(50, generator=g)
    results = []
    for chunked in (False, True):
        hidden, weight = h.clone().requires_grad_(), w.clone().requires_grad_()
        if chunked:
            lp, entropy = logprobs.head_logprobs(hidden, weight, y, temperature=temperature, chunk=chunk)
        else:
            lp, entropy = logprobs.logits_to_logprobs(hidden @ weight.T, y, temperature)
        ((a * lp).sum() + (b * entropy).sum()).backward()
        results.append((lp.detach(), entropy.detach(), hidden.grad, weight.grad))
    (lp0, e0, dh0, dw0), (lp1, e1, dh1, dw1) = results
    assert float((lp0 - lp1).abs().max()) < 1e-5
    assert float((e0 - e1).abs().max()) < 1e-5
    assert float((dh0 - dh1).norm() / dh0.norm()) < 1e-6
    assert float((dw0 - dw1).norm() / dw0.norm()) < 1e-6


def test_a_second_backward_pass_is_refused_and_not_wrong() -> None:
    h, w = torch.randn(5, 4, requires_grad=True), torch.randn(6, 4, requires_grad=True)
    total = logprobs.head_logprobs(h, w, torch.zeros(5, dtype=torch.long), temperature=1.0, chunk=8)[0].sum()
    total.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        total.backward()


class Largest(TorchDispatchMode):
    """Counts the numbers in the largest tensor that any operation makes, backward included."""

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, tuple | list) else [made]:
            if isinstance(tensor, torch.Tensor):
                self.numel = max(self.numel, tensor.numel())
        return made


def test_memory_grows_with_tokens_and_not_with_tokens_times_the_vocabulary() -> None:
    model, vocabulary, chunk = random_model(vocab_size=5000), 5000, 4
    rows = [sample(tuple(range(i, i + 9)), tuple(range(20)), 1.0) for i in range(8)]
    packing.prepare(model)
    (pack,) = packing.packs(rows, 512, can_pack=True)
    with Largest() as seen:
        new, entropy = logprobs.token_logprobs(model, pack, temperature=1.0, chunk=chunk)
        (new.sum() + entropy.sum()).backward()
    weights = vocabulary * model.config.hidden_size
    assert chunk * vocabulary < seen.numel <= weights < len(new) * vocabulary


def test_the_chunked_head_passes_numerical_differentiation() -> None:
    g = torch.Generator().manual_seed(0)
    h = torch.randn(5, 4, generator=g, dtype=torch.float64, requires_grad=True)
    w = torch.randn(6, 4, generator=g, dtype=torch.float64, requires_grad=True)
    y = torch.tensor([0, 5, 2, 2, 3])

    def head(hidden, weight):
        return logprobs.head_logprobs(hidden, weight, y, temperature=0.8, chunk=2)

    assert torch.autograd.gradcheck(head, (h, w))


def test_bfloat16_weight_gradients_add_up_in_float32() -> None:
    g = torch.Generator().manual_seed(0)
    h = torch.randn(2048, 32, generator=g).bfloat16().requires_grad_()
    w = torch.randn(64, 32, generator=g).requires_grad_()
    y = torch.randint(0, 64, (2048,), generator=g)
    grads = []
    for chunk in (2048, 64):
        w.grad = None
        logprobs.head_logprobs(h, w, y, temperature=1.0, chunk=chunk)[0].sum().backward()
        grads.append(w.grad.clone())
    assert grads[0].dtype == torch.float32
    # Adding 32 parts in bfloat16 would be off by 1e-2.
    assert float((grads[0] - grads[1]).norm() / grads[0].norm()) < 2e-3


def test_splitting_a_batch_leaves_the_gradient_unchanged_where_a_mean_of_means_would_not() -> None:
    rows = golden_samples()
    whole = evaluate(golden_model(torch.float64), rows, "packed")[3]

    def split(parts: list[list[int]]) -> dict[str, torch.Tensor]:
        model = golden_model(torch.float64)
        packing.prepare(model)
        for part in parts:
            pack = packing.make(rows, part, packed=True)
            new, entropy = logprobs.token_logprobs(model, pack, temperature=1.0, chunk=512)
            advantage = torch.tensor([rows[i].advantage for i in part for _ in rows[i].response_ids])
            inputs = TokenInputs(old_R=new.detach(), advantage_R=advantage.double(), mask_R=torch.ones_like(new).bool())
            (token_loss(new, entropy, inputs, settings().learner).total / 8 / 3).backward()
        return gradients(model)

    for parts in ([[0], [1], [2]], [[2, 0], [1]]):
        # transformers computes rotary positions in float32, so float64 models agree to 1e-6 and not to 1e-15.
        assert furthest(whole, split(parts)) < 1e-7


def test_packs_keep_the_budget_and_hold_every_row_once() -> None:
    lengths = [5, 70, 3, 3, 64, 9, 200, 1]
    groups = packing.plan(lengths, 64)
    assert sorted(i for g in groups for i in g) == list(range(8))
    assert all(len(g) == 1 or len(g) * max(lengths[i] for i in g) <= 64 for g in groups)
    assert [6] in groups
    assert packing.plan(lengths, 64) == groups


def test_rows_of_very_different_length_are_packed_and_similar_ones_padded() -> None:
    similar = [sample((1,) * 10, (2,) * n, 1.0) for n in (4, 5, 5)]
    skewed = [sample((1,) * n, (2,), 1.0) for n in (2, 2, 2, 60)]
    assert [p.segments for p in packing.packs(similar, 512, can_pack=True)] == [None]
    assert [p.segments for p in packing.packs(skewed, 512, can_pack=True)] == [(2, 2, 2, 60)]
    assert [p.segments for p in packing.packs(skewed, 512, can_pack=False)] == [None]


@pytest.mark.parametrize(
    ("budget", "can_pack", "expected"),
    [
        (170, True, [(2, 30, 40, 90)]),  # 162 tokens; as a padded block they would be 360
        (161, True, [(2, 30, 40), None]),
        (170, False, [None, None]),
    ],
)
def test_a_line_takes_the_rows_that_follow_as_long_as_tokens_fit(budget, can_pack, expected) -> None:
    rows = [sample((1,) * n, (2,), 1.0) for n in (90, 2, 40, 30)]
    packs = packing.packs(rows, budget, can_pack=can_pack)
    assert [p.segments for p in packs] == expected
    assert sorted(i for p in packs for i in p.rows) == [0, 1, 2, 3]


def test_equal_and_unequal_neighbours_in_one_line_attend_only_within_themselves() -> None:
    g = torch.Generator().manual_seed(0)
    segments = (3, 3, 3, 5, 2, 2)
    q, k, v = (torch.randn(1, h, sum(segments), 8, generator=g) for h in (4, 2, 2))
    out, _ = packing.segment_attention(None, q, k, v, None, segments=segments)
    start = 0
    for n in segments:
        part = [t[:, :, start : start + n] for t in (q, k, v)]
        alone, _ = packing.segment_attention(None, *part, None)
        assert float((out[:, start : start + n] - alone).abs().max()) < 1e-6
        start += n


def test_segment_attention_refuses_a_mask() -> None:
    x = torch.zeros(1, 1, 2, 8)
    with pytest.raises(ValueError, match="takes no mask"):
        packing.segment_attention(None, x, x, x, torch.zeros(1, 1, 2, 2))


def test_scores_come_in_the_order_of_the_rows_whatever_the_budget() -> None:
    model, rows = random_model(), golden_samples()
    one = logprobs.score(model, rows, temperature=1.0, chunk=512, budget=512, can_pack=False)
    many = logprobs.score(model, rows, temperature=1.0, chunk=1, budget=1, can_pack=False)
    assert [len(t) for t in one] == [2, 4, 1]
    assert all(float((a - b).abs().max()) < 1e-6 for a, b in zip(one, many, strict=True))
    assert not any(t.requires_grad for t in one)


def test_the_same_bits_come_out_twice() -> None:
    first, second = (evaluate(golden_model(), golden_samples(), "packed")[3] for _ in range(2))
    assert same_bits(first, second)
