"""A run's lineage as Markdown, for people: what each step read and wrote, and under what conditions."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path

from spiral_lib import expired, lineage
from spiral_lib.errors import LineageError
from spiral_lib.lineage import Artifact, StepRecord
from spiral_lib.model_card import escape

DIGITS = 12


def write(run: Path) -> str:
    """Return the page. Raises LineageError where the folder has no step records."""
    records = sorted(lineage.read_all(run), key=lambda r: (r.order, r.start, r.step))
    if not records:
        raise LineageError(f"'{run}' has no step records; give a run folder, such as runs/<run>")
    gone = expired.read(run)
    lines = [f"# Lineage of {escape(run.name)}", "", *_conditions(records), ""]
    for order, steps in itertools.groupby(records, key=lambda r: r.order):
        title = "Iteration 0: the cold start" if order == 0 else f"Iteration {order}"
        lines += [f"## {title}", "", "| step | read | wrote | seconds |", "|---|---|---|---|"]
        lines += [_row(record, gone) for record in steps] + [""]
    return "\n".join(lines)


def _row(record: StepRecord, gone: Mapping[str, expired.Tombstone]) -> str:
    read, wrote = _artifacts(record.inputs, {}), _artifacts(record.outputs, gone)
    return f"| {escape(record.step)} | {read} | {wrote} | {record.seconds:.1f} |"


def _conditions(records: list[StepRecord]) -> list[str]:
    """Return what all steps have in common as a list, and every value where they differ."""
    rows: dict[str, set[str]] = {}
    for record in records:
        for name in ("config_hash", "code_version", "seed", "engine", "device", "dtype", "threads", "image"):
            rows.setdefault(name, set()).add(str(getattr(record, name)) or "none")
        for package, version in record.packages.items():
            rows.setdefault(package, set()).add(version)
    return [f"- {escape(name)}: {', '.join(escape(v) for v in sorted(values))}" for name, values in rows.items()]


def _artifacts(artifacts: Mapping[str, Artifact], gone: Mapping[str, expired.Tombstone]) -> str:
    shown = []
    for name, artifact in artifacts.items():
        mark = " (expired)" if artifact.path in gone and gone[artifact.path].sha256 == artifact.sha256 else ""
        shown.append(f"{escape(name)}: {escape(artifact.path)} `{artifact.sha256[:DIGITS]}`{mark}")
    return "<br>".join(shown)
