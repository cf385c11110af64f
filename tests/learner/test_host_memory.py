"""Memory that a learner step keeps: few page faults inside, all given back behind, other allocators left alone."""

import contextlib
import ctypes
import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from learner_cases import random_model, sample, settings

from spiral_lib.learner import host_memory, loop, sft

CPU, MB = torch.device("cpu"), 96
MEASURE = f"""
import json, resource, sys
import torch
from spiral_lib.learner import host_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(8):
        torch.zeros({MB} << 18)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def resident():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) // 1024 for line in file if line.startswith("VmRSS"))

faults()
found = {{"before": faults(), "resident_before": resident()}}
try:
    with host_memory.kept(torch.device("cpu")):
        faults()
        found |= {{"inside": faults(), "resident_inside": resident()}}
        raise KeyError
except KeyError:
    found["resident_after"] = resident()
print(json.dumps(found))
"""


def measured(**environment: str) -> dict[str, int]:
    names = ("GLIBC_TUNABLES", "LD_PRELOAD")
    clean = {k: v for k, v in os.environ.items() if k not in names and not k.startswith("MALLOC_")}
    done = subprocess.run([sys.executable, "-c", MEASURE], env=clean | environment, capture_output=True, check=True)
    found: dict[str, int] = json.loads(done.stdout)
    return found


def test_a_large_tensor_costs_page_faults_outside_and_none_inside() -> None:
    found = measured()
    if found["before"] < 8 * MB << 8:
        pytest.skip("pages of this system are larger than 4 kB")
    assert found["inside"] < found["before"] / 4  # a small block behind a freed one may move the next ones up, once
    assert found["resident_inside"] > found["resident_before"] + MB // 2
    assert found["resident_after"] < found["resident_before"] + MB // 2  # though the block ended with an exception


def test_settings_of_the_environment_are_left_alone() -> None:
    found = measured(MALLOC_TRIM_THRESHOLD_="1000000")
    assert found["inside"] == pytest.approx(found["before"], rel=0.05)


class Recorder:
    """A C library that notes what it is asked."""

    def __init__(self, missing: str) -> None:
        self.calls: list[str] = []
        for name in {"mallopt", "malloc_trim", "gnu_get_libc_version"} - {missing}:
            setattr(self, name, lambda *_, name=name: self.calls.append(name))


@pytest.mark.parametrize(
    ("device", "missing", "platform", "calls"),
    [
        ("cpu", "", "linux", ["mallopt"] * 5 + ["malloc_trim"]),
        ("cuda", "", "linux", []),
        ("cpu", "mallopt", "linux", []),
        ("cpu", "gnu_get_libc_version", "linux", []),
        ("cpu", "", "darwin", []),
    ],
)
def test_only_glibc_is_asked_and_only_for_a_cpu(
    device: str, missing: str, platform: str, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    libc = Recorder(missing)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: libc)
    monkeypatch.setattr(sys, "platform", platform)
    for name in host_memory._OWN_SETTINGS:
        monkeypatch.delenv(name, raising=False)
    with host_memory.kept(SimpleNamespace(type=device)):
        pass
    assert libc.calls == calls


def test_learner_steps_and_supervised_training_run_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    devices = []

    @contextlib.contextmanager
    def kept(device: torch.device):
        devices.append(device)
        yield

    monkeypatch.setattr(host_memory, "kept", kept)
    rows = [sample((1, 2, 3), (4, 5), 1.0)]
    loop.PolicyUpdate(random_model(), None, settings("max_mismatch=1000.0")).run(rows, step=1)
    assert devices == [CPU]
    examples = [((1, 2), (3, 4))]
    sft.train(random_model(), examples, steps=2, batch=1, lr=1e-3, seed=0, pack_tokens=64)
    assert devices == [CPU, CPU]
