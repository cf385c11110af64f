"""Pig: dice from the seed, holding, the target, the limit of actions; the solver against a plain recursion."""

from __future__ import annotations

import functools
import random
import re

import pytest

from spiral_lib import games
from spiral_lib.errors import ConfigError, IllegalAction
from spiral_lib.policies.optimal import SOLVED, strategy
from spiral_lib.types import Game, View


def numbers(game: Game) -> dict[str, int]:
    """Return target, both scores, mover, points at risk and actions left."""
    names = ("target", "first", "second", "mover", "risk", "left")
    return dict(zip(names, map(int, re.findall(r"\d+", game.view(0).info_state)), strict=True))


def rolls(seed: int, count: int, **params: int) -> list[int]:
    """Return the faces of the first rolls of a match that only rolls."""
    game, faces = games.make("pig_dice", seed=seed, **params), []
    while len(faces) < count:
        before = numbers(game)
        game.apply("[roll]")
        after = numbers(game)
        faces.append(1 if after["mover"] != before["mover"] else after["risk"] - before["risk"])
    return faces


def test_a_one_loses_the_points_at_risk_and_holding_keeps_them() -> None:
    seed = next(s for s in range(999) if rolls(s, 4, target=100)[0] > 1 and rolls(s, 4, target=100)[1:3] == [1, 4])
    game = games.make("pig_dice", seed=seed)
    game.apply("[roll]")
    assert numbers(game)["risk"] > 1 and game.current_player == 0
    game.apply("[roll]")
    after = numbers(game)
    assert game.current_player == 1 and after["risk"] == after["first"] == after["second"] == 0
    game.apply("[roll]")
    game.apply("[hold]")
    assert game.current_player == 0 and numbers(game)["second"] == 4 and numbers(game)["risk"] == 0


def test_holding_without_points_at_risk_is_illegal_so_that_nobody_can_stall() -> None:
    game = games.make("pig_dice", seed=0)
    assert game.view(0).legal_actions == ("[roll]",)
    with pytest.raises(IllegalAction):
        game.apply("[hold]")


def test_reaching_the_target_wins_without_a_hold() -> None:
    seed = next(s for s in range(999) if min(rolls(s, 3, target=100)) >= 4)
    game = games.make("pig_dice", seed=seed, target=12)
    for _ in range(3):
        assert game.current_player == 0
        game.apply("[roll]")
    assert game.current_player is None and game.returns() == (1, -1)


def test_the_next_faces_depend_on_the_number_of_rolls_and_not_on_who_holds() -> None:
    faces = rolls(11, 12, target=100)
    game, seen, rng = games.make("pig_dice", seed=11, target=100), [], random.Random(0)
    while len(seen) < 12:
        before, action = numbers(game), rng.choice(game.view(game.current_player or 0).legal_actions or ())
        game.apply(action)
        after = numbers(game)
        if action == "[roll]":
            seen.append(1 if after["mover"] != before["mover"] else after["risk"] - before["risk"])
    assert seen == faces


def test_all_faces_are_equally_likely() -> None:
    faces = [face for seed in range(400) for face in rolls(seed, 5, target=100)]
    assert all(abs(faces.count(face) - 2000 / 6) < 4 * (2000 * 5 / 36) ** 0.5 for face in range(1, 7))


@pytest.mark.parametrize("limit", [2, 3, 4, 7])
def test_at_the_limit_points_at_risk_count_and_the_score_decides(limit: int) -> None:
    for seed in range(40):
        game, rng = games.make("pig_dice", seed=seed, max_turns=limit), random.Random(seed)
        turns = 0
        while (player := game.current_player) is not None:
            game.apply(rng.choice(game.view(player).legal_actions or ()))
            turns += 1
        state = numbers(game)
        totals = [state["first"], state["second"]]
        totals[state["mover"]] += state["risk"]
        assert turns == limit == game.spec.max_turns and state["left"] == 0
        assert game.returns()[0] == (totals[0] > totals[1]) - (totals[0] < totals[1])


def test_both_players_see_the_scores_from_their_own_side() -> None:
    game = games.make("pig_dice", seed=next(s for s in range(99) if rolls(s, 1)[0] == 5))
    game.apply("[roll]")
    assert "Your points at risk in this turn: 5." in game.view(0).observation
    assert "The opponent's points at risk in this turn: 5." in game.view(1).observation
    game.apply("[hold]")
    assert "Your score: 5. The opponent's score: 0." in game.view(0).observation
    assert "Your score: 0. The opponent's score: 5." in game.view(1).observation


@pytest.mark.parametrize("params", [{"target": 9}, {"target": 101}, {"max_turns": 1}, {"target": 50.0}])
def test_impossible_parameters_are_refused(params: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="pig_dice"):
        games.make("pig_dice", seed=0, **params)


TARGET = 12


@functools.cache
def value(mine: int, theirs: int, risk: int, left: int) -> float:
    if mine + risk >= TARGET:
        return 1.0
    if left == 0:
        return float((mine + risk > theirs) - (mine + risk < theirs))
    return max(gains(mine, theirs, risk, left).values())


def gains(mine: int, theirs: int, risk: int, left: int) -> dict[str, float]:
    roll = -value(theirs, mine, 0, left - 1) / 6
    roll += sum(value(mine, theirs, risk + face, left - 1) for face in range(2, 7)) / 6
    return {"[roll]": roll, "[hold]": -value(theirs, mine + risk, 0, left - 1)} if risk else {"[roll]": roll}


def test_the_solver_agrees_with_a_plain_recursion_in_every_state_met() -> None:
    assert "pig_dice" in SOLVED
    compared = 0
    for seed in range(60):
        game, rng = games.make("pig_dice", seed=seed, target=TARGET, max_turns=30), random.Random(seed)
        while (player := game.current_player) is not None:
            view: View = game.view(player)
            s = numbers(game)
            mine, theirs = (s["second"], s["first"]) if player else (s["first"], s["second"])
            worth = gains(mine, theirs, s["risk"], s["left"])
            chosen = max(strategy(view), key=strategy(view).__getitem__)
            assert worth[chosen] == pytest.approx(max(worth.values()), abs=1e-12)
            compared += len(worth) > 1
            game.apply(rng.choice(view.legal_actions or ()))
    assert compared > 100
