"""A tournament's outputs: one HTML page, and Parquet files of ratings, payoffs and every turn."""

from __future__ import annotations

import dataclasses
import html
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from spiral_lib import durable, trajectories
from spiral_lib.charts import Cell, heat_map
from spiral_lib.errors import ConfigError, LineageError
from spiral_lib.report_style import framed, page
from spiral_lib.tournament import ALL_GAMES, Cycle, Payoff, Rating, Standings
from spiral_lib.types import Episode

OWN: Final = frozenset({"ratings.parquet", "payoffs.parquet", "turns.parquet", "standings.json", "tournament.html"})


def claim(out: Path) -> None:
    """Raise ConfigError where a folder holds anything but an earlier tournament, which is written over."""
    strangers = sorted(path.name for path in out.glob("*") if path.name not in OWN and path.name[0] != ".")
    if strangers:
        raise ConfigError(
            f"'{out}' holds other files ({', '.join(strangers[:3])}); give a new or empty folder, or one of an earlier "
            "tournament"
        )


def write(standings: Standings, episodes: Sequence[Episode], out: Path) -> Path:
    """Write ``tournament.html``, ``standings.json`` and three Parquet files into a folder; return the page's path.

    Raises ConfigError for a folder of something else (``claim``).
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    claim(out)
    out.mkdir(parents=True, exist_ok=True)
    for name, records in (("ratings", standings.ratings), ("payoffs", standings.payoffs)):
        with durable.new_file(out / f"{name}.parquet") as path:
            pq.write_table(pa.Table.from_pylist([dataclasses.asdict(r) for r in records]), path)
    trajectories.write_shard(
        out / "turns.parquet", episodes, run="tournament", iteration=0, step=0, shard=0, config_hash=""
    )
    durable.write_text(out / "standings.json", json.dumps(dataclasses.asdict(standings), indent=1))
    durable.write_text(out / "tournament.html", page("Tournament", body(standings)))
    return out / "tournament.html"


def read_standings(path: Path) -> Standings:
    """Return the standings that ``write`` left as ``standings.json``. Raises LineageError where they are damaged."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        ratings = tuple(Rating(**r) for r in content.pop("ratings"))
        payoffs = tuple(Payoff(**p) for p in content.pop("payoffs"))
        cycles = tuple(Cycle(game=c["game"], policies=tuple(c["policies"])) for c in content.pop("cycles"))
        lists = {name: tuple(content[name]) for name in ("policies", "games", "skipped")}
        return Standings(ratings=ratings, payoffs=payoffs, cycles=cycles, **{**content, **lists})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise LineageError(f"'{path}' is damaged ({error!r}); play the tournament again") from error


def body(standings: Standings) -> str:
    """Return the page's content, style included: the same for the file and for a Flyte deck."""
    return framed(f"<h1>Tournament</h1>{sections(standings)}")


def sections(standings: Standings) -> str:
    """Return what a tournament came to, for a page that has the style sheet."""
    groups = tuple(dict.fromkeys(r.game for r in standings.ratings))
    parts = [
        f'<p class="soft">{len(standings.policies)} policies · {", ".join(map(html.escape, standings.games))} · '
        f"{standings.matches} matches in seat-swapped pairs · seed {standings.seed} · 95 % intervals</p>",
        *(f"<p>Not played: {html.escape(line)}.</p>" for line in standings.skipped),
        _cycles(standings),
        *(_ratings(game, [r for r in standings.ratings if r.game == game]) for game in groups),
        *(_payoffs(game, standings) for game in standings.games),
    ]
    return "".join(parts)


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
    return f"<h3>Ratings, {title}</h3><table>{head}{rows}</table>"


def _payoffs(game: str, standings: Standings) -> str:
    """Return the matrix of one game: rows against columns, blue where the row wins."""
    played = [p for p in standings.payoffs if p.game == game]
    present = [p for p in standings.policies if any(p in (x.row, x.column) for x in played)]
    cells = {(p.row, p.column): Cell(value=p.mean, low=p.low, high=p.high) for p in played}
    void = sum(p.void for p in played) // 2
    note = "Mean return of the row against the column, from -1 to 1, with its interval."
    lost = f" {void} units of two matches are void and left out." if void else ""
    table = heat_map(present, present, cells, "row against column")
    return f'<h3>Payoffs, {html.escape(game)}</h3><p class="soft">{note}{lost}</p>{table}'
