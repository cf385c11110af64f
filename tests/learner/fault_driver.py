"""Trains a micro run that is killed again and again, each time somewhere else, until it gets through.

Run as ``fault_driver.py FOLDER SEED KILLS``. Half of the kills come right at an operation on a file of the run, with
SIGKILL; the other half after some processor time, wherever that is. Children are forked from a process that has
everything imported, so that they spend their lives in the run.
"""

import json
import os
import random
import signal
import sys
from pathlib import Path

import micro_runs

from spiral_lib import lineage, pipeline

MORE = f"{micro_runs.WITHOUT_EVALUATION} iterations=3 opponents.pool=0.5 opponents.self_play=0.5"
CHANGES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "shutil.rmtree")


def main(folder: Path, seed: int, kills: int) -> None:
    start = micro_runs.train_cold_start(folder / "cold" / "checkpoint")
    config = micro_runs.config(start, MORE)
    reference = folder / "reference"
    pipeline.train(config, reference)
    draw, done, runs = random.Random(seed), 0, 0
    operations, seconds = _measure(config, folder / "counted")
    while done < kills:
        run = folder / f"killed-{runs:02d}"
        runs += 1
        while (status := _attempt(config, run, draw, operations, seconds, done)) != 0:
            if not os.WIFSIGNALED(status):
                raise SystemExit(f"after {done} kills the run failed by itself: {status}")
            done += 1
        _compare(reference, run)
    print(json.dumps({"kills": done, "runs": runs, "operations": operations, "seconds": seconds}))


def _attempt(config: object, run: Path, draw: random.Random, operations: int, seconds: float, done: int) -> int:
    """Train in a child that dies at a drawn moment; return its wait status, 0 when it finished first."""
    at, after = draw.randrange(1, max(2, operations // 4)), draw.uniform(0.01, seconds / 4)
    child = os.fork()
    if child == 0:
        if done % 2:
            # Its default action ends the process as abruptly as a kill.
            signal.setitimer(signal.ITIMER_PROF, after)
        else:
            _die_at_operation(run, at)
        pipeline.train(config, run)
        os._exit(0)
    return os.waitpid(child, 0)[1]


def _die_at_operation(run: Path, at: int) -> None:
    count = [0]

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if _is_change(event, arguments, run):
            count[0] += 1
            if count[0] == at:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def _is_change(event: str, arguments: tuple[object, ...], run: Path) -> bool:
    if event == "open":
        # The flags tell a writer; the mode is missing where a file is opened by its descriptor or from C.
        writes = isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        return bool(writes) and str(arguments[0]).startswith(str(run))
    return event in CHANGES and any(str(a).startswith(str(run)) for a in arguments)


def _measure(config: object, run: Path) -> tuple[int, float]:
    """Return the file operations and processor seconds of a run from start to end."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        count = [0]
        sys.addaudithook(lambda event, arguments: count.__setitem__(0, count[0] + _is_change(event, arguments, run)))
        before = os.times()
        pipeline.train(config, run)
        after = os.times()
        os.write(writer, f"{count[0]} {after.user + after.system - before.user - before.system}".encode())
        os._exit(0)
    os.waitpid(child, 0)
    operations, seconds = os.read(reader, 100).split()
    return int(operations), float(seconds)


def _compare(reference: Path, run: Path) -> None:
    """Exit with what differs, if anything does."""
    if problems := lineage.audit(run):
        raise SystemExit(f"{run.name} is not whole: {problems[0]}")
    if leftover := list(run.rglob("*.tmp")):
        raise SystemExit(f"{run.name} keeps half-written files: {leftover}")
    for what in (micro_runs.checkpoint_ids, micro_runs.turns_hashes, _ledger, _optimizers):
        if what(reference) != what(run):
            raise SystemExit(f"{run.name} differs in {what.__name__}: {what(reference)} and {what(run)}")


def _ledger(run: Path) -> object:
    return json.loads((run / "ledger.json").read_text())


def _optimizers(run: Path) -> dict[str, str]:
    files = sorted((run / "optimizer").rglob("*.*"))
    return {str(p.relative_to(run)): micro_runs.sha256_file(p) for p in files}


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
