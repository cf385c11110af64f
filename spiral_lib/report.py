"""One self-contained HTML page for a run: did it get better outside the games, the curves, the gate, sample matches.

Reads only the run folder's small files; all model text is escaped. Flyte decks show the same body.
"""

from __future__ import annotations

import html
import math
from pathlib import Path

from spiral_lib import config, durable, measures, report_curves, report_parts, report_patterns, report_verdicts
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
        "Quality gate": report_parts.quality(files),
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
    changes = cold_start_to_now(files)
    css, sentence = measures.answer(changes)
    start = "" if len(files.iterations) > 1 else " This is the cold start alone."
    figures = table(
        ("measure", "change", "cold start", "now", "95 % interval now"),
        [change_row(c) for c in changes],
        numbers=(2, 3, 4),
    )
    return (
        f'<div class="head"><p class="big {css}">{html.escape(sentence)}{start}</p>{figures if changes else ""}'
        f"{_champion(files)}{_alarms(files)}</div>"
    )


def cold_start_to_now(files: RunFiles) -> list[Change]:
    """Return the change of every measure outside self-play from the cold start to the newest evaluation."""
    first, last = files.iterations[0][1], _newest_evaluation(files)
    return [measures.change(m, first, last) for m in measures.outside_self_play(last)]


def _newest_evaluation(files: RunFiles) -> measures.Metrics:
    rows = [m for _, m in files.iterations if measures.outside_self_play(m)]
    return rows[-1] if rows else files.iterations[-1][1]


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
    """Return what the run achieved as plain lines, the cold start beside the last iteration."""
    if not files.iterations:
        return ["no iteration is finished yet"]
    first, last = files.iterations[0][1], files.iterations[-1][1]
    lines = [measures.answer(cold_start_to_now(files))[1]]
    wanted = [m.name for m in measures.outside_self_play(last)]
    wanted += [n for n in ("rollout/invalid_rate", "reasoning/median_tokens") if n in last]
    lines += [f"{n}: {first[n]:.3f} -> {last[n]:.3f}" if n in first else f"{n}: {last[n]:.3f}" for n in wanted]
    champion = files.ledger.champion
    if champion is not None:
        lines.append(f"champion: iteration {champion.iteration} ({champion.checkpoint[:12]})")
    return lines
