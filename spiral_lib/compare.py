"""One self-contained HTML page for two runs: which settings differ, which did better, the curves on top of each other.

Says which differences are within chance, and what a comparison of two single runs cannot show.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from spiral_lib import config, durable, measures, report_curves, report_parts
from spiral_lib.charts import line_chart
from spiral_lib.measures import Change
from spiral_lib.report import change_cell, number, span
from spiral_lib.report_files import RunFiles, read
from spiral_lib.report_style import framed, grid, page, section, table

_TRAINING = (
    ("Response length", "rollout/response_tokens", "tokens"),
    ("Invalid moves", "rollout/invalid_rate", "share of turns"),
    ("Replies without reasoning", "reasoning/empty_share", "share"),
    ("Distinct 4-grams", "reasoning/distinct_4grams", "ratio"),
    ("Gradient norm before clipping", "learner/grad_norm", ""),
    ("KL to the cold start", "learner/kl", ""),
    ("Token entropy", "learner/entropy", "nats"),
)


def write(first: Path, second: Path, out: Path | None = None) -> Path:
    """Write the page, by default into the second run's folder, and return its path."""
    one, other = read(first), read(second)
    target = out or second / f"compare-{one.name}.html"
    durable.write_text(target, page(f"{one.name} and {other.name}", body(one, other)))
    return target


def body(one: RunFiles, other: RunFiles) -> str:
    """Return the page's content, style included."""
    changed = settings(one, other)
    settings_table = table(("setting", "first", "second"), [tuple(map(_code, row)) for row in changed])
    parts = [
        f"<h1>{html.escape(one.name)} and {html.escape(other.name)}</h1>",
        "".join(f'<p class="soft">{line}</p>' for line in _who(one, other)),
        _headline(one, other),
        section("Settings that differ", settings_table if changed else "<p>None.</p>"),
        section("Outside self-play", grid(list(_outside(one, other)))),
        section("Training", grid(list(_training(one, other)))),
        section("Gate", _gate(one, other)),
        section("Cost", f"<h3>First</h3>{report_parts.cost(one)}<h3>Second</h3>{report_parts.cost(other)}"),
    ]
    return framed("".join(parts))


def changes(one: RunFiles, other: RunFiles) -> list[Change]:
    """Return how the second run's newest evaluation differs from the first's, measure by measure."""
    first, second = newest(one), newest(other)
    shared = [m for m in measures.outside_self_play(first) if m.name in second]
    return [measures.change(m, first, second) for m in shared]


def newest(files: RunFiles) -> measures.Metrics:
    """Return the metrics of the newest iteration that was evaluated; empty before the first."""
    rows = [m for _, m in files.iterations if measures.outside_self_play(m)]
    return rows[-1] if rows else {}


def summary(one: RunFiles, other: RunFiles) -> list[str]:
    """Return the comparison as plain lines."""
    found = changes(one, other)
    lines = [f"second against first: {measures.answer(found)[1]}"]
    return lines + [
        f"{c.measure.name}: {number(c.before)} and {number(c.after)}" + (f", {c.verdict}" if c.verdict else "")
        for c in found
    ]


def settings(one: RunFiles, other: RunFiles) -> list[tuple[str, str, str]]:
    """Return (dotted name, first, second) of every setting in which two runs differ."""
    first, second = flat(config.to_dict(one.config)), flat(config.to_dict(other.config))
    names = sorted({*first, *second})
    return [(n, first.get(n, "–"), second.get(n, "–")) for n in names if first.get(n) != second.get(n)]


def flat(content: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return the leaves of nested settings as JSON, by dotted name."""
    out: dict[str, str] = {}
    for key, value in content.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and value:
            out |= flat(value, f"{name}.")
        else:
            out[name] = json.dumps(value)
    return out


def _who(one: RunFiles, other: RunFiles) -> list[str]:
    return [
        f"{place}: <b>{html.escape(f.name)}</b>, preset {html.escape(f.config.preset)}, seed {f.config.seed}, "
        f"{f.ledger.iteration} of {f.config.iterations} iterations, configuration {config.config_hash(f.config)}"
        for place, f in (("First", one), ("Second", other))
    ]


def _headline(one: RunFiles, other: RunFiles) -> str:
    found = changes(one, other)
    css, sentence = measures.answer(found)
    rows = [
        (
            html.escape(c.measure.label),
            change_cell(c),
            f"{number(c.before)}<br><small>{span(c.before_interval)}</small>",
            f"<b>{number(c.after)}</b><br><small>{span(c.after_interval)}</small>",
            f"{c.after - c.before:+.3f}",
        )
        for c in found
    ]
    headings = ("measure", "second is", "first", "second", "difference")
    figures = table(headings, rows, numbers=(2, 3, 4)) if rows else ""
    digests = report_parts.digest(one), report_parts.digest(other)
    same = "<p>Both runs computed the same, to the last bit.</p>" if digests[0] == digests[1] and one.records else ""
    return (
        f'<div class="head"><p class="big {css}">Second against first. {html.escape(sentence)}</p>{figures}{same}'
        '<p class="soft">Newest evaluation of each, 95 % intervals. They cover the measurement and not the luck of '
        "training: a claim about a setting takes several seeds on each side.</p></div>"
    )


def _outside(one: RunFiles, other: RunFiles) -> Iterator[str]:
    for measure in measures.outside_self_play(*(m for f in (one, other) for _, m in f.iterations)):
        lines = [report_curves.series(f.iterations, measure.name, name) for f, name in _named(one, other)]
        yield line_chart(measure.label, lines, note="lower is better" if measure.lower_is_better else "")


def _training(one: RunFiles, other: RunFiles) -> Iterator[str]:
    by_step = bool(one.steps) and bool(other.steps)
    for title, metric, note in _TRAINING:
        rows = [(f.steps if by_step else f.iterations, name) for f, name in _named(one, other)]
        lines = [report_curves.series(r, metric, name) for r, name in rows]
        yield line_chart(title, lines, note=note, x_label="learner step" if by_step else "iteration")


def _named(one: RunFiles, other: RunFiles) -> tuple[tuple[RunFiles, str], tuple[RunFiles, str]]:
    if one.name == other.name:
        return (one, f"first, {one.name}"), (other, f"second, {other.name}")
    return (one, one.name), (other, other.name)


def _gate(one: RunFiles, other: RunFiles) -> str:
    rows = []
    for files, name in _named(one, other):
        decided = [d.decision.value for d in files.ledger.decisions]
        alarms = "; ".join(f"{report_curves.title(a)} ({i})" for i, a in files.alarms) or "none"
        champion = files.ledger.champion.iteration if files.ledger.champion else 0
        rows.append((html.escape(name), " ".join(decided) or "–", html.escape(alarms), str(champion)))
    return table(("run", "decisions", "alarms (iteration)", "champion"), rows, numbers=(3,))


def _code(text: str) -> str:
    return f"<code>{html.escape(text)}</code>"
