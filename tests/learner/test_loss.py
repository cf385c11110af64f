"""The token loss against numbers computed in float64 from the definitions."""

import math

import pytest
import torch
from learner_cases import settings

from spiral_lib.learner.logprobs import logits_to_logprobs
from spiral_lib.learner.loss import TokenInputs, TokenLoss, kl_terms, token_loss

Z1, Z2 = (0.0, 1.0, 2.0), (1.0, 0.0, -1.0)
LP = -0.40760596


def two_tokens(advantage: float, *, ratio: float = 1.0, engine: tuple[float, float] | None = None, text: str = ""):
    """Loss / N / B and the logits' gradients of the two-token toy: targets 2 and 0, N = 4, B = 1."""
    z = torch.tensor([Z1, Z2], dtype=torch.float64, requires_grad=True)
    new, entropy = logits_to_logprobs(z, torch.tensor([2, 0]), 1.0)
    old = new.detach() - torch.tensor([math.log(ratio), 0.0])
    inputs = TokenInputs(
        old_R=old,
        advantage_R=torch.full((2,), advantage, dtype=torch.float64),
        mask_R=torch.tensor([True, True]),
        engine_R=None if engine is None else old + torch.tensor(engine, dtype=torch.float64),
    )
    loss = token_loss(new, entropy, inputs, settings(text).learner).total / 4
    loss.backward()
    return float(loss.detach()), z.grad[0].tolist(), z.grad[1].tolist()


def test_on_policy_gradient_is_advantage_times_score() -> None:
    loss, dz1, dz2 = two_tokens(0.5)
    assert loss == pytest.approx(-0.25, abs=1e-9)
    assert dz1 == pytest.approx([0.01125382, 0.03059106, -0.04184488], abs=1e-8)
    assert dz2 == pytest.approx([-0.04184488, 0.03059106, 0.01125382], abs=1e-8)


@pytest.mark.parametrize(
    ("advantage", "ratio", "loss", "dz1"),
    [
        (1.0, 1.3, -0.55, [0.0, 0.0, 0.0]),
        (-1.0, 1.3, 0.575, [-0.02925994, -0.07953675, 0.10879669]),
        (-1.0, 0.7, 0.45, [0.0, 0.0, 0.0]),
        (1.0, 0.7, -0.425, [0.01575535, 0.04282748, -0.05858283]),
    ],
)
def test_clipping_stops_gradients_only_where_the_step_went_far_enough(advantage, ratio, loss, dz1) -> None:
    found, grad1, grad2 = two_tokens(advantage, ratio=ratio)
    assert found == pytest.approx(loss, abs=1e-6)
    assert grad1 == pytest.approx(dz1, abs=1e-7)
    assert grad2 == pytest.approx([-0.08368976 * advantage, 0.06118212 * advantage, 0.02250764 * advantage], abs=1e-7)
    if dz1 == [0.0, 0.0, 0.0]:
        assert grad1 == dz1


def test_the_upper_clip_is_a_setting_of_its_own() -> None:
    loss, dz1, _ = two_tokens(1.0, ratio=1.25, text="clip_high=0.28")
    assert loss == pytest.approx(-(1.25 + 1.0) / 4)
    assert any(dz1)


def test_the_engine_weight_is_capped_and_carries_no_gradient() -> None:
    loss, dz1, dz2 = two_tokens(0.5, engine=(-math.log(3), math.log(2)), text="tis_cap=2.0")
    assert loss == pytest.approx(-0.3125, abs=1e-7)
    assert dz1 == pytest.approx([0.02250764, 0.06118212, -0.08368976], abs=1e-7)
    assert dz2 == pytest.approx([-0.02092244, 0.01529553, 0.00562691], abs=1e-7)


def flat(advantages: list[float], **rest: torch.Tensor) -> TokenInputs:
    n = len(advantages)
    values = {"old_R": torch.zeros(n), "mask_R": torch.ones(n, dtype=torch.bool)} | rest
    return TokenInputs(advantage_R=torch.tensor(advantages), **values)


def test_a_constant_normaliser_weights_every_token_alike() -> None:
    new = torch.zeros(6, requires_grad=True)
    loss = token_loss(new, torch.zeros(6), flat([1.0] * 2 + [-1.0] * 4), settings().learner).total / 8 / 2
    loss.backward()
    assert float(loss.detach()) == pytest.approx(0.125)
    assert new.grad.abs().tolist() == [0.0625] * 6


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probs_and_entropy_follow_the_temperature(temperature: float) -> None:
    z = torch.tensor([Z1] * 3)
    lp, entropy = logits_to_logprobs(z, torch.tensor([0, 1, 2]), temperature)
    expected = {1.0: [-2.40760596, -1.40760596, LP], 0.7: [-3.11726126, -1.68868983, -0.2601184]}[temperature]
    assert lp.tolist() == pytest.approx(expected, abs=1e-6)
    assert float(entropy[0]) == pytest.approx({1.0: 0.83239558, 0.7: 0.65057265}[temperature], abs=1e-6)


KL_GRADIENT = [-0.00502238, -0.15377394, 0.15879632]


@pytest.mark.parametrize(
    ("name", "value", "gradient"),
    [
        ("k1", 0.08222465, [0.0, 0.0, 0.0]),
        ("k2", 0.08127189, KL_GRADIENT),
        ("k3", 0.08222465, [0.0219867, -0.17592374, 0.15393703]),
    ],
)
def test_only_k2_has_the_gradient_of_the_reverse_kl(name: str, value: float, gradient: list[float]) -> None:
    theta = torch.tensor([0.2, -0.1, 0.4], dtype=torch.float64, requires_grad=True)
    reference = torch.log_softmax(torch.tensor([0.0, 0.3, -0.2], dtype=torch.float64), 0)
    new = torch.log_softmax(theta, 0)
    exact = (new.exp() * (new - reference)).sum()
    assert torch.autograd.grad(exact, theta, retain_graph=True)[0].tolist() == pytest.approx(KL_GRADIENT, abs=1e-7)
    expectation = (new.exp().detach() * kl_terms(new, reference)[name]).sum()
    expectation.backward()
    assert float(expectation.detach()) == pytest.approx(value, abs=1e-7)
    assert theta.grad.tolist() == pytest.approx(gradient, abs=1e-7)


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_the_loss_adds_the_chosen_kl_estimator_once(estimator: str) -> None:
    new = torch.tensor([-1.0, -2.0], requires_grad=True)
    reference = torch.tensor([-1.5, -1.2])
    inputs = flat([1.0, 1.0], old_R=new.detach(), reference_R=reference)
    config = settings(f"kl_coef=0.5 kl_estimator={estimator}").learner
    found = token_loss(new, torch.zeros(2), inputs, config)
    term = kl_terms(new.detach(), reference)[estimator].sum()
    assert float(found.total.detach()) == pytest.approx(-2.0 + 0.5 * float(term), abs=1e-6)
    assert found.sums["kl_k3"] == pytest.approx(sum(math.exp(x) - 1 - x for x in (-0.5, 0.8)), abs=1e-6)


def test_the_entropy_bonus_lowers_the_loss() -> None:
    new, entropy = torch.zeros(2, requires_grad=True), torch.tensor([0.3, 0.5], requires_grad=True)
    found = token_loss(new, entropy, flat([1.0, 1.0]), settings("entropy_coef=0.1").learner)
    found.total.backward()
    assert float(found.total.detach()) == pytest.approx(-2.08)
    assert entropy.grad.tolist() == pytest.approx([-0.1, -0.1])


def masked(garbage: float) -> TokenLoss:
    new = torch.tensor([-1.0, -2.0, -3.0], requires_grad=True)
    inputs = TokenInputs(
        old_R=torch.tensor([-1.1, garbage, -2.9]),
        advantage_R=torch.tensor([1.0, garbage, -1.0]),
        mask_R=torch.tensor([True, False, True]),
        engine_R=torch.tensor([-1.2, garbage, -3.0]),
        reference_R=torch.tensor([-0.9, garbage, -3.1]),
    )
    config = settings("kl_coef=0.1 entropy_coef=0.1 tis_cap=2.0").learner
    found = token_loss(new, torch.tensor([0.2, 0.3, 0.4]), inputs, config)
    found.total.backward()
    assert float(new.grad[1]) == 0.0
    assert bool(new.grad.isfinite().all())
    return found


@pytest.mark.parametrize("garbage", [math.nan, math.inf, -math.inf, 1.0, -1e9])
def test_garbage_at_masked_positions_changes_nothing(garbage: float) -> None:
    clean, dirty = masked(-2.0), masked(garbage)
    assert torch.equal(clean.total, dirty.total)
    assert clean.sums == dirty.sums
    assert clean.ratio_max == dirty.ratio_max
    assert clean.sums["tokens"] == 2


def test_extreme_log_ratios_stay_finite_and_are_counted() -> None:
    new = torch.tensor([-1.0, -500.0], requires_grad=True)
    inputs = flat([-1.0, 1.0], old_R=torch.tensor([-900.0, -1.0]), reference_R=torch.tensor([-900.0, -1.0]))
    found = token_loss(new, torch.zeros(2), inputs, settings("kl_coef=0.1").learner)
    found.total.backward()
    assert math.isfinite(float(found.total.detach()))
    assert bool(new.grad.isfinite().all())
    assert found.sums["clamped"] == 2
