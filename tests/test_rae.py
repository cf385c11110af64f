"""Role baselines against numbers computed by hand."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spiral_lib.errors import ConfigError, LearnerError
from spiral_lib.rae import RoleBaselines


def play(baselines: RoleBaselines, returns: list[float], game: str = "g", role: str = "r") -> list[float]:
    return [baselines.advantage(game, role, ret) for ret in returns]


def test_the_baseline_is_read_before_it_moves() -> None:
    b, trail, advantages = RoleBaselines(0.95), [], []
    for ret in (1, -1, 1, 1, 0):
        advantages.append(b.advantage("g", "r", ret))
        trail.append(b.value("g", "r"))
    assert advantages == pytest.approx([1, -1.05, 1.0025, 0.952375, -0.09524375], abs=1e-12)
    assert trail == pytest.approx([0.05, -0.0025, 0.047625, 0.09524375, 0.0904815625], abs=1e-12)


def test_the_papers_order_would_scale_every_advantage_by_the_decay() -> None:
    returns = [1.0, -1.0, 1.0, 1.0, 0.0]
    baseline, paper = 0.0, []
    for ret in returns:
        baseline = 0.95 * baseline + 0.05 * ret
        paper.append(ret - baseline)
    ours = play(RoleBaselines(0.95), returns)
    assert paper == pytest.approx([0.95 * a for a in ours], abs=1e-12)
    assert ours[0] == 1.0


def test_roles_mirror_each_other_until_a_forfeit_breaks_the_zero_sum() -> None:
    b = RoleBaselines(0.95)
    first, second = [], []
    for r0, r1 in ((1, -1), (-1, 1)):
        first.append(b.advantage("g", "0", r0))
        second.append(b.advantage("g", "1", r1))
    assert b.value("g", "0") + b.value("g", "1") == 0.0
    first.append(b.advantage("g", "0", 0.5))
    second.append(b.advantage("g", "1", -1.5))
    assert first == pytest.approx([1, -1.05, 0.5025])
    assert second == pytest.approx([-1, 1.05, -1.5025])
    assert b.value("g", "0") == pytest.approx(0.022625)
    assert b.value("g", "1") == pytest.approx(-0.072625)


def alternate(b: RoleBaselines) -> list[float]:
    return [b.advantage(game, "0", ret) for game, ret in (("ttt", 1), ("kuhn", -1), ("ttt", 1), ("kuhn", -1))]


def test_games_do_not_share_a_baseline() -> None:
    b = RoleBaselines(0.95)
    assert alternate(b) == pytest.approx([1, -1, 0.95, -0.95])
    assert (b.value("ttt", "0"), b.value("kuhn", "0")) == pytest.approx((0.0975, -0.0975))


def test_roles_share_a_baseline_only_when_keyed_by_game() -> None:
    by_role, by_game = RoleBaselines(0.95, "role"), RoleBaselines(0.95, "game")
    for b in (by_role, by_game):
        b.advantage("g", "0", 1.0)
    assert by_role.advantage("g", "1", 1.0) == 1.0
    assert by_game.advantage("g", "1", 1.0) == pytest.approx(0.95)
    assert by_game.value("g", "anything") == by_game.value("g", "0")


def test_no_baseline_returns_the_raw_reward_and_keeps_no_state() -> None:
    b = RoleBaselines(0.95, "none")
    assert play(b, [1.0, 1.0, -0.5]) == [1.0, 1.0, -0.5]
    assert b.value("g", "r") == 0.0
    assert json.loads(b.to_json())["values"] == {}


def test_a_draw_counts_against_a_positive_baseline() -> None:
    assert play(RoleBaselines(0.95), [0.0]) == [0.0]
    assert play(RoleBaselines(0.95), [1.0, 0.0])[1] == pytest.approx(-0.05)


def test_the_order_of_returns_matters() -> None:
    forward, backward = RoleBaselines(0.95), RoleBaselines(0.95)
    play(forward, [1, 1, -1, -1])
    play(backward, [-1, -1, 1, 1])
    assert forward.value("g", "r") == pytest.approx(-0.00950625)
    assert backward.value("g", "r") == pytest.approx(0.00950625)


def test_the_average_moves_once_a_return_and_not_once_a_batch() -> None:
    b = RoleBaselines(0.95)
    play(b, [1, 1, 1, -1])
    assert b.value("g", "r") == pytest.approx(0.08549375)


def test_saved_baselines_go_on_where_they_stopped() -> None:
    b = RoleBaselines(0.95)
    play(b, [1, -1, 1])
    again = RoleBaselines.from_json(b.to_json())
    assert again.value("g", "r") == pytest.approx(0.047625)
    assert play(again, [1, 0]) == pytest.approx([0.952375, -0.09524375])


@given(
    st.lists(st.tuples(st.sampled_from(["a", "b"]), st.sampled_from(["0", "1"]), st.floats(-1.5, 1.0)), max_size=30),
    st.floats(0.0, 1.0),
    st.sampled_from(["role", "game", "none"]),
)
def test_the_text_form_keeps_every_bit(plays: list[tuple[str, str, float]], decay: float, baseline: str) -> None:
    b = RoleBaselines(decay, baseline)
    for game, role, ret in plays:
        b.advantage(game, role, ret)
    again = RoleBaselines.from_json(b.to_json())
    assert again.to_json() == b.to_json()
    assert all(again.value(g, r) == b.value(g, r) for g in "ab" for r in "01")
    assert (again.decay, again.baseline) == (decay, baseline)


def test_a_constant_offset_of_one_role_vanishes_from_its_advantages() -> None:
    plain, shifted = RoleBaselines(0.95), RoleBaselines(0.95)
    noise = [math.sin(7.0 * i) for i in range(400)]
    a = play(plain, noise)
    b = play(shifted, [x + 0.3 for x in noise])
    assert b[0] - a[0] == pytest.approx(0.3)
    assert b[-1] - a[-1] == pytest.approx(0.0, abs=1e-8)
    assert play(shifted, [1.0] * 400)[-1] == pytest.approx(0.0, abs=1e-8)


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", '{"decay": 2, "baseline": "role", "values": {}}', '{"decay": 0.9}', "null"),
        *(f'{{"decay": 0.9, "baseline": "role", "values": {{"g/r": {x}}}}}' for x in ("NaN", "Infinity", '"x"')),
    ],
)
def test_other_text_is_no_saved_baseline(text: str) -> None:
    with pytest.raises(ConfigError):
        RoleBaselines.from_json(text)


def test_an_unknown_keying_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="role, game, none"):
        RoleBaselines(0.95, "player")


@pytest.mark.parametrize("ret", [math.nan, math.inf, -math.inf])
def test_a_return_that_is_no_number_is_refused_and_moves_nothing(ret: float) -> None:
    b = RoleBaselines(0.95)
    b.advantage("g", "r", 1.0)
    with pytest.raises(LearnerError, match=f"reward of 'r' in 'g' is {ret}"):
        b.advantage("g", "r", ret)
    assert b.value("g", "r") == pytest.approx(0.05)


def test_names_with_the_separator_do_not_share_a_baseline() -> None:
    names = [("a/b", "c"), ("a", "b/c"), ("a%2Fb", "c"), ("a", "b%2Fc")]
    b = RoleBaselines(0.0)
    for i, (game, role) in enumerate(names):
        b.advantage(game, role, float(i))
    again = RoleBaselines.from_json(b.to_json())
    assert [again.value(*name) for name in names] == [0.0, 1.0, 2.0, 3.0]


def test_ordinary_names_are_kept_as_they_are() -> None:
    b = RoleBaselines(0.5)
    b.advantage("textarena:Nim-v0", "player 0", 1.0)
    assert json.loads(b.to_json())["values"] == {"textarena:Nim-v0/player 0": 0.5}
