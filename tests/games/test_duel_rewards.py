"""Shaping terms that read an episode's actions: game signals and repetition."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spiral_lib.config import Named, RewardConfig
from spiral_lib.errors import ConfigError
from spiral_lib.rewards import game_signal, rewards, similarity
from spiral_lib.types import EndReason, Episode, Turn


def turn(index: int, player: int, action: str, text: str = "", *, legal: bool = True) -> Turn:
    return Turn(
        index=index, player=player, role="r", seed=0, policy="self", policy_digest="d", engine="e", temperature=1.0,
        trainable=True, info_state="", observation="", text=text or action, action=action, legal=legal,
        invalid_reason=None if legal else "illegal_action", finish_reason="stop",
    )  # fmt: skip


def episode(*turns: Turn) -> Episode:
    return Episode(
        id="000000-000000", game="equation_duel", seed=0, policies=("self", "self"), turns=turns, returns=(1.0, -1.0),
        end_reason=EndReason.FINISHED,
    )  # fmt: skip


DUEL = episode(
    turn(0, 0, "[Pose: 3*x - 5 == 7 | 4]"),
    turn(1, 1, "[Ask]"),
    turn(2, 0, "[hint: x > 0]"),
    turn(3, 1, "[ASK]"),
    turn(4, 0, "[Pass]"),
    turn(5, 1, "[Ask]", legal=False),
)


@pytest.mark.parametrize(
    ("signal", "counts"),
    [("asks", (0, 2)), ("hints", (1, 0)), ("passes", (1, 0)), ("tries", (0, 0)), ("problem_length", (12, 0)),
     ("turns", (3, 2)), ("messages", (0, 0)), ("offers", (0, 0))],
)  # fmt: skip
def test_signals_count_the_legal_actions_of_one_player(signal: str, counts: tuple[int, int]) -> None:
    assert tuple(game_signal.count(DUEL, player, signal) for player in (0, 1)) == counts


def test_tries_are_points_named_in_either_claim_game() -> None:
    found = episode(turn(0, 0, "[Claim: a=1 | true]"), turn(1, 1, "[Counter: x=1, y=2]"), turn(2, 1, "[Break: x=1]"))
    assert game_signal.count(found, 1, "tries") == 2


def test_a_signal_term_is_proportional_up_to_its_limit() -> None:
    assert game_signal.shape(DUEL, 1, signal="asks", amount=-0.02) == pytest.approx(-0.04)
    assert game_signal.shape(DUEL, 1, signal="asks", amount=0.5, limit=0.1) == 0.1
    assert game_signal.shape(DUEL, 1, signal="asks", amount=-0.5, limit=0.1) == -0.1
    assert game_signal.shape(DUEL, 0, signal="asks") == 0.0


def test_an_unknown_signal_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="asks"):
        game_signal.shape(DUEL, 0, signal="speed")


def test_similarity_is_one_for_equal_texts_whatever_their_blanks_and_zero_for_unlike_ones() -> None:
    assert similarity.similarity("3*x + 5 == 20", "3*X+5==20") == 1.0
    assert similarity.similarity("abcdefgh", "ijklmnop") == 0.0
    assert similarity.similarity("", "") == 0.0
    # abcd bcde cdef against bcde cdef defg: two common pieces of four
    assert similarity.similarity("abcdef", "bcdefg") == 0.5


def test_repetition_costs_nothing_below_the_bound_and_the_full_penalty_at_identity() -> None:
    words = "I take the centre now."
    same = episode(turn(0, 0, "[4]", words), turn(1, 1, "[0]", words), turn(2, 0, "[4]", words))
    assert similarity.shape(same, 0) == pytest.approx(-0.05)
    assert similarity.shape(same, 1) == 0.0
    assert similarity.shape(same, 0, of="action") == 0.0
    half = episode(turn(0, 0, "[4]", "abcdefghijkl"), turn(1, 0, "[2]", "defghijklmno"))  # 6 of 12 pieces
    assert similarity.shape(half, 0, above=0.5) == 0.0
    assert similarity.shape(half, 0, above=0.0, penalty=1.0) == pytest.approx(-0.5)


def test_a_problem_like_a_known_one_is_penalised_though_it_is_the_only_turn() -> None:
    known = "[Pose: 3*x - 5 == 7 | 4]\n\n[Pose: x*x == 9 and x > 0 | 3]"
    posed = episode(turn(0, 0, "[Pose: 3*x - 5 == 7 | 4]"))
    assert similarity.shape(posed, 0, of="action", known=known) == pytest.approx(-0.05)
    assert similarity.shape(posed, 0, of="action") == 0.0


@pytest.mark.parametrize("params", [{"of": "prompt"}, {"above": 1.0}, {"above": -0.1}])
def test_wrong_parameters_are_refused(params: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        similarity.shape(DUEL, 0, **params)


def test_the_terms_can_be_chosen_by_name() -> None:
    known = "[Pose: 3*x - 5 == 7 | 4]"
    terms = (
        Named(name="game_signal", params={"signal": "asks"}),
        Named(name="similarity", weight=2.0, params={"of": "action", "known": known}),
    )
    first, second = rewards(DUEL, RewardConfig(terms=terms))
    assert first == pytest.approx(1.0 - 2 * 0.05) and second == pytest.approx(-1.0 - 0.02)
    void = replace(DUEL, end_reason=EndReason.OPPONENT_ERROR)
    assert rewards(void, RewardConfig(terms=terms)) == (0.0, 0.0)
