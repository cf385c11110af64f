"""From episodes to samples: order, baselines, discount, and what is dropped."""

import math
import random

import pytest
from learner_cases import episode, settings, turn

from spiral_lib.config import RaeConfig, RunConfig, update
from spiral_lib.errors import LearnerError
from spiral_lib.learner.batch import build
from spiral_lib.rae import RoleBaselines
from spiral_lib.types import EndReason


def upstream_forfeits(config: RunConfig) -> RunConfig:
    return update(config, {"rewards": {"forfeit": "upstream"}})


def test_samples_come_in_the_order_of_episode_and_turn() -> None:
    episodes = [episode(f"{i:02d}", (1, -1), (turn(0, 0), turn(1, 1), turn(2, 0))) for i in range(20)]
    shuffled = list(episodes)
    random.Random(3).shuffle(shuffled)
    one, two = RoleBaselines(0.95), RoleBaselines(0.95)
    first, second = build(episodes, one, settings()), build(shuffled, two, settings())
    assert first == second
    assert one.to_json() == two.to_json()
    assert [(s.episode, s.turn) for s in first.samples] == [(e.id, i) for e in episodes for i in range(3)]


def test_reward_baseline_and_advantage_are_kept_apart() -> None:
    batch = build([episode("1", (1, -1)), episode("2", (1, -1))], RoleBaselines(0.95), settings())
    s = batch.samples[2]
    assert (s.reward, s.baseline, s.advantage) == pytest.approx((1.0, 0.05, 0.95))


def test_a_forfeited_match_moves_each_baseline_once_whatever_its_number_of_turns() -> None:
    b = RoleBaselines(0.95)
    turns = (turn(0, 0), turn(1, 1, legal=False), turn(2, 0))
    lost = episode("1", (1, -1), turns, end_reason=EndReason.ILLEGAL_ACTION, forfeited_by=1)
    batch = build([lost], b, upstream_forfeits(settings()))
    assert [s.advantage for s in batch.samples] == [0.5, -1.5, 0.5]
    assert b.value("g", "0") == pytest.approx(0.025)
    assert b.value("g", "1") == pytest.approx(-0.075)


def test_a_first_draw_has_no_signal_and_a_later_one_counts_against_the_baseline() -> None:
    b = RoleBaselines(0.95)
    batch = build([episode("1", (0, 0))], b, settings())
    assert batch.samples == ()
    assert batch.metrics["learner/dropped_zero"] == 2
    assert b.value("g", "0") == 0.0
    after = build([episode("2", (1, -1)), episode("3", (0, 0))], b, settings())
    assert [s.advantage for s in after.samples] == pytest.approx([1, -1, -0.05, 0.05])


def test_the_discount_applies_to_the_advantage_over_own_turns() -> None:
    turns = tuple(turn(i, i % 2) for i in range(6))
    b = RoleBaselines(0.95)
    for _ in range(400):
        b.advantage("g", "0", 0.2)
    batch = build([episode("1", (1, -1), turns)], b, settings("gamma=0.5"))
    own = [s.advantage for s in batch.samples if s.role == "0"]
    assert own == pytest.approx([0.2, 0.4, 0.8], abs=1e-6)
    flat = build([episode("2", (1, -1), turns)], RoleBaselines(0.95), settings("gamma=1.0"))
    assert [s.advantage for s in flat.samples if s.role == "1"] == [-1.0] * 3


def test_a_frozen_opponents_turns_neither_train_nor_move_a_baseline() -> None:
    b = RoleBaselines(0.95)
    turns = (turn(0, 0), turn(1, 1, trainable=False, policy="pool:x", response_ids=(9, 9)), turn(2, 0))
    batch = build([episode("1", (1, -1), turns, policies=("self", "pool:x"))], b, settings())
    assert {s.role for s in batch.samples} == {"0"}
    assert all(9 not in s.response_ids for s in batch.samples)
    assert (b.value("g", "0"), b.value("g", "1")) == pytest.approx((0.05, 0.0))


def test_a_void_match_leaves_no_trace_but_a_count() -> None:
    b = RoleBaselines(0.95)
    batch = build([episode("1", (0, 0), end_reason=EndReason.OPPONENT_ERROR)], b, settings())
    assert (batch.samples, batch.metrics["rollout/void"], batch.metrics["rollout/matches"]) == ((), 1, 0)
    assert b.to_json() == RoleBaselines(0.95).to_json()


def test_an_empty_response_is_dropped_and_counted_but_its_match_moves_the_baseline() -> None:
    b = RoleBaselines(0.95)
    empty = turn(0, 0, response_ids=(), logprobs=(), legal=False)
    lost = episode("1", (-1, 1), (empty,), end_reason=EndReason.ILLEGAL_ACTION, forfeited_by=0)
    batch = build([lost], b, settings())
    assert (batch.samples, batch.metrics["learner/dropped_empty"]) == ((), 1)
    assert b.value("g", "0") == pytest.approx(-0.05)


def test_a_response_of_one_token_is_a_sample() -> None:
    short = turn(0, 0, response_ids=(7,), logprobs=(-0.5,))
    batch = build([episode("1", (1, -1), (short,))], RoleBaselines(0.95), settings())
    assert [s.response_ids for s in batch.samples] == [(7,)]


@pytest.mark.parametrize("bad", [(-1.0,), (-1.0, math.nan), (-1.0, -math.inf), (-1.0, 0.5), ()])
def test_unusable_log_probs_drop_a_turn_and_many_of_them_stop_the_step(bad: tuple[float, ...]) -> None:
    good = [episode(f"{i:03d}", (1, -1)) for i in range(60)]
    one = episode("x", (1, -1), (turn(0, 0, logprobs=bad),))
    batch = build([*good, one], RoleBaselines(0.95), settings())
    assert batch.metrics["learner/dropped_logprobs"] == 1
    assert all(s.episode != "x" for s in batch.samples)
    with pytest.raises(LearnerError, match="1 of 1 turns"):
        build([one], RoleBaselines(0.95), settings())


@pytest.mark.parametrize("reason", ["length", "context"])
def test_a_response_cut_short_is_marked_and_kept(reason: str) -> None:
    batch = build([episode("1", (1, -1), (turn(0, 0, finish_reason=reason),))], RoleBaselines(0.95), settings())
    assert [s.truncated for s in batch.samples] == [True]
    assert batch.metrics["rollout/truncated_rate"] == 1.0


def test_the_role_baseline_removes_the_variance_that_a_seat_explains() -> None:
    # Seat 0 wins by 0.8 +- 0.2: with a mean of +-0.8 by seat, Var(R) = 0.04 + 0.64.
    episodes = [episode(f"{i:05d}", (r, -r)) for i, r in enumerate([0.6, 1.0] * 1000)]
    ratios = {}
    for keying in ("role", "game", "none"):
        config = update(settings(), {"rae": {"baseline": keying, "decay": 0.99}})
        assert config.rae == RaeConfig(baseline=keying, decay=0.99)
        ratios[keying] = build(episodes, RoleBaselines(0.99, keying), config).metrics["rae/variance_ratio"]
    assert ratios["none"] == pytest.approx(1.0)
    assert ratios["role"] == pytest.approx(0.04 / 0.68, abs=0.03)
    assert ratios["game"] > 0.95


def test_metrics_name_means_and_baselines_by_game_and_role() -> None:
    b = RoleBaselines(0.95)
    batch = build([episode("1", (1, -1)), episode("2", (-1, 1)), episode("3", (1, -1))], b, settings())
    m = batch.metrics
    assert m["rae/reward/g/0"] == pytest.approx(1 / 3)
    assert m["rae/baseline/g/0"] == b.value("g", "0")
    assert (m["rollout/response_tokens"], m["rollout/prompt_tokens"], m["rollout/trained_turns"]) == (2, 3, 6)
    assert all(math.isfinite(v) for v in m.values())


def test_no_episode_at_all_gives_counts_and_no_means() -> None:
    batch = build([], RoleBaselines(0.95), settings())
    assert batch.samples == ()
    assert batch.metrics["learner/samples"] == 0
    assert "rollout/response_tokens" not in batch.metrics
