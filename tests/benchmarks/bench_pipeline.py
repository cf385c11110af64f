"""What the pipeline itself costs beside playing, learning and measuring: hashes, records, ledger, report, copies."""

from __future__ import annotations

import dataclasses
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from spiral_lib import durable, pipeline, publish
from spiral_lib.config import RunConfig, resolve
from spiral_lib.ledger import EvaluationRecord, Ledger
from spiral_lib.state import State

REPEATS = 5
LONG = 400
COPIED_MB = 256
# The cold start is cut short: it is no part of an iteration. The iteration is the tiny preset's own.
OVERRIDES = "iterations=1 cold_start.steps=60 cold_start.examples=800 cold_start.min_legal=0 cold_start.min_gap=0"


def rows() -> list[dict[str, Any]]:
    """Return the overhead of an iteration of preset tiny, of a long run's books, and of hashing beside copying."""
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        run, config = Path(scratch) / "run", resolve(preset="tiny", overrides=OVERRIDES)
        state = pipeline.train(dataclasses.replace(config, iterations=0), run)
        return [_iteration(config, run, state), _long_run(run), _hashing(Path(scratch))]


def _iteration(config: RunConfig, run: Path, state: State) -> dict[str, Any]:
    """Walk a finished iteration again: everything but its three expensive steps happens as it did before."""
    first = _seconds(lambda: pipeline.iterate(config, state, run), repeats=1)
    again = _seconds(lambda: pipeline.iterate(config, state, run))
    return _row("pipeline/iteration_overhead", again, "s", "a whole iteration of preset tiny, in seconds", first)


def _long_run(run: Path) -> dict[str, Any]:
    """Bring ledger, metrics and report up to date in a run of hundreds of iterations."""
    ledger = Ledger.from_json((run / "ledger.json").read_text())
    training = run / "training" / "0001.json"
    for iteration in range(2, LONG + 1):
        shutil.copyfile(training, training.with_name(f"{iteration:04d}.json"))
    metrics = ledger.evaluations[-1].metrics
    history = tuple(EvaluationRecord(iteration=i, metrics=metrics) for i in range(LONG + 1))
    long = dataclasses.replace(ledger, iteration=LONG, evaluations=history)
    return _row(
        f"pipeline/publish_{LONG}_iterations",
        _seconds(lambda: publish.publish(long, run)),
        "s",
        "the bound of 2 s an iteration",
        2.0,
    )


def _hashing(scratch: Path) -> dict[str, Any]:
    """Hash a checkpoint-sized file that was not hashed before, against copying it."""
    source = scratch / "weights"
    source.write_bytes(bytes(range(256)) * (COPIED_MB * 2**20 // 256))
    copied = _seconds(lambda: shutil.copyfile(source, scratch / "copy"))

    def hash_anew() -> None:
        durable.sha256_file(source)
        source.touch()  # a file younger than two seconds is hashed every time

    return _row(f"pipeline/hash_{COPIED_MB}_mb", _seconds(hash_anew), "s", "copying the file, in seconds", copied)


def _seconds(action: Callable[[], object], repeats: int = REPEATS) -> list[float]:
    """Return the seconds of CPU that repetitions of an action took; the machine's other work does not count."""
    taken = []
    for _ in range(repeats):
        start = time.process_time()
        action()
        taken.append(time.process_time() - start)
    return taken


def _row(name: str, values: list[float], unit: str, against: str, other: float | list[float]) -> dict[str, Any]:
    reference = other if isinstance(other, float) else statistics.median(other)
    value = statistics.median(values)
    return {
        "name": name,
        "value": round(value, 4),
        "unit": unit,
        "against": against,
        "ratio": round(value / reference, 4),
        "spread": round((max(values) - min(values)) / value, 3),
        "n": len(values),
    }
