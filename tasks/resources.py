"""Images, resource profiles and cache versions: the only place with numbers of processors and GPUs."""


import hashlib
import os
from pathlib import Path

from flytekit import Resources

CPU_IMAGE = os.environ.get("SPIRAL_IMAGE_CPU", "spiral-cpu:0.1.0")
GPU_IMAGE = os.environ.get("SPIRAL_IMAGE_GPU", "spiral-gpu:0.1.0")

SMALL = Resources(cpu="1", mem="2Gi")
CPU = Resources(cpu="2", mem="4Gi")


def source_version() -> str:
    """Return 12 hex digits over the sources that decide results: finished steps of other code are never re-used."""
    digest = hashlib.sha256()
    root = Path(__file__).parents[1]
    for folder in ("spiral_lib", "tasks"):
        for path in sorted((root / folder).rglob("*.py")):
            digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


CACHE_VERSION = source_version()
