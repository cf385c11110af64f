"""Sample sizes: textbook values, and the power that a simulated test really has at them."""

from __future__ import annotations

import math
import random

import pytest

from spiral_lib.errors import ConfigError
from spiral_lib.evaluation import power


def test_textbook_sizes() -> None:
    # Fleiss 1981: 0.5 against 0.6 takes 388 a side, 0.1 against 0.2 takes 199 (both without continuity correction).
    assert power.share_difference(0.5, 0.1) == 388
    assert power.share_difference(0.1, 0.1) == 199
    # A mean half a standard deviation away takes 63 a side by the normal approximation.
    assert power.mean_difference(0.5, 1.0) == 63
    # Connor 1987: 20 % discordant, a difference of 0.1 takes 155 pairs.
    assert power.paired_difference(0.1, 0.2) == 155
    assert power.share_against(0.5, 0.1) == 194


@pytest.mark.parametrize(("baseline", "effect"), [(0.5, 0.1), (0.3, -0.1), (0.75, 0.15)])
def test_the_simulated_power_is_the_one_asked_for(baseline: float, effect: float) -> None:
    n = power.share_difference(baseline, effect, power=0.8)
    draws = random.Random(7)
    rejected = 0
    for _ in range(400):
        a = sum(draws.random() < baseline for _ in range(n))
        b = sum(draws.random() < baseline + effect for _ in range(n))
        mean = (a + b) / (2 * n)
        rejected += abs(b - a) / n > 1.96 * math.sqrt(2 * mean * (1 - mean) / n)
    assert 0.74 < rejected / 400 < 0.86  # three standard errors


def test_a_smaller_effect_a_stricter_level_or_more_power_takes_more() -> None:
    n = power.share_difference(0.5, 0.1)
    assert power.share_difference(0.5, 0.05) > 3.9 * n
    assert power.share_difference(0.5, 0.1, alpha=0.01) > n
    assert power.share_difference(0.5, 0.1, power=0.95) > n


def test_pairing_saves_items_where_checkpoints_mostly_agree() -> None:
    assert power.paired_difference(0.05, 0.1) < power.share_difference(0.5, 0.05) / 4


def test_the_smallest_effect_is_the_inverse_of_the_size() -> None:
    for n in (30, 500, 12032):
        effect = power.smallest_effect(n, 0.3)
        assert effect is not None
        assert power.share_difference(0.3, effect) <= n < power.share_difference(0.3, 0.98 * effect)
    assert power.smallest_effect(30, 0.95) is None
    assert power.smallest_effect(30, 1.0) is None


def test_thirty_problems_cannot_show_what_is_often_claimed_of_them() -> None:
    found = {d.benchmark: d.effect for d in power.detectable(0.1)}
    assert found["aime24"] is not None and found["aime24"] > 0.3  # nine of thirty problems
    assert found["mmlu_pro"] is not None and found["mmlu_pro"] < 0.02


def test_the_table_answers_five_questions_in_whole_seat_swapped_pairs() -> None:
    rows = power.table(0.1)
    assert len(rows) == 5
    assert all(row.n % 2 == 0 for row in rows if "matches" in row.unit)
    assert "388 items per checkpoint" in power.text(rows)
    assert rows[0].n == power.paired_difference(0.1, 0.2)
    assert power.table(-0.1)[1].n == 388


@pytest.mark.parametrize(
    "call",
    [
        lambda: power.share_difference(0.5, 0.0),
        lambda: power.share_difference(0.95, 0.1),
        lambda: power.share_difference(1.5, 0.1),
        lambda: power.share_difference(0.0, -0.1),
        lambda: power.share_difference(0.5, 0.1, alpha=0.0),
        lambda: power.share_against(0.5, 0.1, power=1.0),
        lambda: power.paired_difference(0.3, 0.2),
        lambda: power.mean_difference(0.1, 0.0),
        lambda: power.table(0.6),
    ],
)
def test_impossible_questions_are_refused(call: object) -> None:
    with pytest.raises(ConfigError):
        call()  # type: ignore[operator]
