"""Files and folders that appear whole or not at all, their hashes, and a folder's claim by one process."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from spiral_lib.errors import ConfigError, SpiralError

LOCK = ".lock"
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_CHUNK = 1 << 20
# A file changed again within one tick of the file system's clock keeps its time: such young files are hashed anew.
_SETTLED_S = 2.0
_hashes: dict[tuple[str, int, int, int], str] = {}
_claims: dict[Path, tuple[int, int]] = {}


def digest_path(path: Path) -> str:
    """Return the hash of a file's content, or of all files below a folder and their names."""
    if path.is_dir():
        return digest_files({name: sha256_file(path / name) for name in list_files(path)})
    return sha256_file(path)


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
    with scratch(path) as temporary:
        yield temporary
        place(temporary, path)


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield an empty folder beside ``path``; on success it takes the place of ``path``, on failure it is removed."""
    with scratch(path) as temporary:
        temporary.mkdir()
        yield temporary
        place(temporary, path)


@contextlib.contextmanager
def scratch(path: Path) -> Iterator[Path]:
    """Yield an unused name beside ``path``; what stands there in the end, file or folder, is removed."""
    temporary = _temporary(path)
    try:
        yield temporary
    finally:
        remove(temporary)


def place(source: Path, path: Path) -> None:
    """Move a finished file or folder to ``path`` on the same file system, flushed, replacing what is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        for name in list_files(source):
            _sync(source / name)
    _sync(source)
    if path.is_dir():  # a full folder cannot be replaced in one call: for a moment there is none, never half a one
        old = path.with_name(f".{path.name}.{_owner()}.old.tmp")
        os.rename(path, old)
        os.rename(source, path)
        remove(old)
    else:
        os.replace(source, path)
    _sync(path.parent)


def remove(path: Path) -> None:
    """Remove a file or folder if it is there."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def link_folder(source: Path, target: Path) -> None:
    """Make a folder with the same files: hard links where the file system has them, so that it costs no disk."""
    with new_folder(target) as folder:
        for name in list_files(source):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(source / name, folder / name)
            except OSError:
                shutil.copyfile(source / name, folder / name)


def claim(folder: Path) -> None:
    """Claim a folder for this process until ``release`` or its death. Raises ConfigError where another one has it.

    A process may claim a folder more than once. Where there can be no lock (a read-only disk, a file system without
    them) there is none: the claim protects from a second start by mistake, and is no condition of running.
    """
    place = folder.resolve()
    descriptor, times = _claims.get(place, (-1, 0))
    if not times:
        try:
            descriptor = os.open(place / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError:
            return
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.pread(descriptor, 200, 0).decode("utf-8", "replace").strip()
            os.close(descriptor)
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                return
            raise ConfigError(
                f"'{folder}' is in use by {owner or 'another process'}; wait for it, stop it, or choose another folder"
            ) from None
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
    _claims[place] = (descriptor, times + 1)


def release(folder: Path) -> None:
    """Give up one claim of a folder; does nothing where there is none."""
    place = folder.resolve()
    descriptor, times = _claims.pop(place, (-1, 0))
    if times > 1:
        _claims[place] = (descriptor, times - 1)
    elif times:
        os.close(descriptor)


@contextlib.contextmanager
def told_when_full(folder: Path | str) -> Iterator[None]:
    """Raise SpiralError with the way out where what runs inside finds no room on the disk, whatever reported it."""
    try:
        yield
    except Exception as error:
        # The libraries that write weights and turns have exceptions of their own, with the system's number in the text.
        numbers = {getattr(error, "errno", None), *(n for n in _FULL if f"os error {n}" in str(error))}
        if isinstance(error, SpiralError) or not numbers & _FULL:
            raise
        raise SpiralError(
            f"no room left to write '{folder}': {error}. Free some, for example with spiral expire, and give the same "
            "command again: every finished step is kept"
        ) from error


def write_text(path: Path, text: str) -> None:
    """Write a text file that appears whole or not at all."""
    with new_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _temporary(path: Path) -> Path:
    """Return an unused sibling name that no glob for real files matches, after removing what a killed process left."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for leftover in path.parent.glob(f".{path.name}.{_host()}-*.tmp"):
        pid = leftover.name.removeprefix(f".{path.name}.{_host()}-").partition(".")[0]
        if pid.isdigit() and not _alive(int(pid)):
            remove(leftover)
    return path.parent / f".{path.name}.{_owner()}.tmp"


def _host() -> str:
    return socket.gethostname().replace(".", "_")


def _owner() -> str:
    return f"{_host()}-{os.getpid()}"


def _alive(pid: int) -> bool:
    """Return whether another process has this id; our own id on a leftover is that of a dead namesake."""
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
