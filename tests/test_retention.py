"""Retention: what nothing needs goes, what anything needs stays, and expired is not missing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import micro_runs
import pytest

from spiral_lib import cli, expired, lineage, pipeline, retention
from spiral_lib.config import RunConfig
from spiral_lib.errors import ConfigError, LineageError
from spiral_lib.retention import Rule
from spiral_lib.state import read_state

TIGHT = Rule(keep_recent=1, keep_shards=1)


def config(checkpoint: Path, iterations: int) -> RunConfig:
    more = f"opponents.capacity=1 opponents.keep_recent=1 iterations={iterations} {micro_runs.WITHOUT_EVALUATION}"
    return micro_runs.config(checkpoint, more)


@pytest.fixture(scope="module")
def finished(micro_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three iterations with a pool of one; tests work on copies."""
    run = tmp_path_factory.mktemp("retention") / "run"
    pipeline.train(config(micro_checkpoint, 3), run)
    return run


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


def present(run: Path, kind: str) -> set[str]:
    """Return the names below a folder of the run that still hold weights or turns."""
    files = [*(run / kind).rglob("*.safetensors"), *(run / kind).rglob("*.parquet")]
    return {file.relative_to(run / kind).parts[0] for file in files}


def test_only_what_nothing_needs_goes(run: Path) -> None:
    gone = {tombstone.path for tombstone in retention.expire(run, TIGHT)}
    # 0003 is the newest and the pool; its step read 0002 and its optimizer; 0000 is cold start and champion.
    assert present(run, "checkpoints") == {"0000", "0002", "0003"}
    assert present(run, "optimizer") == {"0002", "0003"}
    assert present(run, "trajectories") == {"iteration=0003"}
    assert "checkpoints/0001" in gone
    assert not any(path.startswith(("lineage/", "ledgers/", "evaluations/", "training/")) for path in gone)
    assert read_state(run).iteration == 3


def test_an_audit_counts_expired_outputs_as_whole_and_still_sees_what_is_missing(run: Path) -> None:
    retention.expire(run, TIGHT)
    assert lineage.audit(run) == []
    shutil.rmtree(run / "checkpoints" / "0002")
    assert [p.path for p in lineage.audit(run)] == ["checkpoints/0002"]


def test_a_checkpoint_that_expired_keeps_its_name_and_nothing_heavy(run: Path) -> None:
    identity = micro_runs.checkpoint_ids(run)[1]
    retention.expire(run, TIGHT)
    assert [p.name for p in (run / "checkpoints" / "0001").iterdir()] == ["manifest.json"]
    assert micro_runs.checkpoint_ids(run)[1] == identity


def test_a_run_goes_on_after_expiry_exactly_as_without(
    run: Path, finished: Path, micro_checkpoint: Path, tmp_path: Path
) -> None:
    shutil.copytree(finished, tmp_path / "whole")
    retention.expire(run, TIGHT)
    before = micro_runs.records(run)
    for folder in (run, tmp_path / "whole"):
        pipeline.train(config(micro_checkpoint, 4), folder)
    assert micro_runs.checkpoint_ids(run)[4] == micro_runs.checkpoint_ids(tmp_path / "whole")[4]
    assert {name: micro_runs.records(run)[name] for name in before} == before, "no earlier step ran again"
    assert lineage.audit(run) == []


def test_a_step_whose_input_expired_says_so_instead_of_running(run: Path, micro_checkpoint: Path) -> None:
    retention.expire(run, TIGHT)
    lineage.record_path(run, 2, "learn").unlink()
    with pytest.raises(LineageError, match=r"would have to run again, but its inputs .*checkpoint.* have expired"):
        pipeline.train(config(micro_checkpoint, 3), run)


def test_every_nth_checkpoint_stays_with_what_replays_its_step(run: Path) -> None:
    retention.expire(run, Rule(keep_recent=0, keep_every=2, keep_shards=0))
    # 0003 is where the run stands; 0002 is kept by rule and was learned from 0001 and the shards of iteration 2.
    assert present(run, "checkpoints") == {"0000", "0001", "0002", "0003"}
    assert present(run, "trajectories") == {"iteration=0002", "iteration=0003"}


def test_a_rule_that_keeps_all_expires_nothing_and_a_second_time_there_is_nothing_to_do(run: Path) -> None:
    assert retention.due(run, Rule(keep_recent=9, keep_shards=9)) == []
    assert retention.expire(run, TIGHT) != []
    assert retention.expire(run, TIGHT) == []


def test_deleting_that_is_interrupted_leaves_a_run_that_audits(run: Path) -> None:
    tombstones = retention.due(run, TIGHT)
    expired.add(run, tombstones)
    for tombstone in tombstones[: len(tombstones) // 2]:
        place = run / tombstone.path
        shutil.rmtree(place) if place.is_dir() else place.unlink()
    assert lineage.audit(run) == []
    retention.expire(run, TIGHT)
    assert lineage.audit(run) == []
    assert present(run, "trajectories") == {"iteration=0003"}


def test_a_tombstone_with_another_hash_excuses_nothing(run: Path) -> None:
    retention.expire(run, TIGHT)
    entries = json.loads((run / expired.FILE).read_text())
    for entry in entries:
        entry["sha256"] = "0" * 64
    (run / expired.FILE).write_text(json.dumps(entries))
    assert {p.path for p in lineage.audit(run)} >= {"checkpoints/0001"}


def test_a_folder_without_a_state_loses_nothing(run: Path) -> None:
    (run / "state.json").unlink()
    with pytest.raises(LineageError, match="nothing expires"):
        retention.expire(run, TIGHT)
    assert present(run, "checkpoints") == {"0000", "0001", "0002", "0003"}


def test_negative_rules_are_refused() -> None:
    with pytest.raises(ConfigError, match="negative"):
        Rule(keep_recent=-1)


def test_the_command_tries_first_and_then_frees(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["expire", str(run), "--keep-recent", "1", "--keep-shards", "1"]
    assert cli.run([*arguments, "--dry-run"]) == 0
    assert "would go" in capsys.readouterr().out
    assert present(run, "checkpoints") == {"0000", "0001", "0002", "0003"}
    assert cli.run(arguments) == 0
    assert "freed" in capsys.readouterr().out
    assert present(run, "checkpoints") == {"0000", "0002", "0003"}
