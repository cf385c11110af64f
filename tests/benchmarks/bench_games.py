"""Steps per second of every native game with text, against TextArena's and OpenSpiel's same game.

A step is one move of a player, with the view (or observation and action strings) of the one to move. Ours and OpenSpiel
play random matches; TextArena replays matches recorded beforehand, since finding a legal move is not its job. What is
not installed is left out. The duels also stand with every problem new, as a model poses them: nothing is cached then.
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
from spiral_lib.games import duel_dsl

ROUNDS = 3
MIN_SECONDS = 0.1
WARM_UP_SECONDS = 1.5  # the duels' stock of sample problems is made in this time
RECORDED = 24
# TextArena's environment of the same game (rules differ in detail), and moves to try there.
TEXTARENA: dict[str, tuple[str, tuple[str, ...]]] = {
    "connect_four": ("ConnectFour-v0", tuple(f"[col {c}]" for c in range(7))),
    "kuhn_poker": ("KuhnPoker-v0", ("[check]", "[bet]", "[call]", "[fold]")),
    "liars_dice": ("LiarsDice-v0-small", ("[Call]", *(f"[Bid: {q}, {f}]" for q in range(1, 7) for f in range(1, 7)))),
    "nim": ("Nim-v0", tuple(f"[{p} {q}]" for p in range(3) for q in range(1, 6))),
    "pig_dice": ("PigDice-v0-50", ("[roll]", "[hold]")),
    "simple_negotiation": ("SimpleNegotiation-v0", ("Well.", "[Accept]", "[Deny]", "[Offer: 1 Wheat -> 1 Wood]")),
    "snake": ("Snake-v0", ("[up]", "[down]", "[left]", "[right]")),
    "tic_tac_toe": ("TicTacToe-v0", tuple(f"[{c}]" for c in range(9))),
    "truth_and_deception": ("TruthAndDeception-v0", ("I am sure of fact 1.", "[Fact 1]", "[Fact 2]")),
}
# Games whose spec names no OpenSpiel game, since the end differs.
OPENSPIEL = {"pig_dice": "pig(players=2,winscore=50,horizon=100)"}
DUELS = ("code_duel", "counterexample_duel", "equation_duel")

Work = Callable[[int], int]
"""Plays the match of a seed and returns its steps."""


def rate(work: Work, seeds: itertools.count[int], min_seconds: float = MIN_SECONDS) -> float:
    """Return steps per CPU second over enough matches to be measured."""
    matches = 8
    while True:
        start, steps = time.process_time(), 0
        for _ in range(matches):
            steps += work(next(seeds))
        seconds = time.process_time() - start
        if seconds >= min_seconds:
            return steps / seconds
        matches *= 2


def compare(name: str, ours: Work, against: str | None, theirs: Work | None) -> dict[str, Any]:
    """Return one row; the two sides are timed alternately, after a round that does not count."""
    seeds, pairs = itertools.count(), []
    if name.endswith("duel"):
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


def native(name: str) -> Work:
    """Return random play of one of our games."""

    def play(seed: int) -> int:
        game, rng, steps = games.make(name, seed=seed), random.Random(seed), 0
        while (player := game.current_player) is not None:
            view = game.view(player)
            moves = view.sample_actions if view.legal_actions is None else view.legal_actions
            game.apply(moves[int(rng.random() * len(moves))])
            steps += 1
        return steps

    return play


def with_new_problems(work: Work) -> Work:
    """Return the same play with nothing kept of earlier problems."""

    def play(seed: int) -> int:
        duel_dsl._parse_cached.cache_clear()
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

    recorded = [record(seed) for seed in range(RECORDED)]

    def play(number: int) -> int:
        seed = number % RECORDED
        env = arena.make(env_id)
        env.reset(num_players=2, seed=seed)
        for move in recorded[seed]:
            env.get_observation()
            env.step(action=move)
        return len(recorded[seed])

    return play


def openspiel(game_string: str) -> Work:
    """Return random play with the strings of actions and of what the player knows, where the game has one."""
    import pyspiel

    game = pyspiel.load_game(game_string)
    kind = game.get_type()

    def play(seed: int) -> int:
        state, rng, steps = game.new_initial_state(), random.Random(seed), 0
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
        ours, others = native(name), 0
        if has_arena and name in TEXTARENA:
            env_id, tries = TEXTARENA[name]
            found.append(compare(f"games/{name}", ours, f"TextArena {env_id}", textarena(env_id, tries)))
            others += 1
        game_string = OPENSPIEL.get(name, games.spec(name).openspiel)
        if has_spiel and game_string:
            found.append(compare(f"games/{name}", ours, f"OpenSpiel {game_string}", openspiel(game_string)))
            others += 1
        if not others:
            found.append(compare(f"games/{name}", ours, None, None))
        if name in DUELS:
            found.append(compare(f"games/{name}/new_problems", with_new_problems(ours), None, None))
    return found
