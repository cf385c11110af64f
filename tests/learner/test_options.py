"""The learner's optional settings, each against numbers worked out by hand; all are off by default."""

import dataclasses
import math
from pathlib import Path

import pytest
import torch
from learner_cases import random_model, same_bits, sample, sampled, settings, weights
from test_learner import checkpoint, played

from spiral_lib import checkpoints, preflight
from spiral_lib.config import LearnerConfig, Named, RunConfig, update
from spiral_lib.errors import ConfigError
from spiral_lib.learner import shaping
from spiral_lib.learner.batch import Sample
from spiral_lib.learner.loop import PolicyUpdate
from spiral_lib.learner.loss import TokenInputs, token_loss
from spiral_lib.learner.update import Learner
from spiral_lib.rae import RoleBaselines


def sequence_loss(ratios: list[float], lengths: tuple[int, ...], advantage: float, text: str = "ratio=sequence"):
    """Summed loss and gradient of log-probs whose token ratios are given."""
    new = torch.zeros(len(ratios), dtype=torch.float64, requires_grad=True)
    old = -torch.tensor(ratios, dtype=torch.float64).log()
    inputs = TokenInputs(
        old_R=old,
        advantage_R=torch.full_like(old, advantage),
        mask_R=torch.ones(len(ratios), dtype=torch.bool),
        lengths=lengths,
    )
    total = token_loss(new, torch.zeros_like(old), inputs, settings(text).learner).total
    total.backward()
    return float(total.detach()), new.grad.tolist()


def test_a_sequence_ratio_is_the_geometric_mean_of_its_tokens_ratios() -> None:
    loss, gradient = sequence_loss([1.2, 1.0, 0.9], (2, 1), 1.0)
    assert loss == pytest.approx(-(2 * math.sqrt(1.2) + 0.9))
    assert gradient == pytest.approx([-math.sqrt(1.2), -math.sqrt(1.2), -0.9])


def test_a_sequence_is_clipped_as_a_whole() -> None:
    # 1.69 and 1.0 average to 1.3, which is clipped for both tokens; token by token only the first would be.
    assert sequence_loss([1.69, 1.0], (2,), 1.0) == (pytest.approx(-2.4), [0.0, 0.0])
    assert sequence_loss([1.69, 1.0], (2,), 1.0, "")[1] == pytest.approx([0.0, -1.0])


def test_on_policy_both_kinds_of_ratio_give_one_gradient() -> None:
    found = [sequence_loss([1.0] * 5, (2, 3), -0.5, text)[1] for text in ("ratio=sequence", "ratio=token")]
    assert found[0] == pytest.approx(found[1]) == [0.5] * 5


def rows(*advantages: float, **rest: object) -> list[Sample]:
    return [sample((1,), (2,), a, episode=str(i), **rest) for i, a in enumerate(advantages)]


def test_whitened_advantages_have_mean_zero_and_deviation_one() -> None:
    on = LearnerConfig(whiten_advantages=True, mask_truncated=True)
    found = [s.advantage for s in shaping.whitened(rows(1.0, 2.0, 3.0), on)]
    assert found == pytest.approx([-math.sqrt(1.5), 0.0, math.sqrt(1.5)])
    with_masked = [*rows(1.0, 2.0, 3.0), *rows(100.0, truncated=True)]
    assert [s.advantage for s in shaping.whitened(with_masked, on)[:3]] == pytest.approx(found)


def test_equal_advantages_are_not_whitened_and_by_default_none_are() -> None:
    same = rows(0.5, 0.5)
    assert shaping.whitened(same, LearnerConfig(whiten_advantages=True)) == same
    assert shaping.whitened(rows(1.0, 3.0), LearnerConfig()) == rows(1.0, 3.0)


@pytest.mark.parametrize(("target", "coefficient"), [(0.0, 0.1), (1.0, 0.05), (0.5, 0.0), (0.4, 0.0), (5.0, 0.09)])
def test_the_entropy_bonus_fades_as_the_entropy_nears_its_target(target: float, coefficient: float) -> None:
    samples = [sample((1,), (2, 3), 1.0, old_logprobs=(-0.25, -0.75))]
    config = LearnerConfig(entropy_coef=0.1, entropy_target=target)
    assert shaping.with_entropy_target(samples, config).entropy_coef == pytest.approx(coefficient)


def test_the_faded_bonus_is_the_one_in_the_loss() -> None:
    samples = sampled(random_model(), 6)
    entropy = -sum(sum(s.old_logprobs) for s in samples) / sum(len(s.old_logprobs) for s in samples)
    half, plain, reached = (
        run(samples, text)[0]
        for text in (f"entropy_coef=0.2 entropy_target={2 * entropy}", "entropy_coef=0.1", f"entropy_target={entropy}")
    )
    assert all(torch.allclose(half[n], plain[n], atol=1e-6) for n in half)
    assert same_bits(reached, run(samples, "")[0])


def run(samples: list[Sample], text: str = "", *, step: int = 1) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
    loop = PolicyUpdate(random_model(), None, settings(f"max_mismatch=100.0 {text}"))
    metrics = loop.run(samples, step=step)
    return weights(loop.backend.model), metrics


def two_roles() -> list[Sample]:
    return [dataclasses.replace(s, role="ab"[i % 2]) for i, s in enumerate(sampled(random_model(), 12))]


def test_scheduled_roles_train_in_turn() -> None:
    samples = two_roles()
    only = {r: [s for s in samples if s.role == r] for r in "ab"}
    schedule = "role_schedule=[a,b,all]"
    for step, expected in ((1, only["a"]), (2, only["b"]), (3, samples), (4, only["a"])):
        assert same_bits(run(samples, schedule, step=step)[0], run(expected, step=step)[0])
    assert run(only["b"], schedule, step=1)[1]["learner/no_signal"] == 1.0


def test_a_role_with_rate_zero_moves_nothing_and_others_keep_theirs() -> None:
    samples = two_roles()
    only_a = [s for s in samples if s.role == "a"]
    assert same_bits(run(samples, "role_lr={b: 0.0}")[0], run(only_a)[0])
    assert same_bits(run(samples, "role_lr={a: 0.5, b: 0.0}")[0], run(only_a, "lr=0.005")[0])
    assert same_bits(run(samples, "role_lr={a: 0.5, all: 0.0}")[0], run(only_a, "lr=0.005")[0])


def test_mini_batches_of_roles_with_their_own_rates_hold_one_role_each() -> None:
    samples = two_roles()
    groups = shaping.rate_groups(samples, LearnerConfig(role_lr={"b": 2.0}))
    assert [(f, {samples[i].role for i in g}) for f, g in groups] == [(1.0, {"a"}), (2.0, {"b"})]
    assert sorted(i for _, g in groups for i in g) == list(range(12))


@pytest.mark.parametrize("learner", [{"role_schedule": ["player 0", "player1"]}, {"role_lr": {"player1": 1.0}}])
def test_a_role_that_no_game_has_is_refused_with_the_nearest(learner: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="Did you mean 'player 1'"):
        preflight.check_roles(update(RunConfig(games=(Named(name="kuhn_poker"),)), {"learner": learner}))
    preflight.check_roles(update(RunConfig(), {"learner": {"role_schedule": ["all", "player 0"]}}))


def test_the_kl_is_measured_to_the_checkpoint_the_iteration_began_with(tmp_path: Path) -> None:
    start, other = checkpoint(tmp_path / "start"), checkpoint(tmp_path / "other", 1)
    episodes = played(checkpoints.load_model(start))
    text = "kl_coef=0.1 max_mismatch=100.0"
    near = Learner(start, other, settings(f"{text} kl_reference=previous")).step(episodes, RoleBaselines(0.95), step=1)
    far = Learner(start, other, settings(text)).step(episodes, RoleBaselines(0.95), step=1)
    assert near["learner/kl"] == pytest.approx(0.0, abs=1e-8)
    assert far["learner/kl"] > 0.1


def test_every_option_is_off_by_default_and_what_the_paper_has_is_on() -> None:
    d, config = LearnerConfig(), RunConfig()
    assert (d.ratio, d.whiten_advantages, d.kl_reference, d.entropy_target) == ("token", False, "cold_start", 0.0)
    assert (d.role_schedule, d.role_lr, d.share_header, d.lora_rank, d.backend) == ((), {}, False, 0, "torch")
    assert (d.kl_coef, d.entropy_coef, d.ema_decay, d.mask_truncated, d.recompute_logprobs) == (0, 0, 0, False, False)
    assert (config.rae.baseline, config.rae.decay, config.rewards.terms) == ("role", 0.95, ())
    assert (d.clip_low, d.clip_high, d.gamma, d.epochs, d.max_grad_norm) == (0.2, 0.2, 1.0, 2, 1.0)
    assert (d.lr, d.beta1, d.beta2, d.weight_decay, d.normalizer) == (1e-6, 0.9, 0.95, 0.0, 4096)


@pytest.mark.parametrize(("engine", "cap", "expected"), [("vllm", -1.0, 2.0), ("hf", -1.0, 0.0), ("vllm", 0.0, 0.0)])
def test_the_engine_weight_is_capped_at_two_for_vllm_unless_told_otherwise(
    engine: str, cap: float, expected: float
) -> None:
    base = RunConfig()
    config = dataclasses.replace(
        base,
        rollout=dataclasses.replace(base.rollout, engine=engine),
        learner=dataclasses.replace(base.learner, tis_cap=cap),
    )
    assert shaping.resolved(config).learner.tis_cap == expected
