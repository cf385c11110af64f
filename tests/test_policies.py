from __future__ import annotations

import io
from collections import Counter
from collections.abc import Awaitable
from typing import Any

import pytest

from spiral_lib import games, policies
from spiral_lib.config import PromptConfig
from spiral_lib.errors import ConfigError, SpiralError
from spiral_lib.policies.human import HumanPolicy
from spiral_lib.policies.optimal import SOLVED, strategy
from spiral_lib.prompts import extract_action
from spiral_lib.types import Move, Policy, PolicyRef, View


def done(awaitable: Awaitable[Move]) -> Move:
    """Run a coroutine that never waits."""
    step = awaitable.__await__()
    try:
        next(step)
    except StopIteration as stop:
        move: Move = stop.value
        return move
    raise AssertionError("scripted play must not wait")


def made(text: str) -> Policy:
    return policies.make(PolicyRef.parse(text))


def play(game: Any, seats: tuple[Policy, Policy], seed: int) -> tuple[float, float]:
    turn = 0
    while game.current_player is not None:
        player = game.current_player
        game.apply(done(seats[player].act(game.view(player), seed=seed * 1000 + turn)).action)
        turn += 1
    result: tuple[float, float] = game.returns()
    return result


def offer_view(**changes: Any) -> View:
    fields: dict[str, Any] = {
        "game": "simple_negotiation",
        "role": "player 0",
        "player": 0,
        "rules": "Trade.",
        "action_format": "[Offer: n X -> m Y]",
        "observation": "You have 10 Wood.",
        "legal_actions": None,
        "info_state": "s",
        "sample_actions": ("[Deny]", "[Offer: 1 Wood -> 2 Gold]"),
    }
    return View(**{**fields, **changes})


def test_random_play_is_uniform_and_depends_on_the_seed_alone() -> None:
    view = games.make("tic_tac_toe", seed=0).view(0)
    policy = made("random")
    counts = Counter(done(policy.act(view, seed=s)).action for s in range(1800))
    assert set(counts) == set(view.legal_actions or ())
    assert all(140 <= n <= 260 for n in counts.values())
    assert done(policy.act(view, seed=7)) == done(made("random").act(view, seed=7))


def test_random_play_of_parameterised_actions_draws_from_the_samples() -> None:
    actions = {done(made("random").act(offer_view(), seed=s)).action for s in range(40)}
    assert actions == {"[Deny]", "[Offer: 1 Wood -> 2 Gold]"}


def test_random_play_without_any_action_names_the_game() -> None:
    with pytest.raises(SpiralError, match="simple_negotiation"):
        done(made("random").act(offer_view(sample_actions=()), seed=0))


@pytest.mark.parametrize("reasoning", ["plain", "think"])
@pytest.mark.parametrize("ref", ["random", "optimal"])
def test_scripted_moves_carry_a_text_that_reads_back_as_the_move(ref: str, reasoning: str) -> None:
    view = games.make("kuhn_poker", seed=3).view(0)
    policy = policies.make(PolicyRef.parse(ref), prompt=PromptConfig(reasoning=reasoning))
    move = done(policy.act(view, seed=1))
    assert extract_action(move.text, view.legal_actions).action == move.action


def test_optimal_kuhn_play_is_an_equilibrium() -> None:
    pyspiel = pytest.importorskip("pyspiel", reason="needs the extra: exact")
    from spiral_lib.games import kuhn_poker

    table = {}
    for key, view in kuhn_poker.views().items():
        chances = strategy(view)
        assert sum(chances.values()) == pytest.approx(1)
        table[key] = list(enumerate(chances[a] for a in view.legal_actions or ()))
    game = pyspiel.load_game("kuhn_poker")
    assert pyspiel.nash_conv(game, pyspiel.TabularPolicy(table)) == pytest.approx(0, abs=1e-12)


def test_the_hand_in_play_decides_in_a_match_of_several_hands() -> None:
    game = games.make("kuhn_poker", seed=5, hands=2)
    first = game.current_player
    assert first is not None
    game.apply("[bet]")
    game.apply("[fold]")
    view = game.view(game.current_player)
    assert "/" in view.info_state
    card = view.info_state[-1]
    assert strategy(view)["[bet]"] == {"0": 1 / 3, "1": 0.0, "2": 1.0}[card]


def test_optimal_leduc_play_is_close_to_an_equilibrium() -> None:
    pyspiel = pytest.importorskip("pyspiel", reason="needs the extra: exact")
    from spiral_lib.games import leduc_poker

    numbers = {"[fold]": 0, "[call]": 1, "[raise]": 2}
    table = {k: [(numbers[a], p) for a, p in strategy(v).items()] for k, v in leduc_poker.views().items()}
    assert len(table) == 936
    assert pyspiel.nash_conv(pyspiel.load_game("leduc_poker"), pyspiel.TabularPolicy(table)) < 0.02


@pytest.mark.parametrize("optimal_seat", [0, 1])
def test_optimal_tic_tac_toe_never_loses_to_random_play(optimal_seat: int) -> None:
    seats = (made("optimal"), made("random")) if optimal_seat == 0 else (made("random"), made("optimal"))
    results = [play(games.make("tic_tac_toe", seed=s), seats, s)[optimal_seat] for s in range(60)]
    assert min(results) >= 0 and sum(results) > 30


def test_optimal_tic_tac_toe_draws_against_itself() -> None:
    pair = (made("optimal"), made("optimal"))
    assert all(play(games.make("tic_tac_toe", seed=s), pair, s) == (0, 0) for s in range(20))


def test_optimal_play_takes_a_win_and_blocks_a_loss() -> None:
    game = games.make("tic_tac_toe", seed=0)
    for action in ("[0]", "[8]", "[1]"):
        game.apply(action)
    assert strategy(game.view(1))["[2]"] == 1.0
    game.apply("[7]")
    assert strategy(game.view(0)) == {a: float(a == "[2]") for a in game.view(0).legal_actions}


def test_optimal_play_of_an_unsolved_game_says_which_are_solved() -> None:
    with pytest.raises(ConfigError, match="kuhn_poker"):
        done(made("optimal").act(offer_view(), seed=0))
    assert {"kuhn_poker", "leduc_poker", "tic_tac_toe"} <= SOLVED


@pytest.mark.parametrize("ref", ["self", "checkpoint:runs/x", "api:some-model", "pool:abc"])
def test_a_model_without_an_engine_is_refused(ref: str) -> None:
    with pytest.raises(ConfigError, match="engine"):
        made(ref)


def test_a_person_is_asked_again_until_the_move_can_be_read() -> None:
    screen = io.StringIO()
    source = io.StringIO("\nraise\n[fold\n\\boxed{ Bet }\n")
    view = games.make("kuhn_poker", seed=1).view(0)
    move = done(HumanPolicy(prompt=PromptConfig(), source=source, screen=screen).act(view, seed=0))
    assert move.action == "[bet]"
    shown = screen.getvalue()
    assert view.observation.split(".")[0] in shown and "[check] [bet]" in shown and shown.count("Your move:") == 4


@pytest.mark.parametrize("typed", ["bet", "[bet]", " BET ", "\\boxed{[bet]}"])
def test_a_person_may_type_a_move_in_many_ways(typed: str) -> None:
    view = games.make("kuhn_poker", seed=1).view(0)
    policy = HumanPolicy(prompt=PromptConfig(), source=io.StringIO(typed + "\n"), screen=io.StringIO())
    assert done(policy.act(view, seed=0)).action == "[bet]"


def test_a_person_may_type_a_parameterised_action() -> None:
    policy = HumanPolicy(prompt=PromptConfig(), source=io.StringIO("Offer: 1 Wood -> 2 Gold\n"), screen=io.StringIO())
    assert done(policy.act(offer_view(), seed=0)).action == "[Offer: 1 Wood -> 2 Gold]"


def test_the_end_of_the_input_ends_the_match_with_a_message() -> None:
    policy = HumanPolicy(prompt=PromptConfig(), source=io.StringIO(""), screen=io.StringIO())
    with pytest.raises(SpiralError, match="input ended"):
        done(policy.act(offer_view(), seed=0))
