"""Liar's Dice: bids, calls, wild faces, elimination, hidden dice; scripted play."""

from __future__ import annotations

import random

import pytest

from spiral_lib import games
from spiral_lib.errors import ConfigError, IllegalAction
from spiral_lib.games import liars_dice
from spiral_lib.policies.optimal import SOLVED, strategy


def thrown(first: str, second: str, *, sides: int = 6, elimination: bool = False) -> liars_dice.GAME:
    """Return a match with these dice."""
    game = liars_dice.GAME(seed=0, dice=len(first), sides=sides, elimination=elimination)
    return game.dealt((tuple(map(int, first)), tuple(map(int, second))), [])


def played(game: liars_dice.GAME, *actions: str) -> liars_dice.GAME:
    for action in actions:
        game.apply(f"[{action}]")
    return game


def test_the_first_player_must_bid_and_cannot_call() -> None:
    game = thrown("25", "46")
    legal = game.view(0).legal_actions or ()
    assert len(legal) == 24 and legal[0] == "[bid 1 1]" and legal[-1] == "[bid 4 6]"
    with pytest.raises(IllegalAction):
        game.apply("[call]")


def test_a_raise_is_a_higher_quantity_or_the_same_quantity_with_a_higher_face() -> None:
    legal = played(thrown("25", "46"), "bid 3 5").view(1).legal_actions
    assert legal == ("[bid 3 6]", *(f"[bid 4 {face}]" for face in range(1, 7)), "[call]")


@pytest.mark.parametrize(
    "text", ["[bid 1000 6]", "[bid 5 1]", "[bid 0 6]", "[bid 2 7]", "[bid 2 0]", "[bid 2 3]", "[bid 2 4]", "[bid 1 6]"]
)
def test_bids_that_are_impossible_or_no_raise_are_illegal(text: str) -> None:
    game = played(thrown("25", "46"), "bid 2 4")
    before = game.view(1)
    with pytest.raises(IllegalAction):
        game.apply(text)
    assert game.view(1) == before


@pytest.mark.parametrize("text", ["[bid 02 5]", "[bid 2  5]", "[Bid 2 5]", "bid 2 5", "[bid: 2, 5]", "[2 5]", "[Call]"])
def test_only_the_canonical_text_is_an_action(text: str) -> None:
    with pytest.raises(IllegalAction):
        played(thrown("25", "46"), "bid 1 1").apply(text)


def test_after_the_highest_bid_only_a_call_is_left() -> None:
    assert played(thrown("25", "46"), "bid 4 6").view(1).legal_actions == ("[call]",)


@pytest.mark.parametrize(
    ("dice", "bid", "returns"),
    [
        (("22", "25"), "bid 3 2", (1, -1)),  # exactly three
        (("22", "15"), "bid 3 2", (-1, 1)),
        (("22", "65"), "bid 3 2", (1, -1)),  # a six counts as a two
        (("26", "16"), "bid 3 2", (1, -1)),
        (("22", "16"), "bid 2 6", (-1, 1)),  # but a two is no six
        (("26", "16"), "bid 2 6", (1, -1)),
    ],
)
def test_a_call_compares_the_bid_with_all_dice_and_the_highest_face_is_wild(
    dice: tuple[str, str], bid: str, returns: tuple[int, int]
) -> None:
    game = played(thrown(*dice), bid, "call")
    assert game.current_player is None and game.returns() == returns


def test_a_call_by_player_0_is_settled_from_the_other_side() -> None:
    assert played(thrown("22", "15"), "bid 1 2", "bid 3 2", "call").returns() == (1, -1)


def test_views_depend_on_own_dice_and_never_on_those_of_the_opponent() -> None:
    for actions in ((), ("bid 1 3",), ("bid 1 3", "bid 2 4")):
        for player in (0, 1):
            views = set()
            for hidden in ("11", "35", "66"):
                dice = ("24", hidden) if player == 0 else (hidden, "24")
                views.add(played(thrown(*dice), *actions).view(player))
            (view,) = views
            assert "Your dice: 2 4. The opponent has 2 dice." in view.observation


def test_dice_come_from_the_seed_alone_and_all_faces_appear() -> None:
    seen = set()
    for seed in range(60):
        random.seed(seed % 3)
        views = [games.make("liars_dice", seed=seed).view(0).info_state for _ in range(3)]
        assert len(set(views)) == 1
        seen |= set(views[0])
    assert seen == set("123456")


def test_the_turn_limit_is_every_bid_and_one_call() -> None:
    game = thrown("1", "2", sides=3)
    turns = 0
    while game.current_player is not None:
        game.apply((game.view(game.current_player).legal_actions or ())[0])
        turns += 1
    assert turns == game.spec.max_turns == 7


def test_with_elimination_the_loser_gives_up_a_die_bids_first_and_all_dice_are_shown() -> None:
    game = played(thrown("22", "15", elimination=True), "bid 3 2", "call")  # player 0 made a false bid
    assert game.current_player == 0
    game = played(thrown("22", "25", elimination=True), "bid 3 2", "call")  # player 1 doubted a true one
    assert game.current_player == 1
    view = game.view(1)
    past = "Round over: you called [bid 3 2]; dice: you 2 5, opponent 2 2; you lost the round."
    assert past in view.observation and "The opponent has 2 dice." in view.observation
    assert (view.legal_actions or ())[-1] == "[bid 3 6]" and view.info_state.startswith("22 25 3-2 Liar; ")
    assert len(view.info_state.split("; ")[1]) == 1


def test_with_elimination_a_player_without_dice_has_lost() -> None:
    for seed in range(80):
        game, rng, turns = liars_dice.GAME(seed=seed, dice=3, elimination=True), random.Random(seed), 0
        while (player := game.current_player) is not None:
            game.apply(rng.choice(game.view(player).legal_actions or ()))
            turns += 1
        assert turns <= game.spec.max_turns and 3 <= game._num_rounds <= 5
        assert game._num_dice[game._loser or 0] == 0 and min(game._num_dice) == 0 < max(game._num_dice)
        assert game.returns()[game._loser or 0] == -1


def test_the_turn_limit_of_elimination_adds_up_all_rounds() -> None:
    game, turns = liars_dice.GAME(seed=1, dice=2, sides=3, elimination=True), 0
    while (player := game.current_player) is not None:
        game.apply((game.view(player).legal_actions or ())[0])
        turns += 1
    assert game.spec.max_turns == 13 + 10 + 7 and turns <= 30


@pytest.mark.parametrize("params", [{"dice": 0}, {"sides": 1}, {"dice": 7}, {"elimination": 1}, {"dice": True}])
def test_impossible_parameters_are_refused(params: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="liars_dice"):
        games.make("liars_dice", seed=0, **params)


def test_strong_play_calls_the_impossible_and_raises_what_it_holds() -> None:
    assert strategy(played(thrown("11", "35"), "bid 4 4").view(1))["[call]"] == 1.0
    assert strategy(played(thrown("35", "44"), "bid 1 4").view(1))["[bid 2 4]"] == 1.0
    chances = strategy(played(thrown("35", "44"), "bid 1 3").view(1))
    assert chances["[bid 1 4]"] == 1.0 and sum(chances.values()) == 1.0
    assert "liars_dice" not in SOLVED


def test_strong_play_beats_random_play_in_both_seats() -> None:
    for seat in (0, 1):
        total = 0.0
        for seed in range(150):
            game, rng = games.make("liars_dice", seed=seed), random.Random(seed)
            while (player := game.current_player) is not None:
                chances = strategy(game.view(player)) if player == seat else dict.fromkeys(
                    game.view(player).legal_actions or (), 1.0
                )
                game.apply(rng.choices(list(chances), list(chances.values()))[0])
            total += game.returns()[seat]
        assert total / 150 > 0.5
