"""``spiral doctor``: what this machine can do, and what to install for the rest."""

from __future__ import annotations

import configparser
import importlib.util
import os
import platform
import shutil
import socket
import sys
import tempfile
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

import click
import yaml

from spiral_lib.cli._options import json_option
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
_PROBE = b"spiral doctor was here"
OK, OPTIONAL, WRONG = "ok", "optional", "wrong"


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One look: ``status`` is ok, optional (something is missing that not everyone needs) or wrong."""

    name: str
    status: str
    found: str
    advice: str = ""


@click.command(
    epilog="""\b
Examples:
  spiral doctor
  spiral doctor --store /mnt/runs --json
  spiral doctor --store s3://bucket/runs"""
)
@click.option("--store", default="runs", show_default=True, metavar="PLACE", help="Where runs will go: folder or URL.")
@json_option
def COMMAND(store: str, as_json: bool) -> int:
    """Look at Python, torch, GPU, extras, store and Flyte; say what to do. Exit code 1 when something is wrong."""
    findings = [*_python(), *_torch(), *_packages(), *_memory(), *_store(store), *_flyte()]
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
        shown = f"{_version(module)}, for {use}" if here else f"missing; for {use}"
        found.append(Finding(name=module, status=OK if here else OPTIONAL, found=shown, advice=advice))
    return found


def _version(module: str) -> str:
    distribution = (metadata.packages_distributions().get(module) or [module])[0]
    return metadata.version(distribution)


def _memory() -> list[Finding]:
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    except (ValueError, OSError, AttributeError):
        return []
    fine = total >= _MIN_MEMORY_GB
    advice = "" if fine else f"training the tiny preset needs {_MIN_MEMORY_GB:.0f} GiB"
    return [Finding(name="memory", status=OK if fine else WRONG, found=f"{total:.1f} GiB", advice=advice)]


def _store(store: str) -> list[Finding]:
    """Write where runs go and read it back: a local folder, or the nearest one above it that exists, or a URL."""
    if "://" in store:
        return [_remote_store(store)]
    place = Path(store).absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free / 2**30
    try:
        with tempfile.TemporaryFile(dir=place) as probe:
            probe.write(_PROBE)
    except OSError as error:
        advice = "choose another folder with --out"
        return [Finding(name="store", status=WRONG, found=f"cannot write to {place}: {error.strerror}", advice=advice)]
    advice = "" if free >= _MIN_DISK_GB else f"free {_MIN_DISK_GB:.0f} GiB, or choose another folder with --out"
    status = OK if free >= _MIN_DISK_GB else WRONG
    return [Finding(name="store", status=status, found=f"{place}: written to, {free:.1f} GiB free", advice=advice)]


def _remote_store(url: str) -> Finding:
    """Write one small object, read it back and delete it, with the credentials that fsspec's client finds."""
    import fsspec

    try:
        files, root = fsspec.url_to_fs(url)
        place = f"{root.rstrip('/')}/spiral-doctor-probe"
        files.makedirs(root, exist_ok=True)
        files.pipe_file(place, _PROBE)
        same = files.cat_file(place) == _PROBE
        files.rm(place)
    # What a store's client raises is its own affair; the message is what helps.
    except Exception as error:
        advice = "check the URL, the credentials, and that its client is installed (s3fs for s3://, gcsfs for gs://)"
        return Finding(name="store", status=WRONG, found=f"{url}: {' '.join(str(error).split())[:200]}", advice=advice)
    advice = "" if same else "another client writes there, or the store keeps no order; choose another place"
    found = "written, read back and deleted" if same else "what was read is not what was written"
    return Finding(name="store", status=OK if same else WRONG, found=f"{url}: {found}", advice=advice)


def _flyte() -> list[Finding]:
    """Look for the client configuration that ``pyflyte run --remote`` uses, and whether anything answers there."""
    home = Path.home() / ".flyte"
    places = [Path(p) for p in (os.environ.get("FLYTECTL_CONFIG", ""), "flytekit.config", "flyte.config") if p]
    found = next((path for path in (*places, home / "config", home / "config.yaml") if path.is_file()), None)
    name, remote = "Flyte config", "only pyflyte run --remote needs"
    if found is None:
        advice = f"{remote} one: flytectl config init --host <cluster>"
        return [Finding(name=name, status=OPTIONAL, found="none", advice=advice)]
    try:
        endpoint = _endpoint(found)
    except (OSError, ValueError, configparser.Error, yaml.YAMLError) as error:
        shown = f"cannot read {found}: {' '.join(str(error).split())[:200]}"
        return [Finding(name=name, status=WRONG, found=shown, advice="correct the file")]
    if not endpoint:
        advice = f"{remote} it: url under [platform], or endpoint under admin: in YAML"
        return [Finding(name=name, status=OPTIONAL, found=f"{found} names no endpoint", advice=advice)]
    if _answers(endpoint):
        return [Finding(name=name, status=OK, found=f"{found}: {endpoint} answers")]
    advice = f"{remote} it: start the cluster, or set the address in {found}"
    return [Finding(name=name, status=OPTIONAL, found=f"{found}: nothing answers at {endpoint}", advice=advice)]


def _endpoint(file: Path) -> str:
    """Return the address of Flyte's admin service in a client configuration, INI or YAML; "" where it has none."""
    text = file.read_text(encoding="utf-8")
    if file.suffix in (".yaml", ".yml"):
        content = yaml.safe_load(text)
        admin = content.get("admin") if isinstance(content, dict) else None
        return str(admin.get("endpoint") or "").removeprefix("dns:///") if isinstance(admin, dict) else ""
    parser = configparser.ConfigParser()
    parser.read_string(text)
    return parser.get("platform", "url", fallback="").removeprefix("dns:///")


def _answers(endpoint: str) -> bool:
    host, _, port = endpoint.rpartition(":") if ":" in endpoint else (endpoint, "", "443")
    try:
        with socket.create_connection((host, int(port)), timeout=2.0):
            return True
    except (OSError, ValueError, OverflowError):
        return False
