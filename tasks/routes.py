"""Several routes from one cold start: their configurations, their common budget and the table at the end."""

import logging
from dataclasses import replace
from pathlib import Path

from flytekit import Deck, task
from flytekit.types.directory import FlyteDirectory
from flytekit.types.file import FlyteFile

from spiral_lib import config as configs
from spiral_lib import preflight, registry_runs, route_runs, route_table, starting
from tasks.config import Preset, Resolved, execution_store, open_store, settled, user_errors
from tasks.resources import CPU_IMAGE, SITE, SMALL, image_for
from tasks.rollout import PLAYING
from tasks.types import TrainState, directory, file, is_local, is_remote, local, paths_of, run_folder

log = logging.getLogger("spiral_lib.routes")


@task(container_image=CPU_IMAGE, requests=SMALL)
def resolve(preset: Preset, config: FlyteFile | None, overrides: str, routes: list[str], out: str) -> Resolved:
    """Return the configuration of the shared cold start, strictly checked, and open its run folder."""
    with user_errors():
        path = Path(config.download()) if config is not None else None
        chosen = registry_runs.pin(configs.resolve(preset=preset.value, yaml_path=path, overrides=overrides))
        route_runs.check(chosen, routes)
        start = route_runs.start_config(chosen)
        preflight.check(start)
        if not out:
            folder = route_runs.default_folder(chosen)
            out = str(folder.absolute()) if is_local() else f"{execution_store()}/{folder.as_posix()}"
        _open(replace(start, iterations=0), f"{out.rstrip('/')}/{route_runs.START}")
        log.info("runs: %s", out)
        return settled(start, out)


def _open(config: configs.RunConfig, out: str, resume_from: Path | None = None) -> None:
    if is_remote(out):
        open_store(config, out)
    else:
        starting.open_run(config, Path(out), resume_from=resume_from)


@task(**PLAYING)
def measure(start: TrainState, routes: list[str], config: str, out: str) -> FlyteFile:
    """Play one learner step of every route with the cold start; returns what a match of each gives to learn from."""
    resolved = configs.from_text(config)
    with user_errors(out), run_folder(out, image_for(resolved)) as run:
        return file(route_runs.measure(resolved, paths_of(start, run, out), routes, run=run), run, out)


@task(container_image=CPU_IMAGE, requests=SMALL)
def resolve_route(route: str, budget: FlyteFile, resolved: Resolved) -> Resolved:
    """Return a route's configuration, with as many matches as give it self-play's tokens, and open its run folder."""
    with user_errors():
        whole = configs.update(configs.from_text(resolved.config), {"iterations": resolved.iterations})
        own = route_runs.config_for(whole, route, route_runs.read_sizes(local(budget)))
        base = resolved.out.rstrip("/")
        _open(own, f"{base}/{route}", resume_from=Path(base) / route_runs.START)
        return settled(own, f"{base}/{route}")


@task(container_image=CPU_IMAGE, requests=SMALL, environment=SITE, enable_deck=True, deck_fields=())
def tabulate(start: TrainState, ends: list[TrainState], routes: list[str], out: str) -> FlyteDirectory:
    """Write the table of all routes; returns the folder with it as page, Markdown and Parquet."""
    with user_errors(out), run_folder(out, CPU_IMAGE) as run:
        runs = {route: local(end.history) for route, end in zip(routes, ends, strict=True)}
        page = route_table.write(local(start.history), runs, run / route_runs.TABLE)
        arms = route_table.read_arms(local(start.history), runs)
        for line in route_table.summary(arms):
            log.info("%s", line)
        log.info("table: %s", page)
        Deck("Routes", route_table.body(arms))
        return directory(page.parent, run, out)
