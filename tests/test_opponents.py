import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spiral_lib.config import OpponentConfig
from spiral_lib.errors import ConfigError, LineageError
from spiral_lib.opponents import OpponentPool, PoolEntry, with_ratings


def entry(iteration: int) -> PoolEntry:
    return PoolEntry(id=f"c{iteration}", iteration=iteration, digest=f"d{iteration}")


def grown(count: int, config: OpponentConfig) -> OpponentPool:
    pool = OpponentPool()
    for iteration in range(1, count + 1):
        pool = pool.add(entry(iteration)).retained(config)
    return pool


def test_a_snapshot_is_not_added_twice() -> None:
    pool = OpponentPool().add(entry(1)).add(entry(2))
    assert pool.add(entry(2)) == pool
    assert pool.add(PoolEntry(id="c1", iteration=3, digest="d1")) == pool


def test_entries_stand_in_the_order_of_iterations() -> None:
    assert [e.iteration for e in OpponentPool().add(entry(3)).add(entry(1)).entries] == [1, 3]


def test_a_pool_that_fits_keeps_everything() -> None:
    config = OpponentConfig(capacity=6, keep_recent=3)
    assert len(grown(6, config).entries) == 6


@given(
    capacity=st.integers(1, 20),
    keep_recent=st.integers(1, 25),
    count=st.integers(1, 120),
)
def test_retention_keeps_the_newest_the_oldest_and_an_even_spread(capacity: int, keep_recent: int, count: int) -> None:
    kept = [e.iteration for e in grown(count, OpponentConfig(capacity=capacity, keep_recent=keep_recent)).entries]
    recent = min(keep_recent, capacity, count)
    assert len(kept) == min(capacity, count)
    assert kept == sorted(set(kept))
    assert kept[-recent:] == list(range(count - recent + 1, count + 1))
    if capacity > keep_recent:
        assert kept[0] == 1
        older = kept[: len(kept) - recent + 1]
        gaps = [b - a for a, b in itertools.pairwise(older)]
        assert not gaps or max(gaps) <= 2 * sum(gaps) / len(gaps)


def test_pool_survives_plain_dictionaries() -> None:
    pool = grown(9, OpponentConfig(capacity=5, keep_recent=2))
    assert OpponentPool.from_dict(pool.to_dict()) == pool


@pytest.mark.parametrize("content", [{}, {"entries": [{"id": "a"}]}, {"entries": [1]}])
def test_a_damaged_pool_is_refused(content: dict[str, object]) -> None:
    with pytest.raises(LineageError, match="pool is damaged"):
        OpponentPool.from_dict(content)


def test_ratings_go_to_their_snapshots_and_the_others_keep_theirs() -> None:
    pool = OpponentPool(entries=tuple(PoolEntry(id=f"{i}" * 20, iteration=i, digest="") for i in (1, 2, 3)))
    once = with_ratings(pool, {"1" * 20: 25.0, "2" * 16: 30})
    assert [e.rating for e in once.entries] == [25.0, 30.0, None]
    assert [e.rating for e in with_ratings(once, {"2" * 20: 31.5}).entries] == [25.0, 31.5, None]
    assert with_ratings(pool, {}) == pool and OpponentPool.from_dict(once.to_dict()) == once


@pytest.mark.parametrize("name", ["9", "", "ab"])
def test_a_rating_that_means_no_single_snapshot_is_refused(name: str) -> None:
    pool = OpponentPool(entries=tuple(PoolEntry(id=f"ab{i}", iteration=i, digest="") for i in (1, 2)))
    with pytest.raises(ConfigError, match="rating"):
        with_ratings(pool, {name: 1.0})
