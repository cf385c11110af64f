"""What every legal move is worth, in match returns, in the games whose solution is cheap and exact.

Nim by Bouton's rule, Pig by backward induction over scores and actions left. Leduc poker and small liar's dice against
the equilibrium of ``policies.optimal`` (CFR+), whose player the best answer is played against: there a move's value is
exact, but the equilibrium itself is an approximation (``SLACK``).
"""

from __future__ import annotations

import functools
import importlib.util
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from spiral_lib import games
from spiral_lib.policies import optimal

Values = Mapping[str, float]
"""Legal action to the return it leads to when both sides go on perfectly."""

Params = tuple[tuple[str, int | float | str | bool], ...]

SLACK: Mapping[str, float] = {"leduc_poker": 2e-3, "liars_dice": 2e-3}
"""Regret, in match returns, up to which a move counts as perfect because the equilibrium is only approximate."""

_PIG_MAX_TARGET = 60
_PIG_MAX_LEFT = 100
_LIARS_MAX_SIDES = 4  # with one die each, as for CFR+ in ``policies``
# The equilibrium is mixed with this much uniform play, so that no state is out of its reach.
_TREMBLE = 1e-9


def nim(info_state: str) -> Values:
    """Return 1 for every move that leaves a lost position, else -1; normal and misere play."""
    sizes, _, last = info_state.split()
    piles = [int(size) for size in sizes.removeprefix("piles=").split(",")]
    values = {}
    for take in range(1, max(piles) + 1):
        for pile, size in enumerate(piles):
            if size >= take:
                left = [*piles[:pile], size - take, *piles[pile + 1 :]]
                values[f"[{pile + 1} {take}]"] = 1.0 if _is_lost(left, misere=last == "last=loses") else -1.0
    return values


def _is_lost(piles: list[int], *, misere: bool) -> bool:
    """Return whether the player to move loses (Bouton 1901)."""
    nim_sum = functools.reduce(lambda a, b: a ^ b, piles)
    return nim_sum == int(misere) if max(piles) <= 1 else nim_sum == 0


def pig_dice(info_state: str) -> Values | None:
    """Return the mean return after rolling and holding; None where the table would be large (about 90 MB is not)."""
    target, first, second, mover, risk, left = map(int, re.findall(r"\d+", info_state))
    if target > _PIG_MAX_TARGET or left > _PIG_MAX_LEFT:
        return None
    mine, theirs = (second, first) if mover else (first, second)
    after = _pig_values(target)[left - 1]

    def held(points: int) -> float:
        """Return the mover's return once the turn has passed with these points added."""
        return -float(after[theirs, mine + points, 0])

    rolled = [1.0 if mine + risk + face >= target else float(after[mine, theirs, risk + face]) for face in range(2, 7)]
    values = {"[roll]": (held(0) + sum(rolled)) / 6}
    return values | ({"[hold]": held(risk)} if risk else {})


@functools.lru_cache(maxsize=1)
def _pig_values(target: int) -> npt.NDArray[np.float32]:
    """Return the mover's value by (actions left, own score, other's score, points at risk), all below ``target``."""
    score = np.arange(target)
    mine, theirs, risk = np.meshgrid(score, score, score, indexing="ij")
    won = mine + risk >= target
    kept = np.minimum(mine + risk, target - 1)  # beyond the target the match is won, whatever is read here
    value = np.where(won, 1.0, np.sign(mine + risk - theirs))
    found = np.empty((_PIG_MAX_LEFT + 1, *value.shape), dtype=np.float32)
    found[0] = value
    for left in range(1, _PIG_MAX_LEFT + 1):
        passed = -value[:, :, 0].T  # by own and other's score, after the turn has passed
        rolled = passed[mine, theirs]
        for face in range(2, 7):
            onward = np.ones_like(value)
            onward[:, :, :-face] = value[:, :, face:]
            rolled += onward
        held = np.where(risk > 0, passed[kept, theirs], -np.inf)
        value = np.where(won, 1.0, np.maximum(rolled / 6, held))
        found[left] = value
    return found


def leduc_poker(info_state: str) -> Values | None:
    """Return chips won / 13 by every move; None without OpenSpiel."""
    table = _against_equilibrium("leduc_poker", ())
    return None if table is None else table[info_state]


def liars_dice(info_state: str, params: Params) -> Values | None:
    """Return the mean return of every move in a round with one die each; None for larger matches or no OpenSpiel."""
    settings = dict(params)
    is_small = int(settings.get("dice", 2)) == 1 and int(settings.get("sides", 6)) <= _LIARS_MAX_SIDES
    if not is_small or settings.get("elimination", False):
        return None
    table = _against_equilibrium("liars_dice", params)
    return None if table is None else table[info_state]


@functools.cache
def _against_equilibrium(game: str, params: Params) -> Mapping[str, Values] | None:
    """Return the value of every action in every information state, the other side in equilibrium and the mover best.

    The mover's doubt about what it cannot see follows from how the other side plays. None without OpenSpiel.
    """
    if importlib.util.find_spec("pyspiel") is None:
        return None
    import pyspiel
    from open_spiel.python import policy
    from open_spiel.python.algorithms.best_response import BestResponsePolicy

    views = games.views(game, **dict(params))
    loaded = pyspiel.load_game(games.make(game, seed=0, **dict(params)).spec.openspiel)
    table: Any = policy.TabularPolicy(loaded)
    for state, view in views.items():
        row = np.array(list(optimal.strategy(view).values()))
        chances = table.policy_for_key(state)
        chances[chances > 0] = (1 - _TREMBLE) * row + _TREMBLE / len(row)
    scale = float(loaded.max_utility())
    found: dict[str, Values] = {}
    for seat in (0, 1):
        best: Any = BestResponsePolicy(loaded, seat, table)
        for state, nodes in best.infosets.items():
            weight = sum(chance for _, chance in nodes)
            actions = nodes[0][0].legal_actions()
            means = [sum(chance * best.q_value(node, action) for node, chance in nodes) / weight for action in actions]
            legal = views[state].legal_actions or ()
            found[state] = {action: float(m) / scale for action, m in zip(legal, means, strict=True)}
    return found
