"""Solved play, as mixed strategies over what a player knows.

A game is solved by one function from a view to the probabilities of its legal actions; ``STRATEGIES`` lists them. Where
solving is too dear, the function plays well but not perfectly; ``SOLVED`` leaves such games out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from spiral_lib import seeds
from spiral_lib.config import PromptConfig
from spiral_lib.errors import ConfigError, EngineError
from spiral_lib.policies import _solvers_held_out as held_out
from spiral_lib.prompts import response_text
from spiral_lib.types import Move, View

# P(bet or call) in the Nash equilibrium of one-hand Kuhn poker with alpha = 1/3 (Kuhn 1950): card digit, then history.
_KUHN_AGGRESSION = {
    "0": 1 / 3, "1": 0.0, "2": 1.0,
    "0p": 1 / 3, "1p": 0.0, "2p": 1.0,
    "0b": 0.0, "1b": 1 / 3, "2b": 1.0,
    "0pb": 0.0, "1pb": 2 / 3, "2pb": 1.0,
}  # fmt: skip
_LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))
_LEDUC_ITERATIONS = 300
_LEDUC_ACTIONS = {"[fold]": 0, "[call]": 1, "[raise]": 2}


def strategy(view: View) -> dict[str, float]:
    """Return the probability of every legal action in solved play. Raises ConfigError for a game that is not solved."""
    solve = STRATEGIES.get(view.game)
    if solve is None:
        solved = ", ".join(sorted(SOLVED))
        raise ConfigError(f"no optimal play is known for '{view.game}'. Solved: {solved}; use 'random' there")
    return solve(view)


def _kuhn_poker(view: View) -> dict[str, float]:
    # The key's last part is the hand in play; several hands with the chips as reward are solved hand by hand.
    bet = _KUHN_AGGRESSION[view.info_state.rpartition("/")[2]]
    return {a: bet if a in ("[bet]", "[call]") else 1.0 - bet for a in view.legal_actions or ()}


def _tic_tac_toe(view: View) -> dict[str, float]:
    """Uniform over the minimax moves that win soonest or lose latest."""
    board = view.info_state[:9].lower()
    mark = "x" if view.player == 0 else "o"
    cells = {a: int(a[1:-1]) for a in view.legal_actions or ()}
    values = {a: -_board_value(_placed(board, cell, mark), _other(mark)) for a, cell in cells.items()}
    best = max(values.values())
    share = 1.0 / sum(v == best for v in values.values())
    return {a: share if v == best else 0.0 for a, v in values.items()}


@cache
def _board_value(board: str, mark: str) -> int:
    """Return the minimax value for the side to move: 0 for a draw, else the sign of the result times 1 + cells left."""
    free = [i for i, c in enumerate(board) if c == "."]
    if any(board[a] == board[b] == board[c] == _other(mark) for a, b, c in _LINES):
        return -1 - len(free)
    return max((-_board_value(_placed(board, i, mark), _other(mark)) for i in free), default=0)


def _placed(board: str, cell: int, mark: str) -> str:
    return board[:cell] + mark + board[cell + 1 :]


def _other(mark: str) -> str:
    return "o" if mark == "x" else "x"


def _leduc_poker(view: View) -> dict[str, float]:
    table = _leduc_table()
    probabilities = dict(table[view.info_state])
    return {a: probabilities.get(_LEDUC_ACTIONS[a], 0.0) for a in view.legal_actions or ()}


@cache
def _leduc_table() -> dict[str, list[tuple[int, float]]]:
    """Return the average policy of CFR+ by information state."""
    try:
        import pyspiel
    except ImportError as error:
        raise EngineError(
            "optimal play of leduc_poker is computed with OpenSpiel, which is not installed; "
            "install the extra: pip install 'spiral-pipeline[exact]'"
        ) from error
    solver = pyspiel.CFRPlusSolver(pyspiel.load_game("leduc_poker"))
    for _ in range(_LEDUC_ITERATIONS):
        solver.evaluate_and_update_policy()
    table: Any = solver.tabular_average_policy().policy_table()
    return {str(key): [(int(a), float(p)) for a, p in row] for key, row in table.items()}


STRATEGIES: dict[str, Callable[[View], dict[str, float]]] = {
    "kuhn_poker": _kuhn_poker,
    "leduc_poker": _leduc_poker,
    "tic_tac_toe": _tic_tac_toe,
    **held_out.EXACT,
    **held_out.STRONG,
}
SOLVED = frozenset(STRATEGIES) - frozenset(held_out.STRONG)


class OptimalPolicy:
    """Draws from ``strategy``, keyed by the turn's seed alone."""

    ref = "optimal"
    digest = "optimal"
    engine = "scripted"
    temperature = 1.0

    def __init__(self, *, prompt: PromptConfig) -> None:
        self._prompt = prompt

    async def act(self, view: View, *, seed: int) -> Move:
        """Return an action drawn from the solved strategy."""
        chances = strategy(view)
        # Left to right until the probability drawn is used up; rounding may leave a rest, which falls to the last.
        drawn = seeds.uniform(seed, "optimal")
        action = [a for a, p in chances.items() if p > 0.0][-1]
        for candidate, probability in chances.items():
            drawn -= probability
            if drawn < 0.0:
                action = candidate
                break
        return Move(action=action, text=response_text("", action, self._prompt))


POLICY = OptimalPolicy
