"""Collapse indicators from episodes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import sample_turns

from spiral_lib.evaluation import reasoning
from spiral_lib.types import EndReason, Episode, Turn


def turn(text: str, ids: tuple[int, ...], *, legal: bool = True, policy: str = "self", role: str = "player 0") -> Turn:
    return sample_turns.turn(
        role=role,
        policy=policy,
        text=text,
        action="[bet]" if legal else "",
        legal=legal,
        invalid_reason=None if legal else "no_box",
        finish_reason="stop" if legal else "length",
        prompt_ids=(),
        response_ids=ids,
        logprobs=(),
    )


def episode(*turns: Turn, first: float = 1.0, end: EndReason = EndReason.FINISHED) -> Episode:
    returns, seats = (first, -first), ("self", "self")
    return Episode(id="0", game="kuhn_poker", seed=0, policies=seats, turns=turns, returns=returns, end_reason=end)


def test_lengths_shares_and_variety_are_those_of_the_turns() -> None:
    turns = [turn("I hold K. \\boxed{[bet]}", (1, 2, 3, 4, 5)) for _ in range(2)]
    turns += [turn("\\boxed{[bet]}", (1, 2, 3)), turn("no end", (9, 8, 7, 6, 5, 4), legal=False)]
    found = reasoning.metrics([episode(*turns)])
    assert found["reasoning/turns"] == 4
    assert found["reasoning/median_tokens"] == 5.0
    assert found["reasoning/p10_tokens"] == 3.0
    assert found["reasoning/empty_share"] == 0.25
    assert found["reasoning/duplicate_share"] == 0.5
    assert found["reasoning/invalid_share"] == 0.25
    assert found["reasoning/truncated_share"] == 0.25
    assert found["reasoning/kuhn_poker/player_0/invalid_share"] == 0.25
    assert found["reasoning/distinct_4grams"] == 5 / 7


def test_only_the_named_policys_turns_count() -> None:
    found = reasoning.metrics([episode(turn("a", (1,) * 9, policy="pool:x"), turn("b", (1, 2)))])
    assert found["reasoning/turns"] == 1
    assert found["reasoning/median_tokens"] == 2.0


def test_empty_reasoning_is_nothing_but_marks_before_the_box() -> None:
    assert not reasoning.has_reasoning("\\boxed{[bet]}")
    assert not reasoning.has_reasoning("<think> ... </think> \\boxed{[bet]}")
    assert reasoning.has_reasoning("<think>K</think>\\boxed{[bet]}")
    assert reasoning.has_reasoning("never closed")
    assert not reasoning.has_reasoning("")


def test_seat_share_is_over_decisive_matches_that_are_not_void() -> None:
    t = turn("x", (1,))
    played = [episode(t), episode(t), episode(t), episode(t, first=-1.0), episode(t, first=0.0)]
    played.append(episode(t, first=0.0, end=EndReason.OPPONENT_ERROR))
    found = reasoning.metrics(played)
    assert (found["reasoning/seat_share"], found["reasoning/seat_share_n"]) == (0.75, 4.0)


def test_what_cannot_be_measured_is_left_out_and_not_zero() -> None:
    found = reasoning.metrics([])
    assert found == {"reasoning/turns": 0.0, "reasoning/seat_share_n": 0.0}


def test_variety_does_not_fall_with_the_amount_of_text() -> None:
    turns = [turn("x", tuple(range(i, i + 20))) for i in range(0, 60000, 20)]
    few, many = reasoning.metrics([episode(*turns[:600])]), reasoning.metrics([episode(*turns)])
    assert few["reasoning/distinct_4grams"] == many["reasoning/distinct_4grams"] == 1.0
    repeated = reasoning.metrics([episode(*([turns[0]] * 3000))])
    assert repeated == {**repeated, "reasoning/distinct_4grams": 17 / 8192}


def hand(card: str, text: str, *, actions: tuple[str, ...] = (), number: int = 0) -> Episode:
    """A match in which the learner, holding a card, replies after the given actions."""
    before = [replace(turn("", (), policy="random"), index=i, action=a) for i, a in enumerate(actions)]
    own = replace(turn(f"{text} \\boxed{{[bet]}}", (1, number)), index=len(actions), info_state=card)
    return replace(episode(*before, own), id=f"{card}-{number}-{text}")


def test_state_dependence_is_how_much_less_alike_replies_to_different_cards_are() -> None:
    # Words and pairs: one card shares all of "I hold J", two cards share I, hold and "I hold" of five.
    told = [hand(card, f"I hold {card}", number=i) for card in "JQ" for i in range(2)]
    found = reasoning.metrics(told)
    assert found["reasoning/state_dependence"] == pytest.approx(1 - 3 / 5)
    assert found["reasoning/state_dependence_n"] == 4
    same = [hand(card, text, number=i) for card in "JQ" for i, text in enumerate(("I wait", "we bet"))]
    mixed = reasoning.metrics([*same, *same])
    assert mixed["reasoning/state_dependence"] == pytest.approx(1 - 0.5 / (1 / 3)), "copies of one reply lower it"
    assert reasoning.metrics([hand(c, "I see") for c in "JQJQ"])["reasoning/state_dependence"] == pytest.approx(0.0)


def test_state_dependence_compares_only_replies_after_the_same_actions() -> None:
    told = [hand("J", "low", actions=("[check]",)), hand("J", "low"), hand("Q", "mid")]
    assert "reasoning/state_dependence" not in reasoning.metrics(told), "no card was held twice after the same actions"
    told += [hand("J", "low", number=1), hand("Q", "mid", number=1)]
    found = reasoning.metrics(told)
    assert (found["reasoning/state_dependence"], found["reasoning/state_dependence_n"]) == (1.0, 4)
