"""``spiral doctor``: what this machine can do, and what to install for the rest."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from spiral_lib.cli._options import folder, json_option
from spiral_lib.cli._screen import print_json, print_table

_NEEDED = ("numpy", "pandas", "pyarrow", "yaml", "transformers", "tokenizers", "safetensors", "great_expectations")
_EXTRAS = (
    ("flyte", "flytekit", "the Flyte workflows (pyflyte run workflows/spiral.py train)"),
    ("gpu", "vllm", "the vllm engine of the gpu presets"),
    ("gpu", "deepspeed", "the deepspeed learner on several GPUs"),
    ("eval", "lm_eval", "the fixed bank and benchmarks through lm-eval"),
    ("exact", "pyspiel", "optimal play of leduc_poker and liars_dice, parity tests"),
    ("ladder", "openskill", "ratings in spiral tournament"),
    ("smollm2", "gguf", "the smollm2 preset"),
)
_MIN_DISK_GB, _MIN_MEMORY_GB = 2.0, 2.0
OK, OPTIONAL, WRONG = "ok", "optional", "wrong"


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One look: ``status`` is ok, optional (something is missing that not everyone needs) or wrong."""

    name: str
    status: str
    found: str
    advice: str = ""


@click.command(epilog="\b\nExamples:\n  spiral doctor\n  spiral doctor --store /mnt/runs --json")
@click.option("--store", type=folder(exists=False), default="runs", show_default=True, help="Where runs will go.")
@json_option
def COMMAND(store: Path, as_json: bool) -> int:
    """Look at Python, torch, GPU, extras, disk and Flyte; say what to do. Exit code 1 when something is wrong."""
    looks: tuple[Callable[[], list[Finding]], ...] = (_python, _torch, _packages, _memory, lambda: _disk(store), _flyte)
    findings = [finding for look in looks for finding in look()]
    wrong = [f for f in findings if f.status == WRONG]
    if as_json:
        print_json({"ok": not wrong, "findings": [asdict(f) for f in findings]})
        return 1 if wrong else 0
    print_table(("status", "what", "found", "what to do"), [(f.status, f.name, f.found, f.advice) for f in findings])
    click.echo("something is wrong, see above" if wrong else "ready: spiral train --preset smoke proves it in a minute")
    return 1 if wrong else 0


def _python() -> list[Finding]:
    version = platform.python_version()
    fine = (3, 11) <= sys.version_info[:2] < (3, 13)
    advice = "" if fine else "use 3.11 or 3.12"
    return [Finding(name="python", status=OK if fine else WRONG, found=version, advice=advice)]


def _torch() -> list[Finding]:
    if importlib.util.find_spec("torch") is None:
        return [Finding(name="torch", status=WRONG, found="missing", advice="pip install spiral-pipeline")]
    import torch

    cores, threads = os.cpu_count() or 1, torch.get_num_threads()
    found = [
        Finding(name="torch", status=OK, found=torch.__version__),
        Finding(
            name="threads",
            status=OK if threads <= cores else WRONG,
            found=f"{threads} of {cores} cores; a run uses its own setting 'threads'",
            advice="" if threads <= cores else f"set OMP_NUM_THREADS={cores}",
        ),
    ]
    if not torch.cuda.is_available():
        advice = "the tiny and smollm2 presets need none; the gpu presets do"
        return [*found, Finding(name="GPU", status=OPTIONAL, found="none", advice=advice)]
    for index in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(index)
        shown = f"{torch.cuda.get_device_name(index)}, {free / 2**30:.0f} of {total / 2**30:.0f} GiB free"
        found.append(Finding(name=f"GPU {index}", status=OK, found=shown))
    return found


def _packages() -> list[Finding]:
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    found = [
        Finding(
            name="packages",
            status=WRONG if missing else OK,
            found=f"missing: {', '.join(missing)}" if missing else f"all {len(_NEEDED)} needed ones",
            advice="pip install spiral-pipeline" if missing else "",
        )
    ]
    for extra, module, use in _EXTRAS:
        here = importlib.util.find_spec(module) is not None
        advice = "" if here else f"pip install 'spiral-pipeline[{extra}]'"
        shown = f"for {use}" if here else f"missing; for {use}"
        found.append(Finding(name=module, status=OK if here else OPTIONAL, found=shown, advice=advice))
    return found


def _memory() -> list[Finding]:
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    except (ValueError, OSError, AttributeError):
        return []
    fine = total >= _MIN_MEMORY_GB
    advice = "" if fine else f"training the tiny preset needs {_MIN_MEMORY_GB:.0f} GiB"
    return [Finding(name="memory", status=OK if fine else WRONG, found=f"{total:.1f} GiB", advice=advice)]


def _disk(store: Path) -> list[Finding]:
    """Look at the folder runs go to, or the nearest one above it that exists."""
    place = store.absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free / 2**30
    writable = os.access(place, os.W_OK)
    if not writable:
        return [Finding(name="store", status=WRONG, found=f"{place} is read-only", advice="choose another with --out")]
    advice = "" if free >= _MIN_DISK_GB else f"free {_MIN_DISK_GB:.0f} GiB, or choose another folder with --out"
    status = OK if free >= _MIN_DISK_GB else WRONG
    return [Finding(name="store", status=status, found=f"{place}: {free:.1f} GiB free", advice=advice)]


def _flyte() -> list[Finding]:
    """Look for the client configuration that ``pyflyte run --remote`` uses; local runs need none."""
    places = [Path(p) for p in (os.environ.get("FLYTECTL_CONFIG", ""), "flyte.config", "flytekit.config") if p]
    places += [Path.home() / ".flyte" / "config.yaml", Path.home() / ".flyte" / "config"]
    found = next((path for path in places if path.is_file()), None)
    if found is None:
        advice = "only pyflyte run --remote needs one: flytectl config init --host <cluster>"
        return [Finding(name="Flyte config", status=OPTIONAL, found="none", advice=advice)]
    lines = (line.strip() for line in found.read_text().splitlines())
    endpoint = next((line for line in lines if line.startswith("endpoint")), "no endpoint in it")
    return [Finding(name="Flyte config", status=OK, found=f"{found}: {endpoint}")]
