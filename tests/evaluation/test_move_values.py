"""Values of moves against references of a few lines: whole trees, known constants, the closed form of Kuhn poker."""

from __future__ import annotations

import functools
import itertools

import pytest

from spiral_lib import games
from spiral_lib.evaluation import exploitability, move_values, regret
from spiral_lib.policies import optimal


@pytest.mark.parametrize("misere", [False, True])
def test_nim_values_are_those_of_the_whole_tree(misere: bool) -> None:
    @functools.cache
    def value(piles: tuple[int, ...]) -> int:
        if not any(piles):
            return 1 if misere else -1
        return max(-value(after) for after in moves(piles).values())

    def moves(piles: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
        return {
            f"[{i + 1} {k}]": (*piles[:i], size - k, *piles[i + 1 :])
            for i, size in enumerate(piles)
            for k in range(1, size + 1)
        }

    for piles in itertools.product(range(4), repeat=3):
        if any(piles):
            found = move_values.nim(f"piles={','.join(map(str, piles))} mover=0 last={'loses' if misere else 'wins'}")
            assert found == {action: -value(after) for action, after in moves(piles).items()}


def test_pig_values_are_those_of_the_recursion() -> None:
    target = 12

    @functools.cache
    def value(mine: int, theirs: int, risk: int, left: int) -> float:
        if mine + risk >= target:
            return 1.0
        if left == 0:
            return float((mine + risk > theirs) - (mine + risk < theirs))
        return max(actions(mine, theirs, risk, left).values())

    def actions(mine: int, theirs: int, risk: int, left: int) -> dict[str, float]:
        rolls = [value(mine, theirs, risk + face, left - 1) for face in range(2, 7)]
        found = {"[roll]": (sum(rolls) - value(theirs, mine, 0, left - 1)) / 6}
        return found | ({"[hold]": -value(theirs, mine + risk, 0, left - 1)} if risk else {})

    for first, second, risk, left, mover in itertools.product((0, 3, 9), (0, 5, 11), (0, 2, 8), (1, 2, 7, 40), (0, 1)):
        mine, theirs = (second, first) if mover else (first, second)
        if mine + risk < target:
            key = f"target={target} scores={first},{second} mover={mover} risk={risk} left={left}"
            assert move_values.pig_dice(key) == pytest.approx(actions(mine, theirs, risk, left), abs=1e-6)


def test_keys_of_matches_are_read_and_large_ones_left_out() -> None:
    match = games.make("pig_dice", seed=0, target=10, max_turns=20)
    assert set(move_values.pig_dice(match.view(0).info_state) or {}) == {"[roll]"}
    for params in ({"target": 100}, {"max_turns": 400}):
        assert move_values.pig_dice(games.make("pig_dice", seed=0, **params).view(0).info_state) is None
    view = games.make("nim", seed=0).view(0)
    assert set(move_values.nim(view.info_state)) == set(view.legal_actions or ())
    for settings in ({}, {"dice": 1}, {"dice": 1, "sides": 3, "elimination": True}):
        assert move_values.liars_dice("1", tuple(settings.items())) is None


def test_the_best_answer_to_kuhn_equilibrium_is_worth_what_the_closed_form_says() -> None:
    pytest.importorskip("pyspiel", reason="needs the extra 'exact' (open_spiel)")
    table = move_values._against_equilibrium("kuhn_poker", ())
    assert table is not None and len(table) == 12
    for state, values in table.items():
        chips = {action: value / 2 for action, value in regret.kuhn_poker(state).items()}
        assert values == pytest.approx(chips, abs=1e-6)


def test_small_liars_dice_has_its_known_value_and_openspiels_nash_conv() -> None:
    pytest.importorskip("pyspiel", reason="needs the extra 'exact' (open_spiel)")
    params = {"dice": 1, "sides": 3}
    table = move_values._against_equilibrium("liars_dice", tuple(params.items()))
    views = games.views("liars_dice", **params)
    assert table is not None and set(table) == set(views)
    # The first player wins 1/9 on average with perfect play.
    first = sum(max(table[die].values()) for die in "123") / 3
    assert first == pytest.approx(1 / 9, abs=1e-3)
    policy = {state: tuple(optimal.strategy(view).values()) for state, view in views.items()}
    gap = exploitability.nash_conv("liars_dice", policy, params)
    assert 0 <= first - 1 / 9 <= gap + 1e-6 < 1e-3
