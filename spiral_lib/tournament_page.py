"""A tournament's outputs: one HTML page, and Parquet files of ratings, payoffs and every turn."""

from __future__ import annotations

import dataclasses
import html
import json
from collections.abc import Sequence
from pathlib import Path

from spiral_lib import durable, trajectories
from spiral_lib.report import STYLE
from spiral_lib.tournament import ALL_GAMES, Payoff, Rating, Standings
from spiral_lib.types import Episode

_WIN, _LOSS = "0,114,178", "213,94,0"  # Okabe-Ito blue and vermilion: told apart by colour-blind readers


def write(standings: Standings, episodes: Sequence[Episode], out: Path) -> Path:
    """Write ``tournament.html``, ``standings.json`` and three Parquet files into a folder; return the page's path."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    out.mkdir(parents=True, exist_ok=True)
    for name, records in (("ratings", standings.ratings), ("payoffs", standings.payoffs)):
        with durable.new_file(out / f"{name}.parquet") as path:
            pq.write_table(pa.Table.from_pylist([dataclasses.asdict(r) for r in records]), path)
    trajectories.write_shard(
        out / "turns.parquet", episodes, run="tournament", iteration=0, step=0, shard=0, config_hash=""
    )
    durable.write_text(out / "standings.json", json.dumps(dataclasses.asdict(standings), indent=1))
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1"><title>Tournament</title>'
        f"<style>body{{margin:0;background:var(--paper)}}</style></head><body>{body(standings)}</body></html>"
    )
    durable.write_text(out / "tournament.html", page)
    return out / "tournament.html"


def body(standings: Standings) -> str:
    """Return the page's content, style included: the same for the file and for a Flyte deck."""
    groups = tuple(dict.fromkeys(r.game for r in standings.ratings))
    parts = [
        f"<style>{STYLE}</style><h1>Tournament</h1>",
        f'<p class="soft">{len(standings.policies)} policies · {", ".join(map(html.escape, standings.games))} · '
        f"{standings.matches} matches in seat-swapped pairs · seed {standings.seed} · 95 % intervals</p>",
        *(f"<p>Not played: {html.escape(line)}.</p>" for line in standings.skipped),
        _cycles(standings),
        *(_ratings(game, [r for r in standings.ratings if r.game == game]) for game in groups),
        *(_payoffs(game, standings) for game in standings.games),
    ]
    return f'<div class="spiral">{"".join(parts)}</div>'


def _cycles(standings: Standings) -> str:
    if not standings.cycles:
        return '<div class="head"><p>No rock-paper-scissors cycle beyond chance.</p></div>'
    chains = [(c.game, " beats ".join((*c.policies, c.policies[0]))) for c in standings.cycles]
    lines = (f"<p><b>Cycle</b> in {html.escape(game)}: {html.escape(chain)}</p>" for game, chain in chains)
    return f'<div class="head">{"".join(lines)}<p class="soft">A single rating cannot order these policies.</p></div>'


def _ratings(game: str, ratings: Sequence[Rating]) -> str:
    rows = "".join(
        f'<tr><td>{html.escape(r.policy)}</td><td class="n">{r.mu:.1f} [{r.low:.1f}, {r.high:.1f}]</td>'
        f'<td class="n">{r.mean:+.2f} [{r.mean_low:+.2f}, {r.mean_high:+.2f}]</td>'
        f'<td class="n">{r.wins} / {r.draws} / {r.losses}</td><td class="n">{100 * r.invalid:.1f} %</td></tr>'
        for r in ratings
    )
    title = "all games" if game == ALL_GAMES else html.escape(game)
    head = "<tr><th>policy</th><th>rating</th><th>mean return</th><th>won / drawn / lost</th><th>forfeited</th></tr>"
    return f"<h2>Ratings, {title}</h2><table>{head}{rows}</table>"


def _payoffs(game: str, standings: Standings) -> str:
    """Return the matrix of one game: rows against columns, blue where the row wins."""
    cells = {(p.row, p.column): p for p in standings.payoffs if p.game == game}
    present = [p for p in standings.policies if any(p in pair for pair in cells)]
    head = "".join(f"<th>{html.escape(column)}</th>" for column in present)
    rows = "".join(
        f"<tr><th>{html.escape(row)}</th>{''.join(_cell(cells.get((row, column))) for column in present)}</tr>"
        for row in present
    )
    note = '<p class="soft">Mean return of the row against the column, from -1 to 1, with its interval.</p>'
    return f"<h2>Payoffs, {html.escape(game)}</h2>{note}<table><tr><th></th>{head}</tr>{rows}</table>"


def _cell(payoff: Payoff | None) -> str:
    if payoff is None:
        return '<td class="n soft">-</td>'
    colour = _WIN if payoff.mean > 0 else _LOSS
    void = f" ({payoff.void} void)" if payoff.void else ""
    return (
        f'<td class="n" style="background:rgba({colour},{0.45 * abs(payoff.mean):.2f})"><b>{payoff.mean:+.2f}</b>'
        f"<br>[{payoff.low:+.2f}, {payoff.high:+.2f}]{void}</td>"
    )
