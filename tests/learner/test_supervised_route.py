"""Route sft in the learner's own loop: the likelihood of given responses, with the guards of every step."""

import dataclasses

import pytest
import torch
from learner_cases import furthest, random_model, same_bits, sample, settings, weights

from spiral_lib.learner import shaping
from spiral_lib.learner.loop import PolicyUpdate

ROWS = [sample((1, 2, i % 7), (3 + i % 7, 9, *((4,) * (i % 3))), 1.0, episode=f"{i:02d}") for i in range(12)]


def supervised(text: str = ""):
    return dataclasses.replace(settings(text), route="sft")


def trained(text: str = "", rows=ROWS, *, steps: int = 1):
    loop = PolicyUpdate(random_model(), None, supervised(text))
    metrics = [loop.run(rows, step=step) for step in range(1, steps + 1)]
    return weights(loop.model), metrics


def likelihoods(model, rows) -> list[torch.Tensor]:
    """The summed negative log-likelihood of each response, the long way."""
    found = []
    for s in rows:
        logits = model(torch.tensor([[*s.prompt_ids, *s.response_ids]])).logits[0, len(s.prompt_ids) - 1 : -1]
        target = torch.tensor(s.response_ids)
        found.append(torch.nn.functional.cross_entropy(logits, target, reduction="sum"))
    return found


def test_loss_and_gradient_are_the_likelihoods_over_the_constant_divisor() -> None:
    model, config = random_model(), supervised("normalizer=8 max_grad_norm=0.0")
    total = torch.stack(likelihoods(model, ROWS)).sum() / (8 * len(ROWS))
    total.backward()
    norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])
    model.zero_grad(set_to_none=True)
    metrics = PolicyUpdate(model, None, config).run(ROWS, step=1)
    assert metrics["learner/loss"] == pytest.approx(float(total.detach()), rel=1e-5)
    assert metrics["learner/grad_norm"] == pytest.approx(float(norm), rel=1e-4)
    tokens = sum(len(s.response_ids) for s in ROWS)
    assert metrics["learner/tokens"] == tokens
    assert metrics["learner/nll"] == pytest.approx(float(total.detach()) * 8 * len(ROWS) / tokens, rel=1e-5)


def test_it_learns_the_responses_over_many_steps_and_epochs() -> None:
    _, metrics = trained("lr=0.01 epochs=2 minibatch=6", steps=30)
    # One prompt has responses of three lengths: certainty is not to be had.
    assert metrics[-1]["learner/nll"] < 0.4 < 2.0 < metrics[0]["learner/nll"]


def test_the_token_budget_does_not_change_the_weights() -> None:
    assert furthest(trained("pack_tokens=16")[0], trained("pack_tokens=4096")[0]) < 1e-6


def test_nothing_but_the_likelihood_counts() -> None:
    plain, _ = trained()
    others = "kl_coef=0.5 entropy_coef=0.5 tis_cap=2.0 recompute_logprobs=true clip_high=0.0 max_mismatch=0.0"
    assert same_bits(plain, trained(others)[0])
    moved = [dataclasses.replace(s, old_logprobs=(-3.0,) * len(s.response_ids)) for s in ROWS]
    assert same_bits(plain, trained(rows=moved)[0])
    assert shaping.resolved(supervised("kl_coef=0.5")).learner.kl_coef == 0.0


def test_numbers_that_are_not_finite_skip_the_step() -> None:
    spoilt = [dataclasses.replace(ROWS[0], advantage=float("nan")), *ROWS[1:]]
    before = weights(random_model())
    after, metrics = trained(rows=spoilt)
    assert metrics[0]["learner/skipped"] == 1
    assert same_bits(before, after)
