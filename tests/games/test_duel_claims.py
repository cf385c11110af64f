"""Counterexample duel and code duel: truth by trying every point, payoffs, misses, near-truth."""

from __future__ import annotations

import copy
import random

import pytest

from spiral_lib import games
from spiral_lib.errors import IllegalAction
from spiral_lib.games import code_duel, counterexample_duel, duel_dsl
from spiral_lib.games._duel_base import Duel
from spiral_lib.games._duel_cards import CLAIM_CARDS, PROGRAM_CARDS
from spiral_lib.games._duel_claim import MAX_FALSE_SHARE
from spiral_lib.games._duel_words import in_steps

TRUE = "[Claim: x*x + y*y >= 2*x*y | true]"
FALSE = "[Claim: x*x + y*y >= 2*x*y + 1 | false]"  # fails where x equals y


def squares(**params: str) -> counterexample_duel.GAME:
    for seed in range(100):
        game = counterexample_duel.GAME(seed=seed, **{"level": "free", **params})
        if "squares" in game.view(0).observation:
            return game
    raise AssertionError


def after(game: Duel, *actions: str) -> Duel:
    for action in actions:
        game.apply(action)
    return game


def reason_of(game: Duel, action: str) -> str:
    before = (game.view(0), game.view(1), game.current_player)
    with pytest.raises(IllegalAction) as caught:
        game.apply(action)
    assert (game.view(0), game.view(1), game.current_player) == before
    return caught.value.reason


@pytest.mark.parametrize(
    ("actions", "refuter"),
    [
        ((TRUE, "[Accept]"), 1.0),
        ((TRUE, "[Counter: x=1, y=2]", "[Accept]"), 0.8),
        ((TRUE, "[Counter: x=1, y=2]", "[Counter: x=2, y=2]", "[Accept]"), 0.6),
        ((TRUE, "[Counter: x=1, y=2]", "[Counter: x=2, y=2]", "[Counter: x=3, y=2]"), -1.0),
        ((FALSE, "[Accept]"), -1.0),
        ((FALSE, "[Counter: x=7, y=7]"), 1.0),
        ((FALSE, "[Counter: x=7, y=8]", "[counter: y=7, x=7]"), 0.8),
        ((FALSE, "[Counter: x=7, y=8]", "[Counter: x=7, y=9]", "[Counter: x=-10,y=-10]"), 0.6),
        ((FALSE, "[Counter: x=7, y=8]", "[Counter: x=7, y=9]", "[Accept]"), -1.0),
        ((FALSE, "[Counter: x=7, y=8]", "[Counter: x=7, y=8]", "[Counter: x=11, y=11]"), -1.0),
    ],
)
def test_the_refuter_is_paid_by_truth_and_misses(actions: tuple[str, ...], refuter: float) -> None:
    game = after(squares(), *actions)
    assert game.current_player is None and game.returns() == (-refuter, refuter)


def test_points_out_of_range_and_repeated_points_are_misses_and_no_crash() -> None:
    game = after(squares(), FALSE, "[Counter: x=999999, y=-999999]", "[Counter: x=1, y=2]")
    fresh = copy.deepcopy(game)
    after(game, "[Counter: x=1, y=2]")
    assert game.signals()["misses"] == 3.0 and game.returns() == (1.0, -1.0)
    assert "out of range" in game.view(1).observation and "tried before" in game.view(1).observation
    assert after(fresh, "[Counter: x=0, y=0]").returns() == (-0.6, 0.6)


@pytest.mark.parametrize(
    "claim",
    [
        "x*x + y*y >= 2*x*y | false",
        "x*x + y*y >= 2*x*y + 1 | true",
        "x*x + y*y >= -5 | true",
        "x*y == y*x and x*x < 999 | true",
        "x*y >= 0 | false",
        "x*x < 0 and y < 0 | false",
    ],
)
def test_a_wrong_commitment_a_slack_truth_and_a_gross_falsehood_lose_at_once(claim: str) -> None:
    game = after(squares(), f"[Claim: {claim}]")
    assert game.current_player is None and game.returns() == (-1.0, 1.0)
    assert game.signals()["sound_problem"] == 0.0 and game.problem_digest is None


def test_a_true_claim_is_tight_if_a_constant_moved_by_one_breaks_it() -> None:
    def tight(text: str) -> bool:
        return counterexample_duel.is_tight(duel_dsl.parse(text, counterexample_duel.UNIVERSE))

    assert tight("x*x + y*y >= 0") and tight("x + y <= 20") and tight("(x - y)**2 >= 0")
    assert not tight("x == x") and not tight("x*x + y*y >= -5") and not tight("x + y <= 22")


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        ("[Claim: x*x >= 0 | true]", "unused_variable"),
        ("[Claim: x*x + y | true]", "bad_type"),
        ("[Claim: x*x + y >= 0 | maybe]", "bad_format"),
        ("[Claim: x*x + y >= 0]", "bad_format"),
        ("[Claim: x + y == 0 | false]", "off_topic"),
        ("[Claim: x*x // y >= 0 | true]", "zero_divisor"),
        ("[Accept]", "illegal_action"),
        ("[Counter: x=1, y=2]", "illegal_action"),
    ],
)
def test_a_malformed_claim_is_refused_with_its_reason(action: str, reason: str) -> None:
    assert reason_of(squares(), action) == reason


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        ("[Counter: x=1]", "bad_format"),
        ("[Counter: x=1 y=2]", "bad_integer"),
        ("[Counter: x=1, y=2, y=2]", "bad_format"),
        ("[Counter: x=1, z=2]", "bad_format"),
        ("[Counter: 1, 2]", "bad_format"),
        ("[Counter: x=01, y=2]", "bad_integer"),
        ("[Counter: x=1.0, y=2]", "bad_integer"),
        ("[Counter: x=+1, y=2]", "bad_integer"),
        ("[Counter: x=1, y=99999999999999999999]", "bad_integer"),
        ("[Counter]", "bad_format"),
        ("[Accept: yes]", "bad_format"),
        ("[Accept] [Counter: x=1, y=1]", "several_actions"),
        (TRUE, "illegal_action"),
    ],
)
def test_a_malformed_check_is_refused_and_costs_no_try(action: str, reason: str) -> None:
    game = after(squares(), TRUE)
    assert reason_of(game, action) == reason
    assert after(game, "[Accept]").returns() == (-1.0, 1.0)


def test_a_known_claim_is_worth_half_and_still_pays_the_refuter_after_two_misses() -> None:
    digest = duel_dsl.parse("2*y*x <= y*y + x*x", counterexample_duel.UNIVERSE).digest
    assert after(squares(bank=digest), TRUE, "[Accept]").returns() == (-0.5, 0.5)
    misses = ("[Counter: x=1, y=2]", "[Counter: x=1, y=3]")
    game = after(squares(bank=digest), TRUE, *misses, "[Accept]")
    assert game.returns() == (-0.1, 0.1) and game.problem_digest == digest
    assert after(squares(bank=digest), TRUE, *misses, "[Counter: x=1, y=4]").returns() == (0.5, -0.5)


def test_the_refuter_sees_the_same_whatever_the_prover_committed_to() -> None:
    game = after(squares(), TRUE)
    forged = copy.deepcopy(game)
    forged._committed = "false"
    assert forged.view(1) == game.view(1) and forged.view(0) != game.view(0)
    lost = [after(squares(), f"[Claim: {text} | true]").view(1) for text in ("x*x + y*y >= 2*x*y + 1", "x*y >= 1")]
    assert lost[0] == lost[1]


def test_only_the_reprint_is_shown() -> None:
    game = after(squares(), "[CLAIM: ((X*x))+y*Y>=2 *x*y |TRUE]")
    assert "x*x + y*y >= 2*x*y\n" in game.view(1).observation


@pytest.mark.parametrize("card", CLAIM_CARDS, ids=lambda c: c.topic)
def test_every_claim_template_has_sound_true_and_sound_false_fillings(card: object) -> None:
    rng, truths = random.Random(3), set()
    for _ in range(80):
        claim = duel_dsl.parse(card.template.format(**card.draw(rng, rng.randint(-9, 9))), counterexample_duel.UNIVERSE)
        card.check(claim)
        if claim.values.all() and counterexample_duel.is_tight(claim):
            truths.add(True)
        elif not claim.values.all() and 1 - claim.values.mean() <= MAX_FALSE_SHARE:
            truths.add(False)
    assert truths == {True, False}


def programs(topic: str = "scale", **params: str) -> code_duel.GAME:
    for seed in range(100):
        game = code_duel.GAME(seed=seed, **params)
        if game._card.topic.startswith(topic):
            return game
    raise AssertionError


def near_miss(game: code_duel.GAME) -> tuple[str, int, int]:
    """Return a wrong program that is sound, an input where it is wrong, and one where it is right."""
    for action in game.view(0).sample_actions:
        trial = copy.deepcopy(game)
        trial.apply(action)
        if trial.current_player == 1 and not trial._holds.all():
            wrong, right = (~trial._holds).nonzero()[0][0], trial._holds.nonzero()[0][0]
            return action, int(wrong) - 50, int(right) - 50
    raise AssertionError


@pytest.mark.parametrize("level", ["template", "free"])
def test_the_verifier_is_paid_by_truth_and_misses(level: str) -> None:
    right = programs(level=level).view(0).sample_actions[0]
    assert after(programs(level=level), right, "[Approve]").returns() == (-1.0, 1.0)
    assert after(programs(level=level), right, "[Break: x=7]", "[Approve]").returns() == (-0.8, 0.8)
    tries = ("[Break: x=7]", "[Break: x=8]", "[Break: x=9]")
    assert after(programs(level=level), right, *tries).returns() == (1.0, -1.0)
    wrong, breaking, holding = near_miss(programs(level=level))
    assert after(programs(level=level), wrong, "[Approve]").returns() == (1.0, -1.0)
    assert after(programs(level=level), wrong, f"[Break: x={breaking}]").returns() == (-1.0, 1.0)
    late = (f"[Break: x={holding}]", "[Break: x=51]", f"[Break: x={breaking}]")
    assert after(programs(level=level), wrong, *late).returns() == (-0.6, 0.6)
    repeated = (f"[Break: x={holding}]",) * 3
    assert after(programs(level=level), wrong, *repeated).returns() == (1.0, -1.0)


def test_a_program_that_is_wrong_for_many_inputs_loses_at_once() -> None:
    game = after(programs(level="free"), "[Program: x*x*x]")
    assert game.current_player is None and game.returns() == (-1.0, 1.0) and game.problem_digest is None


def test_an_equal_program_written_otherwise_is_right() -> None:
    game = programs(level="template")
    a, b, c = (game._slots[name] for name in "abc")
    game.apply(f"[Program: a={2 * a} b={2 * b} c={2 * c}]")
    assert after(game, "[Approve]").returns() == (-1.0, 1.0)


@pytest.mark.parametrize(
    ("action", "reason"),
    [("[Program: x > 1]", "bad_type"), ("[Program: y]", "unknown_name"), ("[Program: x // x]", "zero_divisor"),
     ("[Program]", "bad_syntax"), ("[Approve]", "illegal_action"), ("[Program: print(x)]", "unknown_name")],
)  # fmt: skip
def test_a_malformed_program_is_refused_with_its_reason(action: str, reason: str) -> None:
    assert reason_of(programs(level="free"), action) == reason


def test_a_known_program_is_worth_half() -> None:
    right = programs().view(0).sample_actions[0]
    digest = after(programs(), right).problem_digest
    assert digest and after(programs(bank=digest), right, "[Approve]").returns() == (-0.5, 0.5)


def test_a_program_known_for_one_specification_is_new_for_another() -> None:
    first, second = copy.deepcopy(programs()), programs()
    second._wanted = duel_dsl.parse(f"{first._wanted} + x//99", code_duel.UNIVERSE)
    assert first._digest(first._wanted) != second._digest(first._wanted)


def test_examples_and_steps_tell_the_specification() -> None:
    for seed in range(40):
        for level in ("template", "free"):
            game = code_duel.GAME(seed=seed, level=level)
            shown = game.view(1).observation
            assert shown.count(" gives ") == 3 and str(game._wanted) not in shown
            assert len([n for n in game._wanted.root.walk() if n.args]) <= 12
    told = in_steps(duel_dsl.parse("(3*x + -5)//4 - x**2%7", code_duel.UNIVERSE).root)
    assert told == (
        "Let p be 3 times x. Let q be p minus 5. Let r be q divided by 4, rounded down. Let s be x to the power 2. "
        "Let t be the remainder of s divided by 7. The result is r minus t."
    )


def test_steps_name_every_operation_of_every_free_specification_once() -> None:
    assert len(PROGRAM_CARDS) == 3
    for seed in range(200):
        root = code_duel.GAME(seed=seed, level="free")._wanted.root
        told = in_steps(root)
        assert told.count("Let ") + 1 == sum(1 for n in root.walk() if n.args and n.op != "neg")


@pytest.mark.parametrize("name", ["counterexample_duel", "code_duel"])
@pytest.mark.parametrize("level", ["template", "free"])
def test_random_play_is_zero_sum_in_tenths_and_meets_every_outcome(name: str, level: str) -> None:
    seen: dict[str, float] = {}
    for seed in range(200):
        game, rng, turns = games.make(name, seed=seed, level=level), random.Random(seed), 0
        while (player := game.current_player) is not None:
            game.apply(rng.choice(game.view(player).sample_actions))
            turns += 1
        assert turns <= game.spec.max_turns == 4
        first, second = game.returns()
        assert first + second == 0 and first != 0 and round(first * 10) == first * 10
        assert first < 0 or (game.signals()["sound_problem"] and not game.signals()["solved"])
        for signal, value in game.signals().items():
            seen[signal] = seen.get(signal, 0.0) + value
    assert all(seen[signal] > 0 for signal in seen if signal != "duplicate")
