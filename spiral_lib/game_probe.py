"""Attacks on a game itself: equal states, views without side effects, hostile actions. Used by ``game_check``."""

from __future__ import annotations

import collections
import random
import string
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spiral_lib import games
from spiral_lib.errors import IllegalAction
from spiral_lib.seeds import generator
from spiral_lib.types import Game, View

Params = Mapping[str, int | float | str | bool]
_SHOWN = 3
JUNK = (
    "", " ", "[", "]", "[]", "[[]]", "[no such move]", "[-1]", f"[{10**22}]", "[1e9]", "[nan]", "\x00", "[\u0660]",
    "[accept] [deny]", "[" * 3000, "[" + "9" * 3000 + "]", "[__import__('os')]", "[\u202e]",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """A hard rule: how often it was looked at, how often it was broken, and the first breaches in words."""

    name: str
    looked_at: int
    broken: int
    examples: tuple[str, ...]


class Tally:
    """Counts looks at every rule and keeps the first breaches."""

    def __init__(self) -> None:
        self._looks: collections.Counter[str] = collections.Counter()
        self._breaches: dict[str, list[str]] = {}
        self.slowest_apply_s = 0.0

    def look(self, rule: str, breach: str | None) -> None:
        self._looks[rule] += 1
        if breach is not None:
            self._breaches.setdefault(rule, []).append(breach)

    def rules(self) -> tuple[Rule, ...]:
        return tuple(
            Rule(name=name, looked_at=n, broken=len(found), examples=tuple(found[:_SHOWN]))
            for name, n in self._looks.items()
            for found in [self._breaches.get(name, [])]
        )


class Keys:
    """The legal actions seen with every information state: equal keys must mean equal choices."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, str], tuple[str, ...] | None] = {}

    def breach(self, view: View) -> str | None:
        known = self._seen.setdefault((view.player, view.info_state), view.legal_actions)
        return None if known == view.legal_actions else f"info_state {view.info_state[:80]!r} stands for two states"


def probe(name: str, params: Params, seed: int, tally: Tally, keys: Keys) -> None:
    """Play one random match on two equal games, and attack it on the way."""
    try:
        _walk(name, params, seed, tally, keys)
    except Exception as error:  # whatever a faulty game raises is the finding
        tally.look("raises nothing but IllegalAction", f"seed {seed}: {error!r}"[:300])


def _walk(name: str, params: Params, seed: int, tally: Tally, keys: Keys) -> None:
    game, twin = games.make(name, seed=seed, **params), games.make(name, seed=seed, **params)
    rng = generator(seed, "check")
    attacked = rng.randrange(max(1, min(game.spec.max_turns, 12)))
    num_turns = 0
    while (player := game.current_player) is not None:
        if num_turns > game.spec.max_turns:
            break
        view = game.view(player)
        _check_view(game, view, player, tally, keys)
        twins = twin.current_player == player and _state(twin) == _state(game)
        tally.look("equal seeds and actions give equal matches", None if twins else f"seed {seed}, turn {num_turns}")
        if num_turns == attacked and not _withstands(game, view, rng, tally):
            return
        action = rng.choice(playable(view))
        start = time.perf_counter()
        _apply_legal(game, action, tally)
        tally.slowest_apply_s = max(tally.slowest_apply_s, time.perf_counter() - start)
        twin.apply(action)
        num_turns += 1
    in_time = num_turns <= game.spec.max_turns and game.current_player is None
    tally.look("random play ends within max_turns", None if in_time else f"seed {seed}: {num_turns} turns")
    if game.current_player is None:
        same = game.returns() == twin.returns()
        tally.look("equal seeds and actions give equal matches", None if same else f"seed {seed}: other returns")
        tally.look("returns are in [-1, 1] and sum to exactly 0", sum_breach(game.returns(), f"seed {seed}"))
        _withstands(game, game.view(0), rng, tally, over=True)


def playable(view: View) -> Sequence[str]:
    """Return the actions that scripted play chooses from."""
    actions = view.sample_actions if view.legal_actions is None else view.legal_actions
    if not actions:
        raise ValueError(f"no action is offered to {view.role} in {view.info_state[:60]!r}")
    return actions


def _apply_legal(game: Game, action: str, tally: Tally) -> None:
    try:
        game.apply(action)
    except IllegalAction as error:
        tally.look("every offered action is accepted", f"{action[:60]!r}: {error}")
        raise
    tally.look("every offered action is accepted", None)


def _check_view(game: Game, view: View, player: int, tally: Tally, keys: Keys) -> None:
    again = game.view(player)
    tally.look("looking changes nothing", None if again == view else f"{view.info_state[:60]!r}")
    named = view.role == game.spec.roles[player] and view.player == player and view.rules == game.view(1 - player).rules
    seat = f"seat {player}: {view.role!r}"
    tally.look("views name their role and share one text of the rules", None if named else seat)
    tally.look("an information state fixes the legal actions", keys.breach(view))


def _withstands(game: Game, view: View, rng: random.Random, tally: Tally, *, over: bool = False) -> bool:
    """Try hostile actions, each of which must raise IllegalAction and change nothing; return whether all did.

    Where actions are parameterised a mutated one may happen to be legal, so only certain nonsense is tried there.
    """
    offered = view.legal_actions
    hostile: Iterable[str] = JUNK
    if offered is not None or over:
        bases = list(offered or view.sample_actions or ("[0]",))
        hostile = [*JUNK, *(mutated(rng.choice(bases), rng) for _ in range(8)), *(bases if over else ())]
    before = _state(game)
    for action in hostile:
        if not over and offered is not None and action in offered:
            continue
        start = time.perf_counter()
        try:
            game.apply(action)
            breach: str | None = f"{action[:60]!r} was accepted"
        except IllegalAction:
            breach = None
        except Exception as error:  # whatever a faulty game raises is the finding
            breach = f"{action[:60]!r} raised {error!r}"[:300]
        tally.slowest_apply_s = max(tally.slowest_apply_s, time.perf_counter() - start)
        tally.look("hostile actions raise IllegalAction", breach)
        if breach is not None:
            return False
        tally.look("a refused action changes nothing", None if _state(game) == before else f"{action[:60]!r}")
    return True


def mutated(action: str, rng: random.Random) -> str:
    """Return an action with one character dropped, doubled, replaced or inserted."""
    at = rng.randrange(len(action)) if action else 0
    letter = rng.choice(string.printable + "×−１\u200b")
    head, tail = action[:at], action[at:]
    return rng.choice((head + tail[1:], head + tail[:1] + tail, head + letter + tail[1:], head + letter + tail))


def _state(game: Game) -> tuple[Any, ...]:
    return (game.current_player, game.view(0), game.view(1))


def sum_breach(returns: tuple[float, float], where: str) -> str | None:
    first, second = returns
    fine = first + second == 0 and -1 <= first <= 1 and -1 <= second <= 1
    return None if fine else f"{where}: returns {first} and {second}"


