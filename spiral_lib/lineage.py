"""Step records: which bytes went into a step, which came out, and under what conditions; written once outputs exist."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os
import platform
import re
import sys
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from spiral_lib import expired
from spiral_lib.checkpoints import code_version
from spiral_lib.config import RunConfig, config_hash
from spiral_lib.durable import digest_path, write_text
from spiral_lib.errors import LineageError

log = logging.getLogger(__name__)

RECORD_VERSION = 1
IMAGE_VARIABLE = "SPIRAL_IMAGE"
"""Environment variable with the name of the container image that this process runs in."""
_PACKAGES = ("torch", "transformers", "pyarrow", "numpy", "vllm", "deepspeed")
_STEP_NAME = re.compile(r"[A-Za-z0-9_.=-]+")


@dataclass(frozen=True, kw_only=True, slots=True)
class Artifact:
    """A file or folder and its hash; ``path`` is relative to the run folder where it lies in it."""

    path: str
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class StepRecord:
    """What one step read and wrote.

    ``order`` is the iteration: steps of one iteration share it. ``sources`` names the inputs that come from outside the
    run. ``start`` is UTC in ISO 8601; it and ``seconds`` are the only parts that differ when a step is replayed.
    """

    step: str
    order: int
    inputs: Mapping[str, Artifact]
    values: Mapping[str, Any]
    outputs: Mapping[str, Artifact]
    config_hash: str
    code_version: str
    seed: int
    engine: str
    device: str
    dtype: str
    threads: int
    image: str
    packages: Mapping[str, str]
    start: str
    seconds: float
    sources: tuple[str, ...] = ()

    def to_json(self) -> str:
        """Return JSON text with sorted keys."""
        content = {"version": RECORD_VERSION, **dataclasses.asdict(self)}
        return json.dumps(content, sort_keys=True, indent=1, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> StepRecord:
        """Return the record that ``to_json`` wrote. Raises LineageError where it is damaged."""
        try:
            content = json.loads(text)
            version = content.pop("version")
            if version != RECORD_VERSION:
                raise LineageError(f"step record version {version} is not {RECORD_VERSION}")
            for side in ("inputs", "outputs"):
                content[side] = {name: Artifact(**artifact) for name, artifact in content[side].items()}
            record = cls(**{**content, "sources": tuple(content["sources"])})
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise LineageError(f"the step record is damaged: {error!r}") from error
        artifacts = (*record.inputs.values(), *record.outputs.values())
        texts = (record.step, record.config_hash, *record.sources, *(t for a in artifacts for t in (a.path, a.sha256)))
        if type(record.order) is not int or not all(isinstance(text, str) for text in texts):
            raise LineageError("the step record is damaged: a name, path, hash or order is of another type")
        return record


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """A broken link: ``step`` and ``path`` say where, ``reason`` what is wrong."""

    step: str
    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.step}: {self.path}: {self.reason}"


def run_step(
    step: str,
    *,
    run: Path,
    order: int,
    config: RunConfig,
    inputs: Mapping[str, Path],
    values: Mapping[str, Any],
    outputs: Mapping[str, Path],
    body: Callable[[], None],
    sources: Collection[str] = (),
) -> StepRecord:
    """Return the step's earlier record where nothing it depends on has changed, else run the body and record it.

    The body is a function of ``inputs``, ``values`` and ``config`` alone and writes every path in ``outputs``, files or
    folders. The record is written last and holds their hashes: whatever moment the process is killed at, an output
    without a record, or one that differs from it, is made again and never trusted. So a path must belong to one step
    only, and an output must not be an input as well.
    """
    if not _STEP_NAME.fullmatch(step):
        raise ValueError(f"step name {step!r} does not fit in a file name")
    places = {name: _relative(run, path) for name, path in outputs.items()}
    if clash := set(places.values()) & {_relative(run, path) for path in inputs.values()}:
        raise ValueError(f"step '{step}' would overwrite its input {sorted(clash)}: it could not be resumed")
    wanted = {
        "inputs": {name: _input(run, name, path) for name, path in inputs.items()},
        "values": json.loads(json.dumps(dict(values), allow_nan=False)),
        "config_hash": config_hash(config),
        "code_version": code_version(),
        "sources": tuple(sorted(sources)),
    }
    earlier = _find(run, order, step)
    if earlier is not None and _still_holds(earlier, wanted, places, run):
        return earlier
    if lost := [name for name, path in inputs.items() if expired.hash_of(run, _relative(run, path)) is not None]:
        raise LineageError(
            f"step '{step}' of iteration {order} would have to run again, but its inputs ({', '.join(lost)}) have "
            f"expired; go on in another folder with --resume_from {run}"
        )
    start, clock = datetime.now(UTC), time.monotonic()
    log.debug("%s of iteration %d begins", step, order, extra={"step": step, "iteration": order})
    body()
    record = StepRecord(
        step=step,
        order=order,
        outputs={name: _output(run, step, name, path) for name, path in outputs.items()},
        start=start.isoformat(timespec="seconds"),
        seconds=round(time.monotonic() - clock, 3),
        **wanted,
        **_conditions(config),
    )
    write(run, record)
    return record


def write(run: Path, record: StepRecord) -> Path:
    """Write a record to ``lineage/<order>-<step>.json``, whole or not at all."""
    path = record_path(run, record.order, record.step)
    write_text(path, record.to_json())
    return path


def read_all(run: Path) -> list[StepRecord]:
    """Return the run's records in order. Raises LineageError naming the file that cannot be read."""
    return [_read(path) for path in _record_files(run)]


def read_sound(run: Path) -> list[StepRecord]:
    """Return the run's records in order without those that cannot be read, which ``audit`` names."""
    found = []
    for file in _record_files(run):
        with contextlib.suppress(LineageError):
            found.append(_read(file))
    return found


def audit(run: Path) -> list[Problem]:
    """Return every broken link in the order of the steps: an empty list means that the run is whole.

    Every output in the run folder is hashed again, quarantined shards where they lie now, and every input must be the
    output of a step of this or an earlier iteration, or a declared source. What has expired by rule counts as whole.
    """
    problems: list[Problem] = []
    records: list[StepRecord] = []
    for file in _record_files(run):
        try:
            records.append(_read(file))
        except LineageError as error:
            problems.append(Problem(step=file.stem, path=_relative(run, file), reason=str(error)))
    if not records and not problems:
        problems.append(Problem(step="-", path="lineage", reason="the run has no step records"))
    made: dict[tuple[str, str], StepRecord] = {}
    for record in records:
        for artifact in record.outputs.values():
            made.setdefault((artifact.path, artifact.sha256), record)
    moved = _quarantined(run)
    for record in records:
        problems += _check_inputs(run, record, made)
        for artifact in record.outputs.values():
            problems += _check_within(run, record.step, artifact, moved)
    return problems


def _check_inputs(run: Path, record: StepRecord, made: Mapping[tuple[str, str], StepRecord]) -> list[Problem]:
    problems = []
    for name, artifact in record.inputs.items():
        maker = made.get((artifact.path, artifact.sha256))
        if name in record.sources:
            # A source outside the run may be gone by now; its hash stays on record.
            if not Path(artifact.path).is_absolute():
                problems += _check_within(run, record.step, artifact, {})
        elif maker is None or maker is record or maker.order > record.order:
            reason = f"input '{name}' is neither the output of an earlier step nor a declared source"
            problems.append(Problem(step=record.step, path=artifact.path, reason=reason))
    return problems


def _check_within(run: Path, step: str, artifact: Artifact, moved: Mapping[str, Path]) -> list[Problem]:
    """Check an artifact of the run folder; nothing outside it is read, whatever a record says."""
    path = Path(artifact.path)
    if path.is_absolute() or ".." in path.parts:
        return [Problem(step=step, path=artifact.path, reason="lies outside the run folder")]
    try:
        return _check_bytes(run, step, artifact, moved)
    except OSError as error:
        return [Problem(step=step, path=artifact.path, reason=f"cannot be read: {error.strerror}")]


def _check_bytes(run: Path, step: str, artifact: Artifact, moved: Mapping[str, Path]) -> list[Problem]:
    path = run / artifact.path
    if not path.exists():
        path = moved.get(artifact.path, path)
    if expired.hash_of(run, artifact.path) == artifact.sha256:
        return []
    if not path.exists():
        return [Problem(step=step, path=artifact.path, reason="is missing")]
    found = digest_path(path)
    if found == artifact.sha256:
        return []
    reason = f"hashes to {found[:12]}, the record says {artifact.sha256[:12]}"
    return [Problem(step=step, path=artifact.path, reason=reason)]


def _quarantined(run: Path) -> dict[str, Path]:
    """Return where the quality gate moved shards, by the path they had."""
    moved = {}
    for file in sorted((run / "quarantine").glob("*.json")):
        try:
            moved[str(json.loads(file.read_text(encoding="utf-8"))["path"])] = file.with_suffix("")
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            continue  # then the shard counts as missing, which is what the audit reports
    return moved


def _still_holds(record: StepRecord, wanted: Mapping[str, Any], places: Mapping[str, str], run: Path) -> bool:
    """Return whether a record answers the same question and its outputs are on disk as recorded; damage is reported."""
    if any(getattr(record, name) != value for name, value in wanted.items()):
        return False
    if {name: artifact.path for name, artifact in record.outputs.items()} != places:
        return False
    damage = [p for artifact in record.outputs.values() for p in _check_bytes(run, record.step, artifact, {})]
    for problem in damage:
        log.warning("iteration %d, %s; it is made again from what came before it", record.order, problem)
    return not damage


def _input(run: Path, name: str, path: Path) -> Artifact:
    gone = expired.hash_of(run, _relative(run, path))
    if gone is not None:
        return Artifact(path=_relative(run, path), sha256=gone)
    if not path.exists():
        raise LineageError(f"input '{name}' is missing: '{path}'; run the step that makes it first")
    return Artifact(path=_relative(run, path), sha256=digest_path(path))


def _output(run: Path, step: str, name: str, path: Path) -> Artifact:
    if not path.exists():
        raise LineageError(f"step '{step}' did not write its output '{name}' to '{path}'")
    return Artifact(path=_relative(run, path), sha256=digest_path(path))


def _relative(run: Path, path: Path) -> str:
    full, root = path.resolve(), run.resolve()
    return full.relative_to(root).as_posix() if full.is_relative_to(root) else full.as_posix()


def _record_files(run: Path) -> list[Path]:
    return sorted(p for p in (run / "lineage").glob("*.json") if not p.name.startswith("."))


def _read(path: Path) -> StepRecord:
    try:
        return StepRecord.from_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, LineageError) as error:
        raise LineageError(f"cannot read '{path}': {error}") from error


def _find(run: Path, order: int, step: str) -> StepRecord | None:
    try:
        return _read(record_path(run, order, step))
    except LineageError:
        return None  # a missing or damaged record proves nothing: the step runs again and replaces it


def record_path(run: Path, order: int, step: str) -> Path:
    """Return where the record of a step of iteration ``order`` lies."""
    return run / "lineage" / f"{order:04d}-{step}.json"


def _conditions(config: RunConfig) -> dict[str, Any]:
    """Return what the result may depend on besides inputs, values and configuration."""
    torch = sys.modules.get("torch")
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    on_gpu = torch is not None and torch.cuda.is_available()
    return {
        "seed": config.seed,
        "engine": config.rollout.engine,
        "device": torch.cuda.get_device_name(0) if torch is not None and on_gpu else f"cpu {platform.machine()}",
        "dtype": config.model.dtype,
        "threads": config.threads if torch is None else torch.get_num_threads(),
        "image": os.environ.get(IMAGE_VARIABLE, ""),
        "packages": versions,
    }
