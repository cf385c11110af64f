"""Tic-tac-toe: rules, keys, and the known value of uniform play."""

from __future__ import annotations

import copy

import pytest

from spiral_lib.errors import IllegalAction
from spiral_lib.games.tic_tac_toe import GAME


def played(cells: str) -> GAME:
    game = GAME(seed=0)
    for cell in cells:
        game.apply(f"[{cell}]")
    return game


@pytest.mark.parametrize("line", ["012", "345", "678", "036", "147", "258", "048", "246"])
def test_three_in_a_line_win(line: str) -> None:
    others = [c for c in "012345678" if c not in line]
    for first, second in ((0, 1), (2, 4)):
        moves = f"{line[0]}{others[first]}{line[1]}{others[second]}{line[2]}"
        assert played(moves).returns() == (1.0, -1.0)


def test_the_second_player_can_win_and_a_full_board_is_a_draw() -> None:
    assert played("031485").returns() == (-1.0, 1.0)
    assert played("012435768").returns() == (0.0, 0.0)


def test_a_taken_cell_and_a_cell_off_the_board_are_illegal() -> None:
    game = played("4")
    for action in ("[4]", "[9]", "[-1]", "4", "[ 3 ]", "[04]"):
        with pytest.raises(IllegalAction):
            game.apply(action)
    assert game.view(1).info_state == "....x.... o"


def test_the_board_shows_marks_and_the_numbers_of_free_cells() -> None:
    view = played("40").view(0)
    assert view.observation == "You are X. Board:\nO 1 2\n3 X 5\n6 7 8"
    assert view.legal_actions == ("[1]", "[2]", "[3]", "[5]", "[6]", "[7]", "[8]")
    assert played("031485").view(0).observation.startswith("You are X. The match is over. You lost.")


def test_there_are_4520_positions_to_decide_in_and_uniform_play_gives_the_first_player_0_2968() -> None:
    values: dict[str, float] = {}

    def value(game: GAME) -> float:
        if game.current_player is None:
            return game.returns()[0]
        view = game.view(game.current_player)
        if view.info_state not in values:
            results = []
            for action in view.legal_actions or ():
                following = copy.copy(game)
                following.apply(action)
                results.append(value(following))
            values[view.info_state] = sum(results) / len(results)
        return values[view.info_state]

    assert value(GAME(seed=0)) == pytest.approx(0.2968, abs=5e-5)
    assert len(values) == 4520
