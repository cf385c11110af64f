"""Equation duel: sound problems, commitments, hints, payoffs."""

from __future__ import annotations

import copy
import random

import pytest

from spiral_lib import games
from spiral_lib.errors import ConfigError, IllegalAction
from spiral_lib.games import duel_dsl, equation_duel
from spiral_lib.games._duel_cards import EQUATION_CARDS
from spiral_lib.games.equation_duel import GAME

SOUND = "[Pose: 3*x - 5 == 7 | 4]"


def with_topic(topic: str, *, level: str = "free", bank: str = "") -> GAME:
    """Return a match whose card has this topic."""
    for seed in range(200):
        game = GAME(seed=seed, level=level, bank=bank)
        if topic in game.view(0).observation:
            return game
    raise AssertionError(topic)


def linear(**params: str) -> GAME:
    return with_topic("linear equation", **params)


def after(game: GAME, *actions: str) -> GAME:
    for action in actions:
        game.apply(action)
    return game


def reason_of(game: GAME, action: str) -> str:
    before = (game.view(0), game.view(1), game.current_player)
    with pytest.raises(IllegalAction) as caught:
        game.apply(action)
    assert (game.view(0), game.view(1), game.current_player) == before
    return caught.value.reason


def test_a_right_answer_wins_a_full_point_less_a_tenth_for_each_ask() -> None:
    assert after(linear(), SOUND, "[Answer: 4]").returns() == (-1.0, 1.0)
    assert after(linear(), SOUND, "[Ask]", "[Hint: x > 0]", "[Answer: 4]").returns() == (-0.9, 0.9)
    twice = after(linear(), SOUND, "[Ask]", "[Pass]", "[Ask]", "[Hint: x < 9]", "[Answer: 4]")
    assert twice.returns() == (-0.8, 0.8)
    assert twice.signals() | {"asks": 2.0, "hints": 1.0, "passes": 1.0, "solved": 1.0} == twice.signals()


def test_a_wrong_answer_wins_a_full_point_for_the_proposer_whatever_was_asked() -> None:
    assert after(linear(), SOUND, "[Answer: 5]").returns() == (1.0, -1.0)
    assert after(linear(), SOUND, "[Ask]", "[Pass]", "[Answer: -4]").returns() == (1.0, -1.0)
    assert after(linear(), SOUND, "[Answer: 999999]").returns() == (1.0, -1.0)


@pytest.mark.parametrize(
    ("topic", "pose"),
    [
        ("quadratic", "[Pose: x*x - 5*x + 6 == 0 | 2]"),
        ("quadratic", "[Pose: x*x - 5*x + 6 == 0 | 3]"),
        ("quadratic", "[Pose: x*x == 2 | 1]"),
        ("linear", "[Pose: 3*x == 7 | 2]"),
        ("linear", "[Pose: 3*x - 5 == 7 | 5]"),
        ("linear", "[Pose: 3*x == 603 | 201]"),
        ("linear", "[Pose: 0*x == 0 | 0]"),
    ],
)
def test_two_solutions_none_or_a_wrong_commitment_lose_at_once(topic: str, pose: str) -> None:
    game = after(with_topic(topic), pose)
    assert game.current_player is None and game.returns() == (-1.0, 1.0)
    assert game.signals()["sound_problem"] == 0.0 and game.problem_digest is None


@pytest.mark.parametrize("solution", [-200, 200])
def test_a_solution_at_the_border_of_the_range_is_sound(solution: int) -> None:
    game = after(linear(), f"[Pose: 2*x == {2 * solution} | {solution}]", f"[Answer: {solution}]")
    assert game.returns() == (-1.0, 1.0) and game.signals()["sound_problem"] == 1.0


def test_a_problem_that_is_undefined_at_one_far_point_is_refused_though_its_commitment_is_right() -> None:
    assert reason_of(linear(), "[Pose: 3*x == 12 and 1 // (x - 200) < 1 | 4]") == "zero_divisor"


@pytest.mark.parametrize(
    ("pose", "reason"),
    [
        ("[Pose: x == 4 | 4]", "bare_equality"),
        ("[Pose: 1*x == 4 | 4]", "bare_equality"),
        ("[Pose: 3*x < 99 and 4 == x | 4]", "bare_equality"),
        ("[Pose: 3*x + 4 == 2*x + 8 | 4]", "bare_equality"),
        ("[Pose: x + 3 == 7 | 4]", "bare_equality"),
        ("[Pose: 3*x + 7 | 4]", "bad_type"),
        ("[Pose: x*x*x > 26 and x*x < 16 | 3]", "off_topic"),
        ("[Pose: 3*x == 12]", "bad_format"),
        ("[Pose: 3*x == 12 | 4 | 4]", "bad_format"),
        ("[Pose: 3*x == 12 |]", "bad_format"),
        ("[Pose:]", "bad_format"),
        ("[Pose: 3*x == 12 | four]", "bad_integer"),
        ("[Pose: 3*x == 12 | 04]", "bad_integer"),
        ("[Pose: 3*y == 12 | 4]", "unknown_name"),
        ("[Pose: 3*x == 12 # ] | 4]", "several_actions"),
        ("[Pose: 3*ｘ == 12 | 4]", "non_ascii"),
        ("[Pose: 3*x == 12 | 4", "bad_format"),
        ("[Answer: 4]", "illegal_action"),
        ("[Ask]", "illegal_action"),
        ("[Hint: x > 3]", "illegal_action"),
        ("[Pose: " + "x+" * 200 + "x == 0 | 0]", "too_long"),
    ],
)
def test_a_malformed_pose_is_refused_with_its_reason(pose: str, reason: str) -> None:
    assert reason_of(linear(), pose) == reason


@pytest.mark.parametrize("text", ["+4", "04", "4.0", "4 4", "", "-0", "four", "0x4", "4]", "١", "1" * 30, "--4", "4-"])
def test_only_integers_in_normal_form_are_answers(text: str) -> None:
    game = after(linear(), SOUND)
    assert reason_of(game, f"[Answer: {text}]")


def test_after_two_asks_only_an_answer_is_possible_and_after_an_answer_nothing() -> None:
    game = after(linear(), SOUND, "[Ask]", "[Pass]", "[Ask]", "[Pass]")
    assert reason_of(game, "[Ask]") == "illegal_action"
    assert reason_of(game, "[Hint: x > 1]") == "illegal_action"
    assert not any("Ask" in action for action in game.view(1).sample_actions)
    game.apply("[answer: 4]")
    for action in ("[Ask]", "[Answer: 4]", SOUND):
        assert reason_of(game, action) == "match_over"


@pytest.mark.parametrize("hint", ["x > 4", "x != 4", "x*x >= 0", "x <= 200", "x == x", "1 == 1", "x % 2 == 1"])
def test_a_false_hint_or_one_that_excludes_nothing_loses_at_once(hint: str) -> None:
    game = after(linear(), SOUND, "[Ask]", f"[Hint: {hint}]")
    assert game.returns() == (-1.0, 1.0) and game.signals()["bad_hint"] == 1.0


def test_a_second_hint_must_exclude_a_number_that_was_still_possible() -> None:
    game = after(linear(), SOUND, "[Ask]", "[Hint: x > 0]", "[Ask]")
    fresh = copy.deepcopy(game)
    assert after(game, "[Hint: x >= 0]").returns() == (-1.0, 1.0)
    assert after(fresh, "[Hint: x > 1]").current_player == 1


@pytest.mark.parametrize(
    ("hint", "reason"),
    [("x == 4", "bare_equality"), ("4 == x", "bare_equality"), ("x - 4 == 0", "bare_equality"),
     ("not x != 4", "bare_equality"), ("x + 1", "bad_type"), ("x > 0 and x < 100 and x < 101 and x < 102", "too_long"),
     ("y > 1", "unknown_name")],
)  # fmt: skip
def test_a_hint_that_tells_the_solution_or_is_malformed_is_refused(hint: str, reason: str) -> None:
    assert reason_of(after(linear(), SOUND, "[Ask]"), f"[Hint: {hint}]") == reason


def test_a_known_problem_is_worth_half_to_both_sides() -> None:
    digest = duel_dsl.parse("7 == 3*x - 5", equation_duel.UNIVERSE).digest
    bank = f"{'0' * 16}, {digest}"
    assert after(linear(bank=bank), SOUND, "[Answer: 4]").returns() == (-0.5, 0.5)
    assert after(linear(bank=bank), SOUND, "[Answer: 5]").returns() == (0.5, -0.5)
    asked = after(linear(bank=bank), SOUND, "[Ask]", "[Pass]", "[Answer: 4]")
    assert asked.returns() == (-0.4, 0.4) and asked.signals()["duplicate"] == 1.0
    assert asked.problem_digest == digest
    other = after(linear(bank=bank), "[Pose: 3*x - 5 == 10 | 5]", "[Answer: 5]")
    assert other.returns() == (-1.0, 1.0) and other.signals()["duplicate"] == 0.0


def test_an_unsound_known_problem_still_costs_the_proposer_everything() -> None:
    digest = duel_dsl.parse("3*x - 5 == 7", equation_duel.UNIVERSE).digest
    assert after(linear(bank=digest), "[Pose: 3*x - 5 == 7 | 5]").returns() == (-1.0, 1.0)


@pytest.mark.parametrize("bank", ["xyz", "0123", "0" * 17, "ABCDEF0123456789"])
def test_a_bank_of_anything_but_digests_is_refused(bank: str) -> None:
    with pytest.raises(ConfigError, match="bank"):
        GAME(seed=0, bank=bank)


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(ConfigError, match="level"):
        GAME(seed=0, level="hard")


def test_the_solver_sees_the_same_whatever_the_proposer_committed_to() -> None:
    right, wrong, worse = (after(linear(), f"[Pose: 3*x - 5 == 7 | {n}]") for n in (4, 5, -77))
    assert wrong.view(1) == worse.view(1)
    assert "-77" not in repr(worse.view(1))
    # The same state with another commitment put in its place shows the solver nothing else.
    forged = copy.deepcopy(right)
    forged._committed = -77
    ours, other = right.view(1), forged.view(1)
    assert (ours.observation, ours.info_state) == (other.observation, other.info_state)
    assert right.view(0) != forged.view(0)


def test_what_is_shown_is_the_reprint_and_never_the_text_as_written() -> None:
    poses = ("[Pose: ((3)*X)-5==7 |4]", "[pose :3*x -5  ==  7| 4]")
    shown = [after(linear(), pose).view(1).observation for pose in poses]
    assert "Problem: 3*x - 5 == 7\n" in shown[0] and shown[0] == shown[1]


@pytest.mark.parametrize("card", EQUATION_CARDS, ids=lambda c: c.topic)
def test_every_template_can_be_posed_soundly_and_filled_in_any_order(card: object) -> None:
    game = with_topic(card.topic, level="template")
    sound = []
    for action in game.view(0).sample_actions:
        trial = copy.deepcopy(game)
        trial.apply(action)
        sound.append(trial.current_player == 1)
    assert any(sound) and not all(sound)
    action = game.view(0).sample_actions[0]
    slots, solution = action.removeprefix("[Pose: ").removesuffix("]").split(" | ")
    swapped = f"[POSE: {' '.join(reversed(slots.split()))} | {solution}]"
    first, second = copy.deepcopy(game), copy.deepcopy(game)
    first.apply(action)
    second.apply(swapped)
    assert first.view(1) == second.view(1)


@pytest.mark.parametrize(
    ("slots", "reason"),
    [("a=3 b=4", "bad_format"), ("a=3 b=4 c=5 c=5", "bad_format"), ("a=3 b=4 d=5", "bad_format"),
     ("a=3 b=4 c=1000", "bad_integer"), ("a=3 b=4 c=x", "bad_integer"), ("a=3 b=4 c=+5", "bad_integer"),
     ("a=1 b=4 c=5", "bare_equality"), ("3*x == 9", "bad_format")],
)  # fmt: skip
def test_wrong_slots_are_refused(slots: str, reason: str) -> None:
    assert reason_of(linear(level="template"), f"[Pose: {slots} | 1]") == reason


@pytest.mark.parametrize("level", ["template", "free"])
def test_random_play_is_zero_sum_ends_in_six_turns_and_meets_every_outcome(level: str) -> None:
    seen: dict[str, float] = {}
    lengths = set()
    for seed in range(250):
        game, rng, turns = games.make("equation_duel", seed=seed, level=level), random.Random(seed), 0
        while (player := game.current_player) is not None:
            game.apply(rng.choice(game.view(player).sample_actions))
            turns += 1
        lengths.add(turns)
        assert sum(game.returns()) == 0 and round(game.returns()[0] * 10) == game.returns()[0] * 10
        assert (game.returns()[0] > 0) == (game.signals()["sound_problem"] and not game.signals()["solved"]
                                           and not game.signals()["bad_hint"])  # fmt: skip
        for name, value in game.signals().items():
            seen[name] = seen.get(name, 0.0) + value
    assert max(lengths) <= equation_duel.SPEC.max_turns
    assert all(seen[name] > 0 for name in seen if name != "duplicate")
