"""Leduc poker: stakes, rounds, showdowns and what is hidden."""

from __future__ import annotations

import itertools

import pytest

from spiral_lib.errors import IllegalAction
from spiral_lib.games.leduc_poker import GAME, MAX_CHIPS, views

J1, J2, Q1, Q2, K1, K2 = range(6)


def played(cards: tuple[int, int, int], moves: str) -> GAME:
    game = GAME.dealt(cards)
    for move in moves:
        game.apply({"f": "[fold]", "c": "[call]", "r": "[raise]"}[move])
    return game


@pytest.mark.parametrize(
    "cards, moves, chips",
    [
        ((K1, Q1, J1), "cccc", 1),
        ((Q1, K1, J1), "cccc", -1),
        ((J1, K1, J2), "cccc", 1),  # a pair beats a higher card
        ((K1, K2, J1), "rrcrrc", 0),
        ((K1, Q1, K2), "rrcrrc", 13),
        ((K1, Q1, K2), "crccrf", -3),
        ((K1, Q1, K2), "rf", 1),
        ((K1, Q1, K2), "rrf", -3),
        ((K1, Q1, K2), "crf", -1),
        ((K1, Q1, K2), "ccrrf", -5),
        ((K1, Q1, K2), "rccrc", 7),
    ],
)
def test_hand_made_matches_move_the_right_chips(cards: tuple[int, int, int], moves: str, chips: int) -> None:
    first, second = played(cards, moves).returns()
    assert first == pytest.approx(chips / MAX_CHIPS) and first + second == 0


@pytest.mark.parametrize(
    "moves, legal",
    [
        ("", ("[call]", "[raise]")),
        ("c", ("[call]", "[raise]")),
        ("r", ("[fold]", "[call]", "[raise]")),
        ("rr", ("[fold]", "[call]")),
        ("crr", ("[fold]", "[call]")),
        ("rrc", ("[call]", "[raise]")),
    ],
)
def test_folding_needs_a_raise_and_two_raises_are_the_most(moves: str, legal: tuple[str, ...]) -> None:
    game = played((J1, Q1, K1), moves)
    player = game.current_player
    assert player is not None and game.view(player).legal_actions == legal
    for action in {"[fold]", "[call]", "[raise]", "[check]"} - set(legal):
        with pytest.raises(IllegalAction):
            game.apply(action)


def test_the_others_card_and_the_coming_public_card_are_not_seen() -> None:
    for moves in ("", "c", "r", "rr", "crr"):
        for other, public in itertools.permutations((J2, Q1, Q2, K1, K2), 2):
            assert played((J1, other, public), moves).view(0) == played((J1, Q1, K1), moves).view(0)
    for moves in ("cc", "ccr", "rcrr"):
        for other in (J2, Q2, K1, K2):
            assert played((J1, other, Q1), moves).view(0) == played((J1, J2, Q1), moves).view(0)


def test_observations_tell_cards_moves_and_chips_in_words() -> None:
    view = played((K1, Q1, J1), "rcc").view(1)
    assert view.observation == (
        "Your card: Q. Public card: J. Round 1: opponent raise, you call. Round 2: opponent call. "
        "Chips in the pot: you 3, opponent 3."
    )
    assert max(len(v.observation.split()) for v in views().values()) <= 40


def test_the_two_cards_of_a_rank_look_the_same_and_have_keys_of_their_own() -> None:
    one, two = played((K1, Q1, J1), "cc").view(0), played((K2, Q1, J1), "cc").view(0)
    assert one.observation == two.observation and one.info_state != two.info_state
    assert len(views()) == 936
