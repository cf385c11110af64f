import dataclasses
import functools
import itertools
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sample_turns
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spiral_lib import trajectories
from spiral_lib.errors import DataQualityError
from spiral_lib.types import EndReason, Episode, Turn

WHERE = {"run": "r", "iteration": 3, "step": 21, "shard": 1, "config_hash": "0" * 16}
float32 = st.floats(max_value=0.0, width=32)
# Numbers that a narrower column would change.
turn = functools.partial(sample_turns.turn, temperature=0.1, logprobs=(-0.5, -0.25))
seeds = st.integers(0, 2**63 - 1)
ids = st.integers(0, 2**31 - 1)


def episode(name: str, num_turns: int = 2, **changes: object) -> Episode:
    base = Episode(
        id=name,
        game="kuhn_poker",
        seed=2**53 + 1,
        policies=("self", "self"),
        turns=tuple(turn(i) for i in range(num_turns)),
        returns=(0.5, -0.5),
        end_reason=EndReason.FINISHED,
        params=(("rounds", 2), ("ante", 0.5), ("open", True), ("name", "x")),
    )
    return dataclasses.replace(base, **changes)


turns = st.lists(
    st.builds(
        Turn,
        index=st.just(0),
        player=st.integers(0, 1),
        role=st.text(max_size=5),
        seed=seeds,
        policy=st.text(max_size=5),
        policy_digest=st.text(max_size=5),
        engine=st.text(max_size=5),
        temperature=st.floats(0.01, 10),
        trainable=st.booleans(),
        info_state=st.text(max_size=5),
        observation=st.text(max_size=20),
        text=st.text(max_size=20),
        action=st.text(max_size=5),
        legal=st.booleans(),
        invalid_reason=st.none() | st.text(max_size=5),
        finish_reason=st.text(max_size=5),
        prompt_ids=st.lists(ids, max_size=4).map(tuple),
        response_ids=st.lists(ids, max_size=4).map(tuple),
        logprobs=st.lists(float32, max_size=4).map(tuple),
    ),
    max_size=4,
).map(lambda many: tuple(dataclasses.replace(t, index=i) for i, t in enumerate(many)))
episodes = st.lists(
    st.builds(
        Episode,
        id=st.text(min_size=1, max_size=6),
        game=st.text(max_size=5),
        seed=seeds,
        policies=st.tuples(st.text(max_size=5), st.text(max_size=5)),
        turns=turns,
        returns=st.tuples(st.floats(-1, 1), st.floats(-1, 1)),
        end_reason=st.sampled_from(EndReason),
        forfeited_by=st.none() | st.integers(0, 1),
        params=st.dictionaries(
            st.text(max_size=4),
            st.integers() | st.floats(allow_nan=False) | st.booleans() | st.text(max_size=4),
            max_size=3,
        ).map(lambda d: tuple(d.items())),
    ),
    max_size=6,
    unique_by=lambda e: e.id,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50)
@given(episodes, st.integers(1, 3))
def test_episodes_survive_any_sharding_exactly(tmp_path: Path, played: list[Episode], num_shards: int) -> None:
    paths = [
        trajectories.write_shard(tmp_path / f"{i}.parquet", played[i::num_shards], **WHERE) for i in range(num_shards)
    ]
    assert list(trajectories.read_episodes(paths)) == sorted(played, key=lambda e: e.id)


def test_a_match_without_turns_is_not_lost(tmp_path: Path) -> None:
    void = episode("a", 0, end_reason=EndReason.OPPONENT_ERROR, returns=(0.0, 0.0))
    path = trajectories.write_shard(tmp_path / "s.parquet", [episode("b"), void], **WHERE)
    assert [(e.id, len(e.turns)) for e in trajectories.read_episodes([path])] == [("a", 0), ("b", 2)]


def test_parameters_of_equal_value_keep_their_kinds(tmp_path: Path) -> None:
    played = [episode(name, params=(("open", value),)) for name, value in zip("abc", (1, True, 1.0), strict=True)]
    path = trajectories.write_shard(tmp_path / "s.parquet", played, **WHERE)
    assert [type(e.params[0][1]) for e in trajectories.read_episodes([path])] == [int, bool, float]


def test_equal_content_gives_equal_bytes_whatever_the_order(tmp_path: Path) -> None:
    first = trajectories.write_shard(tmp_path / "a.parquet", [episode("x"), episode("y")], **WHERE)
    second = trajectories.write_shard(tmp_path / "b.parquet", [episode("y"), episode("x")], **WHERE)
    assert first.read_bytes() == second.read_bytes()


def test_many_files_are_merged_in_the_order_of_ids(tmp_path: Path) -> None:
    played = [episode(f"{i:06d}", 3) for i in range(900)]
    paths = [trajectories.write_shard(tmp_path / f"{i}.parquet", played[i::7], **WHERE) for i in range(7)]
    assert [e.id for e in trajectories.read_episodes(paths)] == [e.id for e in played]


def test_reading_starts_before_the_whole_file_is_read(tmp_path: Path) -> None:
    path = trajectories.write_shard(tmp_path / "s.parquet", [episode(f"{i:06d}", 3) for i in range(900)], **WHERE)
    assert pq.ParquetFile(path).num_row_groups > 2
    groups = pq.ParquetFile(path).metadata
    data = bytearray(path.read_bytes())
    last = groups.row_group(groups.num_row_groups - 1).column(10)
    data[last.data_page_offset : last.data_page_offset + 40] = b"\xff" * 40
    path.write_bytes(bytes(data))
    reader = trajectories.read_episodes([path])
    assert len(list(itertools.islice(reader, 100))) == 100
    with pytest.raises(DataQualityError, match=r"s\.parquet"):
        list(reader)


def test_a_failed_write_leaves_the_old_file_and_no_leftovers(tmp_path: Path) -> None:
    path = trajectories.write_shard(tmp_path / "s.parquet", [episode("a")], **WHERE)
    before = path.read_bytes()
    with pytest.raises((TypeError, pa.ArrowException, ValueError, OverflowError)):
        trajectories.write_shard(path, [episode("b", seed=2**63)], **WHERE)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_every_column_is_documented_and_versioned(tmp_path: Path) -> None:
    path = trajectories.write_shard(tmp_path / "s.parquet", [episode("a")], **WHERE)
    stored = pq.read_schema(path)
    assert all(len(field.metadata[b"doc"]) > 5 for field in stored)
    assert stored.metadata[b"spiral_schema_version"] == b"1"


def test_a_table_holds_the_rows_of_all_files(tmp_path: Path) -> None:
    paths = [trajectories.write_shard(tmp_path / f"{i}.parquet", [episode(str(i))], **WHERE) for i in range(2)]
    table = trajectories.read_table(paths, ["episode", "episode_seed"])
    assert table.to_pydict() == {"episode": ["0", "0", "1", "1"], "episode_seed": [2**53 + 1] * 4}
    assert trajectories.read_table(paths).schema.names == trajectories.SCHEMA.names


def rewritten(path: Path, table: pa.Table) -> Path:
    pq.write_table(table, path)
    return path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.drop_columns(["role"]), "lacks the column 'role'"),
        (lambda t: t.append_column("mood", pa.array(["x"] * len(t))), "unexpected column 'mood'"),
        (lambda t: t.set_column(0, "run", pa.nulls(len(t))), "column 'run' is null"),
        (lambda t: t.replace_schema_metadata({}), "schema version none"),
        (lambda t: t.replace_schema_metadata({"spiral_schema_version": "7"}), "schema version 7"),
    ],
)
def test_another_schema_is_refused_naming_file_and_column(tmp_path: Path, change: object, message: str) -> None:
    path = trajectories.write_shard(tmp_path / "s.parquet", [episode("a")], **WHERE)
    rewritten(path, change(pq.read_table(path)))
    for read in (trajectories.read_episodes, trajectories.read_table):
        with pytest.raises(DataQualityError, match=rf"s\.parquet.*{message}"):
            list(read([path]))


@pytest.mark.parametrize("keep", [[0, 2, 3], [1, 0, 2, 3], [2, 3, 0, 1], [0, 1, 2]])
def test_rows_that_are_not_whole_sorted_episodes_are_refused(tmp_path: Path, keep: list[int]) -> None:
    path = trajectories.write_shard(tmp_path / "s.parquet", [episode("a"), episode("b")], **WHERE)
    rewritten(path, pq.read_table(path).take(np.array(keep)))
    with pytest.raises(DataQualityError, match=r"s\.parquet"):
        list(trajectories.read_episodes([path]))


@pytest.mark.parametrize("content", [b"", b"PAR1", b"not parquet at all"])
def test_a_file_that_is_not_parquet_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "s.parquet"
    path.write_bytes(content)
    with pytest.raises(DataQualityError, match=r"s\.parquet"):
        list(trajectories.read_episodes([path]))


def test_a_missing_file_is_named() -> None:
    with pytest.raises(DataQualityError, match=r"gone\.parquet"):
        list(trajectories.read_episodes([Path("gone.parquet")]))


def test_shards_of_a_run_have_one_place() -> None:
    assert trajectories.shard_path(Path("runs/a"), 7, 2) == Path("runs/a/trajectories/iteration=0007/shard-02.parquet")
