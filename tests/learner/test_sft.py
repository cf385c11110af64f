"""Supervised fine-tuning: what the loss is, determinism, and that it learns."""

import math

import pytest
import torch
from learner_cases import furthest, random_model, same_bits, weights

from spiral_lib.errors import LearnerError
from spiral_lib.learner import sft

EXAMPLES = [((1, 2, i % 7), (3 + i % 7, 9)) for i in range(20)] + [((5,) * 9, (6, 6, 6, 6, 6))]


def train(model, examples=EXAMPLES, **rest):
    values = {"steps": 4, "batch": 8, "lr": 1e-3, "seed": 0, "pack_tokens": 64} | rest
    return sft.train(model, examples, **values)


def test_the_loss_is_the_mean_cross_entropy_of_response_tokens() -> None:
    model, rows = random_model(), EXAMPLES[-3:]
    terms = []
    for prompt, response in rows:
        logits = model(torch.tensor([[*prompt, *response]])).logits[0, len(prompt) - 1 : -1]
        terms.append(torch.nn.functional.cross_entropy(logits, torch.tensor(response), reduction="none"))
    expected = float(torch.cat(terms).mean().detach())
    metrics = train(model, rows, steps=1, batch=3)
    assert metrics["sft/loss_first"] == pytest.approx(expected, abs=1e-5)
    assert metrics["sft/tokens"] == 9


def test_the_same_seed_gives_the_same_bits_and_another_seed_others() -> None:
    found = []
    for seed in (0, 0, 1):
        model = random_model()
        train(model, seed=seed)
        found.append(weights(model))
    assert same_bits(found[0], found[1])
    assert not same_bits(found[0], found[2])


def test_the_token_budget_does_not_change_the_weights() -> None:
    found = []
    for budget in (16, 4096):
        model = random_model()
        train(model, pack_tokens=budget)
        found.append(weights(model))
    assert furthest(*found) < 1e-6


def test_it_learns_the_examples() -> None:
    seen = []
    metrics = train(random_model(), steps=60, lr=1e-2, on_step=lambda step, loss: seen.append((step, loss)))
    assert metrics["sft/loss_last"] < 0.2 * metrics["sft/loss_first"]
    assert [s for s, _ in seen] == list(range(1, 61))
    assert seen[-1][1] == metrics["sft/loss_last"]


def test_prompt_tokens_are_not_learnt() -> None:
    # The same responses after longer prompts: only response tokens are counted.
    assert train(random_model(), [((1,) * 50, (2, 3))], steps=1, batch=1)["sft/tokens"] == 2


def test_every_example_is_used_once_before_any_is_used_twice() -> None:
    used = [i for step in range(5) for i in sft._batch_indices(20, 8, 0, step)]
    assert sorted(used[:20]) == sorted(used[20:]) == list(range(20))
    assert used[:20] != used[20:]


def test_the_schedule_warms_up_and_falls_to_nothing() -> None:
    rates = [sft._schedule(s, 100) for s in range(100)]
    assert rates[:5] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert rates[5:] == sorted(rates[5:], reverse=True)
    assert 0 < rates[-1] < 0.01


def test_nothing_to_learn_from_is_an_error() -> None:
    for examples in ([], [((1,), ())], [((), (1,))]):
        with pytest.raises(LearnerError, match="0 examples"):
            train(random_model(), examples)


def test_a_loss_that_is_not_finite_stops_the_cold_start() -> None:
    model = random_model()
    with torch.no_grad():
        next(iter(model.parameters())).fill_(math.nan)
    with pytest.raises(LearnerError, match=r"cold_start\.lr"):
        train(model)
