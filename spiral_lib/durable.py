"""Files and folders that appear whole or not at all, and their hashes."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path

_CHUNK = 1 << 20
# A file changed again within one tick of the file system's clock keeps its time: such young files are hashed anew.
_SETTLED_S = 2.0
_hashes: dict[tuple[str, int, int, int], str] = {}


def sha256_file(path: Path) -> str:
    """Return the hex SHA-256 of a file; an unchanged file is read once per process."""
    stat = path.stat()
    key = (str(path.resolve()), stat.st_ino, stat.st_mtime_ns, stat.st_size)
    if key in _hashes:
        return _hashes[key]
    digest = hashlib.sha256()
    with path.open("rb") as f:
        while chunk := f.read(_CHUNK):
            digest.update(chunk)
    if time.time() - stat.st_mtime > _SETTLED_S:
        _hashes[key] = digest.hexdigest()
    return digest.hexdigest()


def digest_files(hashes: dict[str, str]) -> str:
    """Return the hex SHA-256 over (relative name, file hash) pairs, whatever their order."""
    lines = "".join(f"{hashes[name]}  {name}\n" for name in sorted(hashes))
    return hashlib.sha256(lines.encode()).hexdigest()


def list_files(folder: Path) -> list[str]:
    """Return the relative POSIX names of all files below a folder, sorted."""
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Yield a temporary name beside ``path``; on success it replaces ``path``, on failure it is removed."""
    temporary = _temporary(path)
    try:
        yield temporary
        _sync(temporary)
        os.replace(temporary, path)
        _sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield an empty folder beside ``path``; on success it takes the place of ``path``, on failure it is removed."""
    temporary = _temporary(path)
    old = temporary.with_suffix(".old.tmp")
    temporary.mkdir()
    try:
        yield temporary
        for name in list_files(temporary):
            _sync(temporary / name)
        _sync(temporary)
        if path.exists():  # a full folder cannot be replaced in one call: for a moment there is none, never half a one
            os.rename(path, old)
        os.rename(temporary, path)
        _sync(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file that appears whole or not at all."""
    with new_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _temporary(path: Path) -> Path:
    """Return an unused sibling name that no glob for real files matches, after removing what a killed process left."""
    path.parent.mkdir(parents=True, exist_ok=True)
    host = socket.gethostname().replace(".", "_")
    for leftover in path.parent.glob(f".{path.name}.{host}-*.tmp"):
        pid = leftover.name.removeprefix(f".{path.name}.{host}-").partition(".")[0]
        if pid.isdigit() and not _alive(int(pid)):
            shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink(missing_ok=True)
    return path.parent / f".{path.name}.{host}-{os.getpid()}.tmp"


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return pid != os.getpid()


def _sync(path: Path) -> None:
    """Flush a file or folder to the disk, so that a later record of its hash never outlives its bytes."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
