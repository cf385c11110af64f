"""The tables of a run's page: monitors, payoffs, decisions, pool, sample matches, cost and lineage."""

from __future__ import annotations

import hashlib
import html
from collections.abc import Mapping, Sequence
from typing import Any

from spiral_lib import charts, tournament, tournament_page
from spiral_lib.charts import Cell
from spiral_lib.measures import interval
from spiral_lib.opponents import OpponentPool
from spiral_lib.report_curves import MONITORS, limit_of, title
from spiral_lib.report_files import RunFiles
from spiral_lib.report_style import table
from spiral_lib.types import Decision

_SHORT = 12
_MAX_ROWS = 24
"""Iterations whose payoffs and sample matches are shown; of a longer run the first, the last and some in between."""
_MAX_STEPS = 300


def monitors(files: RunFiles) -> str:
    """Return where every collapse monitor stands, in words."""
    if not files.iterations:
        return ""
    first, last = files.iterations[0][1], files.iterations[-1][1]
    rows: list[tuple[str, ...]] = []
    for monitor in MONITORS:
        if monitor.metric not in last:
            continue
        when = [str(i) for i, name in files.alarms if name == monitor.alarm]
        quiet = '<span class="good">quiet</span>'
        state = f'<b class="bad">alarm in iteration {", ".join(when)}</b>' if when else quiet
        start = f"{first[monitor.metric]:.3g}" if monitor.metric in first else "–"
        sign = "below" if monitor.low_is_bad else "above"
        limit = f"{sign} {limit_of(monitor, files):.3g}"
        rows.append((html.escape(monitor.title), state, start, f"{last[monitor.metric]:.3g}", limit))
    known = {monitor.alarm for monitor in MONITORS}
    for iteration, name in files.alarms:
        if name not in known:
            state = f'<b class="bad">alarm in iteration {iteration}</b>'
            rows.append((html.escape(title(name)), state, "–", "–", "–"))
    headings = ("monitor", "state", "cold start", "now", "alarm")
    return table(headings, rows, numbers=(2, 3, 4), stacked=True) if rows else ""


def payoffs(files: RunFiles) -> str:
    """Return, for every game, a heat map of iterations against fixed opponents."""
    out = []
    names = sorted({k for _, m in files.iterations for k in m if k.endswith("/mean_return") and k.count("/") == 3})
    for game in dict.fromkeys(name.split("/")[1] for name in names):
        columns = {n: title(n.split("/")[2].removeprefix("vs_")) for n in names if n.split("/")[1] == game}
        cells: dict[tuple[str, str], Cell] = {}
        evaluated = [i for i, row in files.iterations if any(name in row for name in columns)]
        shown = set(spread(evaluated, _MAX_ROWS))
        for iteration, row in files.iterations:
            for name, column in columns.items():
                if name in row and iteration in shown:
                    low, high = interval(row, name)
                    cells[_iteration(iteration), column] = Cell(value=row[name], low=low, high=high)
        rows = list(dict.fromkeys(row for row, _ in cells))
        heat = charts.heat_map(rows, list(columns.values()), cells, "against")
        out.append(f'<h3>{html.escape(title(game))}</h3><p class="soft">Mean return, 95 % interval.</p>{heat}')
    return "".join(out)


def spread(numbers: Sequence[int], most: int) -> list[int]:
    """Return at most so many of the numbers, the first and the last among them and the rest evenly between."""
    if len(numbers) <= most:
        return list(numbers)
    return [numbers[round(k * (len(numbers) - 1) / (most - 1))] for k in range(most)]


def _iteration(number: int) -> str:
    return f"iteration {number}" if number else "cold start"


def decisions(files: RunFiles) -> str:
    """Return what the gate decided in every iteration, and why."""
    rows = []
    for d in files.ledger.decisions:
        css = {Decision.ACCEPT: "good", Decision.ROLLBACK: "bad"}.get(d.decision, "soft")
        alarms = [f'<b class="bad">alarm: {html.escape(title(a))}</b>' for a in d.alarms]
        why = "<br>".join([*alarms, *(html.escape(r) for r in d.reasons)])
        rows.append((str(d.iteration), f'<b class="{css}">{d.decision}</b>', why))
    return table(("iteration", "decision", "reasons"), rows, numbers=(0,)) if rows else ""


def pool(files: RunFiles) -> str:
    """Return the opponent pool with its ratings, and the tournament in the run folder where there was one."""
    if not files.ledger.pool:
        return ""
    entries = files.ledger.pool
    if files.standings is not None:
        entries = tournament.rated(OpponentPool(entries=entries), files.standings).entries
    rows = [
        (str(e.iteration), f"<code>{html.escape(e.id[:16])}</code>", "–" if e.rating is None else f"{e.rating:.1f}")
        for e in entries
    ]
    shown = table(("iteration", "checkpoint", "rating"), rows, numbers=(0, 2))
    if files.standings is not None:
        return shown + tournament_page.sections(files.standings)
    entrants = " ".join(f"pool:{e.id[:_SHORT]}" for e in files.ledger.pool)
    games = " ".join(f"--game {g.name}" for g in files.config.games)
    run = html.escape(f"runs/{files.name}")
    hint = f"spiral tournament {entrants} random {games} --pool {run} --out {run}/tournament"
    return f'{shown}<p class="soft">Ratings with intervals and the full payoff matrix: <code>{hint}</code></p>'


def samples(matches: Sequence[Mapping[str, Any]]) -> str:
    """Return sample matches as folded transcripts, newest iteration first; every text is escaped."""
    out = []
    shown = set(spread(sorted({int(m["iteration"]) for m in matches}), _MAX_ROWS))
    for match in sorted((m for m in matches if int(m["iteration"]) in shown), key=lambda m: -int(m["iteration"])):
        returns = " / ".join(f"{r:+.2f}" for r in match["returns"])
        heading = f"iteration {match['iteration']}, {match['game']} {match['episode']}: {match['end_reason']}"
        turns = "".join(_turn(turn) for turn in match["turns"])
        out.append(f"<details><summary>{html.escape(heading)}, returns {returns}</summary>{turns}</details>")
    return "".join(out)


def _turn(turn: Mapping[str, Any]) -> str:
    """Return one turn: who moved and what, with the observation and the whole reply folded."""
    move = f"<code>{html.escape(turn['action'])}</code>" if turn["action"] else "no move"
    mark = "" if turn["legal"] else ' <b class="bad">illegal</b>'
    who = f"<b>{html.escape(turn['role'])}</b> ({html.escape(turn['policy'])}): {move}{mark}"
    reply = f"<details><summary class=soft>reasoning</summary><pre>{html.escape(turn['text'])}</pre></details>"
    return f"<p>{who}</p><pre class=soft>{html.escape(turn['observation'])}</pre>{reply}"


def cost(files: RunFiles) -> str:
    """Return seconds by stage and the tokens that went through engine and learner."""
    seconds: dict[str, list[float]] = {}
    for record in files.records:
        stage = "play" if record.step.startswith("play-") else _STAGES.get(record.step, record.step)
        seconds.setdefault(stage, []).append(record.seconds)
    total = sum(map(sum, seconds.values()))
    if not total:
        return ""
    rows = [
        (
            html.escape(stage),
            str(len(spent)),
            f"{sum(spent):.1f}",
            f"{charts.bar(sum(spent) / total)} {100 * sum(spent) / total:.0f} %",
        )
        for stage, spent in sorted(seconds.items(), key=lambda item: -sum(item[1]))
    ]
    rows.append(("<b>all</b>", str(sum(map(len, seconds.values()))), f"<b>{total:.1f}</b>", ""))
    return table(("stage", "times", "seconds", "share"), rows, numbers=(1, 2)) + _tokens(files, seconds)


_STAGES = {
    "segment": "play and learn",
    "cold_start": "cold start",
    "decide": "gate and pool",
    "evaluate": "evaluation",
    "begin": "first ledger",
}


def _tokens(files: RunFiles, seconds: Mapping[str, Sequence[float]]) -> str:
    rows = files.steps or files.iterations[1:]
    sampled = sum(m.get("rollout/trained_turns", 0) * m.get("rollout/response_tokens", 0) for _, m in rows)
    read = sum(m.get("rollout/trained_turns", 0) * m.get("rollout/prompt_tokens", 0) for _, m in rows)
    learned = sum(m.get("learner/tokens", 0) for _, m in rows)
    playing = sum(sum(seconds.get(stage, ())) for stage in ("play", "learn", "play and learn"))
    if not sampled or not playing:
        return ""
    rate = f"{sampled / playing:,.0f} sampled tokens for every second of playing and learning"
    return (
        f"<p>{sampled:,.0f} tokens sampled by the learner in self-play over {read:,.0f} prompt tokens; "
        f"{learned:,.0f} tokens through the learner, all passes counted: {rate}.</p>"
    )


def lineage(files: RunFiles) -> str:
    """Return one digest over everything the run read and wrote, the conditions, and every step folded."""
    if not files.records:
        return '<p class="soft">No readable step records; <code>spiral audit</code> says what is broken.</p>'
    last = files.records[-1]
    versions = ", ".join(f"{name} {version}" for name, version in sorted(last.packages.items()))
    threads = f"{last.threads} thread{'' if last.threads == 1 else 's'}"
    facts = (
        f"device {last.device}, {last.dtype}, engine {last.engine}, {threads}; {versions}",
        f"code {last.code_version}, configuration {last.config_hash}" + (f", image {last.image}" if last.image else ""),
    )
    rows = [
        (
            str(r.order),
            html.escape(r.step),
            html.escape(r.start),
            f"{r.seconds:.1f}",
            _hashes({name: a.sha256 for name, a in r.inputs.items()}),
            _hashes({name: a.sha256 for name, a in r.outputs.items()}),
        )
        for r in files.records[-_MAX_STEPS:]
    ]
    which = "All steps" if len(rows) == len(files.records) else f"The newest {len(rows)} steps"
    steps = table(("iteration", "step", "start (UTC)", "seconds", "read", "wrote"), rows, numbers=(0, 3))
    return (
        f"<p>Digest of all {len(files.records)} steps: <code>{digest(files)}</code>. "
        f"<code>spiral audit runs/{html.escape(files.name)}</code> hashes every file again.</p>"
        f'<p class="soft">{"<br>".join(map(html.escape, facts))}</p>'
        f"<details><summary>{which}, with the first {_SHORT} digits of each hash</summary>{steps}</details>"
    )


def digest(files: RunFiles) -> str:
    """Return a hash over the inputs and outputs of all steps: two runs that agree in it computed the same."""
    content = "".join(
        f"{r.order} {r.step} {side} {name} {artifact.sha256}\n"
        for r in files.records
        for side, artifacts in (("in", r.inputs), ("out", r.outputs))
        for name, artifact in sorted(artifacts.items())
    )
    return hashlib.sha256(content.encode()).hexdigest()[:32]


def _hashes(artifacts: Mapping[str, str]) -> str:
    lines = (f"{html.escape(name)} <code>{html.escape(sha[:_SHORT])}</code>" for name, sha in sorted(artifacts.items()))
    return "<br>".join(lines)
