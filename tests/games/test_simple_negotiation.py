"""Simple negotiation: grammar, trades, expiry, chat as data, and that skill decides it."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from spiral_lib import games
from spiral_lib.errors import ConfigError, IllegalAction
from spiral_lib.games.simple_negotiation import GAME, parse_action
from spiral_lib.types import View

GOLDEN = Path(__file__).parent.parent / "golden"
HOME = {"Wood": 10, "Gold": 10}


def golden(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (GOLDEN / name).read_text(encoding="utf-8").splitlines()]


def played(*actions: str, seed: int = 0) -> GAME:
    game = GAME(seed=seed)
    for action in actions:
        game.apply(action)
    return game


def numbers(view: View) -> dict[str, list[int]]:
    """Return the fields own, other, values, gain and pending of a key."""
    words = view.info_state.split()
    fields = dict(zip(words[1:11:2], words[2:11:2], strict=True))
    return {k: [] if v == "-" else [int(n) for n in v.replace(">", ",").split(",")] for k, v in fields.items()}


@pytest.mark.parametrize("case", golden("cases_offer_parse.jsonl"), ids=lambda case: case["note"])
def test_offers_parse_as_recorded(case: dict[str, Any]) -> None:
    given, expected = case["input"], case["expected"]
    state = {k: given[k] for k in ("me", "pending_offer_from") if k in given}
    if expected["status"] == "valid":
        action = parse_action(given["text"], resources=given["resources"], **state)
        assert (action.kind, action.give, action.take) == ("offer", expected["give"], expected["take"])
        return
    with pytest.raises(IllegalAction) as caught:
        parse_action(given["text"], resources=given["resources"], **state)
    assert caught.value.reason == expected["reason"]


@pytest.mark.parametrize(
    "content, reason",
    [
        ("[Offer: -5 Wood -> 1 Gold]", "bad_quantity"),
        ("[Offer: +5 Wood -> 1 Gold]", "bad_quantity"),
        ("[Offer: 05 Wood -> 1 Gold]", "bad_quantity"),
        ("[Offer: 1e1 Wood -> 1 Gold]", "bad_quantity"),
        ("[Offer: two Wood -> 1 Gold]", "bad_quantity"),
        ("[Offer: \u0663 Wood -> 1 Gold]", "non_ascii"),
        ("[Offer: 2 Wood \u2192 1 Gold]", "non_ascii"),
        ("[Offer: 2 W\u043e\u043ed -> 1 Gold]", "non_ascii"),
        ("[Offer: 1 Gold -> 2 Ore]", "unknown_resource"),
        ("[Offer: 11 Wood -> 1 Gold]", "insufficient"),
        ("[Offer: " + "9" * 5000 + " Wood -> 1 Gold]", "insufficient"),
        ("[Offer: 2 Wood -> ]", "bad_format"),
        ("[Offer: -> 2 Wood]", "bad_format"),
        ("[Offer: 2 Wood]", "bad_format"),
        ("[Offer: 2 Wood 1 Gold -> 1 Gold]", "bad_format"),
        ("[Offer: Wood -> Gold]", "bad_format"),
        ("[Offer 2 Wood -> 1 Gold]", "bad_format"),
        ("[Accept: yes]", "bad_format"),
        ("I will not [Accept] this", "bad_format"),
        ("[Trade]", "bad_format"),
        ("[Deny] [Accept]", "several_actions"),
        ("[Accept][Offer: 1 Wood -> 1 Gold]", "several_actions"),
        ("[Say: no] [Accept]", "several_actions"),
        ("[Deny]", "no_pending_offer"),
    ],
)
def test_everything_outside_the_grammar_has_its_reason(content: str, reason: str) -> None:
    with pytest.raises(IllegalAction) as caught:
        parse_action(f"\\boxed{{{content}}}", resources=HOME)
    assert caught.value.reason == reason


@pytest.mark.parametrize("text", ["[Accept]", "", "\\boxed{[Accept]", "<think>\\boxed{[Accept]}"])
def test_an_answer_outside_a_closed_box_is_no_answer(text: str) -> None:
    with pytest.raises(IllegalAction) as caught:
        parse_action(text, resources=HOME, me=0, pending_offer_from=1)
    assert caught.value.reason == "no_box"


@pytest.mark.parametrize("content", ["[Accept]", "Accept", " [ accept ] ", "\\text{[ACCEPT]}", "`[Accept]`"])
def test_spellings_of_an_answer_are_one_action(content: str) -> None:
    action = parse_action(f"Fine. \\boxed{{{content}}}", resources=HOME, me=1, pending_offer_from=0)
    assert (action.kind, action.give, action.take) == ("accept", {}, {})


def test_an_accepted_offer_moves_goods_and_conserves_them() -> None:
    game = played("[Offer: 3 Wood -> 2 Gold]", "[Accept]")
    assert numbers(game.view(0))["own"] == [7, 12] and numbers(game.view(0))["other"] == [13, 8]
    assert numbers(game.view(1))["own"] == [13, 8]
    assert "Opponent accepted your offer." in game.view(0).observation
    for player in (0, 1):
        seen = numbers(game.view(player))
        wood, gold = seen["values"]
        assert seen["gain"] == [(-3 * wood + 2 * gold) * (1 if player == 0 else -1)]


@pytest.mark.parametrize("reply", ["[Deny]", "[Say: hm]", "[Offer: 1 Wood -> 1 Gold]"])
def test_an_offer_expires_with_the_reply(reply: str) -> None:
    game = played("[Offer: 3 Wood -> 2 Gold]", reply, "[Say: and now?]")
    with pytest.raises(IllegalAction) as caught:
        game.apply("[Accept]")
    assert caught.value.reason == "no_pending_offer"
    assert numbers(game.view(0))["own"] == [10, 10]


def test_an_offer_for_more_than_the_other_owns_is_illegal() -> None:
    for offer in ("[Offer: 1 Wood -> 11 Gold]", "[Offer: 1 Wood -> 6 Gold, 5 Gold]"):
        with pytest.raises(IllegalAction) as caught:
            played(offer)
        assert caught.value.reason == "insufficient"


def test_both_players_have_as_many_turns_and_the_last_one_answers_the_last_offer() -> None:
    game = GAME(seed=1, turns=4)
    for action in ("[Say: a]", "[Say: b]", "[Offer: 1 Wood -> 1 Gold]"):
        game.apply(action)
    assert game.current_player == 1
    with pytest.raises(IllegalAction, match="last turn"):
        game.apply("[Offer: 1 Wood -> 1 Gold]")
    game.apply("[Accept]")
    assert game.current_player is None and game.returns()[0] in (-1.0, 1.0)
    for turns in (3, 0, 102, 2.0):
        with pytest.raises(ConfigError, match="simple_negotiation"):
            games.make("simple_negotiation", seed=0, turns=turns)


def test_the_others_values_change_nothing_that_a_player_sees() -> None:
    for actions in ((), ("[Offer: 2 Wood -> 1 Gold]",), ("[Offer: 2 Wood -> 1 Gold]", "[Accept]", "[Say: ha]")):
        game, other = played(*actions), played(*actions)
        other._values = (game._values[0], (99, 98))
        assert other.view(0) == game.view(0) and other.view(1) != game.view(1)


def test_sums_of_values_differ_and_the_preferred_goods_are_opposite() -> None:
    prefers_wood = 0
    for seed in range(500):
        first, second = (numbers(GAME(seed=seed).view(player))["values"] for player in (0, 1))
        assert first[0] + second[0] != first[1] + second[1]
        assert (first[0] > first[1]) == (second[0] < second[1])
        assert all(1 <= min(v) <= 6 and 8 <= max(v) <= 15 for v in (first, second))
        prefers_wood += first[0] > first[1]
    assert 200 < prefers_wood < 300


def test_each_player_can_come_out_ahead_by_trades_that_both_gain_from() -> None:
    for seed in range(60):
        outcomes = set()
        prefers_wood = numbers(GAME(seed=seed).view(0))["values"][0] > 7
        give, take = ("Gold", "Wood") if prefers_wood else ("Wood", "Gold")
        for paid in range(1, 11):
            for got in range(1, 11):
                game = played(f"[Offer: {paid} {give} -> {got} {take}]", "[Accept]", seed=seed)
                gains = [numbers(game.view(player))["gain"][0] for player in (0, 1)]
                if min(gains) > 0:
                    for _ in range(6):
                        game.apply("[Say: done]")
                    assert game.returns()[0] == (gains[0] > gains[1]) - (gains[0] < gains[1])
                    outcomes.add(game.returns()[0])
        assert {1.0, -1.0} <= outcomes


def rational(view: View) -> str:
    """Judge trades by the own values and the average of the other's; accept or offer what comes out ahead."""
    seen = numbers(view)
    own = seen["values"]
    other = [3.5, 11.5] if own[0] > own[1] else [11.5, 3.5]
    weight = [own[0] + other[0], own[1] + other[1]]

    def ahead(get: list[int], give: list[int]) -> float:
        return sum(w * (g - p) for w, g, p in zip(weight, get, give, strict=True))

    if seen["pending"] and ahead(seen["pending"][:2], seen["pending"][2:]) > 0:
        return "[Accept]"
    offers = [a for a in view.sample_actions if a.startswith("[Offer")]

    def worth(offer: str) -> float:
        action = parse_action(f"\\boxed{{{offer}}}", resources=HOME | {"Wood": 99, "Gold": 99})
        names = ("Wood", "Gold")
        return ahead([action.take.get(n, 0) for n in names], [action.give.get(n, 0) for n in names])

    best = max(offers, key=worth, default=None)
    return best if best and worth(best) > 0 else "[Say: No.]"


def test_a_rational_policy_beats_a_random_one_from_either_seat() -> None:
    for seat in (0, 1):
        won = lost = 0
        for seed in range(200):
            game, rng = GAME(seed=seed), random.Random(seed)
            while (player := game.current_player) is not None:
                view = game.view(player)
                game.apply(rational(view) if player == seat else rng.choice(view.sample_actions))
            won += game.returns()[seat] > 0
            lost += game.returns()[seat] < 0
        assert won > 110 and won > 4 * lost


@pytest.mark.parametrize("case", golden("cases_render_untrusted.jsonl"))
def test_chat_is_shown_quoted_and_moves_nothing(case: dict[str, Any]) -> None:
    given, expected = case["input"], case["expected"]
    chat = given.get("chat") or "".join(part * times for part, times in given["chat_parts"])
    spoken, plain = GAME(seed=0), GAME(seed=0)
    for game, text in ((spoken, chat), (plain, "hello")):
        game.apply("[Say: hi]")
        game.apply(f"[Say: {text}]")
    view, other = spoken.view(0), plain.view(0)
    assert view.sample_actions == other.sample_actions and view.legal_actions == other.legal_actions
    assert numbers(view) == numbers(other) and spoken.current_player == 0
    lines, plain_lines = view.observation.splitlines(), other.observation.splitlines()
    assert len(lines) == len(plain_lines) and lines[:-1] == plain_lines[:-1]
    quoted = lines[-1].removeprefix("Opponent said: ")
    assert json.loads(quoted) is not None and len(quoted) <= expected.get("max_chars", 600)
    assert not any(bad in view.observation for bad in expected.get("must_not_contain", ()))
    assert ("(truncated)" in quoted) == expected.get("truncation_marked", False)
    with pytest.raises(IllegalAction) as caught:  # an offer faked in chat does not stand
        spoken.apply("[Accept]")
    assert caught.value.reason == "no_pending_offer"


def test_chat_is_a_turn_and_only_the_last_words_are_shown() -> None:
    game = played("[Say: first]", "[Say: second]")
    assert 'Opponent said: "second"' in game.view(0).observation
    assert "first" not in game.view(0).observation and "said" not in game.view(1).observation
    assert game.view(0).observation.startswith("Turn 3 of 8.")
