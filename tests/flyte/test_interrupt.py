"""Ctrl-C during ``pyflyte run``, and what it prints at the end."""

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


def test_ctrl_c_says_what_is_kept_and_the_same_command_goes_on_to_a_readable_end(
    micro_checkpoint: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"

    def command(iterations: int) -> list[str]:
        settings = micro_runs.overrides(micro_checkpoint, f"{micro_runs.WITHOUT_EVALUATION} iterations={iterations}")
        arguments = ("--preset", "smoke", "--overrides", settings, "--out", str(run))
        return [PYFLYTE, "run", "workflows/spiral.py", "train", *arguments]

    variables = {**os.environ, "HOME": str(tmp_path), "OMP_NUM_THREADS": "1", "COLUMNS": "300", "NO_COLOR": "1"}
    started = {"cwd": ROOT, "env": variables, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command(400), **started)  # type: ignore[call-overload]
    deadline = time.monotonic() + 240
    while not (run / "ledgers" / "0001.json").is_file() and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "Traceback" not in out + err
    said = [line for line in err.splitlines() if line.startswith(("stopped: ", "continue with: "))]
    assert len(said) == 2
    assert "finished and kept in" in said[0] and str(run) in said[0]
    assert shlex.split(said[1].removeprefix("continue with: ")) == ["pyflyte", *command(400)[1:]]

    kept = len(list((run / "ledgers").glob("*.json"))) - 1
    done = subprocess.run(command(kept), **started, timeout=240)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stderr
    assert "TrainState(" not in done.stdout
    last = dict(line.split(None, 1) for line in done.stdout.splitlines() if line.startswith(("iteration ", "report ")))
    assert last["iteration"].strip() == str(kept)
    assert Path(last["report"].strip()).is_file()
