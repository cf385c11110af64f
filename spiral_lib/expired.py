"""Tombstones: what a run deleted by rule, with its hash. An expired output is known to be gone, not missing."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from spiral_lib.durable import list_files, write_text
from spiral_lib.errors import LineageError

FILE = "expired.json"
STUB = "manifest.json"
"""Stays of a checkpoint folder: which weights they were is still known, and costs no disk."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tombstone:
    """One deleted file or folder: path relative to the run, hash and size as they were, day (UTC) and rule."""

    path: str
    sha256: str
    bytes: int
    day: str
    rule: str


def read(run: Path) -> dict[str, Tombstone]:
    """Return the run's tombstones by path. Raises LineageError where the file is damaged."""
    file = run / FILE
    if not file.is_file():
        return {}
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        return {entry["path"]: Tombstone(**entry) for entry in content}
    except (OSError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise LineageError(f"cannot read '{file}': {error!r}; restore it, or the run counts as damaged") from error


def add(run: Path, tombstones: Iterable[Tombstone]) -> None:
    """Write tombstones beside the earlier ones; what they stand for is deleted only after this."""
    known = read(run) | {tombstone.path: tombstone for tombstone in tombstones}
    content = [dataclasses.asdict(known[path]) for path in sorted(known)]
    write_text(run / FILE, json.dumps(content, indent=1))


def covers(run: Path, place: Path) -> bool:
    """Return whether a place in the run folder is empty because what was there expired."""
    full, root = place.resolve(), run.resolve()
    return full.is_relative_to(root) and hash_of(run, full.relative_to(root).as_posix()) is not None


def hash_of(run: Path, path: str) -> str | None:
    """Return the hash that something expired had; None where it is still there, or gone without a tombstone."""
    if is_there(run / path) or path not in (found := read(run)):
        return None
    return found[path].sha256


def is_there(place: Path) -> bool:
    """Return whether more of an output is there than what stays of an expired one."""
    return place.is_file() or (place.is_dir() and list_files(place) not in ([], [STUB]))
