"""The gate: it sees only scores from outside self-play, compares pairs, and raises its collapse alarms."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

import pytest

from spiral_lib import gates, presets
from spiral_lib.config import GateConfig, RunConfig
from spiral_lib.ledger import Ledger
from spiral_lib.types import Decision, Evaluation

CONFIG = replace(presets.tiny(), gates=GateConfig(patience=2))
HEALTHY = {
    "reasoning/median_tokens": 19.0,
    "reasoning/distinct_4grams": 0.04,
    "reasoning/empty_share": 0.1,
    "reasoning/invalid_share": 0.02,
    "reasoning/seat_share": 0.55,
    "reasoning/seat_share_n": 128.0,
    "reasoning/state_dependence": 0.2,
    "reasoning/state_dependence_n": 250.0,
    "learner/grad_norm": 0.08,
}
GRAD_NORMS = (0.5, 0.1, 0.09, 0.08)


def bank(correct: int, n: int = 600) -> tuple[bool, ...]:
    return (True,) * correct + (False,) * (n - correct)


def evaluation(
    *,
    exploitability: float = 0.3,
    correct: int = 240,
    returns: Mapping[str, tuple[float | None, ...]] | None = None,
    metrics: Mapping[str, float] | None = None,
) -> Evaluation:
    measured = {
        "eval/kuhn_poker/exploitability": exploitability,
        "eval/kuhn_poker/exploitability_se": 0.003,
        "eval/kuhn_poker/exploitability_n": 100.0,
    }
    return Evaluation(
        metrics={**measured, **HEALTHY, **(metrics or {})}, bank_correct=bank(correct), match_returns=returns or {}
    )


def without_exploitability(returns: Mapping[str, tuple[float | None, ...]], correct: int = 240) -> Evaluation:
    return Evaluation(metrics=dict(HEALTHY), bank_correct=bank(correct), match_returns=returns)


def decide(
    candidate: Evaluation,
    champion: Evaluation | None = None,
    *,
    cold_start: Evaluation | None = None,
    holds: int = 0,
    training: Mapping[str, float] = HEALTHY,
    config: RunConfig = CONFIG,
    grad_norms: tuple[float, ...] = GRAD_NORMS,
) -> gates.GateDecision:
    start = cold_start or evaluation()
    return gates.decide(
        candidate=candidate,
        champion=champion or start,
        cold_start=start,
        ledger=Ledger(holds=holds, grad_norms=grad_norms),
        training=training,
        config=config,
    )


def test_a_clear_improvement_is_accepted() -> None:
    found = decide(evaluation(exploitability=0.1))
    assert found.decision is Decision.ACCEPT
    assert found.alarms == ()


def test_an_equal_candidate_is_held() -> None:
    assert decide(evaluation()).decision is Decision.HOLD


def test_a_slightly_worse_candidate_is_held() -> None:
    found = decide(evaluation(exploitability=0.31))
    assert found.decision is Decision.HOLD
    assert "not better on balance" in found.reasons[0]


def test_a_small_bank_loss_within_tolerance_does_not_stop_a_large_gain() -> None:
    assert decide(evaluation(exploitability=0.1, correct=238)).decision is Decision.ACCEPT


def test_a_clear_bank_loss_is_held_whatever_the_game_gains() -> None:
    found = decide(evaluation(exploitability=0.1, correct=180))
    assert found.decision is Decision.HOLD
    assert "clear loss: bank accuracy worse than the champion (by 0.1000" in found.reasons[0]


def test_a_clear_loss_rolls_back_once_patience_is_used_up() -> None:
    worse = evaluation(exploitability=0.45)
    assert [decide(worse, holds=h).decision for h in (0, 1, 2)] == [Decision.HOLD, Decision.HOLD, Decision.ROLLBACK]


def test_holding_alone_never_rolls_back() -> None:
    assert decide(evaluation(exploitability=0.31), holds=9).decision is Decision.HOLD


def test_a_noisy_rise_of_exploitability_is_held_and_not_called_a_loss() -> None:
    noisy = evaluation(exploitability=0.4, metrics={"eval/kuhn_poker/exploitability_se": 0.2})
    found = decide(noisy, holds=9)
    assert found.decision is Decision.HOLD
    assert found.reasons[0].startswith("beyond tolerance")


def test_a_rise_measured_with_few_replies_is_no_clear_loss() -> None:
    few = {"eval/kuhn_poker/exploitability_n": 4.0, "eval/kuhn_poker/exploitability_se": 0.0}
    start = evaluation(metrics=few)
    found = decide(evaluation(exploitability=0.36, metrics=few), cold_start=start, holds=9)
    assert found.decision is Decision.HOLD
    assert found.reasons[0].startswith("beyond tolerance")


def test_small_steps_down_do_not_add_up_because_the_cold_start_is_compared_too() -> None:
    found = decide(evaluation(exploitability=0.1, correct=200), evaluation(exploitability=0.2, correct=215))
    assert found.decision is Decision.HOLD
    assert "than the cold start" in found.reasons[0]


def test_self_play_reward_does_not_move_the_decision() -> None:
    flattering = {**HEALTHY, "rollout/mean_return": 1.0, "rollout/reward": 9.0}
    assert decide(evaluation(exploitability=0.45), training=flattering, holds=2).decision is Decision.ROLLBACK


def test_returns_against_weak_opponents_do_not_count_where_exploitability_is_known() -> None:
    champion = evaluation(returns={"kuhn_poker/random": (1.0,) * 100})
    candidate = evaluation(exploitability=0.1, returns={"kuhn_poker/random": (0.5,) * 100})
    assert decide(candidate, champion).decision is Decision.ACCEPT


def test_returns_decide_where_exploitability_is_unknown() -> None:
    weak = without_exploitability({"tic_tac_toe/random": (1.0, -1.0) * 50})
    strong = without_exploitability({"tic_tac_toe/random": (1.0, 0.5) * 50})
    assert decide(strong, weak, cold_start=weak).decision is Decision.ACCEPT
    assert decide(weak, strong, cold_start=weak, holds=2).decision is Decision.ROLLBACK


def test_losing_to_the_cold_start_is_an_alarm_though_self_play_is_even() -> None:
    start = without_exploitability({"tic_tac_toe/cold_start": (0.0,) * 100})
    champion = without_exploitability({"tic_tac_toe/cold_start": (1.0, -1.0) * 50})
    beaten = without_exploitability({"tic_tac_toe/cold_start": (-1.0, -1.0, 1.0, -1.0) * 25})
    found = decide(beaten, champion, cold_start=start)
    assert found.alarms == ("losing_to_cold_start",)
    assert found.decision is Decision.HOLD
    assert decide(beaten, champion, cold_start=start, holds=2).decision is Decision.ROLLBACK


def test_a_pair_with_a_void_match_is_left_out_whole() -> None:
    start = without_exploitability({"tic_tac_toe/random": (1.0, 1.0, 0.0, 0.0)})
    candidate = without_exploitability({"tic_tac_toe/random": (None, -1.0, 0.0, 0.0)})
    (found,) = [c for c in gates.compare(candidate, start, start, CONFIG) if c.name.startswith("return")]
    assert (found.improvement, found.p_worse) == (0.0, 1.0)


def test_what_was_not_measured_holds_and_is_named() -> None:
    candidate = replace(evaluation(exploitability=0.1), bank_correct=bank(40, n=60))
    found = decide(candidate)
    assert found.decision is Decision.HOLD
    assert found.reasons == ("not measured: bank (60 of 600 items)",)
    absent = replace(candidate, metrics=HEALTHY, bank_correct=bank(240))
    assert decide(absent).reasons == ("not measured: eval/kuhn_poker/exploitability",)


def test_nothing_measured_is_never_accepted() -> None:
    nothing = Evaluation(metrics={})
    found = decide(nothing, nothing, cold_start=nothing, training={})
    assert found.decision is Decision.HOLD
    assert found.reasons == ("nothing was measured outside self-play",)


def test_a_disabled_gate_accepts_and_still_reports_alarms() -> None:
    config = replace(CONFIG, gates=replace(CONFIG.gates, enabled=False))
    found = decide(evaluation(exploitability=0.5), training={**HEALTHY, "reasoning/empty_share": 1.0}, config=config)
    assert found.decision is Decision.ACCEPT
    assert found.alarms == ("empty_reasoning",)


STREAMS = {
    "short_responses": ("reasoning/median_tokens", (12.0, 5.0)),
    "low_variety": ("reasoning/distinct_4grams", (0.02, 0.01)),
    "same_reasoning": ("reasoning/state_dependence", (0.1, 0.0)),
    "empty_reasoning": ("reasoning/empty_share", (0.7, 0.99)),
    "invalid_actions": ("reasoning/invalid_share", (1.0,)),
    "one_seat_wins": ("reasoning/seat_share", (0.9, 0.95)),
    "gradient_vanished": ("learner/grad_norm", (0.01, 0.0005)),
    "not_finite": ("learner/grad_norm", (float("nan"),)),
}


@pytest.mark.parametrize("alarm", STREAMS)
def test_each_collapse_raises_its_alarm_within_two_iterations_and_rolls_back(alarm: str) -> None:
    metric, stream = STREAMS[alarm]
    raised = []
    for value in stream:
        found = decide(evaluation(exploitability=0.1), training={**HEALTHY, metric: value})
        raised.append(found.alarms)
    assert len(stream) <= 2
    assert raised[-1] == (alarm,)
    assert found.decision is Decision.ROLLBACK


@pytest.mark.parametrize("alarm", ["short_responses", "low_variety", "empty_reasoning", "invalid_actions"])
def test_a_collapse_seen_only_in_the_evaluation_matches_raises_the_same_alarm(alarm: str) -> None:
    metric, stream = STREAMS[alarm]
    assert decide(evaluation(exploitability=0.1, metrics={metric: stream[-1]}), training={}).alarms == (alarm,)


def test_a_healthy_stream_raises_no_alarm_and_is_accepted_as_it_improves() -> None:
    champion = evaluation(exploitability=0.36)
    norms: tuple[float, ...] = ()
    for step, exploitability in enumerate((0.33, 0.28, 0.2, 0.14, 0.1, 0.08)):
        training = {**HEALTHY, "reasoning/median_tokens": 19.0 - step * 0.5, "learner/grad_norm": 0.1 / (1 + step)}
        candidate = evaluation(exploitability=exploitability, correct=240 - step)
        start = evaluation(exploitability=0.36)
        found = decide(candidate, champion, cold_start=start, training=training, grad_norms=norms)
        assert found.alarms == ()
        assert found.decision is Decision.ACCEPT
        champion, norms = candidate, (*norms, training["learner/grad_norm"])


def test_alarms_are_relative_to_a_cold_start_that_already_reasons_little() -> None:
    bare = {"reasoning/median_tokens": 5.0, "reasoning/empty_share": 1.0, "reasoning/distinct_4grams": 0.01}
    start = evaluation(metrics=bare)
    found = decide(evaluation(exploitability=0.1, metrics=bare), cold_start=start, training={**HEALTHY, **bare})
    assert found.alarms == ()


def test_a_seat_share_over_few_decisive_matches_is_no_alarm() -> None:
    few = {**HEALTHY, "reasoning/seat_share": 1.0, "reasoning/seat_share_n": 12.0}
    assert decide(evaluation(exploitability=0.1), training=few).alarms == ()


@pytest.mark.parametrize(
    ("now", "start"),
    [
        ({"reasoning/state_dependence": 0.0, "reasoning/state_dependence_n": 60.0}, {}),
        ({"reasoning/state_dependence": 0.0}, {"reasoning/state_dependence_n": 60.0}),
        ({"reasoning/state_dependence": -0.01}, {"reasoning/state_dependence": 0.08}),
        ({"reasoning/state_dependence": 0.051}, {}),
    ],
    ids=["few now", "few at the start", "never followed", "still follows"],
)
def test_reasoning_that_cannot_be_said_to_have_lost_its_cards_is_no_alarm(
    now: dict[str, float], start: dict[str, float]
) -> None:
    found = decide(
        evaluation(exploitability=0.1), cold_start=evaluation(metrics=start), training={**HEALTHY, **now}
    )
    assert found.alarms == ()


def test_an_iteration_without_any_signal_is_a_vanished_gradient() -> None:
    training = {k: v for k, v in HEALTHY.items() if k != "learner/grad_norm"}
    found = [
        decide(evaluation(exploitability=0.1), training={**training, "learner/no_signal": x}).alarms for x in (0.9, 1)
    ]
    assert found == [(), ("gradient_vanished",)]


def test_an_iteration_that_is_not_evaluated_is_decided_by_its_alarms_alone() -> None:
    def watch(training: dict[str, float], on_collapse: str, enabled: bool = True) -> gates.GateDecision | None:
        config = replace(CONFIG, gates=replace(CONFIG.gates, on_collapse=on_collapse, enabled=enabled))
        return gates.watch(cold_start=evaluation(), ledger=Ledger(), training=training, config=config)

    bad = {**HEALTHY, "reasoning/invalid_share": 1.0}
    assert watch(dict(HEALTHY), "rollback") is None
    assert watch(bad, "rollback", enabled=False) is None
    found = {p: watch(bad, p) for p in ("hold", "rollback", "halt")}
    assert {p: (d.decision, d.halt, d.alarms) for p, d in found.items() if d} == {
        "hold": (Decision.HOLD, False, ("invalid_actions",)),
        "rollback": (Decision.ROLLBACK, False, ("invalid_actions",)),
        "halt": (Decision.HOLD, True, ("invalid_actions",)),
    }


def test_a_small_gradient_is_no_alarm_before_there_is_a_history() -> None:
    tiny = {**HEALTHY, "learner/grad_norm": 1e-6}
    assert decide(evaluation(exploitability=0.1), training=tiny, grad_norms=(0.1, 0.1)).alarms == ()
    zero = {**HEALTHY, "learner/grad_norm": 0.0}
    assert decide(evaluation(exploitability=0.1), training=zero, grad_norms=()).alarms == ("gradient_vanished",)


@pytest.mark.parametrize(
    ("on_collapse", "decision", "halt"),
    [("hold", Decision.HOLD, False), ("rollback", Decision.ROLLBACK, False), ("halt", Decision.HOLD, True)],
)
def test_on_collapse_says_what_an_alarm_does(on_collapse: str, decision: Decision, halt: bool) -> None:
    config = replace(CONFIG, gates=replace(CONFIG.gates, on_collapse=on_collapse))
    found = decide(evaluation(exploitability=0.1), training={**HEALTHY, "reasoning/invalid_share": 1.0}, config=config)
    assert (found.decision, found.halt) == (decision, halt)


def test_two_equal_policies_are_rarely_told_apart() -> None:
    rng = random.Random(11)

    def drawn() -> Evaluation:
        returns = tuple(rng.choice((1.0, 0.0, -1.0)) for _ in range(60))
        correct = tuple(rng.random() < 0.4 for _ in range(300))
        return Evaluation(metrics=HEALTHY, bank_correct=correct, match_returns={"tic_tac_toe/random": returns})

    losses, accepted = 0, 0
    for _ in range(60):
        start = drawn()
        found = decide(drawn(), start, cold_start=start, holds=9)
        losses += found.decision is Decision.ROLLBACK
        accepted += found.decision is Decision.ACCEPT
    assert losses <= 6
    assert accepted >= 10


def test_a_policy_that_lost_a_third_of_its_wins_is_noticed() -> None:
    rng = random.Random(12)

    def drawn(win: float) -> Evaluation:
        returns = tuple(1.0 if rng.random() < win else -1.0 for _ in range(100))
        return Evaluation(metrics=HEALTHY, match_returns={"tic_tac_toe/random": returns})

    noticed = 0
    for _ in range(30):
        start = drawn(0.8)
        noticed += decide(drawn(0.53), start, cold_start=start, holds=9).decision is Decision.ROLLBACK
    assert noticed >= 24


def test_deciding_twice_gives_the_same_answer() -> None:
    noisy = without_exploitability({"tic_tac_toe/random": (1.0, -1.0, 0.0, 0.5) * 25})
    start = without_exploitability({"tic_tac_toe/random": (0.0, 1.0, -1.0, 0.5) * 25})
    assert decide(noisy, start, cold_start=start) == decide(noisy, start, cold_start=start)


def test_an_evaluation_survives_its_json_exactly() -> None:
    made = evaluation(exploitability=1 / 3, returns={"kuhn_poker/random": (0.5, None, -1.0)})
    made = replace(made, iteration=4, checkpoint="abc")
    assert Evaluation.from_json(made.to_json()) == made
    assert Evaluation.from_json(made.to_json()).to_json() == made.to_json()


def test_an_evaluation_with_a_number_that_is_none_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        evaluation(exploitability=float("nan")).to_json()
