"""The registry's records, and how a checkpoint in it is named."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from spiral_lib.checkpoints import FileEntry
from spiral_lib.errors import RegistryError

RECORD_VERSION = 1
DEFAULT_ROOT = "registry"
PREFIX = "registry:"
_HEX_ID = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Reference:
    """Names a checkpoint: ``[<root>/]<name>[@<alias or version>]``; the root is a folder or a URL."""

    root: str
    name: str
    selector: str

    @classmethod
    def parse(cls, text: str, *, root: str = DEFAULT_ROOT) -> Reference:
        """Return the reference for its text form, with or without ``registry:`` in front."""
        place, slash, last = text.removeprefix(PREFIX).rpartition("/")
        name, at, selector = last.partition("@")
        if not name or (at and not selector):
            raise RegistryError(f"'{text}' names no checkpoint; write <name>@<alias or version>, such as kuhn@champion")
        return cls(root=(place or "/") if slash else root, name=name, selector=selector or "champion")

    @property
    def is_pinned(self) -> bool:
        """Return whether it names one version for ever, not an alias."""
        return _HEX_ID.fullmatch(self.selector) is not None

    def __str__(self) -> str:
        return f"{PREFIX}{self.root}/{self.name}@{self.selector}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Attachments:
    """What is published beside a checkpoint.

    ``texts`` maps file names to contents (evaluation, configuration, lineage); ``metrics`` is the evaluation's summary;
    ``facts`` are short texts for the model card.
    """

    texts: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Version:
    """One published checkpoint; ``files`` are all its files, relative to the version's folder."""

    name: str
    id: str
    published: str
    parent: str | None
    base_model: str
    iteration: int
    config_hash: str
    code_version: str
    files: Mapping[str, FileEntry]
    metrics: Mapping[str, float]
    facts: Mapping[str, str]

    def to_json(self) -> str:
        """Return JSON text with sorted keys."""
        return json.dumps({"version": RECORD_VERSION, **dataclasses.asdict(self)}, sort_keys=True, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Version:
        """Return the version that ``to_json`` wrote. Raises RegistryError if damaged or naming foreign paths."""
        try:
            content = json.loads(text)
            if content.pop("version") != RECORD_VERSION:
                raise RegistryError("this version was published by other code; use that code")
            files = {_inside(path): FileEntry(**entry) for path, entry in content.pop("files").items()}
            return cls(files=files, **content)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise RegistryError(f"a version.json in the registry is damaged: {error!r}; publish it again") from error


@dataclass(frozen=True, kw_only=True, slots=True)
class Move:
    """One change of an alias, from ``previous`` (None: it was new) to ``version``; ``number`` counts from 1."""

    alias: str
    number: int
    version: str
    previous: str | None
    moved: str
    note: str

    def to_json(self) -> str:
        """Return JSON text with sorted keys."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Move:
        """Return the move that ``to_json`` wrote. Raises RegistryError where it is damaged."""
        try:
            return cls(**json.loads(text))
        except (TypeError, ValueError) as error:
            raise RegistryError(f"an alias in the registry is damaged: {error!r}; promote a version again") from error


def _inside(path: str) -> str:
    parts = PurePosixPath(path).parts
    if path.startswith("/") or "\\" in path or ".." in parts or parts[:1] not in (("checkpoint",), ("attached",)):
        raise ValueError(f"'{path}' does not lie in the version's folder")
    return path
