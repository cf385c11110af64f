"""``spiral compare``: several routes from one cold start, and one table of them."""

from __future__ import annotations

from pathlib import Path

import click

from spiral_lib.cli._options import configured, folder, json_option
from spiral_lib.cli._screen import print_json, print_table, progress


@click.command(
    epilog="""\b
Routes:
  sft        supervised learning of an expert's wins in the configured games
  rlvr       reinforcement learning on bank questions with a verifier's verdict
  self_play  self-play with role-conditioned advantages

\b
Examples:
  spiral compare --preset smoke
  spiral compare --preset tiny --routes sft,self_play --set seed=1 --out runs/routes-1

\b
The same command continues what was stopped. On a Flyte cluster the routes run beside each other:
  pyflyte run --remote workflows/spiral.py compare --preset gpu_kuhn"""
)
@configured("tiny")
@click.option("--routes", default="sft,rlvr,self_play", show_default=True, help="Routes, with commas between them.")
@click.option("--out", type=folder(exists=False), help="Folder.  [default: runs/<preset>-routes-<hash>]")
@json_option
def COMMAND(
    preset: str, config_file: Path | None, overrides: tuple[str, ...], routes: str, out: Path | None, as_json: bool
) -> None:
    """Train on several routes from one cold start: same learner steps, about the same tokens, same evaluation."""
    from spiral_lib import config as configs
    from spiral_lib import registry_runs, route_runs, route_table
    from spiral_lib.state import State

    config = registry_runs.pin(configs.resolve(preset=preset, yaml_path=config_file, overrides=" ".join(overrides)))
    chosen, place = routes.replace(" ", "").split(","), out or route_runs.default_folder(config)
    click.echo(f"runs: {place}", err=True)
    with progress("cold start", len(chosen) * config.iterations, unit="iterations") as bar:

        def tell(route: str, state: State) -> None:
            before = chosen.index(route) * config.iterations if route in chosen else 0
            bar(before + state.iteration, text=route, restart=state.iteration == 0)

        page = route_runs.compare(config, place, chosen, on_state=tell)
    arms = route_table.read_arms(place / route_runs.START, {route: place / route for route in chosen})
    if as_json:
        print_json({"table": str(page), "rows": list(route_table.long_rows(arms))})
        return
    print_table(("", *(arm.title for arm in arms)), [*route_table.results(arms), *route_table.costs(arms)])
    for line in [*route_table.summary(arms), *route_table.notes(arms), f"table: {page}"]:
        click.echo(line)
