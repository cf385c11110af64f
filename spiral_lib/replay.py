"""Replaying a recorded step in a scratch copy of its run, and the chain of steps behind one number."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from spiral_lib import checkpoints, deciding, lineage, starting, steps
from spiral_lib.config import RunConfig, from_text
from spiral_lib.durable import digest_path
from spiral_lib.errors import ConfigError, LineageError
from spiral_lib.lineage import StepRecord
from spiral_lib.state import Learned, State

_CONDITIONS = ("config_hash", "code_version", "engine", "device", "dtype", "threads", "packages")


@dataclass(frozen=True, kw_only=True, slots=True)
class Replay:
    """What a replayed step wrote: ``same`` and ``different`` are outputs, ``changed`` conditions that differ now.

    Checkpoints are compared by their id, the hash of weights and tokenizer: the manifest also names the code version.
    """

    step: str
    order: int
    same: tuple[str, ...]
    different: tuple[str, ...]
    changed: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """One step in the chain behind a number; ``via`` is the path through which the step after it depends on it."""

    record: StepRecord
    via: str


def find(run: Path, name: str) -> StepRecord:
    """Return the record that a name means: ``segment``'s last one, or ``2/segment`` for iteration 2.

    Raises LineageError listing the steps where there is none.
    """
    order, _, step = name.rpartition("/")
    records = lineage.read_all(run)
    found = [r for r in records if r.step == step and (not order or str(r.order) == order.lstrip("0").rjust(1, "0"))]
    if not found:
        known = ", ".join(f"{r.order}/{r.step}" for r in records) or "none"
        raise LineageError(f"'{run}' has no step '{name}'; it has {known}")
    return found[-1]


def replay(run: Path, name: str) -> Replay:
    """Run a step again in a scratch copy of the run and compare what it writes, bit by bit."""
    record = find(run, name)
    config = from_text((run / "config.yaml").read_text())
    with tempfile.TemporaryDirectory(prefix=f".replay-{record.step}-", dir=run.resolve().parent) as scratch:
        copy = Path(scratch) / run.resolve().name
        shutil.copytree(run, copy, copy_function=_link)
        lineage.record_path(copy, record.order, record.step).unlink()
        for artifact in record.outputs.values():
            _remove(copy / artifact.path)
        _runner(record, config, copy)()
        again = find(copy, f"{record.order}/{record.step}")
        same = [n for n, a in record.outputs.items() if _same(copy / a.path, run / a.path, a.sha256)]
        return Replay(
            step=record.step,
            order=record.order,
            same=tuple(same),
            different=tuple(n for n in record.outputs if n not in same),
            changed=tuple(c for c in _CONDITIONS if getattr(record, c) != getattr(again, c)),
        )


def _link(source: str, target: str) -> None:
    """Share the bytes where the file system can: steps replace files, they never write into one."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _same(path: Path, original: Path, sha256: str) -> bool:
    if (path / "manifest.json").is_file() and (original / "manifest.json").is_file():
        return checkpoints.read_manifest(path).id == checkpoints.read_manifest(original).id
    return path.exists() and digest_path(path) == sha256


def _runner(record: StepRecord, config: RunConfig, run: Path) -> Callable[[], object]:
    """Return the call that makes a step's outputs. Raises ConfigError for a step that cannot be replayed."""
    kind, _, number = record.step.partition("-")
    if kind in ("cold_start", "begin"):
        return lambda: starting.cold_start(config, run)
    if kind == "evaluate":
        checkpoint, start = (_place(record, run, name) for name in ("checkpoint", "cold_start"))
        return lambda: steps.evaluate(config, checkpoint, start, iteration=record.order, run=run)
    if kind == "adopt":
        raise ConfigError(f"step '{record.step}' takes over another run and cannot be replayed; replay later steps")
    if kind == "decide":
        state, learned, scores = _decided(record, run)
        return lambda: deciding.decide(config, state, learned, scores, run=run)
    state = _state(record, run)
    if kind == "play":
        return lambda: steps.play_shard(config, state, shard=int(number), run=run)
    if kind == "learn":
        # By number, with those whose player died: how many were planned decides how many may be bad.
        shards = [steps.shard_path(run, record.order, shard) for shard in range(config.rollout.shards)]
        return lambda: steps.learn(config, state, shards, run=run)
    if kind == "segment":
        return lambda: steps.segment(config, state, run=run)
    raise ConfigError(f"step '{record.step}' cannot be replayed; replay the steps after it")


def _place(record: StepRecord, run: Path, name: str) -> Path:
    return run / record.inputs[name].path


def _state(record: StepRecord, run: Path) -> State:
    """Return the state a playing or learning step began with, as far as such a step reads it."""
    checkpoint = _place(record, run, "checkpoint")
    opponents = sorted((n for n in record.inputs if n.startswith("opponent-")), key=lambda n: int(n.partition("-")[2]))

    def given(name: str) -> Path:
        return _place(record, run, name) if name in record.inputs else checkpoint

    return State(
        iteration=record.order - 1,
        checkpoint=checkpoint,
        optimizer=_place(record, run, "optimizer") if "optimizer" in record.inputs else None,
        champion=checkpoint,
        champion_scores=checkpoint,
        cold_start=given("reference"),
        cold_start_scores=checkpoint,
        opponents=tuple(_place(record, run, name) for name in opponents),
        ledger=given("ledger"),
    )


def _decided(record: StepRecord, run: Path) -> tuple[State, Learned, Path | None]:
    """Return what a decision began with; any checkpoint of the run may be in the pool that it keeps."""
    candidate = _place(record, run, "candidate")
    kept = [p.parent for p in sorted(run.glob("*/*/manifest.json")) if p.parent != candidate]
    by_id = {checkpoints.read_manifest(p).id: p for p in kept}
    shards = sorted((run / "trajectories" / f"iteration={record.order:04d}").glob("*.parquet"))
    state = State(
        iteration=record.order - 1,
        checkpoint=candidate,
        optimizer=None,
        champion=candidate,
        champion_scores=_place(record, run, "champion_scores"),
        cold_start=candidate,
        cold_start_scores=_place(record, run, "cold_start_scores"),
        opponents=tuple(by_id.values()),
        ledger=_place(record, run, "ledger"),
    )
    learned = Learned(
        checkpoint=candidate, optimizer=candidate, training=_place(record, run, "training"), shards=tuple(shards)
    )
    return state, learned, _place(record, run, "scores") if "scores" in record.inputs else None


def why(run: Path, metric: str, *, iteration: int | None = None) -> tuple[float, int, list[Link]]:
    """Return a metric's value, its iteration (the last that has it) and the steps behind it, newest first.

    Raises LineageError where no iteration has it or the step that measured it is not on record.
    """
    found = [(n, folder) for n, folder in _measured(run, metric) if iteration in (None, n)]
    if not found:
        where = "" if iteration is None else f" at iteration {iteration}"
        raise LineageError(f"'{run}' has no metric '{metric}'{where}; metrics.jsonl lists those it has")
    number, path = found[-1]
    value = float(json.loads((run / path).read_text())["metrics"][metric])
    return value, number, _chain(run, path)


def _measured(run: Path, metric: str) -> list[tuple[int, str]]:
    """Return (iteration, file) of every file that holds the metric, evaluations last."""
    found = []
    for folder in ("training", "evaluations"):
        for path in sorted((run / folder).glob("*.json")):
            if metric in json.loads(path.read_text())["metrics"]:
                found.append((int(path.stem), f"{folder}/{path.name}"))
    return sorted(found, key=lambda f: f[0])


def _chain(run: Path, path: str) -> list[Link]:
    records = lineage.read_all(run)
    made = {a.path: r for r in records for a in r.outputs.values()}
    if path not in made:
        raise LineageError(f"no step of '{run}' is on record for {path}; see spiral audit {run}")
    links, waiting, seen = [], [path], set()
    while waiting:
        here = waiting.pop(0)
        record = made.get(here)
        if record is None or (record.order, record.step) in seen:
            continue
        seen.add((record.order, record.step))
        links.append(Link(record=record, via=here))
        waiting += [a.path for a in record.inputs.values()]
    return sorted(links, key=lambda link: -link.record.order)
