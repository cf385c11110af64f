"""Every evaluation of a run keeps its benchmark replies, as a recorded output of the step."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from spiral_lib import lineage, publish, steps
from spiral_lib.config import resolve


@pytest.mark.parametrize("iteration", [0, 1, 2])
def test_the_replies_of_an_iteration_are_recorded_and_give_its_score(micro_run: Path, iteration: int) -> None:
    folder = micro_run / "evaluations" / f"{iteration:04d}"
    (record,) = [r for r in lineage.read_all(micro_run) if r.step == "evaluate" and r.order == iteration]
    assert record.outputs["replies"].path == folder.relative_to(micro_run).as_posix()
    rows = pq.read_table(folder / "bank.parquet").to_pylist()
    scores = json.loads(folder.with_suffix(".json").read_text())
    assert [row["correct"] for row in rows] == scores["bank_correct"]
    assert len(rows) == 4 and len({row["seed"] for row in rows}) == 4


def test_a_changed_reply_is_found_by_the_audit(micro_run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(micro_run, copy)
    file = copy / "evaluations" / "0001" / "bank.parquet"
    file.write_bytes(file.read_bytes() + b"x")
    assert [p.path for p in lineage.audit(copy)] == ["evaluations/0001"]


def test_without_a_benchmark_there_is_no_folder_of_replies(tmp_path: Path) -> None:
    without = resolve(preset="smoke", overrides="evaluation.bank=false")
    assert steps.replies_folder(without, tmp_path, 3) is None
    assert steps.replies_folder(resolve(preset="smoke"), tmp_path, 3) == tmp_path / "evaluations" / "0003"


def test_a_runs_history_has_its_scores_and_leaves_the_replies_where_they_are(micro_run: Path, tmp_path: Path) -> None:
    copied = publish.copy_history(micro_run, tmp_path / "history")
    assert (copied / "evaluations" / "0001.json").is_file()
    assert not list(copied.rglob("*.parquet"))
