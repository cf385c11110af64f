"""Matches against frozen opponents: paired seats, seeds of their own, nothing dropped from the count."""

from __future__ import annotations

from collections import Counter

import pytest

from spiral_lib import policies
from spiral_lib.config import Named, PromptConfig
from spiral_lib.evaluation import matches
from spiral_lib.types import EndReason, Episode, MatchSpec, Move, Policy, PolicyRef, View

KUHN = Named(name="kuhn_poker")
PLAIN = PromptConfig()


class Answers:
    """A policy that gives one and the same answer."""

    digest = "answers"
    engine = "scripted"
    temperature = 1.0

    def __init__(self, ref: str, move: Move) -> None:
        self.ref = ref
        self._move = move

    async def act(self, view: View, *, seed: int) -> Move:
        return self._move


def scripted(ref: str) -> Policy:
    return policies.make(PolicyRef.parse(ref), prompt=PLAIN)


def specs(opponent: str = "random", *, count: int = 40, game: Named = KUHN, seed: int = 3) -> list[MatchSpec]:
    return matches.plan(game, opponent, opponent_ref=opponent, matches=count, seed=seed)


def episode(first: float, *, end: EndReason = EndReason.FINISHED, forfeited_by: int | None = None) -> Episode:
    return Episode(
        id="0",
        game="kuhn_poker",
        seed=0,
        policies=("self", "random"),
        turns=(),
        returns=(first, -first),
        end_reason=end,
        forfeited_by=forfeited_by,
    )


def test_pairs_share_a_seed_and_swap_the_seats() -> None:
    planned = specs(count=10)
    for one, two in zip(planned[::2], planned[1::2], strict=True):
        assert one.seed == two.seed
        assert (one.policies, two.policies) == (("self", "random"), ("random", "self"))
    assert len({spec.seed for spec in planned}) == 5
    assert len({spec.id for spec in planned}) == 10


def test_an_odd_number_of_matches_is_rounded_up_to_pairs() -> None:
    assert len(specs(count=5)) == 6


def test_seeds_depend_on_run_seed_game_and_opponent_only() -> None:
    assert specs() == specs()
    assert {s.seed for s in specs()}.isdisjoint(s.seed for s in specs(seed=4))
    assert {s.seed for s in specs()}.isdisjoint(s.seed for s in specs("optimal"))
    assert all(spec.trainable == (False, False) for spec in specs())


def test_a_policy_against_itself_has_a_mean_return_of_exactly_zero() -> None:
    played = matches.play(specs(), {"self": scripted("random"), "random": scripted("random")}, concurrency=7)
    found = matches.metrics(matches.outcome("kuhn_poker", "random", played))
    assert found["eval/kuhn_poker/vs_random/mean_return"] == 0.0
    assert found["eval/kuhn_poker/vs_random/win_rate"] == 0.5


def test_solved_play_beats_random_play_at_tic_tac_toe_from_both_seats() -> None:
    planned = specs(game=Named(name="tic_tac_toe"), count=60)
    played = matches.play(planned, {"self": scripted("optimal"), "random": scripted("random")}, concurrency=60)
    outcome = matches.outcome("tic_tac_toe", "random", played)
    found = matches.metrics(outcome)
    assert found["eval/tic_tac_toe/vs_random/loss_rate"] == 0.0
    assert found["eval/tic_tac_toe/vs_random/win_rate_low"] > 0.6
    assert all(value is not None and value >= 0 for value in outcome.returns)


def test_episodes_come_in_the_order_of_the_specs_whatever_the_concurrency() -> None:
    table = {"self": scripted("random"), "random": scripted("random")}
    assert matches.play(specs(), table, concurrency=1) == matches.play(specs(), table, concurrency=40)


def test_an_unreadable_answer_loses_and_is_counted_as_invalid() -> None:
    silent = Answers("self", Move(action="", text="?", reason="no_box"))
    played = matches.play(specs(count=20), {"self": silent, "random": scripted("random")}, concurrency=4)
    found = matches.metrics(matches.outcome("kuhn_poker", "random", played))
    assert found["eval/kuhn_poker/vs_random/win_rate_n"] == 20
    # Before its first turn the opponent can end no hand, so every match is a forfeit of ours.
    assert found["eval/kuhn_poker/vs_random/invalid_rate"] == 1.0
    assert found["eval/kuhn_poker/vs_random/mean_return"] == -1.0
    assert found["eval/kuhn_poker/vs_random/opponent_invalid_rate"] == 0.0


def test_forfeits_are_told_apart_by_side_in_both_seats() -> None:
    played = [
        episode(1.0, end=EndReason.ILLEGAL_ACTION, forfeited_by=1),  # seat 0 is ours: the opponent forfeits
        episode(1.0, end=EndReason.ILLEGAL_ACTION, forfeited_by=1),  # seat 1 is ours: we forfeit
        episode(-1.0, end=EndReason.TRUNCATED, forfeited_by=0),  # ours
        episode(-1.0, end=EndReason.ILLEGAL_ACTION, forfeited_by=0),  # theirs
    ]
    outcome = matches.outcome("kuhn_poker", "random", played)
    assert (outcome.own_forfeits, outcome.opponent_forfeits) == (2, 2)
    assert outcome.returns == (1.0, -1.0, -1.0, 1.0)


def test_void_matches_are_neither_won_nor_lost_and_are_reported() -> None:
    failing = Answers("api:x", Move(action="", text="", failed=True))
    planned = matches.plan(KUHN, "api:x", opponent_ref="api:x", matches=6, seed=0)
    played = matches.play(planned, {"self": scripted("random"), "api:x": failing}, concurrency=6)
    outcome = matches.outcome("kuhn_poker", "api:x", played)
    found = matches.metrics(outcome)
    assert outcome.returns == (None,) * 6
    assert found == {"eval/kuhn_poker/vs_api_x/win_rate_n": 0.0, "eval/kuhn_poker/vs_api_x/void_n": 6.0}


def test_wins_draws_and_losses_add_up_to_all_matches_that_count() -> None:
    played = [episode(r) for r in (1.0, 0.5, 0.0, -0.5, 1.0, 0.0)] + [episode(0.0, end=EndReason.OPPONENT_ERROR)] * 2
    outcome = matches.outcome("kuhn_poker", "pool:ab", played)
    found = matches.metrics(outcome)
    prefix = "eval/kuhn_poker/vs_pool_ab"
    counted = Counter((value > 0) - (value < 0) for value in outcome.returns if value is not None)
    rates = [found[f"{prefix}/{name}_rate"] for name in ("win", "draw", "loss")]
    assert rates == [counted[1] / 6, counted[0] / 6, counted[-1] / 6]
    assert sum(rates) == pytest.approx(1.0)
    assert (found[f"{prefix}/win_rate_n"], found[f"{prefix}/void_n"]) == (6.0, 2.0)
    assert found[f"{prefix}/win_rate_low"] < found[f"{prefix}/win_rate"] < found[f"{prefix}/win_rate_high"]
    assert found[f"{prefix}/mean_return_low"] <= found[f"{prefix}/mean_return"] <= found[f"{prefix}/mean_return_high"]
