"""Files of a registry on any fsspec URL, with the one operation that everything else rests on: create if absent."""

from __future__ import annotations

import logging
import os
import shutil
import time
import uuid
from pathlib import Path

from spiral_lib import durable
from spiral_lib.errors import RegistryError

log = logging.getLogger(__name__)

MARKER = "registry.json"
_MARKER_TEXT = b'{"version": 1}'
# Without conditional writes, a claim is trusted once others have had this long to show theirs.
SETTLE_S = 2.0
STALE_S = 120.0


class Store:
    """A folder of immutable small and large files below one URL: local, s3, gs, abfs or memory.

    Where the store has conditional writes (S3, Google and Azure storage, a local disk) ``create`` is atomic. On a store
    that ignores the condition, a claim object decides instead: all that want to create a file write a claim each, wait
    ``SETTLE_S``, and the oldest claim wins. That holds while a request takes less than ``SETTLE_S`` and clocks differ
    by less than ``STALE_S``, after which the claim of a dead process is ignored.
    """

    def __init__(self, url: str) -> None:
        import fsspec

        try:
            # What another publisher just wrote must be seen: no cached listings.
            self._fs, self._root = fsspec.core.url_to_fs(url, use_listings_cache=False)
        except (ImportError, ValueError) as error:
            raise RegistryError(
                f"registry '{url}' cannot be opened: {error}. Give a folder, or a URL such as s3://bucket/registry"
            ) from error
        self.url = url.rstrip("/")
        self._local = "file" in (self._fs.protocol if isinstance(self._fs.protocol, tuple) else (self._fs.protocol,))
        self._atomic: bool | None = True if self._local else None

    def read(self, name: str) -> bytes | None:
        """Return a file's content, or None where there is none."""
        try:
            return bytes(self._fs.cat_file(self._place(name)))
        except FileNotFoundError:
            return None

    def names(self, folder: str) -> list[str]:
        """Return the sorted last name parts of what lies directly in a folder; empty where there is none."""
        try:
            found = self._fs.ls(self._place(folder), detail=False)
        except FileNotFoundError:
            return []
        last = (str(path).rstrip("/").rsplit("/", 1)[-1] for path in found)
        return sorted(name for name in last if name and not name.startswith("."))

    def size(self, name: str) -> int | None:
        """Return a file's size in bytes, or None where there is none."""
        try:
            return int(self._fs.info(self._place(name))["size"])
        except FileNotFoundError:
            return None

    def put(self, source: Path, name: str) -> None:
        """Upload a file, replacing what is there; readers see the old or the new one, never a part."""
        if self._local:
            target = Path(self._place(name))
            with durable.new_file(target) as temporary:
                shutil.copyfile(source, temporary)
        else:
            self._fs.put_file(str(source), self._place(name))

    def put_text(self, name: str, text: str) -> None:
        """Write a small file, replacing what is there."""
        if self._local:
            durable.write_text(Path(self._place(name)), text)
        else:
            self._fs.pipe_file(self._place(name), text.encode())

    def get(self, name: str, target: Path) -> None:
        """Download a file. Raises RegistryError where it is missing."""
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._fs.get_file(self._place(name), str(target))
        except FileNotFoundError:
            raise RegistryError(f"'{self.url}/{name}' is missing; publish the version again") from None

    def create(self, name: str, content: bytes) -> bool:
        """Write a file that is not there yet, whole; return False, changing nothing, where it is there."""
        if self._local:
            return self._link_new(Path(self._place(name)), content)
        if self._has_conditions():
            return self._pipe_new(name, content)
        return self._claim_new(name, content)

    def _place(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"

    def _link_new(self, path: Path, content: bytes) -> bool:
        with durable.scratch(path.with_name(f"{path.name}.{uuid.uuid4().hex}")) as temporary:
            temporary.write_bytes(content)
            try:
                os.link(temporary, path)
            except FileExistsError:
                return False
            except OSError as error:
                raise RegistryError(
                    f"'{path.parent}' cannot hold a registry: its file system has no hard links ({error}); "
                    "use a local disk, NFS, or an object store"
                ) from error
        return True

    def _pipe_new(self, name: str, content: bytes) -> bool:
        try:
            self._fs.pipe_file(self._place(name), content, mode="create")
        except Exception as error:  # each store has exception classes of its own
            if _refused(error):
                return False
            raise
        return True

    def _has_conditions(self) -> bool:
        """Return whether the store refuses to create what is there, by trying it once."""
        if self._atomic is None:
            self._pipe_new(MARKER, _MARKER_TEXT)
            self._atomic = not self._pipe_new(MARKER, _MARKER_TEXT)
            if not self._atomic:
                log.warning("'%s' has no conditional writes: aliases are guarded by claim objects instead", self.url)
        return self._atomic

    def _claim_new(self, name: str, content: bytes) -> bool:
        if self.size(name) is not None:
            return False
        claims = f"{name}.claims"
        mine = f"{time.time_ns():020d}-{uuid.uuid4().hex}"
        self._fs.pipe_file(self._place(f"{claims}/{mine}"), b"")
        time.sleep(SETTLE_S)
        oldest = time.time_ns() - int(STALE_S * 1e9)
        alive = [claim for claim in self.names(claims) if int(claim.partition("-")[0]) > oldest]
        if min(alive, default=mine) != mine or self.size(name) is not None:
            return False
        self._fs.pipe_file(self._place(name), content)
        return True


def _refused(error: Exception) -> bool:
    """Return whether a store's error means that the file is there already; Google's comes as an HTTP error."""
    return isinstance(error, FileExistsError) or str(getattr(error, "code", "")) in ("409", "412")
