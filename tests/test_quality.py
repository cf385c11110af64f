import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sample_turns

from spiral_lib import presets, quality, trajectories
from spiral_lib.quality_turns import RULES
from spiral_lib.types import EndReason, Episode, Turn

CONFIG = presets.get("tiny")
WHERE = {"run": "r", "iteration": 1, "step": 1, "config_hash": "0" * 16}
PLANNED = 24


def turn(index: int, player: int, seed: int, **changes: object) -> Turn:
    return sample_turns.turn(index, player=player, role=("first", "second")[player], seed=seed, **changes)


def match(number: int, **changes: object) -> Episode:
    """A finished match: in every third the learner meets random play, in alternating seats."""
    policies = [("self", "self"), ("self", "random"), ("random", "self")][number % 3]
    turns = []
    for player, policy in enumerate(policies):
        other = {} if policy == "self" else {"trainable": False, "prompt_ids": (), "response_ids": (), "logprobs": ()}
        turns.append(turn(player, player, number * 10 + player, policy=policy, **other))
    base = Episode(
        id=f"000001-{number:06d}",
        game="kuhn_poker",
        seed=number,
        policies=policies,
        turns=tuple(turns),
        returns=(0.5, -0.5),
        end_reason=EndReason.FINISHED,
    )
    return dataclasses.replace(base, **changes)


def forfeited(number: int, end: EndReason = EndReason.ILLEGAL_ACTION) -> Episode:
    illegal = turn(0, 0, number * 10, legal=False, action="", invalid_reason="no_box")
    return match(
        number, policies=("self", "self"), turns=(illegal,), returns=(-1.0, 1.0), end_reason=end, forfeited_by=0
    )


def void(number: int) -> Episode:
    return match(number, turns=(), returns=(0.0, 0.0), end_reason=EndReason.OPPONENT_ERROR)


GOOD = [match(i) for i in range(PLANNED - 3)] + [
    forfeited(21),
    forfeited(22, EndReason.TRUNCATED),
    match(23, end_reason=EndReason.MAX_TURNS, returns=(0.0, 0.0)),
]


def shards(folder: Path, episodes: list[Episode], count: int = 3) -> list[Path]:
    folder = folder / "trajectories" / "iteration=0001"
    return [
        trajectories.write_shard(folder / f"shard-{i:02d}.parquet", episodes[i::count], shard=i, **WHERE)
        for i in range(count)
    ]


def verdict(paths: list[Path], *, full: bool = False, planned: int = PLANNED) -> quality.QualityReport:
    return quality.check(paths, planned=planned, config=CONFIG, full=full)


def broken_rules(report: quality.QualityReport) -> set[str]:
    return {line.partition(":")[0] for line in report.failures}


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("count", [1, 3])
def test_good_shards_pass(tmp_path: Path, full: bool, count: int) -> None:
    report = verdict(shards(tmp_path, GOOD, count), full=full)
    assert report.failures == ()
    assert report.ok
    assert report.bad_shards == {}
    assert report.metrics["quality/matches"] == PLANNED
    assert report.metrics["quality/rows"] == 22 * 2 + 2


def with_turn(number: int, **changes: object) -> list[Episode]:
    """The good matches with the first turn of one changed."""
    first, *rest = GOOD[number].turns
    changed = dataclasses.replace(GOOD[number], turns=(dataclasses.replace(first, **changes), *rest))
    return [*GOOD[:number], changed, *GOOD[number + 1 :]]


def with_match(number: int, **changes: object) -> list[Episode]:
    return [*GOOD[:number], dataclasses.replace(GOOD[number], **changes), *GOOD[number + 1 :]]


BROKEN: list[tuple[str, list[Episode]]] = [
    ("episode_count", GOOD[:-1]),
    ("episode_count", [*GOOD, match(99)]),
    ("duplicate_episode", with_match(4, id=GOOD[3].id)),
    ("duplicate_episode", with_match(6, id=GOOD[3].id)),
    ("duplicate_episode", with_match(6, seed=GOOD[3].seed)),
    ("duplicate_episode", with_turn(0, index=1)),
    ("turns", with_turn(0, index=7)),
    ("turns", with_turn(0, player=2)),
    ("turns", with_match(0, turns=())),
    ("finite", with_match(0, returns=(math.nan, math.nan))),
    ("finite", with_match(0, returns=(math.inf, -math.inf))),
    ("finite", with_turn(0, temperature=math.nan)),
    ("finite", with_turn(0, temperature=0.0)),
    ("zero_sum", with_match(0, returns=(0.5, -0.5 + 1e-16))),
    ("zero_sum", with_match(0, returns=(0.5, 0.5))),
    ("returns", with_match(0, returns=(1.5, -1.5))),
    ("returns", with_match(21, returns=(1.0, -1.0))),
    ("tokens", with_turn(0, logprobs=(-0.5,))),
    ("tokens", with_turn(0, response_ids=(3,))),
    ("tokens", with_turn(0, response_ids=(3, -4))),
    ("tokens", with_turn(0, response_ids=(), logprobs=())),
    ("tokens", with_turn(0, prompt_ids=())),
    ("logprobs", with_turn(0, logprobs=(-0.5, 0.1))),
    ("logprobs", with_turn(0, logprobs=(-0.5, math.nan))),
    ("logprobs", with_turn(0, logprobs=(math.nan, -0.5))),
    ("logprobs", with_turn(0, logprobs=(-math.inf, -0.5))),
    ("legality", with_turn(0, legal=False, invalid_reason="no_box")),
    ("legality", with_turn(0, invalid_reason="no_box")),
    ("legality", with_turn(0, action="")),
    ("legality", with_turn(21, legal=True, invalid_reason=None, action="[bet]")),
    ("legality", with_match(0, forfeited_by=0)),
    ("legality", with_match(21, forfeited_by=None)),
    ("legality", with_match(21, end_reason=EndReason.FINISHED)),
    ("legality", with_match(0, end_reason=EndReason.ILLEGAL_ACTION)),
    ("trainable", with_turn(2, trainable=True, prompt_ids=(1,), response_ids=(3,), logprobs=(-0.5,))),
    ("trainable", with_turn(0, policy_digest="of other weights")),
    ("void_share", [*GOOD[:-3], *(void(i) for i in range(21, 24))]),
    ("invalid_share", [forfeited(i) for i in range(PLANNED)]),
    ("role_balance", [match(i, **{"policies": ("self", "random")}) for i in range(1, PLANNED * 3, 3)]),
]


@pytest.mark.parametrize(("rule", "episodes"), BROKEN)
def test_one_broken_thing_fails_its_rule(tmp_path: Path, rule: str, episodes: list[Episode]) -> None:
    report = verdict(shards(tmp_path, episodes))
    assert not report.ok
    assert rule in broken_rules(report), report.failures
    assert report.bad_shards
    assert all(reasons for reasons in report.bad_shards.values())


def test_every_rule_has_a_test() -> None:
    elsewhere = {"readable", "rows", "end_reason"}
    assert {rule for rule, _ in BROKEN} | elsewhere == set(RULES)


def test_a_fault_condemns_its_own_shard_only(tmp_path: Path) -> None:
    paths = shards(tmp_path, with_turn(4, logprobs=(-0.5, 0.1)))
    report = verdict(paths)
    assert list(report.bad_shards) == [paths[1]]
    assert "000001-000004" in report.bad_shards[paths[1]][0]


def test_a_failure_of_the_whole_iteration_condemns_every_shard(tmp_path: Path) -> None:
    paths = shards(tmp_path, [forfeited(i) for i in range(PLANNED)])
    assert set(verdict(paths).bad_shards) == set(paths)


def test_few_void_matches_are_tolerated_and_counted(tmp_path: Path) -> None:
    report = verdict(shards(tmp_path, [*GOOD[:-1], void(23)]), full=True)
    assert report.ok, report.failures
    assert report.metrics["quality/void_share"] == 1 / PLANNED


@pytest.mark.parametrize("full", [True, False])
def test_nothing_never_passes(tmp_path: Path, full: bool) -> None:
    for paths in ([], shards(tmp_path, [], 1), shards(tmp_path, [], 3)):
        for planned in (0, PLANNED):
            report = verdict(paths, planned=planned, full=full)
            assert not report.ok
            assert {"rows", "episode_count"} <= broken_rules(report)
            assert math.isnan(report.metrics["quality/void_share"])


def rewrite(path: Path, column: str, change: Callable[[list[object]], list[object]]) -> None:
    table = pq.read_table(path)
    index = table.schema.get_field_index(column)
    values = pa.array(change(table[column].to_pylist()), type=table.schema.field(column).type)
    pq.write_table(table.set_column(index, table.schema.field(column), values), path)


@pytest.mark.parametrize("column", ["return_0", "return_1", "temperature"])
def test_an_all_nan_column_fails(tmp_path: Path, column: str) -> None:
    paths = shards(tmp_path, GOOD)
    for path in paths:
        rewrite(path, column, lambda values: [math.nan] * len(values))
    report = verdict(paths, full=True)
    assert "finite" in broken_rules(report)
    assert set(report.bad_shards) == set(paths)


@pytest.mark.parametrize(
    ("column", "value"),
    [("end_reason", "max_turns"), ("return_0", 0.25), ("forfeited_by", 1), ("episode_seed", 77), ("num_turns", 3)],
)
def test_two_outcomes_of_one_match_fail(tmp_path: Path, column: str, value: object) -> None:
    paths = shards(tmp_path, GOOD)
    rewrite(paths[0], column, lambda values: [value, *values[1:]])
    report = verdict(paths)
    assert "end_reason" in broken_rules(report)
    assert list(report.bad_shards) == [paths[0]]


def test_an_unheard_of_end_reason_fails(tmp_path: Path) -> None:
    paths = shards(tmp_path, GOOD)
    rewrite(paths[0], "end_reason", lambda values: ["boredom"] * 2 + values[2:])
    assert "end_reason" in broken_rules(verdict(paths))


@pytest.mark.parametrize("size", [0, 4, 2000, -1])
def test_a_truncated_file_is_a_bad_shard(tmp_path: Path, size: int) -> None:
    paths = shards(tmp_path, GOOD)
    paths[1].write_bytes(paths[1].read_bytes()[:size])
    report = verdict(paths)
    assert list(report.bad_shards) == [paths[1]]
    assert {"readable", "episode_count"} <= broken_rules(report)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.drop_columns(["role"]), "'role'"),
        (lambda t: t.append_column("mood", pa.array(["x"] * len(t))), "'mood'"),
        (lambda t: t.replace_schema_metadata({"spiral_schema_version": "7"}), "version 7"),
        (lambda t: t.set_column(0, "run", pa.nulls(len(t))), "'run'"),
    ],
)
def test_another_schema_is_a_bad_shard(
    tmp_path: Path, change: Callable[[pa.Table], pa.Table], message: str
) -> None:
    paths = shards(tmp_path, GOOD)
    pq.write_table(change(pq.read_table(paths[2])), paths[2])
    report = verdict(paths)
    assert list(report.bad_shards) == [paths[2]]
    assert message in report.bad_shards[paths[2]][0]


def test_a_missing_file_is_a_bad_shard(tmp_path: Path) -> None:
    paths = shards(tmp_path, GOOD)
    paths[0].unlink()
    assert "readable" in broken_rules(verdict(paths))


def test_a_match_that_lost_its_middle_turn_fails(tmp_path: Path) -> None:
    three = match(0, turns=tuple(turn(i, i % 2, i) for i in range(3)))
    paths = shards(tmp_path, [three, *GOOD[1:]])
    table = pq.read_table(paths[0])
    pq.write_table(table.take(np.array([0, *range(2, len(table))])), paths[0])
    assert "turns" in broken_rules(verdict(paths))


@pytest.mark.parametrize(
    ("rule", "column", "value"),
    [
        ("finite", "return_0", math.nan),
        ("returns", "return_1", 2.0),
        ("zero_sum", "return_sum", 1e-12),
        ("tokens", "num_logprobs", 9),
        ("logprobs", "highest_logprob", 0.5),
        ("logprobs", "lowest_logprob", -math.inf),
        ("finite", "temperature", 0.0),
        ("duplicate_episode", "turn", 1.0),
        ("legality", "legal", 2.0),
        ("turns", "player", 3.0),
        ("episode_count", "episode", 9.0),
    ],
)
def test_the_suite_alone_finds_a_bad_number(rule: str, column: str, value: float) -> None:
    from spiral_lib import quality_suite

    numbers: dict[str, list[float]] = {
        "episode": [1, 1, 2],
        "turn": [0, 1, 0],
        "player": [0, 1, 0],
        "legal": [1, 1, 0],
        "temperature": [1.0, 1.0, 1.0],
        "return_0": [0.5, 0.5, -1.0],
        "return_1": [-0.5, -0.5, 1.0],
        "return_sum": [0.0, 0.0, 0.0],
        "num_response_ids": [2, 2, 2],
        "num_logprobs": [2, 2, 2],
        "lowest_logprob": [-1.0, -1.0, -1.0],
        "highest_logprob": [-0.1, 0.0, -0.2],
    }
    numbers[column][0] = value
    assert {o.rule for o in quality_suite.validate(numbers, planned=2) if not o.success} == {rule}


def test_the_page_is_self_contained_and_escapes_what_models_wrote(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    report = verdict(shards(tmp_path, with_turn(0, invalid_reason=evil)), full=True)
    assert any(evil in line for line in report.failures)
    assert "<script" not in report.html
    assert "&lt;script&gt;" in report.html
    assert "http" not in report.html
    assert "expect_table_row_count" in report.html
    assert len(report.html) < 60_000


def test_a_quarantined_shard_moves_with_its_reasons(tmp_path: Path) -> None:
    path = shards(tmp_path, GOOD)[1]
    content = path.read_bytes()
    moved = quality.quarantine(path, ["turns: 'a' has turns [1]"], tmp_path / "quarantine")
    assert not path.exists()
    assert moved.read_bytes() == content
    note = json.loads(moved.with_name(f"{moved.name}.json").read_text())
    assert note["path"] == "trajectories/iteration=0001/shard-01.parquet"
    assert note["reasons"] == ["turns: 'a' has turns [1]"]
    assert len(note["sha256"]) == 64


def test_shards_of_two_iterations_do_not_meet_in_quarantine(tmp_path: Path) -> None:
    first = shards(tmp_path, GOOD, 1)[0]
    second = tmp_path / "trajectories" / "iteration=0002" / first.name
    trajectories.write_shard(second, GOOD, shard=0, **WHERE)
    moved = {quality.quarantine(path, ["x"], tmp_path / "quarantine") for path in (first, second)}
    assert len(moved) == 2
    assert all(path.is_file() for path in moved)


def test_quarantine_of_a_missing_shard_leaves_its_reasons(tmp_path: Path) -> None:
    moved = quality.quarantine(tmp_path / "iteration=0001" / "gone.parquet", ["readable"], tmp_path / "quarantine")
    assert not moved.exists()
    assert json.loads(moved.with_name(f"{moved.name}.json").read_text())["sha256"] is None
