"""A process that answers line by line: whole lines only, killed and started anew, blind to the variables here."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from spiral_lib.line_process import LineProcess

SCRIPT = """
import json, os, sys, time
print("ready", flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if asked == "slow":
        sys.stdout.write("half and ")
        sys.stdout.flush()
        time.sleep(0.5)
    if asked == "end":
        break
    print(os.environ.get("SECRET", "no secret") if asked == "secret" else asked, flush=True)
"""


@pytest.fixture
def process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LineProcess]:
    monkeypatch.setenv("SECRET", "hidden")
    (tmp_path / "script.py").write_text(SCRIPT)
    made = LineProcess(tmp_path / "script.py", environment={})
    yield made
    made.stop()


def soon() -> float:
    return time.monotonic() + 20


def test_a_line_cut_by_a_deadline_is_read_whole_later(process: LineProcess) -> None:
    assert process.wait_ready(20)
    process.write("slow")
    while not (line := process.read(time.monotonic() + 0.05)):
        assert process.is_running
    assert line == b"half and slow\n"
    process.write("next")
    assert process.read(soon()) == b"next\n"


def test_a_stopped_process_is_replaced_and_nothing_of_it_is_left_over(process: LineProcess) -> None:
    assert process.wait_ready(20)
    first = process.pid
    process.write("slow")
    assert process.read(time.monotonic() + 0.2) == b""
    process.stop()
    assert process.pid is None and not process.is_running
    assert process.wait_ready(20) and process.pid != first
    process.write("again")
    assert process.read(soon()) == b"again\n"


def test_a_process_that_ends_gives_no_line_and_one_that_cannot_start_is_not_ready(
    process: LineProcess, tmp_path: Path
) -> None:
    assert process.wait_ready(20)
    process.write("end")
    assert process.read(soon()) == b""
    (tmp_path / "broken.py").write_text("raise SystemExit(1)")
    broken = LineProcess(tmp_path / "broken.py")
    assert not broken.wait_ready(20) and broken.pid is None


def test_the_process_sees_only_the_variables_it_is_given(process: LineProcess) -> None:
    assert process.wait_ready(20)
    process.write("secret")
    assert process.read(soon()) == b"no secret\n"
