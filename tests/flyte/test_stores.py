"""Outputs in a store: placed as in a run folder, and missed in a message that names them."""

from __future__ import annotations

import dataclasses
import os
import shutil
from pathlib import Path

import fsspec
import micro_runs
import pytest
from flytekit.types.directory import FlyteDirectory

from spiral_lib import cli, lineage, pipeline, published, stored
from spiral_lib.errors import LineageError
from spiral_lib.state import read_state, write_places
from tasks.types import placed

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
    for name in ("lineage", "ledgers", "training", "pool"):
        shutil.rmtree(root / name)
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
