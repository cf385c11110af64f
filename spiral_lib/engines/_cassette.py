"""Replies of an endpoint kept in a JSON-lines file, so that an evaluation can be run again without it."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from spiral_lib.errors import EngineError

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """A usable reply; ``finish_reason`` is ``stop``, ``length`` or ``context``."""

    text: str
    finish_reason: str
    prompt_tokens: int
    reply_tokens: int


class Cassette:
    """Answers by the hash of their request. The file holds requests and replies, never the key."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._answers: dict[str, Answer] = {}
        self._torn = False
        if path.is_file():
            self._read()

    def __len__(self) -> int:
        return len(self._answers)

    @property
    def answers(self) -> list[Answer]:
        return list(self._answers.values())

    def get(self, body: Mapping[str, Any]) -> Answer | None:
        """Return the answer recorded for a request, or None."""
        return self._answers.get(_key(body))

    def add(self, body: Mapping[str, Any], answer: Answer) -> None:
        """Record an answer at the end of the file."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps({"key": _key(body), "request": body, "answer": asdict(answer)}, ensure_ascii=False)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"\n{line}\n" if self._torn else f"{line}\n")
        self._torn = False
        self._answers[_key(body)] = answer

    def _read(self) -> None:
        text = self._path.read_text(encoding="utf-8", errors="replace")
        lines = text.splitlines()
        self._torn = bool(text) and not text.endswith("\n")
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                content = json.loads(line)
                self._answers[str(content["key"])] = Answer(**content["answer"])
            except (ValueError, KeyError, TypeError) as error:
                # A process that was killed while writing leaves half a line at the end of what it wrote.
                log.warning("cassette '%s' line %d is damaged and left out: %s", self._path, number, error)


def open_cassette(path: str, *, required: bool) -> Cassette | None:
    """Return the cassette, None for an empty path. Raises EngineError where a required one is missing."""
    if not path:
        if required:
            raise EngineError("endpoint.replay_only needs endpoint.cassette")
        return None
    if required and not Path(path).is_file():
        raise EngineError(f"cassette '{path}' is missing; record it with endpoint.replay_only=false")
    return Cassette(Path(path))


def _key(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
