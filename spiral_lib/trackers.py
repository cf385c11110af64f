"""A run's metrics for experiment trackers: TensorBoard event files always, W&B and MLflow through their own clients.

All show the same names on the same axes: a metric that is measured in every learner step stands at the learner step,
every other one at the iteration; the cold start is 0 on both. The event files need no package to be written: the format
is a frame with two checksums around a protocol buffer of a few fields, and nothing but numbers goes into it.
"""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from spiral_lib import config, durable
from spiral_lib.errors import ConfigError
from spiral_lib.report_files import Rows, RunFiles, read, read_metrics

TRACKERS = ("wandb", "mlflow")
FOLDER = "tensorboard"


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """Metrics at one place of one axis: ``step`` counts learner steps or iterations, as ``axis`` says."""

    axis: str
    step: int
    metrics: Mapping[str, float]


LEARNER_STEP, ITERATION = "learner_step", "iteration"


def points(iterations: Rows, steps: Rows) -> list[Point]:
    """Return everything a run has measured, every name on one axis only; numbers that are not finite are left out."""
    by_step = {name for _, metrics in steps for name in metrics}
    found = [Point(axis=LEARNER_STEP, step=step, metrics=_finite(metrics)) for step, metrics in steps]
    for iteration, metrics in iterations:
        own = {name: value for name, value in metrics.items() if name not in by_step}
        if iteration == 0 and (shared := _finite({k: v for k, v in metrics.items() if k in by_step})):
            found.insert(0, Point(axis=LEARNER_STEP, step=0, metrics=shared))
        found.append(Point(axis=ITERATION, step=iteration, metrics=_finite(own)))
    return [point for point in found if point.metrics]


def _finite(metrics: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in sorted(metrics.items()) if math.isfinite(value)}


def write_events(run: Path) -> Path:
    """Write ``tensorboard/`` in a run folder and return it: one event file an iteration, written once.

    TensorBoard reads the files of a folder in the order of their names and never goes back, so what it has read must
    not change: an iteration's file holds its learner steps and its evaluation, and is left alone when it is there.
    """
    iterations, steps = read_metrics(run / "metrics.jsonl", "iteration"), read_metrics(run / "steps.jsonl", "step")
    per = config.from_text((run / "config.yaml").read_text()).rollout.steps_per_iteration
    for point_list, iteration in _by_iteration(points(iterations, steps), per):
        path = run / FOLDER / f"events.out.tfevents.{iteration:010d}.spiral"
        if not path.is_file():
            with durable.new_file(path) as temporary:
                temporary.write_bytes(b"".join(_records(point_list)))
    return run / FOLDER


def _by_iteration(found: Sequence[Point], per: int) -> Iterator[tuple[list[Point], int]]:
    """Yield the points of every finished iteration with its number, in order."""
    groups: dict[int, list[Point]] = {}
    for point in found:
        iteration = point.step if point.axis == ITERATION else -(-point.step // per)
        groups.setdefault(iteration, []).append(point)
    finished = {p.step for p in found if p.axis == ITERATION}
    yield from ((groups[i], i) for i in sorted(groups) if i in finished)


def _records(found: Iterable[Point]) -> Iterator[bytes]:
    """Yield the framed events, all with the time of writing: that is when the iteration was finished."""
    now = _double(1, time.time())
    yield _frame(now + _bytes(3, b"brain.Event:2"))
    for point in found:
        values = b"".join(
            _bytes(1, _bytes(1, name.encode()) + _float(2, value)) for name, value in point.metrics.items()
        )
        yield _frame(now + _varint(2 << 3) + _varint(point.step) + _bytes(5, values))


def _frame(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + _checksum(length) + data + _checksum(data)


def _checksum(data: bytes) -> bytes:
    """Return the masked CRC-32C that the record format asks for."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _crc_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return tuple(table)


_CRC = _crc_table()


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _bytes(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def _double(field: int, value: float) -> bytes:
    return _varint(field << 3 | 1) + struct.pack("<d", value)


def _float(field: int, value: float) -> bytes:
    return _varint(field << 3 | 5) + struct.pack("<f", max(-3.4e38, min(3.4e38, value)))


class Sender:
    """Sends what a run has measured since the last call to a tracker; ``close`` ends the tracker's run."""

    def __init__(self, run: Path, to: str, *, project: str, offline: bool) -> None:
        if to not in TRACKERS:
            raise ConfigError(f"unknown tracker '{to}'; known: {', '.join(TRACKERS)}")
        self._run, self._sent = run, 0
        open_tracker = _open_wandb if to == "wandb" else _open_mlflow
        self._log, self._close, self.where = open_tracker(read(run), run, project, offline)

    def send(self) -> int:
        """Send new points and return how many there were."""
        files = read(self._run)
        found = [p for group, _ in _by_iteration(points(files.iterations, files.steps), _per(files)) for p in group]
        for point in found[self._sent :]:
            self._log(point)
        new, self._sent = len(found) - self._sent, len(found)
        return new

    def close(self) -> None:
        """End the tracker's run."""
        self._close()


def _per(files: RunFiles) -> int:
    return files.config.rollout.steps_per_iteration


Opened = tuple[Callable[[Point], None], Callable[[], None], str]


def _open_wandb(files: RunFiles, run: Path, project: str, offline: bool) -> Opened:
    try:
        import wandb
    except ImportError as error:
        raise ConfigError("W&B is not installed; pip install 'spiral-pipeline[wandb]'") from error
    session = wandb.init(
        project=project,
        name=files.name,
        config=config.to_dict(files.config),
        mode="offline" if offline else "online",
        dir=str(run),
        reinit="create_new",
    )
    session.define_metric(LEARNER_STEP, hidden=True)
    session.define_metric(ITERATION, hidden=True)
    known: set[str] = set()

    def log(point: Point) -> None:
        for name in point.metrics.keys() - known:
            session.define_metric(name, step_metric=point.axis)
        known.update(point.metrics)
        session.log({**point.metrics, point.axis: point.step})

    return log, session.finish, str(session.dir if offline else session.url)


def _open_mlflow(files: RunFiles, run: Path, project: str, offline: bool) -> Opened:
    try:
        import mlflow
    except ImportError as error:
        raise ConfigError("MLflow is not installed; pip install 'spiral-pipeline[mlflow]'") from error
    where = f"sqlite:///{(run / 'mlflow.db').resolve()}" if offline else mlflow.get_tracking_uri()
    client = mlflow.MlflowClient(tracking_uri=where)
    experiment = client.get_experiment_by_name(project)
    identity = experiment.experiment_id if experiment is not None else client.create_experiment(project)
    session = client.create_run(identity, run_name=files.name, tags={"spiral.config": config.config_hash(files.config)})
    for name, value in _flat(config.to_dict(files.config)):
        client.log_param(session.info.run_id, name, value)

    def log(point: Point) -> None:
        for name, value in point.metrics.items():
            client.log_metric(session.info.run_id, _plain(name), value, step=point.step)

    return log, lambda: client.set_terminated(session.info.run_id), where


def _plain(name: str) -> str:
    """Return a name in the characters that MLflow takes."""
    return "".join(c if c.isalnum() or c in "_-. /" else "_" for c in name)


def _flat(content: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in content.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", str(value)
