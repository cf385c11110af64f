"""The quality gate in the report: what was counted and checked before the learner saw it, and what was taken out."""

from __future__ import annotations

import html

from spiral_lib.report_files import RunFiles
from spiral_lib.report_style import table

_SHOWN = 100
"""Iterations that have a line of their own: the newest."""


def section(files: RunFiles) -> str:
    """Return what the gate between rollout and learner counted, its expectations, and what it took out."""
    per, rows = files.config.rollout.steps_per_iteration, []
    for iteration, row in files.iterations:
        if iteration == 0 or "rollout/matches" not in row:
            continue
        here = [q for q in files.quarantined if f"iteration={iteration:04d}" in q.path]
        bad = max(len(here), round(row.get("quality/bad_shards", 0.0) * per))
        rows.append(
            (
                str(iteration),
                f'<b class="bad">{bad} taken out</b>' if bad else '<span class="good">all passed</span>',
                _total(row.get("quality/shards"), per),
                _total(row.get("quality/rows"), per),
                f"{row['rollout/matches'] * per:.0f} of {files.config.rollout.matches * per}",
                f"{row.get('rollout/void', 0.0) * per:.0f}",
                _percent(row.get("rollout/invalid_rate")),
                _percent(row.get("rollout/truncated_rate")),
            )
        )
    if not rows:
        return ""
    headings = ("iteration", "verdict", "shards", "turns", "matches", "void", "illegal turns", "truncated turns")
    note = "The learner starts only on shards that pass; one that fails is moved to <code>quarantine/</code>."
    shown = table(headings, rows[-_SHOWN:], numbers=(0, 2, 3, 4, 5, 6, 7), stacked=True)
    return f'<p class="soft">{note}</p>{shown}{_expectations(files)}{_taken_out(files)}'


def _expectations(files: RunFiles) -> str:
    """Return the newest iteration's expectations, folded where all hold."""
    if not files.expectations:
        return ""
    broken = [e for e in files.expectations if not e.success]
    verdict = f"{len(broken)} do not hold" if broken else "all hold"
    rows = [
        (
            html.escape(e.rule),
            html.escape(e.expectation.replace("_", " ")),
            html.escape(e.detail),
            '<span class="good">ok</span>' if e.success else '<b class="bad">failed</b>',
        )
        for e in files.expectations
    ]
    heading = f"{len(rows)} expectations of Great Expectations on the turns of iteration {files.ledger.iteration}"
    shown = table(("rule", "expectation", "found", "result"), rows)
    return f"<details{' open' if broken else ''}><summary>{heading}: {verdict}</summary>{shown}</details>"


def _taken_out(files: RunFiles) -> str:
    items = "".join(
        f"<li><code>{html.escape(q.path)}</code>: {html.escape('; '.join(q.reasons))}</li>" for q in files.quarantined
    )
    return f"<ul>{items}</ul>" if items else ""


def _total(mean: float | None, steps: int) -> str:
    return "–" if mean is None else f"{mean * steps:.0f}"


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f} %"
