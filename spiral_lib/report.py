"""One self-contained HTML page for a run: did it get better outside the games, the curves, the gate, sample matches.

Reads only the run folder's small files; all model text is escaped. Flyte decks show the same body.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spiral_lib import charts, config, durable
from spiral_lib.charts import Series
from spiral_lib.errors import LineageError
from spiral_lib.ledger import Ledger
from spiral_lib.types import Decision

STYLE = """
:root{--ink:#1b1f24;--paper:#fff;--soft:#5b6570;--line:#d8dee4;--card:#f6f8fa;--good:#0a6b4b;--bad:#a4400a}
@media (prefers-color-scheme:dark){:root{--ink:#e6edf3;--paper:#0f1419;--soft:#9aa7b3;--line:#30363d;--card:#171d24;
--good:#5fd3a8;--bad:#ffa464}}
*{box-sizing:border-box}
.spiral{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:1060px;margin:0 auto;
padding:1rem}
.spiral h1{font-size:1.5rem;margin:.2rem 0}
.spiral h2{font-size:1.15rem;margin:1.6rem 0 .5rem;border-bottom:1px solid var(--line)}
.spiral .head{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:.8rem 1rem;margin:.8rem 0}
.spiral .head p{margin:.25rem 0}.spiral .good{color:var(--good)}.spiral .bad{color:var(--bad)}
.spiral .grid{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,320px),1fr));gap:1rem}
.spiral figure{margin:0;border:1px solid var(--line);border-radius:8px;padding:.6rem;break-inside:avoid}
.spiral figcaption span{color:var(--soft);font-size:.85rem}
.spiral svg{width:100%;height:auto}.spiral .legend svg{width:26px}
.spiral svg text{font:11px system-ui,sans-serif;fill:var(--soft)}.spiral svg .grid{stroke:var(--line);stroke-width:.7}
.spiral svg .ref{stroke:var(--soft);stroke-dasharray:2 3}.spiral svg .ref-name{font-style:italic}
.spiral .legend span{display:inline-block;margin-right:.9rem;font-size:.8rem;color:var(--soft)}
.spiral table{border-collapse:collapse;font-size:.88rem;display:block;overflow-x:auto}
.spiral td,.spiral th{border-bottom:1px solid var(--line);padding:.25rem .6rem;text-align:left;vertical-align:top}
.spiral td.n{text-align:right;font-variant-numeric:tabular-nums}
.spiral details{border:1px solid var(--line);border-radius:8px;margin:.4rem 0;padding:.4rem .7rem}
.spiral pre{white-space:pre-wrap;overflow-wrap:anywhere;font:13px/1.45 ui-monospace,monospace;margin:.3rem 0;
padding:.4rem;background:var(--card)}
.spiral .soft{color:var(--soft)}
@media print{.spiral{max-width:none}.spiral details{break-inside:avoid}}
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunFiles:
    """What a page is made from."""

    name: str
    config: config.RunConfig
    ledger: Ledger
    iterations: tuple[tuple[int, Mapping[str, float]], ...]
    steps: tuple[tuple[int, Mapping[str, float]], ...]
    samples: tuple[Mapping[str, Any], ...]


def read(run: Path) -> RunFiles:
    """Return a run folder's small files. Raises LineageError naming the first one that is missing."""
    for name in ("config.yaml", "ledger.json", "metrics.jsonl"):
        if not (run / name).is_file():
            raise LineageError(
                f"'{run}' is not a run folder: {name} is missing; a run folder is what train writes (runs/<run>)"
            )
    samples = run / "samples.json"
    return RunFiles(
        name=run.name,
        config=config.from_text((run / "config.yaml").read_text()),
        ledger=Ledger.from_json((run / "ledger.json").read_text()),
        iterations=_read_metrics(run / "metrics.jsonl", "iteration"),
        steps=_read_metrics(run / "steps.jsonl", "step"),
        samples=tuple(json.loads(samples.read_text())) if samples.is_file() else (),
    )


def _read_metrics(path: Path, key: str) -> tuple[tuple[int, Mapping[str, float]], ...]:
    if not path.is_file():
        return ()
    rows = [json.loads(line) for line in path.read_text().splitlines() if line]
    return tuple((int(r[key]), {k: math.nan if v is None else float(v) for k, v in r["metrics"].items()}) for r in rows)


def write(run: Path) -> Path:
    """Write ``report.html`` into the run folder and return its path."""
    files = read(run)
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{html.escape(files.name)}</title><style>body{{margin:0;background:var(--paper)}}</style></head>"
        f"<body>{body(files)}</body></html>"
    )
    durable.write_text(run / "report.html", page)
    return run / "report.html"


def body(files: RunFiles) -> str:
    """Return the page's content, style included: the same for the file and for a Flyte deck."""
    sections = [
        f"<style>{STYLE}</style><h1>{html.escape(files.name)}</h1>",
        f'<p class="soft">preset {html.escape(files.config.preset)} · seed {files.config.seed}'
        f" · configuration {config.config_hash(files.config)}"
        f" · {files.ledger.iteration} of {files.config.iterations} iterations</p>",
        _headline(files),
        _section("Outside the games and against fixed opponents", _outside_charts(files)),
        _section("Play and reasoning in self-play", _play_charts(files)),
        _section("Learner", _learner_charts(files)),
        _decisions(files),
        _pool(files),
        _samples(files.samples),
    ]
    return f'<div class="spiral">{"".join(sections)}</div>'


def summary(files: RunFiles) -> list[str]:
    """Return what the run achieved as plain lines, the cold start beside the last iteration."""
    if not files.iterations:
        return ["no iteration is finished yet"]
    first, last = files.iterations[0][1], files.iterations[-1][1]
    wanted = [n for n in last if n.endswith(("/exploitability", "/win_rate", "/accuracy", "/minimax_agreement"))]
    wanted += [n for n in ("rollout/invalid_rate", "reasoning/median_tokens") if n in last]
    lines = [f"{n}: {first[n]:.3f} -> {last[n]:.3f}" if n in first else f"{n}: {last[n]:.3f}" for n in sorted(wanted)]
    champion = files.ledger.champion
    return (
        lines
        if champion is None
        else [*lines, f"champion: iteration {champion.iteration} ({champion.checkpoint[:12]})"]
    )


def _section(title: str, figures: Sequence[str]) -> str:
    shown = [f for f in figures if f]
    return f'<h2>{html.escape(title)}</h2><div class="grid">{"".join(shown)}</div>' if shown else ""


def _headline(files: RunFiles) -> str:
    if not files.iterations:
        return '<div class="head"><p>No iteration is finished yet.</p></div>'
    first, last = files.iterations[0][1], files.iterations[-1][1]
    lines = []
    for name in sorted(k for k in last if k.endswith("/exploitability")):
        label = f"Exploitability on {name.split('/')[1]} (exact, 0 is perfect play)"
        lines.append(_change(label, name, first, last, lower_is_better=True))
    for name in sorted(k for k in last if k.endswith("/win_rate")):
        _, game, opponent, _ = name.split("/")
        lines.append(_change(f"{game} {opponent.replace('_', ' ')}: win rate", name, first, last))
    if "eval/bank/accuracy" in last:
        lines.append(_change("Fixed bank accuracy", "eval/bank/accuracy", first, last))
    if "rollout/invalid_rate" in last:
        lines.append(f"<p>Invalid moves in the last iteration: <b>{100 * last['rollout/invalid_rate']:.1f} %</b></p>")
    alarms = [a for d in files.ledger.decisions for a in d.alarms]
    shown = f": {html.escape('; '.join(alarms[:5]))}" if alarms else ""
    lines.append(f'<p class="{"bad" if alarms else "good"}">{len(alarms)} collapse alarms{shown}</p>')
    return f'<div class="head">{"".join(lines)}</div>'


def _change(
    label: str,
    name: str,
    first: Mapping[str, float],
    last: Mapping[str, float],
    *,
    lower_is_better: bool = False,
) -> str:
    """Return one headline; a change inside the last value's 95 % interval is called not significant, not coloured."""
    after, before = last[name], first.get(name, math.nan)
    low, high = last.get(f"{name}_low", math.nan), last.get(f"{name}_high", math.nan)
    interval = f" (95 % interval {low:.3f} to {high:.3f})" if math.isfinite(low) and math.isfinite(high) else ""
    if not math.isfinite(before):
        return f"<p>{html.escape(label)}: <b>{after:.3f}</b>{interval}</p>"
    if low <= before <= high:
        css, verdict = "soft", ", not significantly different"
    else:
        css, verdict = "good" if (after < before) == lower_is_better else "bad", ""
    start = f"{html.escape(label)}: {before:.3f} at the cold start, "
    return f'<p>{start}<b class="{css}">{after:.3f}</b> now{interval}{verdict}</p>'


def _series(rows: Sequence[tuple[int, Mapping[str, float]]], metric: str, name: str | None = None) -> Series:
    points = [(float(i), m[metric]) for i, m in rows if metric in m]
    low, high = f"{metric}_low", f"{metric}_high"
    has = bool(points) and all(low in m and high in m for _, m in rows if metric in m)
    interval = tuple((m[low], m[high]) for _, m in rows if metric in m) if has else ()
    return Series(name=name or metric.split("/", 1)[1], points=tuple(points), interval=interval)


def _outside_charts(files: RunFiles) -> list[str]:
    rows = files.iterations
    names = sorted({k for _, m in rows for k in m})
    out = []
    for name in (n for n in names if n.endswith("/exploitability")):
        game = name.split("/")[1]
        uniform = {"kuhn_poker": 0.4583, "leduc_poker": 2.3736}.get(game)
        references = [("uniform play", uniform)] if uniform else []
        out.append(
            charts.line_chart(
                f"Exploitability, {game}",
                [_series(rows, name, "exploitability")],
                note="exact best response; lower is better",
                references=references,
            )
        )
        out.append(
            charts.line_chart(
                f"Legal mass, {game}",
                [_series(rows, name.replace("exploitability", "legal_mass"), "legal mass")],
                note="probability on legal actions",
            )
        )
    games = sorted({n.split("/")[1] for n in names if n.endswith("/win_rate")})
    for game in games:
        series = [
            _series(rows, n, n.split("/")[2].replace("_", " "))
            for n in names
            if n.startswith(f"eval/{game}/") and n.endswith("/win_rate")
        ]
        out.append(charts.line_chart(f"Win rate, {game}", series, note="95 % intervals; a draw is no win"))
        out.append(
            charts.line_chart(
                f"Minimax agreement, {game}",
                [_series(rows, f"eval/{game}/minimax_agreement", "agreement")],
                note="where not every move keeps the value",
            )
        )
    out.append(
        charts.line_chart(
            "Fixed bank", [_series(rows, "eval/bank/accuracy", "accuracy")], note="short-answer items outside the games"
        )
    )
    return out


def _play_charts(files: RunFiles) -> list[str]:
    rows = files.steps or files.iterations
    x_label = "learner step" if files.steps else "iteration"
    wanted = (
        ("Response length", ("rollout/response_tokens",), "tokens"),
        ("Invalid moves", ("rollout/invalid_rate",), "share of turns"),
        ("Replies without reasoning", ("reasoning/empty_share",), "share"),
        ("Distinct 4-grams", ("reasoning/distinct_4grams",), "ratio"),
    )
    out = [
        charts.line_chart(t, [_series(rows, m) for m in metrics], note=n, x_label=x_label) for t, metrics, n in wanted
    ]
    roles = sorted({k for _, m in rows for k in m if k.startswith("rae/reward/")})
    out.append(
        charts.line_chart(
            "Mean return by role",
            [_series(rows, r, r.removeprefix("rae/reward/")) for r in roles],
            note="self-play",
            x_label=x_label,
        )
    )
    return out


def _learner_charts(files: RunFiles) -> list[str]:
    rows = files.steps or files.iterations
    wanted = (
        ("Gradient norm before clipping", "learner/grad_norm"),
        ("KL to the cold start", "learner/kl"),
        ("Token entropy", "learner/entropy"),
        ("Advantage variance, RAE over raw", "rae/variance_ratio"),
    )
    x_label = "learner step" if files.steps else "iteration"
    return [charts.line_chart(t, [_series(rows, m)], x_label=x_label) for t, m in wanted]


def _decisions(files: RunFiles) -> str:
    rows = []
    for d in files.ledger.decisions:
        css = {Decision.ACCEPT: "good", Decision.ROLLBACK: "bad"}.get(d.decision, "soft")
        why = "<br>".join(html.escape(r) for r in (*d.reasons, *(f"alarm: {a}" for a in d.alarms)))
        rows.append(f'<tr><td class="n">{d.iteration}</td><td class="{css}">{d.decision}</td><td>{why}</td></tr>')
    if not rows:
        return ""
    return f"<h2>Gate</h2><table><tr><th>iteration</th><th>decision</th><th>reasons</th></tr>{''.join(rows)}</table>"


def _pool(files: RunFiles) -> str:
    if not files.ledger.pool:
        return ""
    rows = "".join(
        f'<tr><td class="n">{e.iteration}</td><td>{html.escape(e.id[:16])}</td></tr>' for e in files.ledger.pool
    )
    return f"<h2>Opponent pool</h2><table><tr><th>iteration</th><th>checkpoint</th></tr>{rows}</table>"


def _samples(samples: Sequence[Mapping[str, Any]]) -> str:
    """Return sample matches as folded transcripts; every text is escaped."""
    out = []
    for s in samples:
        turns = "".join(
            f"<p><b>{html.escape(t['role'])}</b> ({html.escape(t['policy'])}) "
            f"{'' if t['legal'] else '<span class=bad>illegal</span>'}</p>"
            f"<pre class=soft>{html.escape(t['observation'])}</pre><pre>{html.escape(t['text'])}</pre>"
            for t in s["turns"]
        )
        returns = " / ".join(f"{r:+.2f}" for r in s["returns"])
        title = f"iteration {s['iteration']}, {s['game']} {s['episode']}: {s['end_reason']}, returns {returns}"
        out.append(f"<details><summary>{html.escape(title)}</summary>{turns}</details>")
    return f"<h2>Sample matches</h2>{''.join(out)}" if out else ""
