"""Ctrl-C during ``pyflyte run``: one line on what is kept, one on what goes on, and the exit code of ``spiral``."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import micro_runs
import pytest

pytest.importorskip("flytekit")

ROOT = Path(__file__).parents[2]
PYFLYTE = str(Path(sys.executable).with_name("pyflyte"))


def test_ctrl_c_says_what_is_kept_and_which_command_goes_on(micro_checkpoint: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    settings = micro_runs.overrides(micro_checkpoint, "cold_start.gate_matches=2000 iterations=400")
    arguments = ["run", "workflows/spiral.py", "train", "--preset", "smoke", "--overrides", settings, "--out", str(run)]
    variables = {**os.environ, "HOME": str(tmp_path), "OMP_NUM_THREADS": "1", "COLUMNS": "300", "NO_COLOR": "1"}
    process = subprocess.Popen(
        [PYFLYTE, *arguments], cwd=ROOT, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        deadline = time.monotonic() + 400
        while not any((run / "checkpoints").glob("*")) and process.poll() is None:  # the cold start is at work
            assert time.monotonic() < deadline
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 130, err
    assert "Traceback" not in out + err
    said = [line for line in err.splitlines() if line.startswith(("stopped: ", "continue with: "))]
    assert said[0] == f"stopped: the cold start was not finished; whatever step of it was done is kept in {run}"
    assert shlex.split(said[1].removeprefix("continue with: ")) == ["pyflyte", *arguments]
