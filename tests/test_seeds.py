"""Derived seeds: stable for ever, different for different purposes, free of global state."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from spiral_lib.seeds import generator, seed_for, uniform, uniforms

PARTS = st.lists(st.integers() | st.text(max_size=8), max_size=4)


def test_seeds_are_fixed_numbers_since_recorded_runs_depend_on_them() -> None:
    assert seed_for() == 8238016292129134938
    assert seed_for(0, "match", 3, 7) == 3615138705757945672
    assert uniform(0, "x") == 0.4749311638046775


@given(PARTS, PARTS)
def test_different_parts_give_different_seeds(a: list[int | str], b: list[int | str]) -> None:
    typed = [[(type(x), x) for x in parts] for parts in (a, b)]
    assert (seed_for(*a) == seed_for(*b)) == (typed[0] == typed[1])


def test_order_type_and_borders_of_parts_matter() -> None:
    assert len({seed_for("a", "b"), seed_for("b", "a"), seed_for("ab"), seed_for("a", "", "b"), seed_for("a;b")}) == 5
    assert seed_for(1) != seed_for("1")


@given(PARTS)
def test_seeds_fit_a_signed_64_bit_column_and_uniforms_the_unit_interval(parts: list[int | str]) -> None:
    assert 0 <= seed_for(*parts) < 1 << 63
    assert 0.0 <= uniform(*parts) < 1.0


def test_uniforms_spread_evenly() -> None:
    draws = [uniform("spread", i) for i in range(4000)]
    for tenth in range(10):
        share = sum(tenth / 10 <= u < (tenth + 1) / 10 for u in draws) / len(draws)
        assert abs(share - 0.1) < 0.02


def test_generators_repeat_and_leave_the_global_one_alone() -> None:
    random.seed(5)
    before = random.getstate()
    assert [generator("a", 1).random() for _ in range(2)] == [generator("a", 1).random() for _ in range(2)]
    assert generator("a", 1).random() != generator("a", 2).random()
    assert random.getstate() == before


def test_uniforms_of_several_numbers_are_those_drawn_one_by_one() -> None:
    assert uniforms(7, "dice", numbers=range(2, 9)) == [uniform(7, "dice", n) for n in range(2, 9)]
    assert uniforms(numbers=[3]) == [uniform(3)] and uniforms("none", numbers=()) == []
