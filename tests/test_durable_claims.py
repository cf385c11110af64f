"""A run folder belongs to one process at a time, and a full disk ends a run in a message that says how to go on."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import micro_runs
import pytest

from spiral_lib import durable, pipeline
from spiral_lib.errors import ConfigError, SpiralError

HOLDER = """
import sys, time
from pathlib import Path
from spiral_lib import durable
durable.claim(Path(sys.argv[1]))
print("claimed", flush=True)
time.sleep(120)
"""


@pytest.fixture
def held(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has claimed ``tmp_path/run``."""
    (tmp_path / "run").mkdir()
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "claimed\n"
        yield process
        process.kill()


def test_a_second_process_is_told_who_trains_in_the_folder_and_changes_nothing(
    held: subprocess.Popen[str], micro_checkpoint: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=rf"in use by process {held.pid} on \S+; wait for it, stop it, or choose"):
        pipeline.train(micro_runs.config(micro_checkpoint), tmp_path / "run")
    assert [p.name for p in (tmp_path / "run").iterdir()] == [durable.LOCK]


def test_a_claim_ends_with_its_process(held: subprocess.Popen[str], tmp_path: Path) -> None:
    held.kill()
    held.wait()
    durable.claim(tmp_path / "run")
    durable.release(tmp_path / "run")


def test_a_process_may_claim_twice_and_others_get_the_folder_after_the_last_release(tmp_path: Path) -> None:
    asks = [sys.executable, "-c", "import sys; from pathlib import Path; from spiral_lib import durable;"]
    asks[-1] += "durable.claim(Path(sys.argv[1]))"
    refused = []
    durable.claim(tmp_path)
    durable.claim(tmp_path)
    for _ in range(2):
        refused.append(subprocess.run([*asks, str(tmp_path)], capture_output=True, check=False).returncode != 0)
        durable.release(tmp_path)
    durable.release(tmp_path)
    refused.append(subprocess.run([*asks, str(tmp_path)], capture_output=True, check=False).returncode != 0)
    assert refused == [True, True, False]


def test_a_folder_that_takes_no_lock_is_used_without() -> None:
    durable.claim(Path("/proc/self"))
    durable.release(Path("/proc/self"))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)], capture_output=True)
    if made.returncode:
        pytest.skip("needs the right to mount a file system")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_ends_the_run_in_one_message_and_with_room_it_ends_as_if_nothing_had_been(
    small_disk: Path, micro_checkpoint: Path, tmp_path: Path
) -> None:
    config = micro_runs.config(micro_checkpoint, f"iterations=1 {micro_runs.WITHOUT_EVALUATION}")
    whole, run, filler = tmp_path / "whole", small_disk / "run", small_disk / "filler"
    pipeline.train(config, whole)
    size = sum(p.stat().st_size for p in whole.rglob("*") if p.is_file())
    for free in (size // 6, size // 2, size * 4 // 5):
        used = sum(p.stat().st_size for p in run.rglob("*") if p.is_file())
        filler.write_bytes(os.urandom(max(0, (2 << 20) - max(free, used + 8192) - 65536)))
        with pytest.raises(SpiralError, match=r"no room left to write '.*run'.*spiral expire.*same command again"):
            pipeline.train(config, run)
        assert not list(run.rglob("*.tmp")), "nothing half-written stays"
    filler.unlink()
    pipeline.train(config, run)
    assert micro_runs.checkpoint_ids(run) == micro_runs.checkpoint_ids(whole)
    assert micro_runs.turns_hashes(run) == micro_runs.turns_hashes(whole)
