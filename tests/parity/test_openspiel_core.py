"""Move-by-move comparison with OpenSpiel: legal actions, player to move, information states, returns."""

from __future__ import annotations

import copy
import itertools
import random
from typing import Any

import pytest

from spiral_lib import games
from spiral_lib.games import kuhn_poker, leduc_poker, tic_tac_toe

pyspiel = pytest.importorskip("pyspiel", reason="needs open-spiel (the 'exact' extra)")

KUHN_DEALS = list(itertools.permutations(range(3), 2))
LEDUC_DEALS = list(itertools.permutations(range(6), 3))


def deal(state: Any, cards: list[int]) -> None:
    """Play OpenSpiel's chance nodes with the given cards."""
    while state.is_chance_node():
        assert cards[0] in [outcome for outcome, _ in state.chance_outcomes()]
        state.apply_action(cards.pop(0))


def assert_same(game: Any, state: Any, action_ids: dict[str, int], scale: float, compare_keys: bool) -> None:
    if state.is_terminal():
        assert game.current_player is None
        assert [r * scale for r in game.returns()] == pytest.approx(state.returns(), abs=1e-12)
        return
    player = state.current_player()
    assert game.current_player == player
    assert [action_ids[a] for a in game.view(player).legal_actions] == state.legal_actions()
    assert game.view(1 - player).legal_actions == ()
    if compare_keys:
        for seat in (0, 1):
            assert game.view(seat).info_state == state.information_state_string(seat)


def all_lines(game: Any, state: Any, cards: list[int], action_ids: dict[str, int], scale: float) -> int:
    """Compare along every line of play; return the number of terminal histories."""
    deal(state, cards)
    assert_same(game, state, action_ids, scale, compare_keys=True)
    if state.is_terminal():
        return 1
    count = 0
    for action in game.view(game.current_player).legal_actions:
        ours, theirs = copy.deepcopy(game), state.clone()
        ours.apply(action)
        theirs.apply_action(action_ids[action])
        count += all_lines(ours, theirs, list(cards), action_ids, scale)
    return count


def test_kuhn_agrees_on_all_30_terminal_histories() -> None:
    ids = {"[check]": 0, "[fold]": 0, "[bet]": 1, "[call]": 1}
    total = 0
    for cards in KUHN_DEALS:
        state = pyspiel.load_game("kuhn_poker").new_initial_state()
        total += all_lines(kuhn_poker.GAME.dealt(cards), state, list(cards), ids, scale=2.0)
    assert total == 30


def test_leduc_agrees_on_all_49_lines_of_all_120_deals() -> None:
    ids = {"[fold]": 0, "[call]": 1, "[raise]": 2}
    for cards in LEDUC_DEALS:
        state = pyspiel.load_game("leduc_poker").new_initial_state()
        assert all_lines(leduc_poker.GAME.dealt(cards), state, list(cards), ids, scale=13.0) == 49


def test_tic_tac_toe_agrees_on_random_playouts() -> None:
    rng, ids = random.Random(7), {f"[{cell}]": cell for cell in range(9)}
    for seed in range(300):
        game, state = games.make("tic_tac_toe", seed=seed), pyspiel.load_game("tic_tac_toe").new_initial_state()
        while not state.is_terminal():
            assert_same(game, state, ids, 1.0, compare_keys=False)
            board, mover = game.view(0).info_state.split()
            assert board == str(state).replace("\n", "") and mover == "xo"[state.current_player()]
            action = rng.choice(game.view(game.current_player).legal_actions)
            game.apply(action)
            state.apply_action(ids[action])
        assert_same(game, state, ids, 1.0, compare_keys=False)


@pytest.mark.parametrize("name, count", [("kuhn_poker", 12), ("leduc_poker", 936)])
def test_views_hold_the_information_states_of_openspiel(name: str, count: int) -> None:
    policy = pytest.importorskip("open_spiel.python.policy").TabularPolicy(pyspiel.load_game(name))
    module = {"kuhn_poker": kuhn_poker, "leduc_poker": leduc_poker}[name]
    views = module.views()
    assert len(views) == count and set(views) == set(policy.state_lookup)
    for key, view in views.items():
        assert view.info_state == key
        mask = policy.legal_actions_mask[policy.state_lookup[key]]
        assert len(view.legal_actions or ()) == int(mask.sum())


def test_uniform_play_of_kuhn_has_the_nash_conv_of_eleven_twelfths() -> None:
    exploitability = pytest.importorskip("open_spiel.python.algorithms.exploitability")
    policy_module = pytest.importorskip("open_spiel.python.policy")
    game = pyspiel.load_game(kuhn_poker.SPEC.openspiel)
    policy = policy_module.TabularPolicy(game)
    for key, view in kuhn_poker.views().items():
        policy.policy_for_key(key)[:] = [1.0 / len(view.legal_actions or ())] * 2
    assert exploitability.nash_conv(game, policy) == pytest.approx(11 / 12)


def test_specs_name_games_that_openspiel_has() -> None:
    for module in (tic_tac_toe, kuhn_poker, leduc_poker):
        assert pyspiel.load_game(module.SPEC.openspiel).num_players() == 2
