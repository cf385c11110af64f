"""A run that is killed at any moment, or finds its newest checkpoint damaged, ends in the very same bytes."""

import json
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import micro_runs
import pytest

from spiral_lib import checkpoints, lineage, pipeline

KILLS = 24


@pytest.mark.parametrize("damage", ["truncated", "corrupt"])
def test_a_damaged_newest_checkpoint_is_reported_and_made_again_from_the_one_before(
    micro_run: Path, micro_checkpoint: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    run = tmp_path / "run"
    shutil.copytree(micro_run, run)
    weights = run / "checkpoints" / "0002" / "model.safetensors"
    content = weights.read_bytes()
    weights.unlink()  # snapshots are hard links to it
    weights.write_bytes(content[:-1000] if damage == "truncated" else content[:-1] + bytes([content[-1] ^ 1]))
    with caplog.at_level(logging.WARNING):
        pipeline.train(micro_runs.config(micro_checkpoint), run)
    assert any("iteration 2, learn: checkpoints/0002: " in message for message in caplog.messages)
    ids = micro_runs.checkpoint_ids(run)
    assert ids == micro_runs.checkpoint_ids(micro_run)
    assert checkpoints.read_manifest(run / "checkpoints" / "0002").parent == ids[1]
    assert lineage.audit(run) == []


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_run_killed_two_dozen_times_ends_in_the_same_bits(tmp_path: Path) -> None:
    here = Path(__file__).parent
    paths = os.pathsep.join([str(here.parent), str(here.parents[1])])
    quiet = {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    command = [sys.executable, str(here / "fault_driver.py"), str(tmp_path), "0", str(KILLS)]
    done = subprocess.run(command, env=os.environ | quiet, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1])["kills"] >= KILLS
