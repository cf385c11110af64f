"""Connect Four: lines, columns, canonical actions."""

from __future__ import annotations

import itertools

import pytest

from spiral_lib import games
from spiral_lib.errors import IllegalAction
from spiral_lib.games import connect_four
from spiral_lib.policies.optimal import SOLVED, strategy
from spiral_lib.types import Game

DRAWN = "331650114266141231434452363064260555520200"


def played(columns: str) -> Game:
    game = games.make("connect_four", seed=0)
    for column in columns:
        game.apply(f"[{column}]")
    return game


@pytest.mark.parametrize(
    ("columns", "returns"),
    [
        ("0011223", (1, -1)),  # across
        ("3434343", (1, -1)),  # up
        ("01122323363", (1, -1)),  # rising diagonal
        ("65544343303", (1, -1)),  # falling diagonal
        ("60615253", (-1, 1)),  # player 1 across
        (DRAWN, (0, 0)),
    ],
)
def test_a_line_of_four_wins_and_a_full_board_is_a_draw(columns: str, returns: tuple[int, int]) -> None:
    game = played(columns[:-1])
    assert game.current_player == (len(columns) - 1) % 2
    game.apply(f"[{columns[-1]}]")
    assert game.current_player is None and game.returns() == returns


def test_exactly_the_69_lines_of_the_board_win_among_all_sets_of_four_cells() -> None:
    inside = {(row, column) for row in range(6) for column in range(7)}
    lines = {
        frozenset(cells)
        for row, column in inside
        for dr, dc in ((0, 1), (1, 0), (1, 1), (1, -1))
        if set(cells := [(row + n * dr, column + n * dc) for n in range(4)]) <= inside
    }
    assert len(lines) == 69
    bits = {cell: 1 << (cell[1] * 7 + cell[0]) for cell in inside}
    for cells in itertools.combinations(sorted(inside), 4):
        assert connect_four._has_four(sum(bits[cell] for cell in cells)) == (frozenset(cells) in lines)


def test_player_0_is_x_and_pieces_fall_on_each_other() -> None:
    assert played("334").view(1).observation == (
        "You are O. Board, with the column numbers below:\n"
        ". . . . . . .\n. . . . . . .\n. . . . . . .\n. . . . . . .\n. . . O . . .\n. . . X X . .\n0 1 2 3 4 5 6"
    )


def test_a_full_column_is_not_offered_and_not_accepted() -> None:
    game = played("000000")
    assert game.view(0).legal_actions == ("[1]", "[2]", "[3]", "[4]", "[5]", "[6]")
    with pytest.raises(IllegalAction):
        game.apply("[0]")


@pytest.mark.parametrize("text", ["3", "[col 3]", "[03]", "[ 3 ]", "[7]", "[-1]", "[٣]", "[3] [4]", "[3]\n"])
def test_only_the_canonical_text_is_an_action(text: str) -> None:
    game = played("")
    with pytest.raises(IllegalAction):
        game.apply(text)


def test_positions_reached_in_another_order_have_equal_keys() -> None:
    assert played("0142").view(0).info_state == played("4102").view(0).info_state
    assert played("01").view(0).info_state != played("10").view(0).info_state


@pytest.mark.parametrize(
    ("columns", "best"),
    [
        ("001122", "[3]"),  # wins at once
        ("30303", "[3]"),  # must block the column
        ("60616", "[6]"),
        ("62636", "[6]"),
    ],
)
def test_strong_play_takes_a_win_and_blocks_a_loss(columns: str, best: str) -> None:
    game = played(columns)
    view = game.view(game.current_player or 0)
    chances = strategy(view)
    assert {a for a, p in chances.items() if p > 0} == {best} and tuple(chances) == view.legal_actions


def test_strong_play_stops_an_open_row_of_two() -> None:
    # Player 0 holds [2] and [3] of the bottom row: a third piece there with both ends free could not be stopped.
    view = played("263").view(1)
    assert {a for a, p in strategy(view).items() if p > 0} == {"[1]", "[4]"}


def test_strong_play_is_not_called_solved() -> None:
    assert "connect_four" not in SOLVED
