"""A run that is killed at any moment ends in the very bytes of one that is not."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

KILLS = 24


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
