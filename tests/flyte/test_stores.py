"""Outputs in a store: placed as in a run folder, and missed in a message that names them."""

from __future__ import annotations

import dataclasses
import itertools
import os
import re
import shutil
from pathlib import Path

import fsspec
import micro_runs
import pytest
from control_plane import TOOL
from flytekit.types.directory import FlyteDirectory

from spiral_lib import cli, lineage, pipeline, published, stored
from spiral_lib.config import resolve
from spiral_lib.errors import LineageError
from spiral_lib.state import read_state, write_places
from tasks.config import Preset
from tasks.types import placed
from workflows import spiral

OUT = "memory://bucket/runs/one"


def test_what_lies_in_the_runs_store_is_placed_as_in_a_run_folder(tmp_path: Path) -> None:
    fsspec.filesystem("memory").pipe_file("/bucket/runs/one/checkpoints/0001/manifest.json", b"{}")
    found = placed(FlyteDirectory.from_source(f"{OUT}/checkpoints/0001"), tmp_path, OUT)
    assert found == tmp_path / "checkpoints" / "0001"
    assert (found / "manifest.json").read_bytes() == b"{}"


def test_an_output_deleted_under_the_cache_is_named_with_the_way_out(tmp_path: Path) -> None:
    gone = FlyteDirectory.from_source(f"{OUT}/checkpoints/0009")
    with pytest.raises(LineageError, match=r"'memory://bucket/runs/one/checkpoints/0009' is gone .*--overwrite-cache"):
        placed(gone, tmp_path, OUT)


def train_into(out: str) -> tuple[str, dict[int, str]]:
    """Train into a store as a cluster does, task by task but in this process, and look at what lies there.

    Returns the overrides of preset smoke and the ids of the checkpoints by iteration.
    """
    more = "iterations=4 rollout.steps_per_iteration=2 rollout.save_every=1 retention.keep_recent=1"
    overrides = f"{micro_runs.FROM_NOTHING} opponents.capacity=1 opponents.keep_recent=1 {more}"
    spiral.train(preset=Preset.SMOKE, overrides=overrides, out=out)
    files, root = fsspec.core.url_to_fs(out)
    kept = {path.removeprefix(root).split("/")[2] for path in files.find(root) if path.endswith("model.safetensors")}
    assert kept == {"0000", "0002", "0003", "0004"}, "one more than on a disk: a step may have to be repeated"
    with stored.opened(out) as run:
        assert lineage.audit(run) + published.problems(run) == []
        named = [a.path for r in lineage.read_all(run) for a in (*r.inputs.values(), *r.outputs.values())]
        assert not [path for path in named if Path(path).is_absolute()], "no record names a place of a container"
        return overrides, micro_runs.checkpoint_ids(run)


def test_a_run_into_a_store_audits_names_places_in_it_and_stays_bounded() -> None:
    train_into("memory://bucket/runs/whole")


@pytest.mark.slow
def test_in_a_bucket_whose_every_tenth_write_fails_at_first_a_run_ends_as_on_a_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not TOOL.is_dir():
        pytest.skip(f"needs the S3 stand-in {TOOL}")
    s3fs = pytest.importorskip("s3fs", reason="the S3 protocol comes with the extra flyte")
    monkeypatch.syspath_prepend(str(TOOL))
    from miniflyte.store import S3Server, Store

    server, writes = S3Server(Store(tmp_path / "store")), itertools.count(1)
    server.httpd.fail_puts = lambda key: next(writes) % 10 == 0
    address = {"ENDPOINT_URL": server.url, "ACCESS_KEY_ID": "mini", "SECRET_ACCESS_KEY": "miniflyte"}
    for name, value in {**address, "DEFAULT_REGION": "us-east-1", "EC2_METADATA_DISABLED": "true"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    for name, flyte in (("ENDPOINT_URL", "ENDPOINT"), ("ACCESS_KEY_ID",) * 2, ("SECRET_ACCESS_KEY",) * 2):
        monkeypatch.setenv(f"FLYTE_AWS_{flyte}", address[name])
    s3fs.S3FileSystem.clear_instance_cache()
    overrides, made = train_into("s3://mini/runs/one")
    assert next(writes) > 20
    pipeline.train(resolve(preset="smoke", overrides=overrides), tmp_path / "local")
    assert made == micro_runs.checkpoint_ids(tmp_path / "local")
    server.close()


@pytest.fixture
def store(micro_run: Path, tmp_path: Path) -> Path:
    """The micro run as a run of the cluster leaves it below its store root."""
    root = tmp_path / "store"
    shutil.copytree(micro_run, root)
    history = root / "history" / "0002"
    large = shutil.ignore_patterns("checkpoints", "optimizer", "*.parquet", "history", "pool")
    shutil.copytree(root, history, ignore=large)
    state = read_state(micro_run)
    names = ("checkpoint", "optimizer", "champion", "champion_scores", "cold_start", "cold_start_scores")
    places = {name: f"{OUT}/{getattr(state, name).relative_to(micro_run)}" for name in names}
    opponents = [f"{OUT}/{o.relative_to(micro_run)}" for o in state.opponents]
    places["ledger"] = state.ledger.relative_to(micro_run).as_posix()
    write_places(history, iteration=2, places=places, opponents=opponents)
    for name in ("state.json", "metrics.jsonl", "ledger.json", "report.html"):
        (root / name).unlink()
    for name in ("ledgers", "training", "pool"):
        shutil.rmtree(root / name)
    for record in (root / "lineage").iterdir():  # a task leaves its own record; those of small steps are in the history
        if not re.search(r"-(play-\d+|learn|evaluate)\.json$", record.name):
            record.unlink()
    return root


def test_a_run_in_a_store_is_audited_as_completely_as_a_run_folder(store: Path, tmp_path: Path) -> None:
    before = sorted(p.relative_to(store) for p in store.rglob("*"))
    with stored.opened(str(store)) as run:
        assert lineage.audit(run) + published.problems(run) == []
        assert len(list((run / "pool").iterdir())) == len(read_state(run).opponents) > 0
    assert sorted(p.relative_to(store) for p in store.rglob("*")) == before, "an audit changes nothing"
    files = fsspec.filesystem("memory")
    files.put(f"{store}/", "/bucket/runs/one/", recursive=True)
    assert cli.run(["audit", OUT]) == 0
    (store / "history" / "0002" / "metrics.jsonl").write_text("{}")
    with stored.opened(str(store)) as run:
        assert [p.path for p in published.problems(run)] == ["metrics.jsonl"]


def test_numbers_and_steps_of_a_run_in_a_store_are_followed_and_replayed(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["audit", str(store), "--why", "eval/kuhn_poker/exploitability"]) == 0
    assert "2/evaluate" in capsys.readouterr().out
    assert cli.run(["audit", str(store), "--replay", "2/decide"]) == 0


def test_a_place_without_a_run_is_a_mistake_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["audit", str(tmp_path / "nothing")]) != 0
    assert "is no folder" in capsys.readouterr().err
    assert cli.run(["audit", "memory://bucket/nothing"]) != 0
    assert "cannot read 'memory://bucket/nothing'" in capsys.readouterr().err


def test_files_that_other_clocks_dated_change_nothing(micro_run: Path, micro_checkpoint: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(micro_run, run)
    for i, file in enumerate(sorted((run / "lineage").glob("*.json"))):
        record = lineage.StepRecord.from_json(file.read_text())
        lineage.write(run, dataclasses.replace(record, start=f"{2099 - i}-01-01T00:00:00+00:00", seconds=-5.0))
    for i, path in enumerate(sorted(p for p in run.rglob("*") if p.is_file())):
        os.utime(path, ((i % 2) * 4_000_000_000 + i,) * 2)
    done = micro_runs.records(run)
    pipeline.train(micro_runs.config(micro_checkpoint), run)
    assert micro_runs.records(run) == done, "no step ran again"
    assert micro_runs.checkpoint_ids(run) == micro_runs.checkpoint_ids(micro_run)
    assert lineage.audit(run) + published.problems(run) == []
