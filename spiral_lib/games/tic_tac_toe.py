"""Tic-tac-toe with OpenSpiel's rules: player 0 is X and moves first; no chance, nothing hidden.

``info_state`` is the board and the mark to move, such as ``..x.o.... x``: equal positions have equal keys, whatever the
order of moves that led there (OpenSpiel's key is that order).
"""

from __future__ import annotations

import functools
from typing import Final

from spiral_lib.errors import IllegalAction
from spiral_lib.games import make_view, no_seat
from spiral_lib.types import GameSpec, KnownCase, Returns, View, zero_sum

SPEC: Final = GameSpec(
    name="tic_tac_toe",
    title="Tic-tac-toe",
    roles=("player 0", "player 1"),
    max_turns=9,
    rules=(
        "Two players take turns to mark one free cell of a 3 by 3 board, X first. "
        "The cells are numbered 0 1 2 (top row), 3 4 5 (middle row), 6 7 8 (bottom row); a free cell shows its number. "
        "Three marks of your own in a row, a column or a diagonal win. A full board without that is a draw."
    ),
    action_format="[n], with n the number of a free cell",
    has_private_information=False,
    openspiel="tic_tac_toe",
)

_LINES: Final = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))
_LINES_OF: Final = tuple(tuple(line for line in _LINES if cell in line) for cell in range(9))
_ACTIONS: Final = tuple(f"[{cell}]" for cell in range(9))
_CELLS: Final = {action: cell for cell, action in enumerate(_ACTIONS)}
_MARKS: Final = ("x", "o")
_RESULTS: Final = {1.0: "You won.", 0.0: "It is a draw.", -1.0: "You lost."}
KNOWN_CASES: Final = (
    KnownCase(actions=("[0]", "[1]", "[4]", "[2]", "[8]"), returns=(1.0, -1.0)),
    KnownCase(actions=("[0]", "[2]", "[1]", "[4]", "[8]", "[6]"), returns=(-1.0, 1.0)),
    KnownCase(actions=("[0]", "[1]", "[2]", "[4]", "[3]", "[5]", "[7]", "[6]", "[8]"), returns=(0.0, 0.0)),
    KnownCase(actions=("[4]", "[4]"), returns=(1.0, -1.0), refused="illegal_action"),
)


class GAME:
    """One match; the seed is taken for uniformity and changes nothing."""

    spec = SPEC

    def __init__(self, *, seed: int) -> None:
        del seed
        self._board = "........."
        self._player: int | None = 0
        self._first = 0.0

    @property
    def current_player(self) -> int | None:
        """Seat to move, or None when the match is over."""
        return self._player

    def view(self, player: int) -> View:
        """Return what a player sees: the board, the same for both."""
        if player not in (0, 1):
            raise no_seat(SPEC, player)
        board = self._board
        head = f"You are {'XO'[player]}."
        if self._player is None:
            head += f" The match is over. {_RESULTS[-self._first if player else self._first]}"
        to_move = "-" if self._player is None else _MARKS[self._player]
        shown, free = _shown(board)
        return make_view(
            SPEC,
            player,
            observation=f"{head} Board:\n{shown}",
            legal_actions=free if player == self._player else (),
            info_state=f"{board} {to_move}",
        )

    def apply(self, action: str) -> None:
        """Mark a cell for the player to move."""
        player, cell = self._player, _CELLS.get(action)
        if player is None:
            raise IllegalAction("the match is over")
        if cell is None or self._board[cell] != ".":
            raise IllegalAction(f"{action[:20]!r} is not a free cell")
        mark = _MARKS[player]
        board = self._board[:cell] + mark + self._board[cell + 1 :]
        self._board = board
        if any(board[a] == board[b] == board[c] for a, b, c in _LINES_OF[cell]):
            self._player, self._first = None, -1.0 if player else 1.0
        else:
            self._player = None if "." not in board else 1 - player

    def returns(self) -> Returns:
        """Return 1 for the winner and -1 for the loser, or 0 for both. Raises ValueError while the match is on."""
        if self._player is not None:
            raise ValueError("the match is not over")
        return zero_sum(self._first)


@functools.cache  # there are 5478 boards
def _shown(board: str) -> tuple[str, tuple[str, ...]]:
    """Return a board as players see it, and the moves on it."""
    cells = [str(cell) if mark == "." else mark.upper() for cell, mark in enumerate(board)]
    free = tuple(action for action, mark in zip(_ACTIONS, board, strict=True) if mark == ".")
    return "\n".join(" ".join(cells[row : row + 3]) for row in (0, 3, 6)), free
