"""Asking a finished run for fewer iterations again changes nothing of it."""

from __future__ import annotations

from pathlib import Path

import micro_runs

from spiral_lib import pipeline


def test_fewer_iterations_rewind_no_run(micro_checkpoint: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    pipeline.train(micro_runs.config(micro_checkpoint, "iterations=2"), run)
    names = ("ledger.json", "metrics.jsonl", "steps.jsonl", "samples.json", "state.json")
    before = {name: (run / name).read_bytes() for name in names}
    pool = sorted(p.name for p in (run / "pool").iterdir())
    again = pipeline.train(micro_runs.config(micro_checkpoint, "iterations=1"), run)
    assert again.iteration == 1
    assert {name: (run / name).read_bytes() for name in names} == before
    assert sorted(p.name for p in (run / "pool").iterdir()) == pool


def test_damaged_samples_stop_neither_report_nor_run(micro_checkpoint: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    pipeline.train(micro_runs.config(micro_checkpoint, "iterations=1"), run)
    (run / "samples.json").write_text('{"a":[')
    assert pipeline.train(micro_runs.config(micro_checkpoint, "iterations=2"), run).iteration == 2
    assert (run / "samples.json").read_text().startswith("[")
