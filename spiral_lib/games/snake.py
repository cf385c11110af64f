"""Snake for two: both choose a direction, then both move at once; longest survivor wins, apples break ties.

Moves are asked one after the other, player 0 first, but a choice stays hidden until both are made; starts are point
symmetric, and the limit counts rounds. So neither seat has an advantage.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Final

from spiral_lib import seeds
from spiral_lib.errors import IllegalAction
from spiral_lib.games import make_view, no_seat, whole
from spiral_lib.types import GameSpec, KnownCase, Returns, View, zero_sum

Cell = tuple[int, int]

_STEPS: Final = {"[up]": (-1, 0), "[down]": (1, 0), "[left]": (0, -1), "[right]": (0, 1)}
_ACTIONS: Final = tuple(_STEPS)
_LETTERS: Final = "AB"
_DRAWN: Final = b"*abAB"  # apples, bodies, heads
_BATCH: Final = 4  # chance numbers made at a time

SPEC: Final = GameSpec(
    name="snake",
    title="Snake",
    roles=("player 0", "player 1"),
    max_turns=40,
    rules=(
        "Two snakes, A (player 0) and B (player 1), share a board with walls around it. In each round both players "
        "choose a direction without seeing the other's choice; then both snakes move one cell at the same time. "
        "A snake that eats an apple (*) grows by one cell, and a new apple appears; otherwise its tail moves on, and "
        "the cell the tail leaves is free. A snake dies if its head leaves the board, meets the other head (in one "
        "cell or by changing places with it), or enters a cell of either body. If one snake dies, the other wins. "
        "If both die in one round, or if the last round is over, the player who has eaten more apples wins; "
        "equal numbers are a draw."
    ),
    action_format="one of [up] [down] [left] [right]",
    has_private_information=True,
)
_ONE_ROUND: Final = (("rounds", 1),)
KNOWN_CASES: Final = (  # with seed 0 A starts below on the right, beside an apple, and B opposite
    KnownCase(actions=("[down]", "[right]"), returns=(-1.0, 1.0)),
    KnownCase(actions=("[up]", "[left]"), returns=(1.0, -1.0)),
    KnownCase(actions=("[right]", "[up]"), returns=(0.0, 0.0)),
    KnownCase(actions=("[left]", "[right]"), returns=(1.0, -1.0), params=_ONE_ROUND),  # A has eaten
    KnownCase(actions=("[up]", "[down]"), returns=(0.0, 0.0), params=_ONE_ROUND),
    KnownCase(actions=("[up]", "[up] [down]"), returns=(1.0, -1.0), refused="illegal_action"),
)


class GAME:
    """One match on a square board of ``size`` cells a side."""

    def __init__(self, *, seed: int, size: int = 5, apples: int = 2, rounds: int = 20) -> None:
        self._seed = seed
        self._size = whole("size of snake", size, low=4, high=10)
        self._rounds = whole("rounds of snake", rounds, low=1, high=200)
        self.spec = _spec(rounds)
        self._round = 0
        self._draws: list[float] = []
        self._num_draws = 0
        self._pending: str | None = None
        self._eaten = [0, 0]
        self._dead = [False, False]
        starts = _starts(size)
        first = starts[self._draw(len(starts))]
        last = size - 1
        self._bodies: list[list[Cell]] = [[first], [(last - first[0], last - first[1])]]  # head first
        self._apples: list[Cell] = []
        for _ in range(whole("apples of snake", apples, low=1, high=6)):
            self._place_apple()
        self._texts: tuple[str, str] | None = None

    @property
    def current_player(self) -> int | None:
        """Seat to choose, or None when the match is over."""
        if self._dead[0] or self._dead[1] or self._round == self._rounds:
            return None
        return 0 if self._pending is None else 1

    def view(self, player: int) -> View:
        """Return the board, from which the other player's choice of this round is absent."""
        if player not in (0, 1):
            raise no_seat(SPEC, player)
        if self._texts is None:
            self._texts = self._shown_and_key()
        shown, key = self._texts
        to_move = self.current_player
        over = "The match is over. " if to_move is None else ""
        own = self._pending if player == 0 else None
        chosen = f"\nYou chose {own} for this round." if own else ""
        key = f"{key}{'-' if to_move is None else to_move}"
        return make_view(
            SPEC,
            player,
            observation=(
                f"{over}Rounds played: {self._round} of {self._rounds}. You are {_LETTERS[player]}. "
                f"Apples eaten: you {self._eaten[player]}, opponent {self._eaten[1 - player]}.\n"
                f"{shown}{chosen}"
            ),
            legal_actions=_ACTIONS if player == to_move else (),
            info_state=f"{key} chosen={own}" if own else key,
        )

    def apply(self, action: str) -> None:
        """Take the choice of the player to move; the second choice of a round moves both. Raises IllegalAction."""
        if self.current_player is None:
            raise IllegalAction("the match is over")
        if action not in _STEPS:
            raise IllegalAction(f"{action[:20]!r} is not one of {' '.join(_ACTIONS)}")
        if self._pending is None:
            self._pending = action
            return
        choices = (self._pending, action)
        self._pending = None
        self._round += 1
        self._move(choices)
        self._texts = None

    def returns(self) -> Returns:
        """Return +1/-1 by survival, then by apples eaten; zeros for a draw."""
        if self.current_player is not None:
            raise ValueError("the match is not over")
        if self._dead[0] != self._dead[1]:
            return zero_sum(-1.0 if self._dead[0] else 1.0)
        first, second = self._eaten
        return zero_sum(float((first > second) - (first < second)))

    def _move(self, choices: tuple[str, str]) -> None:
        apples, size = self._apples, self._size
        (body, other_body), (choice, other_choice) = self._bodies, choices
        (r, c), (dr, dc) = body[0], _STEPS[choice]
        (other_r, other_c), (other_dr, other_dc) = other_body[0], _STEPS[other_choice]
        heads = head, other = (r + dr, c + dc), (other_r + other_dr, other_c + other_dc)
        tail = body if head in apples else body[:-1]
        other_tail = other_body if other in apples else other_body[:-1]
        met = head == other or (head == other_body[0] and other == body[0])
        bodies, cells = (*tail, *other_tail), _names(size)
        self._dead = [met or head not in cells or head in bodies, met or other not in cells or other in bodies]
        if self._dead[0] or self._dead[1]:
            return
        self._bodies = [[head, *tail], [other, *other_tail]]
        eaters = [seat for seat in (0, 1) if heads[seat] in apples]
        for seat in eaters:
            apples.remove(heads[seat])
            self._eaten[seat] += 1
        for _ in eaters:
            self._place_apple()

    def _place_apple(self) -> None:
        """Put an apple on one of the free cells, which are numbered row by row; do nothing where there is none."""
        size = self._size
        first, second = self._bodies
        taken = [r * size + c for r, c in (*first, *second, *self._apples)]
        taken.sort()
        if len(taken) == size * size:
            return
        chosen = self._draw(size * size - len(taken))
        for cell in taken:
            chosen += cell <= chosen
        self._apples.append(divmod(chosen, size))

    def _draw(self, choices: int) -> int:
        """Return the next chance number, from 0 to ``choices`` - 1."""
        if self._num_draws == len(self._draws):
            numbers = range(self._num_draws, self._num_draws + _BATCH)
            self._draws = [*self._draws, *seeds.uniforms(self._seed, SPEC.name, numbers=numbers)]
        number = self._draws[self._num_draws]
        self._num_draws += 1
        return int(number * choices)

    def _shown_and_key(self) -> tuple[str, str]:
        """Return what changes from round to round alone: board and bodies as shown, and the key but for who is asked.

        The key holds round, apples eaten, both bodies from the head on, apples and deaths.
        """
        (first, second), apples, size = self._bodies, self._apples, self._size
        names, board = _names(size), bytearray(_empty(size))
        for letter, group in zip(_DRAWN, (apples, first, second, first[:1], second[:1]), strict=True):
            for r, c in group:
                board[2 * (r * size + c)] = letter
        shown_first = " ".join([names[cell] for cell in first])
        shown_second = " ".join([names[cell] for cell in second])
        shown = (
            f"{board.decode()}\n"
            f"A from head to tail, row and column: {shown_first}\n"
            f"B from head to tail, row and column: {shown_second}"
        )
        shown_apples = " ".join([names[cell] for cell in sorted(apples)])
        cells = f"{shown_first};{shown_second};{shown_apples}".replace(",", "").replace(" ", ",").replace(";", " ")
        dead = ("A" if self._dead[0] else "") + ("B" if self._dead[1] else "")
        counts = f"{self._round}/{self._rounds} {self._eaten[0]}-{self._eaten[1]}"
        return shown, f"{counts} size={size} {cells} dead={dead} mover="


@functools.cache
def _spec(rounds: int) -> GameSpec:
    return dataclasses.replace(SPEC, max_turns=2 * rounds)


@functools.cache
def _starts(size: int) -> tuple[Cell, ...]:
    """Return the cells far enough from their mirror cells: A starts in one of them, B opposite; all are as likely."""
    last = size - 1
    cells = ((r, c) for r in range(size) for c in range(size))
    return tuple((r, c) for r, c in cells if abs(2 * r - last) + abs(2 * c - last) >= last)


@functools.cache
def _names(size: int) -> dict[Cell, str]:
    """Return how every cell of the board is shown."""
    return {(r, c): f"{r},{c}" for r in range(size) for c in range(size)}


@functools.cache
def _empty(size: int) -> bytes:
    """Return an empty board as it is shown: two characters a cell, a blank or a line's end after the cell's own."""
    return "\n".join([" ".join("." * size)] * size).encode()
