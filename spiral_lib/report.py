"""One self-contained HTML page for a run: did it get better outside the games, the curves, the gate, sample matches.

Reads only the run folder's small files; all model text is escaped. Flyte decks show the same body.
"""

from __future__ import annotations

import html
import math
from dataclasses import dataclass
from pathlib import Path

from spiral_lib import (
    config,
    durable,
    measures,
    report_curves,
    report_parts,
    report_patterns,
    report_quality,
    report_verdicts,
)
from spiral_lib.measures import Change
from spiral_lib.report_files import RunFiles, read
from spiral_lib.report_style import framed, grid, page, section, table

__all__ = ["RunFiles", "body", "read", "summary", "write"]


def write(run: Path) -> Path:
    """Write ``report.html`` into the run folder and return its path."""
    files = read(run)
    durable.write_text(run / "report.html", page(files.name, body(files)))
    return run / "report.html"


def body(files: RunFiles) -> str:
    """Return the page's content, style included: the same for the file and for a Flyte deck."""
    sections = {
        "Outside self-play": grid(list(report_curves.outside(files))),
        "Payoffs": report_parts.payoffs(files),
        "Roles": grid(list(report_curves.roles(files))),
        "Reasoning patterns": report_patterns.section(files),
        "Collapse monitors": report_parts.monitors(files) + grid(list(report_curves.monitors(files))),
        "Learner": grid(list(report_curves.learner(files))),
        "Quality gate": report_quality.section(files),
        "Gate": report_parts.decisions(files),
        "Opponent pool": report_parts.pool(files),
        "Sample matches": report_parts.samples(files.samples),
        "Match quality": report_verdicts.figure(files.reviews),
        "Cost": report_parts.cost(files),
        "Lineage": report_parts.lineage(files),
    }
    shown = {name: content for name, content in sections.items() if content}
    links = "".join(f'<a href="#{"-".join(name.lower().split())}">{name}</a>' for name in shown)
    finished = f"{files.ledger.iteration} of {files.config.iterations} iterations"
    head = (
        f"<h1>{html.escape(files.name)}</h1>"
        f'<p class="soft">preset {html.escape(files.config.preset)} · seed {files.config.seed}'
        f" · configuration {config.config_hash(files.config)} · {finished}</p>"
    )
    parts = [head, headline(files), f"<nav>{links}</nav>"]
    return framed("".join([*parts, *(section(name, content) for name, content in shown.items())]))


def headline(files: RunFiles) -> str:
    """Return the answer to "did it get better outside self-play", its figures, and whether anything collapsed."""
    if not files.iterations:
        return '<div class="head"><p>No iteration is finished yet.</p></div>'
    shown, now = judged(files), _newest_evaluation(files)
    changes = against_cold_start(files)
    css, sentence = measures.answer(changes)
    start = "" if len(files.iterations) > 1 else " This is the cold start alone."
    newest = () if now[0] == shown.iteration else (f"newest, iteration {now[0]}",)
    rows = [
        (*change_row(c), *(number(now[1].get(c.measure.name, math.nan)) for _ in newest), _items(c, shown.metrics))
        for c in changes
    ]
    headings = ("measure", "change", "cold start", shown.short, "its 95 % interval", *newest, "n")
    figures = table(headings, rows, numbers=range(2, len(headings)), stacked=True)
    return (
        f'<div class="head"><p class="big {css}">{html.escape(sentence)}{start}</p>'
        f'<p class="soft">{html.escape(shown.label)}.</p>{figures if changes else ""}'
        f"{_champion(files)}{_alarms(files)}</div>"
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """What the headline compares with the cold start: its name, its iteration (-1: of another run), its metrics."""

    label: str
    short: str
    iteration: int
    metrics: measures.Metrics


def judged(files: RunFiles) -> Judged:
    """Return the champion, or the newest candidate that was evaluated where the gate has accepted none."""
    champion, (iteration, metrics) = files.ledger.champion, _newest_evaluation(files)
    if champion is not None and champion.iteration > 0:
        own = any(e.iteration == champion.iteration for e in files.ledger.evaluations)
        name = f"iteration {champion.iteration}" if own else "from an earlier run"
        label, short = f"The champion, {name}, against the cold start", f"champion, {name}"
        where = champion.iteration if own else -1
        return Judged(label=label, short=short, iteration=where, metrics=champion.metrics)
    if not iteration:
        return Judged(label="The cold start itself", short="now", iteration=0, metrics=metrics)
    label = f"The newest candidate, iteration {iteration}, which the gate has not accepted, against the cold start"
    return Judged(label=label, short=f"iteration {iteration}, not accepted", iteration=iteration, metrics=metrics)


def against_cold_start(files: RunFiles) -> list[Change]:
    """Return the change of every measure outside self-play from the cold start to what ``judged`` names."""
    first, last = files.iterations[0][1], judged(files).metrics
    return [measures.change(m, first, last) for m in measures.outside_self_play(last)]


def _newest_evaluation(files: RunFiles) -> tuple[int, measures.Metrics]:
    rows = [(i, m) for i, m in files.iterations if measures.outside_self_play(m)]
    return rows[-1] if rows else files.iterations[-1]


def _items(change: Change, metrics: measures.Metrics) -> str:
    n = metrics.get(f"{change.measure.name}_n", math.nan)
    return f"{n:.0f}" if math.isfinite(n) else "–"


def change_row(change: Change) -> tuple[str, ...]:
    """Return a table row of the headline."""
    return (
        html.escape(change.measure.label),
        change_cell(change),
        number(change.before),
        f"<b>{number(change.after)}</b>",
        span(change.after_interval),
    )


def change_cell(change: Change) -> str:
    """Return the verdict; one within chance is called not significant, and is not coloured."""
    css = {"better": "good", "worse": "bad"}.get(change.verdict, "soft")
    arrow = ("▲ " if change.after > change.before else "▼ ") if css != "soft" else ""
    return f'<b class="{css}">{arrow}{change.verdict}</b>' if change.verdict else "–"


def span(interval: tuple[float, float]) -> str:
    """Return an interval for a table, a dash where there is none."""
    low, high = interval
    return f"{low:.3f} to {high:.3f}" if math.isfinite(low) and math.isfinite(high) else "–"


def number(value: float) -> str:
    """Return a figure for a table, a dash where there is none."""
    return f"{value:.3f}" if math.isfinite(value) else "–"


def _champion(files: RunFiles) -> str:
    champion = files.ledger.champion
    if champion is None:
        return ""
    where = f"iteration {champion.iteration}" if champion.iteration else "the cold start"
    return f"<p>Champion: {where} (<code>{html.escape(champion.checkpoint[:12])}</code>).</p>"


def _alarms(files: RunFiles) -> str:
    if not files.alarms:
        return '<p class="good">No collapse alarm.</p>'
    shown = "; ".join(f"{report_curves.title(name)} in iteration {i}" for i, name in files.alarms[:5])
    more = f" and {len(files.alarms) - 5} more" if len(files.alarms) > 5 else ""
    plural = "s" if len(files.alarms) > 1 else ""
    return f'<p class="bad">{len(files.alarms)} collapse alarm{plural}: {html.escape(shown)}{more}.</p>'


def summary(files: RunFiles) -> list[str]:
    """Return what the run achieved as plain lines: the champion against the cold start, then the newest play."""
    if not files.iterations:
        return ["no iteration is finished yet"]
    shown, changes = judged(files), against_cold_start(files)
    lines = [f"{shown.label}: {measures.answer(changes)[1]}"]
    lines += [f"{c.measure.name}: {number(c.before)} -> {number(c.after)} {c.verdict}".rstrip() for c in changes]
    (_, first), (newest, last) = files.iterations[0], files.iterations[-1]
    for name in ("rollout/invalid_rate", "reasoning/median_tokens"):
        if name in last:
            before = f"{first[name]:.3f} -> " if name in first else ""
            lines.append(f"{name}, iteration {newest}: {before}{last[name]:.3f}")
    champion = files.ledger.champion
    if champion is not None:
        lines.append(f"champion: iteration {champion.iteration} ({champion.checkpoint[:12]})")
    return lines
