"""The registry of checkpoints that teams share, on any fsspec URL: immutable versions by content, movable aliases.

    <root>/<name>/versions/<id>/checkpoint/...      an ordinary Hugging Face folder
    <root>/<name>/versions/<id>/attached/...        evaluation, configuration and lineage, named by content
    <root>/<name>/versions/<id>/version.json        written last: what has none was not published
    <root>/<name>/versions/<id>/README.md           the model card, made from version.json
    <root>/<name>/aliases/<alias>/00000001.json     one file per move; the highest number is where it stands

An alias moves by creating the file of the next number, which only one of several publishers can do: that is the
compare-and-swap, and the files are its history. ``id`` is the checkpoint's own id, the hash of its files.
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from spiral_lib import checkpoints, durable, model_card
from spiral_lib.checkpoints import FileEntry
from spiral_lib.errors import RegistryError
from spiral_lib.registry_store import Store
from spiral_lib.registry_types import Attachments, Move, Reference, Version

__all__ = ["Attachments", "Move", "Reference", "Registry", "Version"]

DEFAULT_ALIAS = "champion"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_ID = re.compile(r"[0-9a-f]{8,64}")


class Registry:
    """Checkpoints below one URL."""

    def __init__(self, url: str) -> None:
        self._store = Store(url)
        self.url = self._store.url

    def publish(self, name: str, checkpoint: Path, attached: Attachments | None = None) -> Version:
        """Publish a checkpoint folder as a version and return it; one that is published already is returned as it is.

        Several may publish at once: of the same checkpoint the first to finish counts. Raises CheckpointError where
        the folder is damaged, and RegistryError for a bad name.
        """
        _require(name, "name")
        manifest = checkpoints.verify(checkpoint)
        published = self._read_version(name, manifest.id)
        if published is not None:
            return published
        attached = attached or Attachments()
        place = _place(name, manifest.id)
        files = {}
        for file in durable.list_files(checkpoint):
            files[f"checkpoint/{file}"] = self._upload(checkpoint / file, f"{place}/checkpoint/{file}")
        for title, text in attached.texts.items():
            entry = FileEntry(sha256=hashlib.sha256(text.encode()).hexdigest(), bytes=len(text.encode()))
            path = f"attached/{entry.sha256[:16]}-{title}"
            self._store.put_text(f"{place}/{path}", text)
            files[path] = entry
        version = Version(
            name=name,
            id=manifest.id,
            published=_now(),
            parent=manifest.parent,
            base_model=manifest.base_model,
            iteration=manifest.iteration,
            config_hash=manifest.config_hash,
            code_version=manifest.code_version,
            files=files,
            metrics=dict(attached.metrics),
            facts=dict(attached.facts),
        )
        self._store.create(f"{place}/version.json", version.to_json().encode())
        committed = self._read_version(name, manifest.id)
        assert committed is not None
        self._store.put_text(f"{place}/README.md", model_card.write(committed, self.url))
        return committed

    def names(self) -> list[str]:
        """Return the names under which something is published."""
        return [n for n in self._store.names("") if _NAME.fullmatch(n) and self._store.names(f"{n}/versions")]

    def versions(self, name: str) -> list[Version]:
        """Return a name's versions, oldest first; what was not uploaded whole is not among them."""
        found = (self._read_version(name, v) for v in self._store.names(f"{name}/versions") if _ID.fullmatch(v))
        return sorted((v for v in found if v is not None), key=lambda v: (v.published, v.id))

    def aliases(self, name: str) -> dict[str, str]:
        """Return where a name's aliases stand: alias to version id."""
        moves = {a: self.history(name, a) for a in self._store.names(f"{name}/aliases") if _NAME.fullmatch(a)}
        return {alias: history[-1].version for alias, history in moves.items() if history}

    def history(self, name: str, alias: str) -> list[Move]:
        """Return an alias's moves, oldest first."""
        folder = f"{name}/aliases/{alias}"
        files = [n for n in self._store.names(folder) if re.fullmatch(r"[0-9]{8}\.json", n)]
        texts = (self._store.read(f"{folder}/{n}") for n in files)
        return [Move.from_json(text.decode()) for text in texts if text is not None]

    def resolve(self, name: str, selector: str = DEFAULT_ALIAS) -> Version:
        """Return the version that an alias, an id or the beginning of an id (8 hex digits at least) names.

        Raises RegistryError naming what there is.
        """
        _require(name, "name")
        if _NAME.fullmatch(selector) and (history := self.history(name, selector)):
            selector = history[-1].version
        ids = [v for v in self._store.names(f"{name}/versions") if _ID.fullmatch(selector) and v.startswith(selector)]
        found = [v for v in (self._read_version(name, i) for i in ids) if v is not None]
        if len(found) == 1:
            return found[0]
        if len(found) > 1:
            raise RegistryError(f"'{name}@{selector}' is several versions; give more digits of the id")
        known = ", ".join([*self.aliases(name), *(v.id[:12] for v in self.versions(name))]) or "nothing"
        raise RegistryError(
            f"'{name}@{selector}' is not in registry '{self.url}'; there is: {known}. "
            f"Publish with: spiral registry publish <run> {name} --registry {self.url} --alias {selector}"
        )

    def promote(self, name: str, version: str, alias: str, *, expected: str | None = None, note: str = "") -> Move:
        """Point an alias at a version and return the move; nothing happens where it stands there already.

        With ``expected`` (a version id) only an alias that stands there now is moved. Raises RegistryError where it
        stands elsewhere, or where somebody else moved it meanwhile.
        """
        _require(alias, "alias")
        if _ID.fullmatch(alias):
            raise RegistryError(f"alias '{alias}' looks like a version id; choose a word such as candidate")
        target = self.resolve(name, version)
        history = self.history(name, alias)
        current = history[-1] if history else None
        if current is not None and current.version == target.id:
            return current
        if expected is not None and (current is None or current.version != expected):
            stands = f"at {current.version[:12]}" if current else "nowhere"
            raise RegistryError(
                f"'{name}@{alias}' stands {stands}, not at {expected[:12]}; see spiral registry diff, then repeat"
            )
        number = current.number + 1 if current else 1
        move = Move(
            alias=alias,
            number=number,
            version=target.id,
            previous=current.version if current else None,
            moved=_now(),
            note=note,
        )
        if not self._store.create(f"{name}/aliases/{alias}/{number:08d}.json", move.to_json().encode()):
            raise RegistryError(f"somebody else moved '{name}@{alias}' just now; look where it stands, then repeat")
        return move

    def fetch(self, name: str, selector: str, out: Path) -> Version:
        """Download a version's checkpoint folder to ``out``, whole or not at all, and check every hash."""
        version = self.resolve(name, selector)
        with durable.new_folder(out) as folder:
            for path in version.files:
                part, _, file = path.partition("/")
                if part == "checkpoint":
                    self._store.get(f"{_place(name, version.id)}/{path}", folder / file)
            manifest = checkpoints.verify(folder)
            if manifest.id != version.id:
                raise RegistryError(f"'{name}@{version.id[:12]}' holds another checkpoint; publish it again")
        return version

    def attachment(self, version: Version, title: str) -> str | None:
        """Return the text attached as ``evaluation.json`` or the like, or None. Raises RegistryError if damaged."""
        for path in version.files:
            if path.startswith("attached/") and path.partition("-")[2] == title:
                return self.text(version, path)
        return None

    def text(self, version: Version, path: str) -> str:
        """Return one of a version's text files. Raises RegistryError where it is missing or damaged."""
        text = self._store.read(f"{_place(version.name, version.id)}/{path}")
        if text is None or path not in version.files or hashlib.sha256(text).hexdigest() != version.files[path].sha256:
            raise RegistryError(f"'{path}' of {version.name}@{version.id[:12]} is missing or damaged")
        return text.decode()

    def verify(self, version: Version) -> list[str]:
        """Return what is wrong with a version's files, hashing every byte again; an empty list means nothing."""
        problems = []
        with tempfile.TemporaryDirectory(prefix="registry-") as scratch:
            for path, entry in version.files.items():
                try:
                    self._store.get(f"{_place(version.name, version.id)}/{path}", target := Path(scratch) / "file")
                except RegistryError as error:
                    problems.append(str(error))
                    continue
                if (found := durable.sha256_file(target)) != entry.sha256:
                    problems.append(f"'{path}' hashes to {found[:12]}, version.json says {entry.sha256[:12]}")
                target.unlink()
        hashes = {p.removeprefix("checkpoint/"): e.sha256 for p, e in version.files.items() if p[:11] == "checkpoint/"}
        del hashes[checkpoints.MANIFEST]
        if durable.digest_files(hashes) != version.id:
            problems.append(f"the files of {version.id[:12]} do not hash to its id")
        return problems

    def claim(self, name: str, key: str, content: Mapping[str, str]) -> dict[str, str]:
        """Store a record under a key that nobody used before, and return it; else return the one that is there."""
        _require(name, "name")
        _require(key, "key")
        path = f"{name}/claims/{key}.json"
        self._store.create(path, json.dumps(dict(content), sort_keys=True).encode())
        stored = self._store.read(path)
        assert stored is not None
        return {str(k): str(v) for k, v in json.loads(stored).items()}

    def _read_version(self, name: str, version: str) -> Version | None:
        text = self._store.read(f"{_place(name, version)}/version.json")
        return None if text is None else Version.from_json(text.decode())

    def _upload(self, source: Path, target: str) -> FileEntry:
        entry = FileEntry(sha256=durable.sha256_file(source), bytes=source.stat().st_size)
        # Uploads are atomic, so a file of the right size is one that an interrupted publisher finished.
        if self._store.size(target) != entry.bytes:
            self._store.put(source, target)
        return entry


def _place(name: str, version: str) -> str:
    return f"{name}/versions/{version}"


def _require(text: str, what: str) -> None:
    if not _NAME.fullmatch(text):
        raise RegistryError(f"{what} '{text}' is not allowed: use letters, digits, '-', '_' and '.', at most 100")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
