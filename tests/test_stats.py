"""Statistics: known values, exactness, and validity under the null."""

from __future__ import annotations

import math
import random

import pytest

from spiral_lib import stats


def test_wilson_interval_has_the_published_value_for_one_in_ten() -> None:
    low, high = stats.wilson(1, 10)
    assert (round(low, 4), round(high, 4)) == (0.0179, 0.4042)


def test_wilson_interval_has_width_at_zero_and_all_successes() -> None:
    assert stats.wilson(0, 16)[1] > 0.15
    assert stats.wilson(16, 16)[0] < 0.85


def test_wilson_interval_of_nothing_is_everything() -> None:
    assert stats.wilson(0, 0) == (0.0, 1.0)


def test_mean_interval_contains_the_mean_and_shrinks_with_the_root_of_n() -> None:
    mean, low, high = stats.mean_interval([1.0, -1.0] * 50)
    _, low4, high4 = stats.mean_interval([1.0, -1.0] * 200)
    assert mean == 0.0
    assert (high - low) / (high4 - low4) == pytest.approx(2.0, rel=0.01)
    assert all(math.isnan(v) for v in stats.mean_interval([]))


def test_sign_test_is_the_binomial_tail() -> None:
    assert stats.sign_test(5, 0) == 1 / 32
    assert stats.sign_test(4, 1) == 6 / 32
    assert stats.sign_test(0, 0) == 1.0
    assert stats.sign_test(0, 7) == 1.0


def test_sign_test_stays_finite_on_many_items() -> None:
    assert 0.0 < stats.sign_test(1500, 1400) < 0.05


def test_sign_flip_test_is_exact_for_few_differences() -> None:
    assert stats.sign_flip_test([-1.0] * 5) == 1 / 32
    assert stats.sign_flip_test([1.0, 1.0, 0.0]) == 1.0
    assert stats.sign_flip_test([]) == 1.0


def test_sign_flip_test_with_draws_agrees_with_the_exact_value() -> None:
    differences = [-2.0, -1.0, -1.0, 0.5, -0.5, 1.0, -1.0, -2.0, 0.5, 1.0, -1.0, -1.0]
    exact = stats.sign_flip_test(differences)
    drawn = stats.sign_flip_test([*differences, 1e-12])
    assert drawn == pytest.approx(exact, abs=0.02)


def test_sign_flip_test_rejects_a_true_null_no_more_often_than_its_level() -> None:
    rng = random.Random(5)
    rejected = sum(stats.sign_flip_test([rng.choice((-1.0, 0.0, 1.0)) for _ in range(30)]) < 0.05 for _ in range(200))
    assert rejected / 200 < 0.1


def test_z_of_equal_differences_is_the_sign_tests() -> None:
    assert stats.z_of([-0.5] * 16) == -4.0
    assert stats.z_of([0.0, 0.0]) == 0.0
    assert stats.z_of([]) == 0.0


def test_jackknife_of_means_is_the_standard_error_of_the_mean() -> None:
    values = [1.0, 2.0, 4.0, 7.0]
    left_out = [(sum(values) - v) / 3 for v in values]
    variance = sum((v - 3.5) ** 2 for v in values) / 3
    assert stats.jackknife(left_out) == pytest.approx(math.sqrt(variance / 4))
    assert stats.jackknife([1.0]) == 0.0


def test_normal_tail_has_the_known_quantile() -> None:
    assert stats.normal_tail(stats.Z95) == pytest.approx(0.025)


def test_sign_flip_test_with_draws_counts_ties_as_equally_low() -> None:
    # Fourteen signs: P(sum <= 0) is one half plus half of P(sum = 0) = 3432 / 2**14.
    assert stats.sign_flip_test([-1.0, 1.0] * 7) == pytest.approx(0.5 + 3432 / 2**15, abs=0.02)
