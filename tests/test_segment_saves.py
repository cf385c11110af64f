"""A segment that is broken off goes on from its last save to the same hashes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import micro_runs
import pytest
from micro_runs import WITHOUT_EVALUATION, checkpoint_ids, turns_hashes

from spiral_lib import pipeline, steps

MORE = (
    f"{WITHOUT_EVALUATION} iterations=1 rollout.steps_per_iteration=3 rollout.save_every=1 "
    "opponents.self_play=1 opponents.pool=0"
)


class Killed(Exception):
    pass


def train(checkpoint: Path, run: Path, more: str = "") -> Path:
    pipeline.train(micro_runs.config(checkpoint, f"{MORE} {more}"), run)
    return run


@pytest.fixture(scope="module")
def broken_off(micro_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a function that makes a run broken off after its second of three steps."""

    def make(more: str = "") -> Path:
        run = tmp_path_factory.mktemp("broken") / "run"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(steps, "_play", dying_at(3, steps._play))
            with pytest.raises(Killed):
                train(micro_checkpoint, run, more)
        return run

    return make


def dying_at(last: int, play: Any) -> Any:
    def played(*given: Any, step: int, **more: Any) -> Any:
        if step == last:
            raise Killed
        return play(*given, step=step, **more)

    return played


def counted(play: Any, seen: list[int]) -> Any:
    def played(*given: Any, step: int, **more: Any) -> Any:
        seen.append(step)
        return play(*given, step=step, **more)

    return played


@pytest.mark.parametrize(
    "more",
    [
        "",
        pytest.param("learner.ema_decay=0.5", marks=pytest.mark.slow),
        pytest.param("learner.optimizer_state=none", marks=pytest.mark.slow),
    ],
)
def test_it_goes_on_after_the_last_save_to_the_same_hashes(
    micro_checkpoint: Path, broken_off: Any, tmp_path: Path, more: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train(micro_checkpoint, tmp_path / "whole", more)
    run = broken_off(more)
    assert (run / "partial" / "0001").is_dir()
    seen: list[int] = []
    monkeypatch.setattr(steps, "_play", counted(steps._play, seen))
    train(micro_checkpoint, run, more)
    assert seen == [3]
    assert checkpoint_ids(run) == checkpoint_ids(whole)
    assert turns_hashes(run) == turns_hashes(whole)
    assert (run / "training" / "0001.json").read_text() == (whole / "training" / "0001.json").read_text()
    parents = [(r / "checkpoints" / "0001" / "manifest.json").read_text() for r in (run, whole)]
    assert parents[0] == parents[1]
    assert not (run / "partial" / "0001").exists()


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["shard", "progress"])
def test_a_save_that_does_not_fit_any_more_is_not_used(
    micro_checkpoint: Path, broken_off: Any, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = broken_off()
    if damage == "shard":
        next((run / "trajectories").rglob("shard-00.parquet")).unlink()
    else:
        (run / "partial" / "0001" / "progress.json").write_text("{")
    seen: list[int] = []
    monkeypatch.setattr(steps, "_play", counted(steps._play, seen))
    train(micro_checkpoint, run)
    assert seen == [1, 2, 3]


TRAIN = """
import sys
from pathlib import Path
from spiral_lib import pipeline
from spiral_lib.config import resolve
pipeline.train(resolve(preset="smoke", overrides=sys.argv[1]), Path(sys.argv[2]))
"""


@pytest.mark.slow
def test_a_killed_process_loses_at_most_the_steps_since_the_last_save(
    micro_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = "rollout.steps_per_iteration=6 rollout.save_every=2 rollout.matches=32"
    whole = train(micro_checkpoint, tmp_path / "whole", more)
    run = tmp_path / "killed"
    command = [sys.executable, "-c", TRAIN, micro_runs.overrides(micro_checkpoint, f"{MORE} {more}"), str(run)]
    shards = run / "trajectories" / "iteration=0001"
    # After the first save, and after the second in the process that went on from the first.
    for moment in (shards / "shard-02.parquet", shards / "shard-04.parquet"):
        kill_at(moment, command)
    seen: list[int] = []
    monkeypatch.setattr(steps, "_play", counted(steps._play, seen))
    train(micro_checkpoint, run, more)
    assert seen and set(seen) <= {5, 6}
    assert checkpoint_ids(run) == checkpoint_ids(whole)
    assert turns_hashes(run) == turns_hashes(whole)
    assert (run / "training" / "0001.json").read_text() == (whole / "training" / "0001.json").read_text()
    assert not list(run.rglob("*.tmp")) and not (run / "partial" / "0001").exists()


def kill_at(moment: Path, command: list[str]) -> None:
    """Run a command and kill its process as soon as a file is there."""
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"})
    deadline = time.monotonic() + 120
    while not moment.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, f"the run ended before '{moment.name}' appeared"
