"""Steps per second of every native game with text, against TextArena's and OpenSpiel's same game.

A step is one move of a player, with the view (or observation and action strings) of the one to move. Against OpenSpiel
both sides play random matches. Against TextArena (rows ``replayed``) both sides replay matches recorded beforehand,
each its own, since it lists no legal moves; our parameters are those of its environment. What is not installed is left
out. The duels also replay matches with every problem new, as a model poses them: on templates, where the template was
met before, and in free words, whose form was not; code_duel's own specifications are of forms met before. A game below
the floor or the target also stands with the microseconds a step that go into each part.
"""

from __future__ import annotations

import importlib.util
import itertools
import random
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from spiral_lib import games
from spiral_lib.games import code_duel, counterexample_duel, duel_dsl, equation_duel

ROUNDS = 3
MIN_SECONDS = 0.1
WARM_UP_SECONDS = 1.5  # the duels' stock of sample problems is made in this time
RECORDED = 24
FLOOR = 20_000.0  # steps per CPU second of any game
TARGET = 3.0  # times TextArena's steps
Params = dict[str, int | str | bool]
# TextArena's environment of the same game (rules differ in detail), our parameters for it, and moves to try there.
TEXTARENA: dict[str, tuple[str, Params, tuple[str, ...]]] = {
    "connect_four": ("ConnectFour-v0", {}, tuple(f"[col {c}]" for c in range(7))),
    "kuhn_poker": ("KuhnPoker-v0", {"hands": 3, "reward": "winner"}, ("[check]", "[bet]", "[call]", "[fold]")),
    "liars_dice": (
        "LiarsDice-v0-small",
        {"dice": 3, "elimination": True},
        ("[Call]", *(f"[Bid: {q}, {f}]" for q in range(1, 7) for f in range(1, 7))),
    ),
    "nim": ("Nim-v0", {}, tuple(f"[{p} {q}]" for p in range(3) for q in range(1, 6))),
    "pig_dice": ("PigDice-v0-50", {}, ("[roll]", "[hold]")),
    "simple_negotiation": (
        "SimpleNegotiation-v0",
        {"turns": 10},
        ("Well.", "[Accept]", "[Deny]", "[Offer: 1 Wheat -> 1 Wood]"),
    ),
    "snake": ("Snake-v0", {}, ("[up]", "[down]", "[left]", "[right]")),
    "tic_tac_toe": ("TicTacToe-v0", {}, tuple(f"[{c}]" for c in range(9))),
    "truth_and_deception": ("TruthAndDeception-v0", {}, ("I am sure of fact 1.", "[Fact 1]", "[Fact 2]")),
}
# Games whose spec names no OpenSpiel game, since the end differs.
OPENSPIEL = {"pig_dice": "pig(players=2,winscore=50,horizon=100)"}
# Games in which players pose problems: their parameters for problems in slots of a template and in free words.
POSED: dict[str, tuple[Params, ...]] = {
    name: ({"level": "template"}, {"level": "free"}) for name in ("code_duel", "counterexample_duel", "equation_duel")
}

Work = Callable[[int], int]
"""Plays the match of a seed and returns its steps."""


def rate(work: Work, seeds: itertools.count[int], min_seconds: float = MIN_SECONDS) -> float:
    """Return steps per CPU second over enough matches to be measured."""
    seconds, steps = 0.0, 0
    while seconds < min_seconds:
        start = time.process_time()
        for _ in range(32):
            steps += work(next(seeds))
        seconds += time.process_time() - start
    return steps / seconds


def compare(name: str, ours: Work, against: str | None, theirs: Work | None) -> dict[str, Any]:
    """Return one row; the two sides are timed alternately, after a round that does not count."""
    seeds, pairs = itertools.count(), []
    if "duel" in name:
        rate(ours, seeds, WARM_UP_SECONDS)
    for _ in range(ROUNDS + 1):
        pairs.append((rate(ours, seeds), rate(theirs, seeds) if theirs else None))
    ratios = [a / b for a, b in pairs[1:] if b]
    return {
        "name": name,
        "value": round(median(a for a, _ in pairs[1:]), 1),
        "unit": "steps/cpu-s",
        "against": against,
        "ratio": round(median(ratios), 2) if ratios else None,
        "spread": round(max(ratios) - min(ratios), 2) if ratios else None,
        "n": ROUNDS,
    }


def native(name: str, params: Params | None = None) -> Work:
    """Return random play of one of our games."""
    given, rng = params or {}, random.Random(0)

    def play(seed: int) -> int:
        game, steps = games.make(name, seed=seed, **given), 0
        while (player := game.current_player) is not None:
            view = game.view(player)
            moves = view.sample_actions if view.legal_actions is None else view.legal_actions
            game.apply(moves[int(rng.random() * len(moves))])
            steps += 1
        return steps

    return play


def recorded(name: str, params: Params) -> list[tuple[int, list[str]]]:
    """Return seeds and moves of random matches of one of our games."""
    found = []
    for seed in range(RECORDED):
        game, rng, moves = games.make(name, seed=seed, **params), random.Random(seed), list[str]()
        while (player := game.current_player) is not None:
            view = game.view(player)
            moves.append(rng.choice(view.sample_actions if view.legal_actions is None else view.legal_actions))
            game.apply(moves[-1])
        found.append((seed, moves))
    return found


def replayed(name: str, params: Params) -> Work:
    """Return play of recorded matches of one of our games: a new match, every view and every move."""
    matches = recorded(name, params)

    def play(number: int) -> int:
        seed, moves = matches[number % RECORDED]
        game = games.make(name, seed=seed, **params)
        for move in moves:
            assert game.current_player is not None
            game.view(game.current_player)
            game.apply(move)
        return len(moves)

    return play


def parts(name: str, params: Params, forget: Callable[[], None]) -> str:
    """Return the microseconds a step that recorded matches spend in making a match, in views and in moves.

    ``forget`` is called before every match and not timed. A quarter of a microsecond of each part is the clock's own.
    """
    matches, spent, steps = recorded(name, params), {"make": 0.0, "view": 0.0, "apply": 0.0}, 0
    for seed, moves in matches * 20:
        forget()
        stamps = [time.process_time()]
        game = games.make(name, seed=seed, **params)
        stamps.append(time.process_time())
        spent["make"] += stamps[1] - stamps[0]
        for move in moves:
            assert game.current_player is not None
            stamps = [time.process_time()]
            game.view(game.current_player)
            stamps.append(time.process_time())
            game.apply(move)
            stamps.append(time.process_time())
            spent["view"] += stamps[1] - stamps[0]
            spent["apply"] += stamps[2] - stamps[1]
        steps += len(moves)
    return ", ".join(f"{part} {1e6 * seconds / steps:.1f}" for part, seconds in spent.items()) + " us a step"


def keep_all() -> None:
    """Forget nothing."""


def forget_problems() -> None:
    """Keep nothing of the problems posed so far but the templates that they are written on."""
    code_duel._specified.cache_clear()
    for read in (code_duel._read_program, counterexample_duel._read_claim, equation_duel._read_pose):
        read.cache_clear()


def forget_shapes() -> None:
    """Keep nothing of the problems posed so far, not even their forms."""
    forget_problems()
    duel_dsl._shape.cache_clear()


def with_new_problems(work: Work, forget: Callable[[], None]) -> Work:
    """Return the same play with every problem new."""

    def play(seed: int) -> int:
        forget()
        return work(seed)

    return play


def textarena(env_id: str, tries: tuple[str, ...]) -> Work:
    """Return play of recorded matches: a new environment, every observation and every step."""
    import textarena as arena

    def record(seed: int) -> list[str]:
        env, rng, moves = arena.make(env_id), random.Random(seed), list[str]()
        env.reset(num_players=2, seed=seed)
        env.state.error_allowance = 10**6
        done, refused = False, 0
        while not done:
            env.get_observation()
            move, errors = rng.choice(tries), env.state.error_count
            done, _ = env.step(action=move)
            was_refused = not done and env.state.error_count > errors
            refused = refused + 1 if was_refused else 0
            if refused > 2000:
                raise RuntimeError(f"{env_id} takes none of {tries}")
            if not was_refused:
                moves.append(move)
        return moves

    matches = [record(seed) for seed in range(RECORDED)]

    def play(number: int) -> int:
        seed = number % RECORDED
        env = arena.make(env_id)
        env.reset(num_players=2, seed=seed)
        for move in matches[seed]:
            env.get_observation()
            env.step(action=move)
        return len(matches[seed])

    return play


def openspiel(game_string: str) -> Work:
    """Return random play with the strings of actions and of what the player knows, where the game has one."""
    import pyspiel

    game, rng = pyspiel.load_game(game_string), random.Random(0)
    kind = game.get_type()

    def play(_: int) -> int:
        state, steps = game.new_initial_state(), 0
        while not state.is_terminal():
            if state.is_chance_node():
                outcomes = state.chance_outcomes()
                state.apply_action(rng.choices([o for o, _ in outcomes], [p for _, p in outcomes])[0])
                continue
            player = state.current_player()
            if kind.provides_information_state_string:
                state.information_state_string(player)
            elif kind.provides_observation_string:
                state.observation_string(player)
            actions = state.legal_actions()
            for action in actions:
                state.action_to_string(player, action)
            state.apply_action(actions[int(rng.random() * len(actions))])
            steps += 1
        return steps

    return play


def rows() -> list[dict[str, Any]]:
    """Return a row for every game and every other implementation of it that is installed."""
    has_arena = importlib.util.find_spec("textarena") is not None
    has_spiel = importlib.util.find_spec("pyspiel") is not None
    found = []
    for name in games.names():
        game_string = OPENSPIEL.get(name, games.spec(name).openspiel) if has_spiel else None
        against = f"OpenSpiel {game_string}" if game_string else None
        theirs = openspiel(game_string) if game_string else None
        found += _explained(compare(f"games/{name}", native(name), against, theirs), name, {})
        if has_arena and name in TEXTARENA:
            env_id, params, tries = TEXTARENA[name]
            row = compare(
                f"games/{name}/replayed", replayed(name, params), f"TextArena {env_id}", textarena(env_id, tries)
            )
            found += _explained(row, name, params)
        for params in POSED.get(name, ()):
            label = f"games/{name}/new_problems/{params['level']}"
            forget = forget_shapes if params["level"] == "free" else forget_problems
            row = compare(label, with_new_problems(replayed(name, params), forget), None, None)
            found += _explained(row, name, params, forget)
    return found


def _explained(
    row: dict[str, Any], name: str, params: Params, forget: Callable[[], None] = keep_all
) -> list[dict[str, Any]]:
    """Return the row, and where the time goes if it misses the floor or the target against TextArena."""
    is_slow = "TextArena" in str(row["against"]) and row["ratio"] < TARGET
    if row["value"] >= FLOOR and not is_slow:
        return [row]
    blank = dict.fromkeys(row, None)
    return [row, {**blank, "name": f"{row['name']}/parts", "unit": parts(name, params, forget), "n": 20 * RECORDED}]
