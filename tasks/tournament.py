"""Tournaments and single evaluations, outside any run."""

import json
import logging
from pathlib import Path

from flytekit import Deck, task
from flytekit.types.directory import FlyteDirectory
from flytekit.types.file import FlyteFile

from spiral_lib import checkpoints, durable, evaluation, lineup, steps, tournament, tournament_page
from spiral_lib import config as configs
from spiral_lib.config import Named
from spiral_lib.rollout import play_matches
from spiral_lib.types import PolicyRef
from tasks.config import Preset, user_errors
from tasks.resources import CACHE_VERSION, CPU, CPU_IMAGE, SMALL
from tasks.types import directory, file, local, run_folder

log = logging.getLogger("spiral_lib.tournament")


@task(container_image=CPU_IMAGE, requests=SMALL)
def resolve(preset: Preset, config: FlyteFile | None, overrides: str) -> str:
    """Return preset < YAML < overrides as canonical JSON, strictly checked."""
    with user_errors():
        path = Path(config.download()) if config is not None else None
        return configs.to_json(configs.resolve(preset=preset.value, yaml_path=path, overrides=overrides))


@task(container_image=CPU_IMAGE, requests=CPU, enable_deck=True, deck_fields=())
def play(
    policies: list[str],
    entrants: list[FlyteDirectory],
    games: list[str],
    matches: int,
    seed: int,
    config: str,
    out: str,
) -> FlyteDirectory:
    """Let scripted policies and checkpoints play each other; returns page, ratings, payoffs and turns."""
    with user_errors(out), run_folder(out) as run:
        settings = configs.from_text(config)
        folders = {f"checkpoint:{checkpoints.read_manifest(p).id[:12]}": p for p in map(local, entrants)}
        refs = [PolicyRef.parse(text) for text in (*policies, *folders)]
        named = [Named(name=name) for name in games] or list(settings.games)
        specs = tournament.plan(refs, named, pairs=(matches + 1) // 2, seed=seed)
        with lineup.opened(refs, config=settings, folders=folders) as table:
            episodes = list(play_matches(specs, table, concurrency=settings.rollout.concurrency))
        standings = tournament.score(episodes, refs, named, seed=seed)
        page = tournament_page.write(standings, episodes, run / "tournament")
        log.info("tournament: %s", page)
        Deck("Tournament", tournament_page.body(standings))
        return directory(page.parent, run, out)


@task(container_image=CPU_IMAGE, requests=CPU, cache=True, cache_version=CACHE_VERSION)
def measure(checkpoint: FlyteDirectory, cold_start: FlyteDirectory | None, config: str, out: str) -> FlyteFile:
    """Measure a checkpoint outside self-play; returns the evaluation as JSON."""
    with user_errors(out), run_folder(out) as run:
        settings, folder = configs.from_text(config), local(checkpoint)
        steps.set_threads(settings)
        start = folder if cold_start is None else local(cold_start)
        made = evaluation.evaluate(folder, cold_start=start, config=settings, iteration=0)
        durable.write_text(run / "evaluation.json", made.to_json())
        log.info("evaluation: %s\n%s", run / "evaluation.json", json.dumps(dict(made.metrics), indent=1))
        return file(run / "evaluation.json", run, out)
