"""What pages about a run are made from: the run folder's small files, read once."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spiral_lib import config, lineage, report_verdicts
from spiral_lib.errors import LineageError
from spiral_lib.ledger import Ledger
from spiral_lib.lineage import StepRecord
from spiral_lib.report_verdicts import Review
from spiral_lib.tournament import Standings
from spiral_lib.tournament_page import read_standings

Rows = tuple[tuple[int, Mapping[str, float]], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Quarantined:
    """A shard that the quality gate took out, and why."""

    path: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Expectation:
    """One expectation of the quality gate on an iteration's turns, and what was found."""

    rule: str
    expectation: str
    success: bool
    detail: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RunFiles:
    """A run as its folder tells it. ``iterations`` and ``steps`` are (number, metrics) in order.

    ``expectations`` are those of the newest iteration.
    """

    name: str
    config: config.RunConfig
    ledger: Ledger
    iterations: Rows
    steps: Rows
    samples: tuple[Mapping[str, Any], ...]
    records: tuple[StepRecord, ...] = ()
    quarantined: tuple[Quarantined, ...] = ()
    expectations: tuple[Expectation, ...] = ()
    standings: Standings | None = None
    reviews: tuple[Review, ...] = ()

    @property
    def alarms(self) -> tuple[tuple[int, str], ...]:
        """Return (iteration, name) of every collapse alarm, in order."""
        return tuple((d.iteration, name) for d in self.ledger.decisions for name in d.alarms)


def _samples(path: Path) -> tuple[Mapping[str, Any], ...]:
    """Return the sample matches; a damaged file shows none, and the next iteration writes it anew."""
    try:
        return tuple(json.loads(path.read_text()))
    except (OSError, ValueError, RecursionError):
        return ()


def read(run: Path) -> RunFiles:
    """Return a run folder's small files. Raises LineageError naming the first one that is missing or damaged."""
    for name in ("config.yaml", "ledger.json", "metrics.jsonl"):
        if not (run / name).is_file():
            raise LineageError(
                f"'{run}' is not a run folder: {name} is missing; a run folder is what train writes (runs/<run>)"
            )
    samples, standings = run / "samples.json", run / "tournament" / "standings.json"
    ledger = Ledger.from_json((run / "ledger.json").read_text())
    return RunFiles(
        name=run.resolve().name,
        config=config.from_text((run / "config.yaml").read_text()),
        ledger=ledger,
        iterations=read_metrics(run / "metrics.jsonl", "iteration"),
        steps=read_metrics(run / "steps.jsonl", "step"),
        samples=_samples(samples),
        records=_records(run),
        quarantined=_quarantined(run / "quarantine"),
        expectations=_expectations(run / "training" / f"{ledger.iteration:04d}.json"),
        standings=read_standings(standings) if standings.is_file() else None,
        reviews=report_verdicts.read(run),
    )


def read_metrics(path: Path, key: str) -> Rows:
    """Return the rows of a metrics file, null as nan; nothing where there is no file.

    Raises LineageError naming the line that is damaged.
    """
    if not path.is_file():
        return ()
    rows = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        try:
            row = json.loads(line)
            metrics = {k: math.nan if v is None else float(v) for k, v in row["metrics"].items()}
            rows.append((int(row[key]), metrics))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise LineageError(
                f"line {number} of '{path}' is damaged ({error!r}); continuing the run writes it again"
            ) from error
    return tuple(rows)


def _records(run: Path) -> tuple[StepRecord, ...]:
    """Return the step records, none where one is damaged: a page is no audit, and must not stop a run."""
    try:
        return tuple(lineage.read_all(run))
    except LineageError:
        return ()


def _quarantined(folder: Path) -> tuple[Quarantined, ...]:
    notes = (json.loads(note.read_text()) for note in sorted(folder.glob("*.json")))
    return tuple(Quarantined(path=str(n["path"]), reasons=tuple(map(str, n["reasons"]))) for n in notes)


def _expectations(training: Path) -> tuple[Expectation, ...]:
    """Return an iteration's expectations, none where the file has none or is damaged: the audit names damages."""
    try:
        found = json.loads(training.read_text()).get("quality", {}).get("expectations", ())
        return tuple(Expectation(**one) for one in found)
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return ()
