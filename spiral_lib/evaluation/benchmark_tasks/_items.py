"""Where a benchmark's items come from: a local folder or the hub, checked against the published content."""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spiral_lib import answers
from spiral_lib.config import EvaluationConfig
from spiral_lib.errors import ConfigError, DataQualityError, EngineError

HUB = "https://huggingface.co"
_PROBE_S = 8.0
_FETCH_S = 900.0
log = logging.getLogger(__name__)

# The child's own time-out covers a slow answer, the parent's a name look-up that never ends.
_PROBE = """
import sys, urllib.error, urllib.request
try:
    urllib.request.urlopen(sys.argv[1], timeout=5).close()
except urllib.error.HTTPError:
    pass
"""
_FETCH = """
import sys, datasets
repo, subset, split, out = sys.argv[1:]
datasets.load_dataset(repo, subset or None, split=split).to_json(out)
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """One item. ``gold`` is the answer, or the letter of the right one of ``choices``."""

    id: str
    question: str
    gold: str
    choices: tuple[str, ...] = ()
    family: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """A benchmark's data: ``file`` in ``evaluation.data_dir``, else ``split`` of the hub's ``repo`` and ``subset``.

    ``sha256`` is that of the items (``digest``), or None where only their number could be fixed. ``read`` makes an item
    of a row, a local one or the hub's, and its position.
    """

    name: str
    file: str
    repo: str
    subset: str
    split: str
    num_items: int
    sha256: str | None
    read: Callable[[Mapping[str, Any], int], Problem]


@dataclass(frozen=True, kw_only=True, slots=True)
class Items:
    """A benchmark's items in their published order, and their digest."""

    problems: tuple[Problem, ...]
    sha256: str


def load(source: Source, settings: EvaluationConfig) -> Items:
    """Return the items.

    Raises ConfigError, within seconds, where they are not to be had, and DataQualityError where they are other ones.
    """
    rows, place = _local(source, Path(settings.data_dir)) if settings.data_dir else _hub(source)
    try:
        problems = tuple(source.read(row, i) for i, row in enumerate(rows))
    except (KeyError, TypeError, ValueError) as error:
        raise DataQualityError(f"{place}: a row of benchmark '{source.name}' cannot be read ({error!r})") from error
    found = digest(problems)
    if len(problems) != source.num_items or source.sha256 not in (None, found):
        raise DataQualityError(
            f"{place} is not the published '{source.name}': {len(problems)} items with sha256 {found[:16]}, expected "
            f"{source.num_items} with {(source.sha256 or 'any digest')[:16]}; scores would not be comparable. "
            "For items of your own write a benchmark module (docs/evaluation.md)"
        )
    return Items(problems=problems, sha256=found)


def digest(problems: Iterable[Problem]) -> str:
    """Return the SHA-256 over questions, choices and answers, whatever the items' order, ids and file format."""
    lines = sorted(json.dumps([p.question.strip(), list(p.choices), p.gold.strip()]) for p in problems)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def read_math(row: Mapping[str, Any], position: int) -> Problem:
    """Return a row with a problem (or question) and an answer (or a solution that ends in a box)."""
    question = row["problem"] if "problem" in row else row["question"]
    if "answer" in row:
        gold = plain_answer(row["answer"])
    elif "final_answer" in row:
        gold = plain_answer(row["final_answer"])
    else:
        gold = answers.extract(str(row["solution"])) or ""
    if not gold:
        raise ValueError(f"no answer in row {position}")
    return Problem(id=str(row.get("id", row.get("unique_id", position))), question=str(question), gold=gold)


def plain_answer(answer: Any) -> str:
    """Return an answer as text: whole numbers without ".0", a list's members with commas between them."""
    if isinstance(answer, list):
        return ", ".join(plain_answer(part) for part in answer)
    if isinstance(answer, float) and answer.is_integer():
        return str(int(answer))
    return str(answer).strip()


def _local(source: Source, folder: Path) -> tuple[list[dict[str, Any]], Path]:
    path = folder / source.file
    if not path.is_file():
        raise ConfigError(
            f"benchmark '{source.name}' needs {path}, which does not exist: one JSON object a line; "
            "put it there, or leave evaluation.data_dir empty for the hub"
        )
    return _read_jsonl(path), path


def _read_jsonl(path: Path) -> list[dict[str, Any]]:
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except ValueError as error:
        raise DataQualityError(f"{path} is not one JSON object a line: {error}") from error


def _hub(source: Source) -> tuple[list[dict[str, Any]], str]:
    """Return the hub's rows, or its local cache's without a network."""
    try:
        return _fetch(source.repo, source.subset, source.split), f"the hub's {source.repo}"
    except EngineError as error:
        raise ConfigError(
            f"benchmark '{source.name}' needs {source.repo}: {error}. "
            f"Without a network put {source.file} into a folder and set evaluation.data_dir"
        ) from error


@functools.cache
def _fetch(repo: str, subset: str, split: str) -> list[dict[str, Any]]:
    """Return a split's rows, read in a child so that nothing can hang; asked once. Raises EngineError."""
    is_wanted = os.environ.get("HF_HUB_OFFLINE", "0").upper() not in ("1", "ON", "YES", "TRUE")
    reachable = is_wanted and _is_reachable(os.environ.get("HF_ENDPOINT", HUB))
    if not reachable and not _is_cached(repo):
        raise EngineError("the hub is not reachable and it is not in the local cache")
    environment = os.environ if reachable else {**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "rows.jsonl"
        try:
            done = subprocess.run(
                [sys.executable, "-c", _FETCH, repo, subset, split, str(out)],
                env=environment,
                capture_output=True,
                text=True,
                timeout=_FETCH_S,
            )
        except subprocess.TimeoutExpired as error:
            raise EngineError(f"it took more than {_FETCH_S:.0f} s") from error
        if done.returncode != 0:
            reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise EngineError(f"{'the hub' if reachable else 'the local cache'} says: {reason[:200]}")
        log.info("%s: from %s", repo, "the hub" if reachable else "the local cache")
        return _read_jsonl(out)


def _is_cached(repo: str) -> bool:
    """Return whether the hub's client may have a copy (or the repository is a folder): quicker than to import it."""
    cache = os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))
    home = Path(os.environ.get("HF_HOME", f"{cache}/huggingface"))
    files = Path(os.environ.get("HF_HUB_CACHE", home / "hub")) / f"datasets--{repo.replace('/', '--')}"
    tables = Path(os.environ.get("HF_DATASETS_CACHE", home / "datasets")) / repo.replace("/", "___").lower()
    return any(place.is_dir() for place in (Path(repo), files, tables))


@functools.cache
def _is_reachable(endpoint: str) -> bool:
    """Return whether the hub answers; asked once, so a suite without a network waits for it only once."""
    try:
        done = subprocess.run([sys.executable, "-c", _PROBE, endpoint], capture_output=True, timeout=_PROBE_S)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0
