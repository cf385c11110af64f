from __future__ import annotations

import logging
from typing import Any

import pytest
import sample_turns

from spiral_lib.config import Named, RewardConfig
from spiral_lib.errors import ConfigError
from spiral_lib.rewards import format, length, rewards
from spiral_lib.rewards.outcome import FORFEITS, outcome
from spiral_lib.types import EndReason, Episode, Turn


def turn(player: int, *, reason: str | None = None, tokens: int = 10) -> Turn:
    return sample_turns.turn(
        player=player,
        role=f"player {player}",
        action="" if reason else "[bet]",
        legal=reason is None,
        invalid_reason=reason,
        prompt_ids=(),
        response_ids=tuple(range(tokens)),
        logprobs=(),
    )


def episode(**changes: Any) -> Episode:
    fields: dict[str, Any] = {
        "id": "000000-000000",
        "game": "kuhn_poker",
        "seed": 0,
        "policies": ("self", "self"),
        "turns": (turn(0), turn(1)),
        "returns": (0.5, -0.5),
        "end_reason": EndReason.FINISHED,
    }
    return Episode(**{**fields, **changes})


def test_a_finished_match_is_rewarded_by_its_returns() -> None:
    assert rewards(episode(), RewardConfig()) == (0.5, -0.5)


@pytest.mark.parametrize(
    ("table", "seat", "expected"),
    [
        ("zero_sum", 0, (-1.0, 1.0)),
        ("zero_sum", 1, (1.0, -1.0)),
        ("upstream", 0, (-1.5, 0.5)),
        ("upstream", 1, (0.5, -1.5)),
    ],
)
@pytest.mark.parametrize("end", [EndReason.ILLEGAL_ACTION, EndReason.TRUNCATED])
def test_a_forfeit_costs_what_the_table_says(
    table: str, seat: int, expected: tuple[float, float], end: EndReason
) -> None:
    returns = (-1.0, 1.0) if seat == 0 else (1.0, -1.0)
    forfeit = episode(returns=returns, end_reason=end, forfeited_by=seat)
    assert rewards(forfeit, RewardConfig(forfeit=table)) == expected


def test_the_default_forfeit_is_zero_sum() -> None:
    assert sum(FORFEITS[RewardConfig().forfeit]) == 0


def test_the_upstream_table_leaves_finished_matches_alone() -> None:
    assert rewards(episode(), RewardConfig(forfeit="upstream")) == (0.5, -0.5)


def test_a_void_match_gives_nothing_whatever_the_terms() -> None:
    void = episode(end_reason=EndReason.OPPONENT_ERROR, returns=(0.0, 0.0), turns=(turn(0, reason="no_box"),))
    terms = (Named(name="format", params={"penalty": 0.5}),)
    assert rewards(void, RewardConfig(terms=terms)) == (0.0, 0.0)


def test_an_unknown_forfeit_table_is_refused() -> None:
    with pytest.raises(ConfigError, match="zero_sum"):
        outcome(episode(forfeited_by=0, end_reason=EndReason.ILLEGAL_ACTION), forfeit="mild")


def test_terms_are_added_with_their_weight_for_each_player() -> None:
    played = episode(turns=(turn(0), turn(1, reason="no_box")))
    terms = (Named(name="format", weight=2.0, params={"bonus": 0.1, "penalty": 0.2}),)
    assert rewards(played, RewardConfig(terms=terms)) == pytest.approx((0.7, -0.9))


def test_a_term_of_weight_zero_changes_nothing() -> None:
    played = episode(turns=(turn(0, reason="no_box"),))
    assert rewards(played, RewardConfig(terms=(Named(name="format", weight=0.0),))) == (0.5, -0.5)


def test_a_misspelt_term_names_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match="length"):
        rewards(episode(), RewardConfig(terms=(Named(name="lenght"),)))


def test_more_than_three_terms_are_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    four = RewardConfig(terms=(Named(name="length"), Named(name="format"), Named(name="length"), Named(name="format")))
    with caplog.at_level(logging.WARNING):
        rewards(episode(), RewardConfig(terms=four.terms[:3]))
        assert not caplog.records
        rewards(episode(), four)
        rewards(episode(), four)
    assert len(caplog.records) == 1 and "4 shaping terms" in caplog.text


@pytest.mark.parametrize("reason", sorted(format.UNREADABLE))
def test_an_unreadable_reply_costs_the_format_penalty(reason: str) -> None:
    played = episode(turns=(turn(0), turn(0, reason=reason), turn(1)))
    assert format.shape(played, 0, bonus=0.1, penalty=0.2) == -0.2
    assert format.shape(played, 1, bonus=0.1, penalty=0.2) == 0.1


def test_a_readable_but_illegal_move_is_no_format_error() -> None:
    assert format.shape(episode(turns=(turn(0, reason="illegal_action"),)), 0, bonus=0.1, penalty=0.2) == 0.1


def test_format_is_zero_when_off_and_for_a_player_who_never_moved() -> None:
    played = episode(turns=(turn(0, reason="no_box"),))
    assert format.shape(played, 0, bonus=0.0, penalty=0.0) == 0
    assert format.shape(played, 1, bonus=0.1, penalty=0.2) == 0


@pytest.mark.parametrize(
    ("tokens", "expected"), [(5, -0.05), (10, 0.0), (15, 0.0), (20, 0.0), (30, -0.05), (40, -0.1), (400, -0.1)]
)
def test_length_is_penalised_linearly_outside_the_band(tokens: int, expected: float) -> None:
    played = episode(turns=(turn(0, tokens=tokens),))
    assert length.shape(played, 0, shortest=10, longest=20, penalty=0.1) == pytest.approx(expected)


def test_length_takes_the_mean_over_the_players_own_turns() -> None:
    played = episode(turns=(turn(0, tokens=5), turn(0, tokens=25), turn(1, tokens=400)))
    assert length.shape(played, 0, shortest=10, longest=20) == 0


def test_length_is_zero_when_off_and_for_scripted_turns() -> None:
    assert length.shape(episode(turns=(turn(0, tokens=999),)), 0) == 0
    assert length.shape(episode(turns=(turn(0, tokens=0),)), 0, shortest=10, longest=20) == 0
