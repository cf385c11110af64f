"""Metrics in trackers: our TensorBoard files are read back byte by byte, the other clients in their offline modes."""

from __future__ import annotations

import json
import math
import shutil
import struct
from pathlib import Path

import pytest

from spiral_lib import trackers
from spiral_lib.errors import ConfigError
from spiral_lib.trackers import ITERATION, LEARNER_STEP

Scalars = dict[str, list[tuple[int, float]]]


def _crc32c(data: bytes) -> int:
    """Return the CRC-32C bit by bit: a second implementation to check the table with."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 * (crc & 1))
    return crc ^ 0xFFFFFFFF


def _unmask(masked: int) -> int:
    rotated = (masked - 0xA282EAD8) & 0xFFFFFFFF
    return (rotated >> 17 | rotated << 15) & 0xFFFFFFFF


def _frames(data: bytes) -> list[bytes]:
    out = []
    while data:
        length, head = struct.unpack("<QI", data[:12])
        body, (tail,) = data[12 : 12 + length], struct.unpack("<I", data[12 + length : 16 + length])
        assert _unmask(head) == _crc32c(data[:8])
        assert _unmask(tail) == _crc32c(body)
        out.append(body)
        data = data[16 + length :]
    return out


def _fields(data: bytes) -> list[tuple[int, bytes | int]]:
    out: list[tuple[int, bytes | int]] = []
    while data:
        key, data = _varint(data)
        value: bytes | int
        if key & 7 == 0:
            value, data = _varint(data)
        else:
            size = {1: 8, 5: 4}.get(key & 7)
            if size is None:
                size, data = _varint(data)
            value, data = data[:size], data[size:]
        out.append((key >> 3, value))
    return out


def _varint(data: bytes) -> tuple[int, bytes]:
    value = shift = 0
    for i, byte in enumerate(data):
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, data[i + 1 :]
    raise AssertionError("cut inside a number")


def _read(path: Path) -> Scalars:
    found: Scalars = {}
    first, *events = _frames(path.read_bytes())
    assert dict(_fields(first))[3] == b"brain.Event:2"
    for event in events:
        fields = dict(_fields(event))
        for _, value in _fields(fields[5]):  # type: ignore[arg-type]
            parts = dict(_fields(value))  # type: ignore[arg-type]
            number = struct.unpack("<f", parts[2])[0]  # type: ignore[arg-type]
            found.setdefault(parts[1].decode(), []).append((fields.get(2, 0), number))  # type: ignore[union-attr,arg-type]
    return found


def test_the_checksum_is_that_of_the_published_test_vector() -> None:
    assert _crc32c(b"123456789") == 0xE3069283
    (masked,) = struct.unpack("<I", trackers._checksum(b"123456789"))
    assert _unmask(masked) == 0xE3069283


def test_a_run_writes_every_finite_metric_once_on_its_axis(micro_run: Path) -> None:
    files = sorted((micro_run / "tensorboard").iterdir())
    assert [f.name for f in files] == [f"events.out.tfevents.{i:010d}.spiral" for i in range(3)]
    found: Scalars = {}
    for file in files:
        for name, values in _read(file).items():
            found.setdefault(name, []).extend(values)
    lines = [json.loads(line) for line in (micro_run / "metrics.jsonl").read_text().splitlines()]
    name = "eval/kuhn_poker/exploitability"
    assert found[name] == [(r["iteration"], pytest.approx(r["metrics"][name])) for r in lines]
    steps = [json.loads(line) for line in (micro_run / "steps.jsonl").read_text().splitlines()]
    expected = [(r["step"], pytest.approx(r["metrics"]["learner/grad_norm"])) for r in steps]
    assert found["learner/grad_norm"] == expected
    assert {n for r in (*lines, *steps) for n in r["metrics"]} == set(found)


def test_events_that_are_there_are_never_touched_again(micro_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(micro_run, run)
    first = run / "tensorboard" / "events.out.tfevents.0000000000.spiral"
    first.write_bytes(b"kept")
    (run / "tensorboard" / "events.out.tfevents.0000000002.spiral").unlink()
    trackers.write_events(run)
    assert first.read_bytes() == b"kept"
    assert len(list((run / "tensorboard").iterdir())) == 3


def test_a_name_stands_on_one_axis_only_and_what_is_no_number_is_left_out() -> None:
    iterations = ((0, {"a": 1.0, "e": 2.0}), (1, {"a": 5.0, "e": 3.0, "bad": math.nan}))
    steps = ((1, {"a": 1.5}), (2, {"a": 2.5, "worse": math.inf}))
    found = trackers.points(iterations, steps)
    assert [(p.axis, p.step, dict(p.metrics)) for p in found] == [
        (LEARNER_STEP, 0, {"a": 1.0}),
        (LEARNER_STEP, 1, {"a": 1.5}),
        (LEARNER_STEP, 2, {"a": 2.5}),
        (ITERATION, 0, {"e": 2.0}),
        (ITERATION, 1, {"e": 3.0}),
    ]


def test_an_unknown_tracker_is_refused_by_name(micro_run: Path) -> None:
    with pytest.raises(ConfigError, match="known: wandb, mlflow"):
        trackers.Sender(micro_run, "comet", project="p", offline=True)


@pytest.mark.parametrize("tracker", trackers.TRACKERS)
def test_a_tracker_that_is_not_installed_is_refused_with_the_way_out(micro_run: Path, tracker: str) -> None:
    import importlib.util

    if importlib.util.find_spec(tracker) is not None:
        pytest.skip(f"{tracker} is installed")
    with pytest.raises(ConfigError, match=rf"pip install 'spiral-pipeline\[{tracker}\]'"):
        trackers.Sender(micro_run, tracker, project="p", offline=True)


def test_tensorboard_reads_what_was_written(micro_run: Path) -> None:
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = reader.EventAccumulator(str(micro_run / "tensorboard"))
    events.Reload()
    assert [e.step for e in events.Scalars("eval/bank/accuracy")] == [0, 1, 2]


@pytest.mark.slow
def test_mlflow_holds_the_same_numbers_offline(micro_run: Path, tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow")
    run = tmp_path / "run"
    shutil.copytree(micro_run, run)
    sender = trackers.Sender(run, "mlflow", project="kuhn", offline=True)
    sent = sender.send()
    assert sent > 0 and sender.send() == 0
    sender.close()
    client = mlflow.MlflowClient(tracking_uri=sender.where)
    found = client.search_runs([client.get_experiment_by_name("kuhn").experiment_id])[0]
    history = client.get_metric_history(found.info.run_id, "eval/kuhn_poker/exploitability")
    lines = [json.loads(line)["metrics"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    logged = [h.value for h in sorted(history, key=lambda h: h.step)]
    assert logged == [m["eval/kuhn_poker/exploitability"] for m in lines]
    assert found.info.status == "FINISHED" and found.data.params["seed"] == "0"


def test_wandb_takes_a_run_offline(micro_run: Path, tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    run = tmp_path / "run"
    shutil.copytree(micro_run, run)
    sender = trackers.Sender(run, "wandb", project="kuhn", offline=True)
    assert sender.send() > 0
    sender.close()
    assert list(run.glob("wandb/offline-run-*/*.wandb"))
