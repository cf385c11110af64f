"""Connect Four with OpenSpiel's rules and action order: player 0 is X and moves first; no chance, nothing hidden.

``info_state`` is the board, top row first, and the mark to move; equal positions have equal keys.
"""

from __future__ import annotations

from typing import Final

from spiral_lib.errors import IllegalAction
from spiral_lib.games import make_view, no_seat
from spiral_lib.types import GameSpec, KnownCase, Returns, View, zero_sum

_ROWS: Final = 6
_COLUMNS: Final = 7
# One bit a cell, seven bits a column: the seventh stays 0, so that a line cannot run over the edge of the board.
_STRIDE: Final = _ROWS + 1
_LINES: Final = (1, _STRIDE, _STRIDE - 1, _STRIDE + 1)
_ACTIONS: Final = tuple(f"[{column}]" for column in range(_COLUMNS))
_COLUMN_OF: Final = {action: column for column, action in enumerate(_ACTIONS)}
_EMPTY: Final = "/".join(["." * _COLUMNS] * _ROWS)
_EMPTY_SHOWN: Final = "\n".join([" ".join("." * _COLUMNS)] * _ROWS)

SPEC: Final = GameSpec(
    name="connect_four",
    title="Connect Four",
    roles=("player 0", "player 1"),
    max_turns=_ROWS * _COLUMNS,
    rules=(
        "The board has 6 rows and 7 columns, numbered 0 to 6 from left to right. "
        "Player 0 plays X and moves first, player 1 plays O. "
        "In turn, each player drops one piece into a column that is not full; it falls to the lowest empty cell. "
        "The first player with four pieces in a line (across, up or diagonal) wins. "
        "A full board without such a line is a draw."
    ),
    action_format="[column], for example [3]",
    has_private_information=False,
    openspiel="connect_four",
)
KNOWN_CASES: Final = (
    KnownCase(actions=("[0]", "[1]", "[0]", "[1]", "[0]", "[1]", "[0]"), returns=(1.0, -1.0)),
    KnownCase(actions=("[0]", "[1]", "[0]", "[2]", "[0]", "[3]", "[6]", "[4]"), returns=(-1.0, 1.0)),
    KnownCase(
        actions=("[0]", "[1]", "[1]", "[2]", "[2]", "[3]", "[2]", "[3]", "[3]", "[6]", "[3]"), returns=(1.0, -1.0)
    ),
    KnownCase(actions=("[0]",) * 7, returns=(-1.0, 1.0), refused="illegal_action"),
)


class GAME:
    """One match; the seed is taken for uniformity and changes nothing."""

    spec = SPEC

    def __init__(self, *, seed: int) -> None:
        del seed
        self._pieces = [0, 0]
        self._heights = [0] * _COLUMNS
        self._board = _EMPTY  # top row first, as in the key; and the same as players see it
        self._shown = _EMPTY_SHOWN
        self._legal = _ACTIONS
        self._num_moves = 0
        self._winner: int | None = None

    @property
    def current_player(self) -> int | None:
        """Seat to move, or None when the match is over."""
        if self._winner is not None or self._num_moves == _ROWS * _COLUMNS:
            return None
        return self._num_moves % 2

    def view(self, player: int) -> View:
        """Return what a player sees: the whole board."""
        if player not in (0, 1):
            raise no_seat(SPEC, player)
        to_move = self.current_player
        over = " The match is over." if to_move is None else ""
        head = f"You are {'XO'[player]}.{over} Board, with the column numbers below:"
        return make_view(
            SPEC,
            player,
            observation=f"{head}\n{self._shown}\n0 1 2 3 4 5 6",
            legal_actions=self._legal if player == to_move else (),
            info_state=f"{self._board} {'-' if to_move is None else 'XO'[to_move]}",
        )

    def apply(self, action: str) -> None:
        """Drop a piece of the player to move. Raises IllegalAction for an unknown or full column."""
        player = self.current_player
        column = _COLUMN_OF.get(action)
        if player is None:
            raise IllegalAction("the match is over")
        if column is None or self._heights[column] == _ROWS:
            raise IllegalAction(f"{action[:20]!r} is not a column with a free cell")
        row = self._heights[column]
        self._heights[column] += 1
        if row == _ROWS - 1:
            self._legal = tuple(a for a, height in zip(_ACTIONS, self._heights, strict=True) if height < _ROWS)
        cell = (_ROWS - 1 - row) * (_COLUMNS + 1) + column
        self._board = f"{self._board[:cell]}{'XO'[player]}{self._board[cell + 1 :]}"
        # Shown, a cell takes two characters, and the slash between rows is a line's end.
        cell = 2 * cell - 2 * (_ROWS - 1 - row)
        self._shown = f"{self._shown[:cell]}{'XO'[player]}{self._shown[cell + 1 :]}"
        self._pieces[player] |= 1 << (column * _STRIDE + row)
        self._num_moves += 1
        if _has_four(self._pieces[player]):
            self._winner = player

    def returns(self) -> Returns:
        """Return +1/-1 for a line of four, zeros for a draw."""
        if self.current_player is not None:
            raise ValueError("the match is not over")
        return zero_sum(0.0 if self._winner is None else 1.0 - 2.0 * self._winner)


def _has_four(pieces: int) -> bool:
    for shift in _LINES:
        pairs = pieces & (pieces >> shift)
        if pairs & (pairs >> 2 * shift):
            return True
    return False
