"""Nim: piles, last object, parameters; the solver keeps every won position."""

from __future__ import annotations

import functools
import itertools

import pytest

from spiral_lib import games
from spiral_lib.errors import ConfigError, IllegalAction
from spiral_lib.policies.optimal import SOLVED, strategy
from spiral_lib.types import Game


def played(actions: str, **params: object) -> Game:
    game = games.make("nim", seed=0, **params)
    for action in actions.split(", ") if actions else ():
        game.apply(f"[{action}]")
    return game


@functools.cache
def is_won(piles: tuple[int, ...], misere: bool) -> bool:
    if not any(piles):
        return misere  # the other side took the last object
    moves = ((i, left) for i, size in enumerate(piles) for left in range(size))
    return any(not is_won((*piles[:i], left, *piles[i + 1 :]), misere) for i, left in moves)


def test_the_default_piles_are_3_4_5_and_all_12_moves_are_offered_in_the_order_of_openspiel() -> None:
    view = games.make("nim", seed=0).view(0)
    assert view.observation == "Objects: pile 1 has 3, pile 2 has 4, pile 3 has 5. Whoever takes the last object wins."
    assert " ".join(view.legal_actions or ()) == (
        "[1 1] [2 1] [3 1] [1 2] [2 2] [3 2] [1 3] [2 3] [3 3] [2 4] [3 4] [3 5]"
    )


@pytest.mark.parametrize(("misere", "returns"), [(False, (1, -1)), (True, (-1, 1))])
def test_the_last_object_decides(misere: bool, returns: tuple[int, int]) -> None:
    game = played("1 3, 2 4", misere=misere)
    assert game.current_player == 0
    game.apply("[3 5]")
    assert game.current_player is None and game.returns() == returns


@pytest.mark.parametrize("text", ["[1 4]", "[1 0]", "[4 1]", "[0 1]", "[1  1]", "[1,1]", "[01 1]", "1 1", "[1 1 1]"])
def test_other_texts_and_numbers_are_no_actions(text: str) -> None:
    game = played("")
    with pytest.raises(IllegalAction):
        game.apply(text)
    assert game.current_player == 0 and len(game.view(0).legal_actions or ()) == 12


def test_a_pile_that_is_used_up_is_not_offered() -> None:
    assert not any(action.startswith("[1 ") for action in played("1 3").view(1).legal_actions or ())


def test_the_turn_limit_is_the_number_of_objects_and_can_be_reached() -> None:
    game = played(", ".join(["1 1", "2 1"] * 2), piles="2 2")
    assert game.current_player is None and game.spec.max_turns == 4


@pytest.mark.parametrize(
    "params", [{"piles": ""}, {"piles": "3 x"}, {"piles": "0 3"}, {"piles": "3 21"}, {"piles": "3"}, {"misere": 1}]
)
def test_impossible_parameters_are_refused(params: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="nim"):
        games.make("nim", seed=0, **params)


@pytest.mark.parametrize("misere", [False, True])
def test_the_solver_moves_to_lost_positions_exactly_where_there_are_any(misere: bool) -> None:
    assert "nim" in SOLVED
    for piles in itertools.product(range(1, 5), repeat=3):
        view = games.make("nim", seed=0, piles=" ".join(map(str, piles)), misere=misere).view(0)
        chosen = strategy(view)
        good = set()
        for action in view.legal_actions or ():
            pile, take = map(int, action[1:-1].split())
            left = tuple(size - take if n == pile else size for n, size in enumerate(piles, 1))
            good |= {action} if not is_won(left, misere) else set()
        assert {a for a, p in chosen.items() if p} == (good or set(view.legal_actions or ()))
        assert sum(chosen.values()) == pytest.approx(1)
