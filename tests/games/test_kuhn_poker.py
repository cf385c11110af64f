"""Kuhn poker: chips move with every bet, folded cards stay hidden, the seats swap, the known values hold."""

from __future__ import annotations

import copy
import itertools
import random
from collections import Counter
from fractions import Fraction

import pytest

from spiral_lib import games
from spiral_lib.errors import ConfigError, IllegalAction
from spiral_lib.games.kuhn_poker import GAME, SPEC, views

DEALS = list(itertools.permutations(range(3), 2))


def played(cards: tuple[int, int], *actions: str) -> GAME:
    game = GAME.dealt(cards)
    for action in actions:
        game.apply(f"[{action}]")
    return game


@pytest.mark.parametrize(
    "actions, chips",
    [
        (("check", "check"), 1),
        (("check", "bet", "fold"), None),
        (("check", "bet", "call"), 2),
        (("bet", "fold"), None),
        (("bet", "call"), 2),
    ],
)
def test_bets_and_calls_move_chips_and_the_higher_card_takes_them(actions: tuple[str, ...], chips: int | None) -> None:
    for cards in DEALS:
        first, second = played(cards, *actions).returns()
        if chips is None:  # the player who folds loses the ante whatever the cards
            folder = (len(actions) - 1) % 2
            assert (first, second)[folder] == -0.5
        else:
            assert first * 2 == (chips if cards[0] > cards[1] else -chips)
        assert first + second == 0


def test_uniform_play_gives_the_first_player_an_eighth_of_a_chip() -> None:
    def value(game: GAME) -> Fraction:
        if game.current_player is None:
            return Fraction(game.returns()[0]) * 2
        results = []
        for action in game.view(game.current_player).legal_actions or ():
            following = copy.copy(game)
            following.apply(action)
            results.append(value(following))
        return sum(results, Fraction()) / len(results)

    assert sum(value(GAME.dealt(cards)) for cards in DEALS) / 6 == Fraction(1, 8)


def test_there_are_twelve_views_and_their_keys_are_those_of_openspiel() -> None:
    assert sorted(views()) == sorted(f"{card}{history}" for card in range(3) for history in ("", "p", "b", "pb"))
    view = views()["0pb"]
    assert view.observation == "Your card: J. Moves: you check, opponent bet. Pot: 3 chips."
    assert view.legal_actions == ("[fold]", "[call]") and view.role == SPEC.roles[0]


def test_the_other_card_changes_nothing_that_a_player_sees_before_the_showdown() -> None:
    for history in ((), ("check",), ("bet",), ("check", "bet")):
        for mine in range(3):
            other = [card for card in range(3) if card != mine]
            assert played((mine, other[0]), *history).view(0) == played((mine, other[1]), *history).view(0)
            assert played((other[0], mine), *history).view(1) == played((other[1], mine), *history).view(1)


def test_a_folded_hand_stays_hidden_and_a_called_one_is_shown() -> None:
    for actions in (("bet", "fold"), ("check", "bet", "fold")):
        assert played((0, 1), *actions).view(0) == played((0, 2), *actions).view(0)
    assert "opponent's hidden" in played((0, 1), "bet", "fold").view(0).observation
    assert "opponent's K" in played((0, 2), "bet", "call").view(0).observation


def test_actions_of_the_other_phase_are_illegal() -> None:
    for history, bad in (((), ("[call]", "[fold]", "[Check]", "check")), (("bet",), ("[check]", "[bet]"))):
        game = played((0, 1), *history)
        for action in bad:
            with pytest.raises(IllegalAction):
                game.apply(action)


def test_first_to_act_swaps_with_every_hand() -> None:
    game = games.make("kuhn_poker", seed=1, hands=4)
    starters = []
    while (player := game.current_player) is not None:
        starters.append(player)
        game.apply("[check]")
        game.apply("[check]")
    assert starters == [0, 1, 0, 1]


def test_chips_are_conserved_and_returns_count_every_hand() -> None:
    for seed in range(200):
        by_reward = {}
        for reward in ("chips", "winner"):
            game, rng = games.make("kuhn_poker", seed=seed, hands=3, reward=reward), random.Random(seed)
            while (player := game.current_player) is not None:
                game.apply(rng.choice(game.view(player).legal_actions or ()))
            by_reward[reward] = game.returns()
            told = game.view(0).observation.split("you ")[1].split(",")[0]
        first, second = by_reward["chips"]
        assert first + second == 0 and int(told) == pytest.approx(first * 6)
        assert by_reward["winner"][0] == (first > 0) - (first < 0)


def test_ties_after_several_hands_are_draws_and_do_happen() -> None:
    results = Counter()
    for seed in range(300):
        game, rng = games.make("kuhn_poker", seed=seed, hands=2, reward="winner"), random.Random(seed)
        while (player := game.current_player) is not None:
            game.apply(rng.choice(game.view(player).legal_actions or ()))
        results[game.returns()[0]] += 1
    assert results[0.0] > 20 and results[1.0] > 60 and results[-1.0] > 60


def test_all_six_deals_come_equally_often() -> None:
    deals = Counter()
    for seed in range(3000):
        game = games.make("kuhn_poker", seed=seed)
        deals[game.view(0).info_state + game.view(1).info_state] += 1
    assert len(deals) == 6 and all(400 < count < 600 for count in deals.values())


def test_parameters_out_of_range_are_refused() -> None:
    for params in ({"hands": 0}, {"hands": 1.0}, {"hands": True}, {"reward": "money"}, {"reward": 1}):
        with pytest.raises(ConfigError, match="kuhn_poker"):
            games.make("kuhn_poker", seed=0, **params)
    assert games.make("kuhn_poker", seed=0, hands=5).spec.max_turns == 15
