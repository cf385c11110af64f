"""Strong play in the held-out games: solved where that is cheap, otherwise a search or a rule that plays well.

Everything is read from a view's key and legal actions, never from its text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from spiral_lib.errors import EngineError
from spiral_lib.types import View

_CFR_ITERATIONS: Final = 300
_CFR_MAX_SIDES: Final = 4  # with one die each: 1.3 s and NashConv below 0.001; one face more takes 5 times as long
_SEARCH_PLIES: Final = 5
_WIN: Final = 1000.0
_STRIDE: Final = 7  # one bit a cell, six cells and a guard bit for each column
_COLUMN: Final = 0b111111
_BOARD: Final = sum(_COLUMN << (column * _STRIDE) for column in range(7))
_CENTRE_FIRST: Final = (3, 2, 4, 1, 5, 0, 6)
_DIRECTIONS: Final = {"[up]": (-1, 0), "[down]": (1, 0), "[left]": (0, -1), "[right]": (0, 1)}
_SNAKE_KEY: Final = re.compile(r"size=(\d+) (\S*) (\S*) (\S*) dead=")
_PIG_HORIZON: Final = 100  # with more actions left the limit hardly matters


def nim(view: View) -> dict[str, float]:
    """Uniform over the winning moves, or over all moves where none wins (exact, normal and misere play)."""
    sizes, _, last = view.info_state.split()
    piles = [int(size) for size in sizes.removeprefix("piles=").split(",")]
    winning = []
    for action in view.legal_actions or ():
        pile, take = map(int, action[1:-1].split())
        left = [size - take if number == pile else size for number, size in enumerate(piles, 1)]
        if _is_lost_nim(left, misere=last == "last=loses"):
            winning.append(action)
    return _uniform(view, winning)


def _is_lost_nim(piles: list[int], *, misere: bool) -> bool:
    """Return whether the player to move loses (Bouton 1901)."""
    total = 0
    for size in piles:
        total ^= size
    if max(piles) <= 1:
        return total == int(misere)
    return total == 0


def pig_dice(view: View) -> dict[str, float]:
    """Return the exact best action, the limit of actions included; where both are equally good, hold."""
    target, first, second, mover, risk, left = map(int, re.findall(r"\d+", view.info_state))
    mine, theirs = (second, first) if mover else (first, second)
    if len(view.legal_actions or ()) == 1:
        return _uniform(view, [])
    roll_is_better = _pig_table(target)[min(left, _PIG_HORIZON)]
    return _uniform(view, ["[roll]" if roll_is_better[mine, theirs, risk] else "[hold]"])


@lru_cache(maxsize=2)
def _pig_table(target: int) -> npt.NDArray[np.bool_]:
    """Return whether rolling is better, by (actions left, own score, other's score, points at risk).

    Backward induction over the actions left; scores and points at risk are below ``target``.
    """
    score = np.arange(target)
    mine, theirs, risk = np.meshgrid(score, score, score, indexing="ij")
    held = np.minimum(mine + risk, target - 1)  # sums from the target on are wins and read from no table
    won = mine + risk >= target
    value = np.sign(mine + risk - theirs).astype(np.float64)
    value[won] = 1.0
    better = np.zeros((_PIG_HORIZON + 1, target, target, target), dtype=np.bool_)
    for left in range(1, _PIG_HORIZON + 1):
        passed = -value[:, :, 0].T  # [own score, other's score] once the other is to move
        roll = np.broadcast_to(passed[:, :, None], value.shape) / 6.0
        for face in range(2, 7):
            shifted = np.ones_like(value)
            shifted[:, :, :-face] = value[:, :, face:]
            roll = roll + shifted / 6.0
        hold = passed[held, theirs]
        hold[:, :, 0] = -np.inf  # not allowed
        better[left] = roll > hold
        value = np.maximum(roll, hold)
        value[won] = 1.0
    return better


def liars_dice(view: View) -> dict[str, float]:
    """Return CFR+ play with one die each and few faces; otherwise the likelier of the best bid and a call.

    The rule for larger matches takes the opponent's dice as unseen and ignores what the bids tell: strong, not optimal.
    """
    legal = view.legal_actions or ()
    if len(legal) == 1:
        return {legal[0]: 1.0}
    bids = [_bid(action) for action in legal if action != "[call]"]
    total, sides = bids[-1]  # the highest bid there is: all dice, highest face
    key = view.info_state.rsplit("; ", 1)[-1]
    dice = [int(digit) for digit in key.split()[0]]
    if total == 2 and sides <= _CFR_MAX_SIDES:
        table = _liars_dice_table(sides)[key]
        numbers = {f"[bid {q} {f}]": (q - 1) * sides + f - 1 for q, f in bids} | {"[call]": total * sides}
        return {action: table.get(numbers[action], 0.0) for action in legal}
    chances = {bid: _chance(bid, dice, total - len(dice), sides) for bid in bids}
    best = max(bids, key=lambda bid: (chances[bid], -bid[0], -bid[1]))
    choice = f"[bid {best[0]} {best[1]}]"
    if "[call]" in legal:
        quantity, face = map(int, key.split()[-1].split("-"))
        if 1.0 - _chance((quantity, face), dice, total - len(dice), sides) >= chances[best]:
            choice = "[call]"
    return _uniform(view, [choice])


def _bid(action: str) -> tuple[int, int]:
    _, quantity, face = action[1:-1].split()
    return int(quantity), int(face)


def _chance(bid: tuple[int, int], dice: list[int], unseen: int, sides: int) -> float:
    """Return the probability that a bid is true, given own dice and uniform unseen ones."""
    quantity, face = bid
    needed = max(0, quantity - sum(die in (face, sides) for die in dice))
    hit = (1 if face == sides else 2) / sides
    return sum(math.comb(unseen, n) * hit**n * (1.0 - hit) ** (unseen - n) for n in range(needed, unseen + 1))


@cache
def _liars_dice_table(sides: int) -> dict[str, dict[int, float]]:
    """Return the average policy of CFR+ by information state, for one die each."""
    try:
        import pyspiel
    except ImportError as error:
        raise EngineError(
            "optimal play of liars_dice is computed with OpenSpiel, which is not installed; "
            "install the extra: pip install 'spiral-pipeline[exact]'"
        ) from error
    solver = pyspiel.CFRPlusSolver(pyspiel.load_game(f"liars_dice(numdice=1,dice_sides={sides})"))
    for _ in range(_CFR_ITERATIONS):
        solver.evaluate_and_update_policy()
    table: Any = solver.tabular_average_policy().policy_table()
    return {str(key): {int(a): float(p) for a, p in row} for key, row in table.items()}


def connect_four(view: View) -> dict[str, float]:
    """Uniform over the best moves of a search of ``_SEARCH_PLIES`` plies: strong, not optimal."""
    board, _ = view.info_state.split()
    mine = theirs = 0
    for height, line in enumerate(reversed(board.split("/"))):
        for column, mark in enumerate(line):
            bit = 1 << (column * _STRIDE + height)
            mine |= bit if mark == "XO"[view.player] else 0
            theirs |= bit if mark == "OX"[view.player] else 0
    values: dict[str, float] = {}
    for action in view.legal_actions or ():
        move = _drop(mine | theirs, int(action[1:-1]))
        values[action] = -_search(theirs, mine | move, move, _SEARCH_PLIES - 1, -math.inf, math.inf)
    best = max(values.values())
    return _uniform(view, [action for action, value in values.items() if value == best])


def _drop(taken: int, column: int) -> int:
    """Return the bit of the lowest free cell of a column (0 for a full one)."""
    mask = _COLUMN << (column * _STRIDE)
    return (taken + (1 << (column * _STRIDE))) & mask & ~taken


def _search(mine: int, theirs: int, last: int, plies: int, low: float, high: float) -> float:
    """Return the value for the side to move after the other side's move ``last``; sooner wins are worth more."""
    before = theirs ^ last
    if last & _completing(before):
        return -_WIN - plies
    taken = mine | theirs
    if taken == _BOARD:
        return 0.0
    if plies == 0:
        free = _BOARD & ~taken
        return float((_completing(mine) & free).bit_count() - (_completing(theirs) & free).bit_count())
    for column in _CENTRE_FIRST:
        move = _drop(taken, column)
        if move:
            low = max(low, -_search(theirs, mine | move, move, plies - 1, -high, -low))
            if low >= high:
                break
    return low


def _completing(pieces: int) -> int:
    """Return the cells that complete a line of four with three of the pieces (taken cells and edges not removed)."""
    found = (pieces << 1) & (pieces << 2) & (pieces << 3)
    for step in (_STRIDE - 1, _STRIDE, _STRIDE + 1):
        up, down = pieces << step, pieces >> step
        above, below = up & (pieces << 2 * step), down & (pieces >> 2 * step)
        found |= above & ((pieces << 3 * step) | down) | below & ((pieces >> 3 * step) | up)
    return found


def snake(view: View) -> dict[str, float]:
    """Uniform over the steps that survive surest: room to move, no head to meet, then the nearest apple. Strong."""
    found = _SNAKE_KEY.search(view.info_state)
    assert found is not None
    size = int(found[1])
    bodies = [_cells(found[2]), _cells(found[3])]
    own, other = bodies[view.player], bodies[1 - view.player]
    # A tail moves on, except that of a snake that eats; that case is rare enough to leave out.
    taken = {*own[:-1], *other[:-1]}
    apples = _cells(found[4])
    scores = {a: _step_score(_moved(own[0], a), other[0], taken, apples, size, len(own)) for a in _DIRECTIONS}
    best = max(scores.values())
    return _uniform(view, [action for action, score in scores.items() if score == best])


def _cells(text: str) -> list[tuple[int, int]]:
    return [(int(cell[0]), int(cell[1])) for cell in text.split(",") if cell]


def _moved(cell: tuple[int, int], action: str) -> tuple[int, int]:
    row, column = _DIRECTIONS[action]
    return cell[0] + row, cell[1] + column


def _step_score(
    head: tuple[int, int],
    rival: tuple[int, int],
    taken: set[tuple[int, int]],
    apples: list[tuple[int, int]],
    size: int,
    length: int,
) -> tuple[int, int, int, int]:
    """Return (alive, room for the body, no meeting of heads, minus the way to an apple), to be compared in order."""
    if not _is_free(head, taken, size) or head == rival:
        return (0, 0, 0, 0)
    reached, waiting = {head}, [head]
    while waiting and len(reached) <= 2 * length:
        cell = waiting.pop()
        for near in (_moved(cell, action) for action in _DIRECTIONS):
            if near not in reached and _is_free(near, taken, size):
                reached.add(near)
                waiting.append(near)
    apart = abs(head[0] - rival[0]) + abs(head[1] - rival[1])
    way = min((abs(head[0] - r) + abs(head[1] - c) for r, c in apples), default=0)
    return (1, min(len(reached), 2 * length), int(apart > 1), -way)


def _is_free(cell: tuple[int, int], taken: set[tuple[int, int]], size: int) -> bool:
    return 0 <= cell[0] < size and 0 <= cell[1] < size and cell not in taken


def truth_and_deception(view: View) -> dict[str, float]:
    """Say nothing that depends on the truth, and guess evenly without listening. Strong, not optimal.

    Between players who know no facts these are equilibrium play: no words mislead such a guesser, nothing is learned
    from such a deceiver, and both are worth 0. A guesser who knows the fact itself does better.
    """
    if view.role == "guesser":
        return {"[Guess: 1]": 0.5, "[Guess: 2]": 0.5}
    return {"[Say: Either of the two may be true.]": 1.0}


def _uniform(view: View, chosen: list[str]) -> dict[str, float]:
    """Spread over the chosen actions, or over all legal ones where none is chosen."""
    legal = view.legal_actions or ()
    taken = chosen or list(legal)
    return {action: 1.0 / len(taken) if action in taken else 0.0 for action in legal}


EXACT: Final[dict[str, Callable[[View], dict[str, float]]]] = {"nim": nim, "pig_dice": pig_dice}
STRONG: Final[dict[str, Callable[[View], dict[str, float]]]] = {
    "connect_four": connect_four, "liars_dice": liars_dice, "snake": snake, "truth_and_deception": truth_and_deception,
}  # fmt: skip
