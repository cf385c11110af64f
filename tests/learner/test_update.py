"""The update loop: invariance to splitting, guards, resume, reference, and what never trains."""

import copy
import dataclasses
import math
from pathlib import Path

import pytest
import torch
from learner_cases import (
    GOLDEN_ROWS,
    episode,
    furthest,
    golden_model,
    random_model,
    same_bits,
    sample,
    sampled,
    settings,
    turn,
    weights,
    with_logprobs,
)

from spiral_lib.config import RunConfig, update
from spiral_lib.errors import CheckpointError, LearnerError
from spiral_lib.learner import backends
from spiral_lib.learner.batch import build
from spiral_lib.learner.loop import PolicyUpdate, learning_rate, minibatches
from spiral_lib.rae import RoleBaselines


def trained(samples, text: str = "", *, model=None, steps: int = 1, reference=None, config: RunConfig | None = None):
    """Weights and last metrics after some steps over the same samples."""
    loop = PolicyUpdate(model or random_model(), reference, config or settings(text))
    metrics = {}
    for step in range(1, steps + 1):
        metrics = loop.run(samples, step=step)
    return weights(loop.backend.model), metrics


def optimizer_bits(loop: PolicyUpdate, folder: Path) -> tuple[bytes, bytes]:
    loop.backend.save_optimizer(folder)
    return (folder / backends.OPTIMIZER_FILE).read_bytes(), (folder / backends.STEPS_FILE).read_bytes()


def test_one_step_on_the_golden_case_reports_its_loss_norm_and_entropy() -> None:
    model = golden_model()
    rows = [sample(p, r, a, episode=str(i)) for i, (p, r, a) in enumerate(GOLDEN_ROWS)]
    _, metrics = trained(rows, "recompute_logprobs=true max_mismatch=100.0", model=model)
    assert metrics["learner/loss"] == pytest.approx(0.04166667, abs=1e-6)
    assert metrics["learner/grad_norm"] == pytest.approx(3.91061322, rel=1e-5)
    assert metrics["learner/entropy"] == pytest.approx(3.138426, abs=1e-5)
    assert (metrics["learner/tokens"], metrics["learner/clip_share"], metrics["learner/grad_clipped"]) == (7, 0, 1)
    assert metrics["learner/ratio_max"] == pytest.approx(1.0, abs=1e-5)


def test_micro_batches_do_not_change_the_weights() -> None:
    samples = sampled(random_model(), 64)
    config = "epochs=2 minibatch=64 lr=0.001"
    whole, m1 = trained(samples, f"{config} pack_tokens=100000")
    for budget in (160, 16):
        split, m2 = trained(samples, f"{config} pack_tokens={budget}")
        assert furthest(whole, split) < 1e-6
        assert m1["learner/loss"] == pytest.approx(m2["learner/loss"], abs=1e-6)
        assert m1["learner/grad_norm"] == pytest.approx(m2["learner/grad_norm"], rel=1e-5)


def test_chunk_size_does_not_change_the_weights() -> None:
    samples = sampled(random_model(), 12)
    assert furthest(*(trained(samples, f"chunk={c} lr=0.001")[0] for c in (1, 512))) < 1e-6


def test_the_same_step_gives_the_same_bits_and_another_step_another_order() -> None:
    samples = sampled(random_model(), 12)
    first, second = (trained(samples, "minibatch=4 epochs=2")[0] for _ in range(2))
    assert same_bits(first, second)
    assert minibatches(12, 4, 0, 1, 0) != minibatches(12, 4, 0, 2, 0) != minibatches(12, 4, 0, 2, 1)


@pytest.mark.parametrize(
    ("count", "size", "parts"), [(10, 0, [10]), (10, 4, [3, 3, 4]), (290, 160, [145, 145]), (3, 160, [3])]
)
def test_minibatches_are_equal_parts_that_hold_every_sample_once(count: int, size: int, parts: list[int]) -> None:
    found = minibatches(count, size, 7, 1, 0)
    assert [len(p) for p in found] == parts
    assert sorted(i for p in found for i in p) == list(range(count))


def test_without_a_signal_nothing_is_touched(tmp_path: Path) -> None:
    samples = sampled(random_model(), 6)
    loop = PolicyUpdate(random_model(), None, settings())
    loop.run(samples, step=1)  # so that there are moments which could move the weights
    before, moments = weights(loop.backend.model), optimizer_bits(loop, tmp_path / "a")
    drawn = [dataclasses.replace(s, advantage=0.0) for s in samples]
    for nothing in ([], drawn):
        metrics = loop.run(nothing, step=2)
        assert metrics["learner/no_signal"] == 1.0
        assert all(math.isfinite(v) for v in metrics.values())
        assert same_bits(before, weights(loop.backend.model))
        assert optimizer_bits(loop, tmp_path / "b") == moments


def test_a_step_of_only_draws_is_a_logged_no_op() -> None:
    config = settings()
    batch = build([episode(str(i), (0, 0)) for i in range(4)], RoleBaselines(0.95), config)
    metrics = batch.metrics | PolicyUpdate(random_model(), None, config).run(batch.samples, step=1)
    assert metrics["learner/no_signal"] == 1.0
    assert metrics["learner/dropped_zero"] == 8
    assert all(math.isfinite(v) for v in metrics.values())


@pytest.mark.parametrize("poison", ["advantage", "old"])
def test_a_batch_with_a_nan_is_skipped_as_if_it_had_never_been(tmp_path: Path, poison: str) -> None:
    samples = sampled(random_model(), 6)
    bad = list(samples)
    nan = (math.nan,) * len(bad[2].response_ids)
    bad[2] = dataclasses.replace(bad[2], advantage=math.nan) if poison == "advantage" else with_logprobs(bad[2], nan)
    # The same rows in every step: their log-probs are soon those of older weights, which is not the point here.
    loop, clean = (PolicyUpdate(random_model(), None, settings("max_mismatch=100.0")) for _ in range(2))
    for each in (loop, clean):
        each.run(samples, step=1)
    before, moments = weights(loop.backend.model), optimizer_bits(loop, tmp_path / "a")
    metrics = loop.run(bad, step=2)
    assert metrics["learner/skipped"] == 1
    assert "learner/loss" not in metrics
    assert same_bits(before, weights(loop.backend.model))
    assert optimizer_bits(loop, tmp_path / "b") == moments
    for each in (loop, clean):
        each.run(samples, step=3)
    assert same_bits(weights(loop.backend.model), weights(clean.backend.model))


def test_a_gradient_that_overflows_is_skipped(tmp_path: Path) -> None:
    samples = sampled(random_model(), 3)
    loop = PolicyUpdate(random_model(), None, settings())
    before = weights(loop.backend.model)
    huge = [dataclasses.replace(s, advantage=3e38) for s in samples]
    assert loop.run(huge, step=1)["learner/skipped"] == 1
    assert same_bits(before, weights(loop.backend.model))


def test_more_than_three_skips_in_a_row_stop_with_the_episodes_named() -> None:
    samples = sampled(random_model(), 4)
    bad = [dataclasses.replace(s, advantage=math.nan) if s.episode == "002" else s for s in samples]
    loop = PolicyUpdate(random_model(), None, settings("epochs=3"))
    before = weights(loop.backend.model)
    assert loop.run(bad, step=1)["learner/skipped"] == 3
    with pytest.raises(LearnerError, match="episodes 002"):
        PolicyUpdate(loop.backend.model, None, settings("epochs=4")).run(bad, step=1)
    assert same_bits(before, weights(loop.backend.model))


def test_skips_count_only_in_a_row() -> None:
    samples = sampled(random_model(), 8)
    bad = [dataclasses.replace(samples[0], advantage=math.nan), *samples[1:]]
    _, metrics = trained(bad, "epochs=4 minibatch=4 lr=1e-5")
    assert (metrics["learner/skipped"], metrics["learner/optimizer_steps"]) == (4, 4)


def test_resumed_training_equals_uninterrupted_training_bit_for_bit(tmp_path: Path) -> None:
    samples = sampled(random_model(), 10)
    config = settings("epochs=2 minibatch=5 kl_coef=0.05 lr_decay_steps=4 lr_final=0.1 max_mismatch=100.0")
    whole = PolicyUpdate(random_model(), random_model(1), config)
    for step in (1, 2, 3, 4):
        whole.run(samples, step=step)
    first = PolicyUpdate(random_model(), random_model(1), config)
    for step in (1, 2):
        first.run(samples, step=step)
    first.backend.save_optimizer(tmp_path / "o")
    second = PolicyUpdate(copy.deepcopy(first.backend.model), random_model(1), config)
    second.backend.load_optimizer(tmp_path / "o")
    for step in (3, 4):
        second.run(samples, step=step)
    assert same_bits(weights(whole.backend.model), weights(second.backend.model))
    assert optimizer_bits(whole, tmp_path / "a") == optimizer_bits(second, tmp_path / "b")


def test_optimizer_state_is_keyed_by_parameter_name_in_safetensors(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    loop = PolicyUpdate(random_model(), None, settings())
    loop.run(sampled(random_model(), 3), step=1)
    loop.backend.save_optimizer(tmp_path / "o")
    names = {n for n, _ in loop.backend.model.named_parameters()}
    stored = set(load_file(tmp_path / "o" / backends.OPTIMIZER_FILE))
    assert stored == {f"{n}.{m}" for n in names for m in ("exp_avg", "exp_avg_sq")}
    assert sorted(p.name for p in (tmp_path / "o").iterdir()) == [backends.STEPS_FILE, backends.OPTIMIZER_FILE]


def test_an_optimizer_state_that_was_never_stepped_restores(tmp_path: Path) -> None:
    loop = PolicyUpdate(random_model(), None, settings())
    loop.backend.save_optimizer(tmp_path / "o")
    loop.backend.load_optimizer(tmp_path / "o")
    other = PolicyUpdate(random_model(), None, settings())
    samples = sampled(random_model(), 3)
    for each in (loop, other):
        each.run(samples, step=1)
    assert same_bits(weights(loop.backend.model), weights(other.backend.model))


def test_an_optimizer_state_of_another_model_is_refused(tmp_path: Path) -> None:
    loop = PolicyUpdate(random_model(), None, settings())
    loop.run(sampled(random_model(), 3), step=1)
    loop.backend.save_optimizer(tmp_path / "o")
    for other in (random_model(hidden_size=32), random_model(num_hidden_layers=1)):
        with pytest.raises(CheckpointError, match="another model"):
            PolicyUpdate(other, None, settings()).backend.load_optimizer(tmp_path / "o")
    with pytest.raises(CheckpointError, match="no optimizer state"):
        loop.backend.load_optimizer(tmp_path / "absent")


def test_the_gradient_norm_is_reported_before_clipping_and_clipped_to_the_limit() -> None:
    p = torch.nn.Parameter(torch.zeros(2))
    p.grad = torch.tensor([3.0, 4.0])
    assert backends.clip_([p], 1.0) == 5.0
    assert p.grad.tolist() == pytest.approx([0.59999988, 0.79999984], abs=1e-7)
    p.grad = torch.tensor([0.3, 0.4])
    assert backends.clip_([p], 1.0) == pytest.approx(0.5)
    assert p.grad.tolist() == torch.tensor([0.3, 0.4]).tolist()
    p.grad = torch.tensor([3.0, math.nan])
    assert math.isnan(backends.clip_([p], 1.0))
    assert p.grad.tolist()[0] == 3.0


def test_wrong_log_probs_are_refused_before_the_first_update_with_the_likely_causes() -> None:
    model = random_model()
    before = weights(model)
    at_other_temperature = sampled(model, 20, temperature=0.5)
    loop = PolicyUpdate(model, None, settings("lr=0.1"))
    with pytest.raises(LearnerError, match=r"learner\.max_mismatch=0\.02.*rollout\.temperature=1"):
        loop.run(at_other_temperature, step=1)
    assert same_bits(before, weights(model))
    assert all(p.grad is None for p in model.parameters())


def test_matching_log_probs_report_no_mismatch_at_any_temperature() -> None:
    config = update(settings("lr=1e-4"), {"rollout": {"temperature": 0.7}})
    _, metrics = trained(sampled(random_model(), 20, temperature=0.7), config=config)
    assert metrics["learner/mismatch/mean_abs"] < 1e-5
    assert metrics["learner/mismatch/k3"] < 1e-8
    assert metrics["learner/mismatch/outside_0.8_1.25"] == 0.0


def test_the_mismatch_report_has_the_values_of_its_definition() -> None:
    _, metrics = trained(sampled(random_model(), 20, shift=-0.3), "max_mismatch=1.0")
    assert metrics["learner/mismatch/mean_abs"] == pytest.approx(0.3, abs=1e-4)
    assert metrics["learner/mismatch/k3"] == pytest.approx(math.exp(0.3) - 1.3, abs=1e-4)
    assert metrics["learner/mismatch/outside_0.8_1.25"] == 1.0
    assert metrics["learner/mismatch/outside_0.5_2"] == 0.0


def test_recomputed_log_probs_make_the_weights_independent_of_the_engines() -> None:
    samples = sampled(random_model(), 10)
    noisy = [with_logprobs(s, tuple(x - 0.01 for x in s.old_logprobs)) for s in samples]
    config = "recompute_logprobs=true epochs=2 minibatch=5"
    assert same_bits(trained(samples, config)[0], trained(noisy, config)[0])
    without = "epochs=2 minibatch=5"
    assert not same_bits(trained(samples, without)[0], trained(noisy, without)[0])


def test_the_engine_weight_scales_the_gradient_by_learner_over_engine() -> None:
    samples = sampled(random_model(), 6)
    plain = trained(samples, "recompute_logprobs=true")[1]
    lower = [with_logprobs(s, tuple(x - math.log(1.1) for x in s.old_logprobs)) for s in samples]
    weighted = trained(lower, "tis_cap=2.0")[1]
    capped = trained(lower, "tis_cap=1.05")[1]
    assert weighted["learner/grad_norm"] == pytest.approx(1.1 * plain["learner/grad_norm"], rel=1e-4)
    assert capped["learner/grad_norm"] == pytest.approx(1.05 * plain["learner/grad_norm"], rel=1e-4)


def test_masked_truncated_samples_give_no_loss_but_count_in_the_divisor() -> None:
    samples = sampled(random_model(), 6)
    cut = [dataclasses.replace(s, truncated=i == 5) for i, s in enumerate(samples)]
    masked = trained(cut, "mask_truncated=true kl_coef=0.1", reference=random_model(1))[1]
    shorter = trained(samples[:5], "kl_coef=0.1", reference=random_model(1))[1]
    assert masked["learner/loss"] == pytest.approx(shorter["learner/loss"] * 5 / 6, abs=1e-6)
    assert masked["learner/tokens"] == sum(len(s.response_ids) for s in samples[:5])
    garbage = with_logprobs(cut[5], tuple(-100.0 - i for i in range(len(cut[5].response_ids))))
    again = trained([*cut[:5], garbage], "mask_truncated=true kl_coef=0.1", reference=random_model(1))[1]
    assert again == masked


def test_a_mini_batch_of_masked_samples_makes_no_optimizer_step() -> None:
    samples = [dataclasses.replace(s, truncated=i > 0) for i, s in enumerate(sampled(random_model(), 3))]
    metrics = trained(samples, "mask_truncated=true minibatch=1")[1]
    assert (metrics["learner/optimizer_steps"], metrics["learner/skipped"]) == (1, 0)
    none_left = trained([dataclasses.replace(s, truncated=True) for s in samples], "mask_truncated=true")[1]
    assert none_left["learner/no_signal"] == 1.0


def test_the_reference_pulls_the_policy_back_and_stays_frozen() -> None:
    reference = random_model(1)
    before = weights(reference)
    samples = sampled(random_model(), 12)
    free = trained(samples, "kl_coef=1e-9 epochs=4 lr=1e-3 max_mismatch=100.0", reference=reference, steps=8)[1]
    held = trained(samples, "kl_coef=1.0 epochs=4 lr=1e-3 max_mismatch=100.0", reference=reference, steps=8)[1]
    assert held["learner/kl_k2"] < 0.8 * free["learner/kl_k2"]
    assert held["learner/kl"] > 0
    assert same_bits(before, weights(reference))


def test_a_policy_equal_to_its_reference_has_no_kl() -> None:
    metrics = trained(sampled(random_model(), 6), "kl_coef=0.1", reference=random_model())[1]
    assert metrics["learner/kl"] == pytest.approx(0.0, abs=1e-8)


def test_a_positive_advantage_makes_a_response_likelier_and_a_negative_one_less_so() -> None:
    from spiral_lib.learner.logprobs import score

    for advantage, sign in ((1.0, 1), (-1.0, -1)):
        model = random_model()
        row = [dataclasses.replace(s, advantage=advantage) for s in sampled(model, 1)]
        before = sum(row[0].old_logprobs)
        PolicyUpdate(model, None, settings("lr=1e-3")).run(row, step=1)
        after = float(score(model, row, temperature=1.0, chunk=64, budget=64, can_pack=False)[0].sum())
        assert sign * (after - before) > 0


def test_a_frozen_opponents_tokens_never_train() -> None:
    model = random_model()
    mine = sampled(model, 4)

    def play(opponent_ids: tuple[int, ...]):
        turns = []
        for i, s in enumerate(mine):
            values = {"prompt_ids": s.prompt_ids, "response_ids": s.response_ids, "logprobs": s.old_logprobs}
            turns.append(turn(2 * i, 0, **values))
            frozen = {"response_ids": opponent_ids, "logprobs": (-1.0,) * len(opponent_ids), "policy": "pool:x"}
            turns.append(turn(2 * i + 1, 1, trainable=False, **frozen))
        config = settings()
        samples = build([episode("1", (1, -1), tuple(turns))], RoleBaselines(0.95), config).samples
        return trained(samples, config=config)[0]

    assert same_bits(play((1, 2, 3)), play((7, 8, 9, 10)))


@pytest.mark.parametrize(
    ("text", "rates"),
    [
        ("lr=1.0", [1.0, 1.0, 1.0]),
        ("lr=1.0 lr_warmup_steps=2", [0.5, 1.0, 1.0]),
        ("lr=1.0 lr_decay_steps=4 lr_final=0.2", [1.0, 0.8, 0.6, 0.4, 0.2, 0.2]),
        ("lr=1.0 lr_warmup_steps=2 lr_decay_steps=2 lr_final=0.0", [0.5, 1.0, 1.0, 0.5, 0.0]),
    ],
)
def test_the_rate_warms_up_and_decays_by_learner_step(text: str, rates: list[float]) -> None:
    config = settings(text).learner
    assert [learning_rate(config, s) for s in range(1, len(rates) + 1)] == pytest.approx(rates)


def test_lr_scale_multiplies_the_rate() -> None:
    loop = PolicyUpdate(random_model(), None, settings("lr=1e-3"))
    assert loop.run(sampled(random_model(), 3), step=1, lr_scale=0.5)["learner/lr"] == pytest.approx(5e-4)


def test_float32_masters_move_where_bfloat16_weights_would_stand_still() -> None:
    low, master = torch.tensor([0.1]).bfloat16(), torch.tensor([0.1])
    for _ in range(400):
        low -= 1e-6
        master -= 1e-6
    assert float(low) == float(torch.tensor([0.1]).bfloat16())
    config = update(settings("lr=1e-6"), {"model": {"dtype": "bfloat16"}})
    model = random_model()
    before = weights(model)
    after, metrics = trained(sampled(model, 8), config=dataclasses.replace(config), model=model)
    assert {t.dtype for t in after.values()} == {torch.float32}
    moved = {n: float((before[n] - after[n]).abs().max()) for n in after}
    assert all(0 < m < 1.1e-6 for m in moved.values())
    assert 0 < metrics["learner/mismatch/mean_abs"] < 0.1


def test_an_unavailable_backend_names_the_one_that_works() -> None:
    with pytest.raises(LearnerError, match=r"learner\.backend=torch"):
        PolicyUpdate(random_model(), None, settings("backend=deepspeed"))


def test_recomputed_activations_change_time_and_memory_only() -> None:
    samples = sampled(random_model(), 6)
    plain, again = (trained(samples, f"checkpoint_activations={on} lr=1e-3")[0] for on in ("false", "true"))
    assert furthest(plain, again) < 1e-6


def test_recomputing_activations_keeps_dropout_off() -> None:
    model = random_model(attention_dropout=0.5)
    samples = sampled(model, 6)
    loop = PolicyUpdate(model, None, settings("checkpoint_activations=true"))
    metrics = loop.run(samples, step=1)
    assert metrics["learner/mismatch/max_abs"] < 1e-4
    assert any(m.training for m in model.modules())
    assert not any(m.training for m in model.modules() if "Attention" in type(m).__name__)
