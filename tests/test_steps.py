"""What the steps write besides what the end-to-end tests check: averages, training metrics, names of shards."""

from __future__ import annotations

import json
import math
from pathlib import Path

import micro_runs
import pytest

from spiral_lib import steps, trajectories
from spiral_lib.config import resolve
from spiral_lib.errors import DataQualityError
from spiral_lib.ledger import Ledger
from spiral_lib.rae import RoleBaselines


def test_an_average_is_over_the_rows_that_have_a_finite_number() -> None:
    rows = [{"a": 1.0, "b": math.nan}, {"a": 3.0, "b": 5.0, "c": math.inf}, {}]
    assert steps.average(rows) == {"a": 2.0, "b": 5.0}
    assert steps.average([]) == {}


def test_training_metrics_are_strict_json_without_nan() -> None:
    history = [(7, {"learner/grad_norm": 2.0, "x": math.nan}), (8, {"learner/grad_norm": math.inf})]
    content = json.loads(steps.training_json(history, {"m": 1.0, "n": math.nan}, RoleBaselines(0.5)))
    assert content["metrics"] == {"m": 1.0}
    assert content["steps"] == [{"step": 7, "metrics": {"learner/grad_norm": 2.0}}, {"step": 8, "metrics": {}}]
    assert content["grad_norms"] == [2.0]


def test_baselines_travel_through_the_ledger_with_the_configured_decay() -> None:
    before = RoleBaselines(0.5)
    before.advantage("kuhn_poker", "player 0", 1.0)
    values = json.loads(before.to_json())["values"]
    config = resolve(preset="smoke", overrides="rae.decay=0.25")
    after = steps.baselines_of(config, Ledger(baselines=values))
    assert after.value("kuhn_poker", "player 0") == before.value("kuhn_poker", "player 0") != 0.0
    after.advantage("kuhn_poker", "player 0", 0.0)
    assert after.value("kuhn_poker", "player 0") == 0.25 * before.value("kuhn_poker", "player 0")


def test_shards_lie_where_the_contract_says() -> None:
    place = steps.shard_path(Path("run"), 12, 3)
    assert place.as_posix() == "run/trajectories/iteration=0012/shard-03.parquet"


def two_shards(micro_run: Path, run: Path) -> list[Path]:
    """Return an iteration's matches as two shards, the second of which is cut off."""
    played = list(trajectories.read_episodes([steps.shard_path(micro_run, 1, 0)]))
    paths = [steps.shard_path(run, 1, i) for i in (0, 1)]
    for i, path in enumerate(paths):
        trajectories.write_shard(path, played[i::2], run="r", iteration=1, step=1, shard=i, config_hash="c")
    paths[1].write_bytes(paths[1].read_bytes()[:-20])
    return paths


def test_good_shards_are_used_when_the_bad_ones_are_within_the_allowed_share(micro_run: Path, tmp_path: Path) -> None:
    paths = two_shards(micro_run, tmp_path)
    config = resolve(preset="smoke", overrides=micro_runs.SMALL)
    checked = steps.check(config, paths, run=tmp_path, full=False, tolerated=0.5)
    assert checked.good == [paths[0]]
    assert checked.report.metrics["quality/bad_shards"] == 1.0 and "readable" in checked.report.failures[0]
    assert paths[0].exists() and not paths[1].exists()
    left = sorted(p.suffix for p in (tmp_path / "quarantine").iterdir())
    assert left == [".html", ".json", ".parquet"], "the shard, its reasons, and the page of the check"


def test_more_bad_shards_than_allowed_stop_the_run(micro_run: Path, tmp_path: Path) -> None:
    paths = two_shards(micro_run, tmp_path)
    config = resolve(preset="smoke", overrides=micro_runs.SMALL)
    with pytest.raises(DataQualityError, match=r"1 of 2 shards are bad.*quarantine"):
        steps.check(config, paths, run=tmp_path, full=False, tolerated=0.49)


def test_a_shard_that_was_not_played_is_left_out_within_the_allowed_share(micro_run: Path, tmp_path: Path) -> None:
    paths = two_shards(micro_run, tmp_path)
    paths[1].unlink()
    config = resolve(preset="smoke", overrides=micro_runs.SMALL)
    assert list(steps.check(config, paths, run=tmp_path, full=True, tolerated=0.5).good) == [paths[0]]
    with pytest.raises(DataQualityError, match=r"1 of 2 shards are bad.*shard-01.parquet was not played"):
        steps.check(config, paths, run=tmp_path, full=True, tolerated=0.49)
    paths[0].unlink()
    with pytest.raises(DataQualityError, match="2 of 2 shards are bad"):
        steps.check(config, paths, run=tmp_path, full=True, tolerated=1.0)


def test_no_shards_never_pass(tmp_path: Path) -> None:
    config = resolve(preset="smoke", overrides=micro_runs.SMALL)
    with pytest.raises(DataQualityError):
        steps.check(config, [], run=tmp_path, full=False, tolerated=1.0)
