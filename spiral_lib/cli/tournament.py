"""``spiral tournament``: who beats whom, in which game, and how sure that is."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import click

from spiral_lib.cli._options import complete, configured, folder, game_names, json_option
from spiral_lib.cli._screen import print_json, print_table, progress

if TYPE_CHECKING:
    from spiral_lib.tournament import Payoff, Standings


@click.command(
    epilog="""\b
Examples:
  spiral tournament random optimal checkpoint:runs/a checkpoint:runs/b --game kuhn_poker
  spiral tournament random optimal --game tic_tac_toe --game nim --matches 200
  spiral tournament pool:3f2a pool:9c01 random --pool runs/a --game kuhn_poker --out ladder

\b
checkpoint:<run folder> means that run's champion. Matches come in seat-swapped pairs with one seed.
api:<model> is asked at an endpoint: add --preset NAME --set endpoint.base_url=URL; all then play under that preset."""
)
@click.argument("policies", nargs=-1, required=True, metavar="POLICY...")
@click.option(
    "--game", "games", multiple=True, required=True, shell_complete=complete(game_names), help="May be repeated."
)
@click.option(
    "--matches", default=100, show_default=True, type=click.IntRange(2), help="Matches of each pair in each game."
)
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0))
@click.option("--pool", type=folder(), help="Run folder in which pool:<id> is looked up.")
@click.option("--out", type=folder(exists=False), help="Folder for HTML and Parquet; without it only the tables.")
@configured(None)
@json_option
def COMMAND(
    policies: tuple[str, ...],
    games: tuple[str, ...],
    matches: int,
    seed: int,
    pool: Path | None,
    out: Path | None,
    preset: str | None,
    config_file: Path | None,
    overrides: tuple[str, ...],
    as_json: bool,
) -> None:
    """Let every POLICY play every other in every game; print ratings, payoffs and cycles with intervals."""
    from spiral_lib import lineup, tournament, tournament_page
    from spiral_lib.cli._options import chosen_config
    from spiral_lib.config import Named
    from spiral_lib.rollout import play_matches
    from spiral_lib.types import PolicyRef

    refs, named = [PolicyRef.parse(text) for text in policies], [Named(name=name) for name in games]
    config = chosen_config(preset, config_file, overrides)
    if out is not None:
        tournament_page.claim(out)
    tournament.rating_model()
    specs = tournament.plan(refs, named, pairs=(matches + 1) // 2, seed=seed)
    with lineup.opened(refs, config=config, pool=pool) as table, progress("playing", len(specs), unit="matches") as bar:
        episodes = []
        for episode in play_matches(specs, table, concurrency=64):
            episodes.append(episode)
            bar(len(episodes))
    standings = tournament.score(episodes, refs, named, seed=seed)
    page = tournament_page.write(standings, episodes, out) if out is not None else None
    if as_json:
        print_json({**dataclasses.asdict(standings), "page": str(page) if page else None})
        return
    _print(standings)
    if page is not None:
        click.echo(f"written: {page}, and ratings.parquet, payoffs.parquet, turns.parquet beside it")


def _print(standings: Standings) -> None:
    for game in dict.fromkeys(r.game for r in standings.ratings):
        rows = [
            (
                r.policy,
                f"{r.mu:.1f} [{r.low:.1f}, {r.high:.1f}]",
                f"{r.mean:+.2f} [{r.mean_low:+.2f}, {r.mean_high:+.2f}]",
                f"{r.wins} / {r.draws} / {r.losses}",
                f"{100 * r.invalid:.1f} %",
            )
            for r in standings.ratings
            if r.game == game
        ]
        headings = ("policy", "rating", "mean return", "won / drawn / lost", "forfeited")
        print_table(headings, rows, title=f"Ratings, {game or 'all games'} (95 % intervals)")
    for game in standings.games:
        cells = {(p.row, p.column): p for p in standings.payoffs if p.game == game}
        present = [p for p in standings.policies if any(p in pair for pair in cells)]
        matrix = [(row, *(_cell(cells.get((row, column))) for column in present)) for row in present]
        print_table(("row against", *present), matrix, title=f"Payoffs, {game}: mean return of the row")
    for cycle in standings.cycles:
        click.echo(f"cycle in {cycle.game}: {' beats '.join((*cycle.policies, cycle.policies[0]))}")
    if not standings.cycles:
        click.echo("no rock-paper-scissors cycle beyond chance")
    for line in standings.skipped:
        click.echo(f"not played: {line}")


def _cell(payoff: Payoff | None) -> str:
    return "-" if payoff is None else f"{payoff.mean:+.2f} [{payoff.low:+.2f}, {payoff.high:+.2f}]"
