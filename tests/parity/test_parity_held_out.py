"""Held-out games against OpenSpiel, move by move over random matches."""

from __future__ import annotations

import copy
import itertools
import random
import re
from typing import Any

import pytest

from spiral_lib import games
from spiral_lib.games import liars_dice
from spiral_lib.policies.optimal import strategy
from spiral_lib.types import Game

pyspiel = pytest.importorskip("pyspiel", reason="needs open-spiel (the 'exact' extra)")


def legal(game: Game, player: int) -> tuple[str, ...]:
    return game.view(player).legal_actions or ()


def assert_parity(game: Game, state: Any, rng: random.Random, *, compare_keys: bool) -> int:
    """Play at random to the end; the n-th legal action must be OpenSpiel's n-th. Return the number of moves."""
    moves = 0
    while not state.is_terminal():
        player = state.current_player()
        assert game.current_player == player
        offered, theirs = legal(game, player), state.legal_actions()
        assert len(offered) == len(theirs) and legal(game, 1 - player) == ()
        if compare_keys:
            assert [game.view(seat).info_state for seat in (0, 1)] == [
                state.information_state_string(seat) for seat in (0, 1)
            ]
        choice = rng.randrange(len(offered))
        game.apply(offered[choice])
        state.apply_action(theirs[choice])
        moves += 1
    assert game.current_player is None and list(game.returns()) == state.returns()
    return moves


def test_connect_four_follows_openspiel() -> None:
    theirs = pyspiel.load_game("connect_four")
    for seed in range(150):
        game, state, rng = games.make("connect_four", seed=seed), theirs.new_initial_state(), random.Random(seed)
        while not state.is_terminal():
            player = state.current_player()
            assert game.current_player == player
            assert legal(game, player) == tuple(f"[{column}]" for column in state.legal_actions())
            board = game.view(0).info_state.split()[0].replace("/", "\n").lower()
            assert board == str(state).strip()
            column = rng.choice(state.legal_actions())
            game.apply(f"[{column}]")
            state.apply_action(column)
        assert game.current_player is None and list(game.returns()) == state.returns()


@pytest.mark.parametrize("misere", [False, True])
@pytest.mark.parametrize("piles", ["3 4 5", "1 3 5 7", "1 6", "2 2"])
def test_nim_follows_openspiel(piles: str, misere: bool) -> None:
    for seed in range(40):
        game = games.make("nim", seed=seed, piles=piles, misere=misere)
        theirs = pyspiel.load_game(game.spec.openspiel)
        moves = assert_parity(game, theirs.new_initial_state(), random.Random(seed), compare_keys=False)
        assert moves <= game.spec.max_turns


def test_nim_actions_name_the_pile_and_number_of_openspiel() -> None:
    game = games.make("nim", seed=0)
    state = pyspiel.load_game(game.spec.openspiel).new_initial_state()
    named = [re.findall(r"\d+", state.action_to_string(action)) for action in state.legal_actions()]
    assert legal(game, 0) == tuple(f"[{pile} {take}]" for pile, take in named)


@pytest.mark.parametrize(("dice", "sides"), [(1, 3), (1, 6), (2, 6), (3, 4), (5, 6)])
def test_liars_dice_follows_openspiel(dice: int, sides: int) -> None:
    for seed in range(60):
        game = games.make("liars_dice", seed=seed, dice=dice, sides=sides)
        theirs = pyspiel.load_game(game.spec.openspiel)
        state = theirs.new_initial_state()
        for face in game.view(0).info_state + game.view(1).info_state:
            state.apply_action(int(face) - 1)
        moves = assert_parity(game, state, random.Random(seed), compare_keys=True)
        assert moves <= game.spec.max_turns == theirs.max_game_length()


def test_pig_follows_openspiel_but_for_holding_at_zero_and_the_winning_hold() -> None:
    for seed in range(80):
        game, rng = games.make("pig_dice", seed=seed, max_turns=400), random.Random(seed)
        state = pyspiel.load_game("pig(winscore=50,horizon=1000)").new_initial_state()
        risk = 0
        while (player := game.current_player) is not None:
            assert state.current_player() == player
            assert legal(game, player) == (("[roll]", "[hold]") if risk else ("[roll]",))
            action = rng.choice(legal(game, player))
            state.apply_action(("[roll]", "[hold]").index(action))
            game.apply(action)
            scores, now = read_pig(game)
            if action == "[roll]":
                lost = now == 0
                state.apply_action(0 if lost else now - risk - 1)
            risk = now
            assert f"Scores: {scores[0]} {scores[1]}, Turn total: {risk}" in str(state)
        if not state.is_terminal():
            assert state.legal_actions() == [1]
            state.apply_action(1)
        assert list(game.returns()) == state.returns()


def read_pig(game: Game) -> tuple[tuple[int, int], int]:
    """Return both scores and the points at risk."""
    _, first, second, _, risk, _ = map(int, re.findall(r"\d+", game.view(0).info_state))
    return (first, second), risk


def test_strategy_of_small_liars_dice_has_almost_no_exploitability() -> None:
    policy_module = pytest.importorskip("open_spiel.python.policy")
    exploitability = pytest.importorskip("open_spiel.python.algorithms.exploitability")
    theirs = pyspiel.load_game("liars_dice(numdice=1,dice_sides=3)")
    policy = policy_module.TabularPolicy(theirs)
    met, waiting = set(), []
    for first, second in itertools.product((1, 2, 3), repeat=2):
        waiting.append(liars_dice.GAME(seed=0, dice=1, sides=3).dealt(((first,), (second,)), []))
    while waiting:
        game = waiting.pop()
        if game.current_player is None:
            continue
        view = game.view(game.current_player)
        met.add(view.info_state)
        mask = policy.legal_actions_mask[policy.state_lookup[view.info_state]]
        policy.policy_for_key(view.info_state)[mask.astype(bool)] = list(strategy(view).values())
        for action in view.legal_actions or ():
            waiting.append(copy.deepcopy(game))
            waiting[-1].apply(action)
    assert met == set(policy.state_lookup)
    assert exploitability.nash_conv(theirs, policy) < 1e-3
