"""Regret per move where a solver exists: how much a move gives away against perfect play by the other side.

In the unit of match returns. Tic-tac-toe by minimax; Kuhn poker against the equilibrium with alpha = 1/3, with exact
odds of the other card given what the other player did; the other games stand in ``move_values``. An illegal move gives
away everything, down to a return of -1.
"""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from spiral_lib import stats
from spiral_lib.evaluation import minimax, move_values
from spiral_lib.evaluation.move_values import Params, Values
from spiral_lib.policies import optimal
from spiral_lib.types import Episode, RefKind, Turn, View

EXACT = 1e-9
"""Regret up to which a move is perfect, rounding aside."""


def metrics(episodes: Iterable[Episode], *, policy: str = RefKind.SELF.value) -> dict[str, float]:
    """Return ``eval/<game>/regret`` with interval and n, and ``..._positive_share``, over one policy's moves.

    The interval takes the moves of a match as one observation. Games without a solver are left out.
    """
    by_game: dict[str, list[list[float]]] = defaultdict(list)
    for episode in episodes:
        found = match_regrets(episode, policy=policy)
        if found:
            by_game[episode.game].append(found)
    metrics: dict[str, float] = {}
    for game, matches in sorted(by_game.items()):
        moves = [regret for found in matches for regret in found]
        mean, error = _clustered(matches)
        prefix = f"eval/{game}/regret"
        metrics |= {
            prefix: mean,
            f"{prefix}_low": max(0.0, mean - stats.Z95 * error),
            f"{prefix}_high": mean + stats.Z95 * error,
            f"{prefix}_n": float(len(moves)),
            f"{prefix}_positive_share": sum(r > slack(game) for r in moves) / len(moves),
        }
    return metrics


def match_regrets(episode: Episode, *, policy: str = RefKind.SELF.value) -> list[float]:
    """Return the regret of each of a policy's moves in one match, in order; nothing where the game is not solved."""
    found = [of_turn(episode, turn) for turn in episode.turns if turn.policy == policy]
    regrets = [regret for regret in found if regret is not None]
    return regrets if len(regrets) == len(found) else []


def of_turn(episode: Episode, turn: Turn) -> float | None:
    """Return the regret of one move, or None where the game is not solved."""
    solve = _SOLVERS.get(episode.game)
    values = None if solve is None else solve(turn.info_state, episode.params)
    if values is None:
        return None
    return max(values.values()) - (values[turn.action] if turn.legal else -1.0)


def slack(game: str) -> float:
    """Return the regret up to which a move counts as perfect; approximate equilibria need more than rounding."""
    return move_values.SLACK.get(game, EXACT)


def tic_tac_toe(info_state: str) -> Values:
    """Return the minimax value of every legal move."""
    board = tuple({"x": 1, "o": -1, ".": 0}[mark] for mark in info_state[:9])
    return {f"[{cell}]": float(minimax.move_value(board, cell)) for cell in range(9) if board[cell] == 0}


@functools.cache
def kuhn_poker(state: str) -> Values:
    """Return the chips won on average by every legal action in a state such as ``0pb``, against the equilibrium."""
    card, history = int(state[0]), state[1:]
    actions = ("[fold]", "[call]") if history.endswith("b") else ("[check]", "[bet]")
    return {action: _chips(card, history, mark) for action, mark in zip(actions, "pb", strict=True)}


def _chips(card: int, history: str, mark: str) -> float:
    """Return the mean over the other's cards, weighed by how likely the other would have come here with each."""
    seat = len(history) % 2
    others = [c for c in range(3) if c != card]
    weights = [_likelihood(c, history, 1 - seat) for c in others]
    gains = [_gain(card, c, seat, history + mark) for c in others]
    return math.fsum(w * g for w, g in zip(weights, gains, strict=True)) / math.fsum(weights)


def _likelihood(card: int, history: str, seat: int) -> float:
    """Return the probability of a seat's moves in a history, given its card."""
    moves = [(history[:i], mark) for i, mark in enumerate(history) if i % 2 == seat]
    return math.prod(_equilibrium(card, before)[mark] for before, mark in moves)


def _gain(card: int, other: int, seat: int, history: str) -> float:
    """Return a seat's chips from here on, both sides in equilibrium."""
    ended = _END_CHIPS.get(history)
    if ended is not None:
        chips, winner = ended
        is_won = card > other if winner is None else winner == seat
        return float(chips if is_won else -chips)
    mover = len(history) % 2
    chances = _equilibrium(card if mover == seat else other, history)
    return math.fsum(p * _gain(card, other, seat, history + mark) for mark, p in chances.items())


def _equilibrium(card: int, history: str) -> dict[str, float]:
    """Return the probabilities of p (check, fold) and b (bet, call)."""
    actions = ("[fold]", "[call]") if history.endswith("b") else ("[check]", "[bet]")
    view = View(
        game="kuhn_poker",
        role="",
        player=len(history) % 2,
        rules="",
        action_format="",
        observation="",
        legal_actions=actions,
        info_state=f"{card}{history}",
    )
    return dict(zip("pb", optimal.strategy(view).values(), strict=True))


# Chips of the winner; after a fold who wins, None for a showdown.
_END_CHIPS: Mapping[str, tuple[int, int | None]] = {
    "pp": (1, None), "bb": (2, None), "pbb": (2, None), "bp": (1, 0), "pbp": (1, 1),
}  # fmt: skip


def _solve_kuhn_poker(info_state: str, params: Params) -> Values | None:
    """Chips add up over hands, so each hand is solved on its own; who has more chips in the end does not."""
    settings = dict(params)
    hands = int(settings.get("hands", 1))
    if settings.get("reward", "chips") != "chips":
        return None
    chips = kuhn_poker(info_state.rpartition("/")[2])
    return {action: value / (2 * hands) for action, value in chips.items()}


_SOLVERS: Mapping[str, Callable[[str, Params], Values | None]] = {
    "kuhn_poker": _solve_kuhn_poker,
    "leduc_poker": lambda info_state, params: move_values.leduc_poker(info_state),
    "liars_dice": move_values.liars_dice,
    "nim": lambda info_state, params: move_values.nim(info_state),
    "pig_dice": lambda info_state, params: move_values.pig_dice(info_state),
    "tic_tac_toe": lambda info_state, params: tic_tac_toe(info_state),
}


def _clustered(matches: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Return the mean over all moves and its standard error with matches as clusters."""
    n, count = sum(len(m) for m in matches), len(matches)
    mean = math.fsum(math.fsum(m) for m in matches) / n
    if count < 2:
        return mean, 0.0
    squares = math.fsum((math.fsum(m) - mean * len(m)) ** 2 for m in matches)
    return mean, math.sqrt(count / (count - 1) * squares) / n
