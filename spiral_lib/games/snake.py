"""Snake for two: both choose a direction, then both move at once; longest survivor wins, apples break ties.

Moves are asked one after the other, player 0 first, but a choice stays hidden until both are made; starts are point
symmetric, and the limit counts rounds. So neither seat has an advantage.
"""

from __future__ import annotations

import dataclasses
from typing import Final

from spiral_lib import seeds
from spiral_lib.errors import IllegalAction
from spiral_lib.games import whole
from spiral_lib.types import GameSpec, Returns, View, zero_sum

Cell = tuple[int, int]

_STEPS: Final = {"[up]": (-1, 0), "[down]": (1, 0), "[left]": (0, -1), "[right]": (0, 1)}
_ACTIONS: Final = tuple(_STEPS)
_LETTERS: Final = "AB"

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


class GAME:
    """One match on a square board of ``size`` cells a side."""

    def __init__(self, *, seed: int, size: int = 5, apples: int = 2, rounds: int = 20) -> None:
        self._seed = seed
        self._size = whole("size of snake", size, low=4, high=10)
        self._rounds = whole("rounds of snake", rounds, low=1, high=200)
        self.spec = dataclasses.replace(SPEC, max_turns=2 * rounds)
        self._round = 0
        self._draws = 0
        self._pending: str | None = None
        self._eaten = [0, 0]
        self._dead = [False, False]
        first = self._start()
        last = size - 1
        self._bodies: list[list[Cell]] = [[first], [(last - first[0], last - first[1])]]  # head first
        self._apples: list[Cell] = []
        for _ in range(whole("apples of snake", apples, low=1, high=6)):
            self._place_apple()

    @property
    def current_player(self) -> int | None:
        """Seat to choose, or None when the match is over."""
        if any(self._dead) or self._round == self._rounds:
            return None
        return 0 if self._pending is None else 1

    def view(self, player: int) -> View:
        """Return the board, from which the other player's choice of this round is absent."""
        over = "The match is over. " if self.current_player is None else ""
        own = self._pending if player == 0 else None
        chosen = f"\nYou chose {own} for this round." if own else ""
        snakes = "\n".join(
            f"{_LETTERS[seat]} from head to tail, row and column: {' '.join(f'{r},{c}' for r, c in body)}"
            for seat, body in enumerate(self._bodies)
        )
        return View(
            game=SPEC.name,
            role=SPEC.roles[player],
            player=player,
            rules=SPEC.rules,
            action_format=SPEC.action_format,
            observation=(
                f"{over}Rounds played: {self._round} of {self._rounds}. You are {_LETTERS[player]}. "
                f"Apples eaten: you {self._eaten[player]}, opponent {self._eaten[1 - player]}.\n"
                f"{self._board()}\n{snakes}{chosen}"
            ),
            legal_actions=_ACTIONS if player == self.current_player else (),
            info_state=f"{self._key()} chosen={own}" if own else self._key(),
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

    def returns(self) -> Returns:
        """Return +1/-1 by survival, then by apples eaten; zeros for a draw."""
        if self.current_player is not None:
            raise ValueError("the match is not over")
        if self._dead[0] != self._dead[1]:
            return zero_sum(-1.0 if self._dead[0] else 1.0)
        first, second = self._eaten
        return zero_sum(float((first > second) - (first < second)))

    def _move(self, choices: tuple[str, str]) -> None:
        old = [body[0] for body in self._bodies]
        heads = [(r + _STEPS[choice][0], c + _STEPS[choice][1]) for (r, c), choice in zip(old, choices, strict=True)]
        tails = [body if head in self._apples else body[:-1] for head, body in zip(heads, self._bodies, strict=True)]
        met = heads[0] == heads[1] or (heads[0] == old[1] and heads[1] == old[0])
        self._dead = [met or not self._inside(head) or head in tails[0] or head in tails[1] for head in heads]
        if any(self._dead):
            return
        self._bodies = [[head, *tail] for head, tail in zip(heads, tails, strict=True)]
        eaters = [seat for seat, head in enumerate(heads) if head in self._apples]
        for seat in eaters:
            self._apples.remove(heads[seat])
            self._eaten[seat] += 1
        for _ in eaters:
            self._place_apple()

    def _inside(self, cell: Cell) -> bool:
        return 0 <= cell[0] < self._size and 0 <= cell[1] < self._size

    def _start(self) -> Cell:
        """Return a start for A that is far enough from its mirror cell, where B starts; both are equally likely."""
        last = self._size - 1
        cells = [(r, c) for r, c in self._cells() if abs(2 * r - last) + abs(2 * c - last) >= last]
        return self._draw(cells)

    def _place_apple(self) -> None:
        taken = {*self._bodies[0], *self._bodies[1], *self._apples}
        free = [cell for cell in self._cells() if cell not in taken]
        if free:
            self._apples.append(self._draw(free))

    def _draw(self, cells: list[Cell]) -> Cell:
        number = seeds.uniform(self._seed, SPEC.name, self._draws)
        self._draws += 1
        return cells[int(number * len(cells))]

    def _cells(self) -> list[Cell]:
        return [(r, c) for r in range(self._size) for c in range(self._size)]

    def _board(self) -> str:
        rows = [["."] * self._size for _ in range(self._size)]
        for r, c in self._apples:
            rows[r][c] = "*"
        for letter, body in zip(_LETTERS, self._bodies, strict=True):
            for r, c in body:
                rows[r][c] = letter.lower()
            r, c = body[0]
            rows[r][c] = letter
        return "\n".join(" ".join(row) for row in rows)

    def _key(self) -> str:
        """Return the public state: round, apples eaten, both bodies from the head on, apples, deaths, who is asked."""
        groups = [*self._bodies, sorted(self._apples)]
        cells = " ".join(",".join(f"{r}{c}" for r, c in group) for group in groups)
        dead = "".join(letter for letter, dead in zip(_LETTERS, self._dead, strict=True) if dead)
        to_move = "-" if self.current_player is None else self.current_player
        counts = f"{self._round}/{self._rounds} {self._eaten[0]}-{self._eaten[1]}"
        return f"{counts} size={self._size} {cells} dead={dead} mover={to_move}"
