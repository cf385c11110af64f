"""A Flyte control plane on this machine, for tests: each task attempt is a process that has only the code archive."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
TOOL = ROOT.parent / "shared" / "tools" / "miniflyte"
IMAGE = f"example.org/spiral-cpu@sha256:{'0' * 64}"


@contextlib.contextmanager
def opened(folder: Path, **options: Any) -> Iterator[Any]:
    """Yield a control plane for a copy of the project; skips the test where the stand-in is not there."""
    if not TOOL.is_dir():
        pytest.skip(f"the Flyte control plane stand-in is not here: {TOOL}")
    if sys.prefix == sys.base_prefix:
        pytest.skip("needs a virtual environment to make an image from")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(TOOL))
        patch.delenv("PYTHONPATH", raising=False)
        patch.setenv("SPIRAL_IMAGE_CPU", IMAGE)
        from miniflyte import MiniFlyte

        python = without_the_project(folder / "image")
        with MiniFlyte(
            state=folder / "plane", project_dir=project(folder / "project"), python=str(python), **options
        ) as made:
            yield made


def project(folder: Path) -> Path:
    """Return a copy of what is registered: nobody's edits come between a registration and the next."""
    for name in ("spiral_lib", "tasks", "workflows"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copyfile(ROOT / "flyte.config", folder / "flyte.config")
    return folder


def without_the_project(folder: Path) -> Path:
    """Return the interpreter of an environment with this one's packages but not the project: the container image.

    The project must come out of the code archive alone, as it does in a cluster.
    """
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    here, there = Path(sys.prefix), folder / "lib" / version / "site-packages"
    there.mkdir(parents=True)
    (folder / "bin").mkdir()
    (folder / "pyvenv.cfg").write_text((here / "pyvenv.cfg").read_text())
    for package in (here / "lib" / version / "site-packages").iterdir():
        if "spiral" not in package.name:
            (there / package.name).symlink_to(package)
    (folder / "bin" / "python").symlink_to(os.path.realpath(sys.executable))
    for script in (here / "bin").glob("pyflyte*"):
        body = script.read_text().split("\n", 1)[1]
        copy = folder / "bin" / script.name
        copy.write_text(f"#!{folder / 'bin' / 'python'}\n{body}")
        copy.chmod(0o755)
    return folder / "bin" / "python"


def why(execution: Any) -> str:
    """Return what to print where an execution did not end as expected."""
    return f"{execution.tree()}\n{execution.error and execution.error.msg}"
