"""Retention: what nothing needs goes, what anything needs stays, and expired is not missing."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from pathlib import Path

import fsspec
import micro_runs
import pytest

from spiral_lib import cli, expired, lineage, pipeline, published, retention
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


def test_a_run_that_tidies_up_as_it_goes_ends_at_the_same_hashes_and_its_disk_stays_bounded(
    micro_checkpoint: Path, tmp_path: Path
) -> None:
    tidy, whole = tmp_path / "tidy", tmp_path / "whole"
    rule = "retention.keep_recent=1 retention.keep_shards=1"
    held: list[set[str]] = []
    more = f"opponents.capacity=1 opponents.keep_recent=1 iterations=5 {micro_runs.WITHOUT_EVALUATION}"
    pipeline.train(
        micro_runs.config(micro_checkpoint, f"{more} {rule}"), tidy, on_state=lambda s: held.append(present(tidy, "."))
    )
    pipeline.train(micro_runs.config(micro_checkpoint, f"{more} retention.enabled=false"), whole)
    assert micro_runs.checkpoint_ids(tidy) == micro_runs.checkpoint_ids(whole)
    assert present(whole, "checkpoints") == {f"000{i}" for i in range(6)}
    assert present(tidy, "checkpoints") == {"0000", "0004", "0005"}
    assert present(tidy, "optimizer") == {"0004", "0005"}
    assert present(tidy, "trajectories") == {"iteration=0005"}
    assert lineage.audit(tidy) + published.problems(tidy) == []
    before = micro_runs.records(tidy)
    pipeline.train(micro_runs.config(micro_checkpoint, more), tidy)
    assert micro_runs.records(tidy) == before, "a tidied run does nothing again"


def test_expiry_goes_by_iterations_and_not_by_a_clock_that_may_jump(run: Path) -> None:
    expected = [t.path for t in retention.due(run, TIGHT)]
    for i, file in enumerate(sorted((run / "lineage").glob("*.json"))):
        record = lineage.StepRecord.from_json(file.read_text())
        year = 2099 - i
        lineage.write(run, dataclasses.replace(record, start=f"{year}-01-01T00:00:00+00:00", seconds=-5.0))
    for i, path in enumerate(sorted(p for p in run.rglob("*") if p.is_file())):
        os.utime(path, ((i % 2) * 4_000_000_000 + i, (i % 2) * 4_000_000_000 + i))
    assert [t.path for t in retention.due(run, TIGHT)] == expected
    assert lineage.audit(run) + published.problems(run) == []


def test_a_run_in_a_store_expires_there_and_what_a_repeated_step_may_need_stays(run: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(run, store)
    for folder in retention.KINDS:
        shutil.rmtree(run / folder)
    content = json.loads((run / "state.json").read_text())
    url = f"file://{store}"
    for name, value in content.items():
        if isinstance(value, str) and value.startswith(retention.KINDS):
            content[name] = f"{url}/{value}"
    content["opponents"] = [f"{url}/{path}" for path in content["opponents"]]
    (run / "state.json").write_text(json.dumps(content))
    due = retention.due_in_store(run, TIGHT, url, before=3)
    assert {t.path for t in due} == {t.path for t in retention.due(store, TIGHT)}
    files = fsspec.filesystem("file")
    retention.expire_in_store(run, due, files, url)
    assert present(store, "checkpoints") == {"0000", "0002", "0003"}
    assert present(store, "optimizer") == {"0002", "0003"}
    assert retention.due_in_store(run, TIGHT, url, before=3) == []
    (run / expired.FILE).unlink()
    again = retention.due_in_store(run, TIGHT, url, before=3)
    assert {t.path for t in again} == {t.path for t in due}, "a killed attempt is told of once more"
    retention.expire_in_store(run, again, files, url)
    shutil.copy(run / expired.FILE, store / expired.FILE)
    assert lineage.audit(store) == []
