"""Runs in a store, looked at like run folders.

A run of the cluster keeps weights, turns and evaluations below its store root as a run folder does, its small files as
one copy an iteration in ``history/NNNN``, and names what it goes on from by URL. Here that becomes a run folder again,
in a scratch place.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from spiral_lib import checkpoints, durable
from spiral_lib.errors import ConfigError, LineageError, SpiralError
from spiral_lib.ledger import Ledger


@contextlib.contextmanager
def opened(place: str) -> Iterator[Path]:
    """Yield a run as a run folder: itself where it is one, else a scratch copy of a store root, local or by URL.

    Raises ConfigError where there is no such folder, LineageError where a store cannot be read.
    """
    if "://" not in place:
        folder = Path(place)
        if not folder.is_dir():
            raise ConfigError(f"'{place}' is no folder; give a run folder or the store root of a run")
        if not _histories(folder) or (folder / "state.json").exists():  # a store root has neither state nor report
            yield folder
            return
        with tempfile.TemporaryDirectory(prefix=".stored-", dir=folder.resolve().parent) as scratch:
            copy = Path(scratch) / folder.resolve().name
            durable.link_folder(folder, copy)
            yield _laid_out(copy)
        return
    with tempfile.TemporaryDirectory(prefix="stored-") as scratch:
        yield _laid_out(_fetched(place, Path(scratch) / "run"))


def _fetched(url: str, target: Path) -> Path:
    import fsspec

    try:
        files, root = fsspec.core.url_to_fs(url)
        files.get(f"{root.rstrip('/')}/", f"{target}/", recursive=True)
    except (ImportError, ValueError, OSError) as error:
        raise LineageError(f"cannot read '{url}': {error}; give a run folder or the store root of a run") from error
    return target


def _histories(folder: Path) -> list[Path]:
    """Return the copies of the small files, oldest first."""
    return sorted(p for p in (folder / "history").glob("*") if (p / "lineage").is_dir())


def _laid_out(folder: Path) -> Path:
    """Lay the newest small files where a run folder has them, and its pool beside them."""
    if kept := _histories(folder):
        shutil.copytree(kept[-1], folder, dirs_exist_ok=True)
        with contextlib.suppress(OSError, ValueError, LookupError, AttributeError, TypeError, SpiralError):
            _name_places(folder)  # what is damaged here is for the audit to find
            _link_pool(folder)
    return folder


def _name_places(folder: Path) -> None:
    """Let ``state.json`` name paths in the folder instead of URLs."""
    file = folder / "state.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    for name, value in content.items():
        if isinstance(value, str):
            content[name] = _inside(value, folder)
        elif isinstance(value, list):
            content[name] = [_inside(v, folder) for v in value]
    durable.write_text(file, json.dumps(content, indent=1))


def _inside(url: str, folder: Path) -> str:
    """Return the end of a URL that is a path in the folder; the URL itself where none is."""
    parts = url.partition("://")[2].split("/") if "://" in url else []
    return next((path for i in range(len(parts)) if (folder / (path := "/".join(parts[i:]))).exists()), url)


def _link_pool(folder: Path) -> None:
    ledger = Ledger.from_json((folder / "ledger.json").read_text(encoding="utf-8"))
    opponents = json.loads((folder / "state.json").read_text(encoding="utf-8"))["opponents"]
    known = {checkpoints.read_manifest(folder / path).id: folder / path for path in opponents}
    for entry in ledger.pool:
        durable.link_folder(known[entry.id], folder / "pool" / f"{entry.iteration:04d}-{entry.id[:12]}")
