"""Scheduled retraining: it begins at the registry's champion, and its result is offered to the registry."""

import logging
from datetime import datetime
from pathlib import Path

from flytekit import task

from spiral_lib import config as configs
from spiral_lib import preflight, registry_runs, starting
from spiral_lib.ledger import Ledger
from spiral_lib.registry import Registry
from tasks.config import Preset, Resolved, execution_store, is_local, open_store, settled, user_errors
from tasks.resources import CPU_IMAGE, SMALL
from tasks.types import TrainState, local

log = logging.getLogger("spiral_lib.registry")

CHAMPION, CANDIDATE = "champion", "candidate"


@task(container_image=CPU_IMAGE, requests=SMALL)
def begin_retraining(
    kickoff: datetime, registry: str, name: str, preset: Preset, overrides: str, out: str
) -> Resolved:
    """Return the configuration of the retraining of one kickoff time: however often it fires, it is the same.

    The first firing notes in the registry which version was the champion; the others begin there as well. The
    configuration names that version as its model's source.
    """
    with user_errors():
        key = f"{kickoff:%Y%m%dT%H%M}"
        shared = Registry(registry)
        now = shared.resolve(name, CHAMPION).id
        base = shared.claim(name, f"retraining-{key}", {"base": now})["base"]
        fixed = f"model.source=registry:{shared.url}/{name}@{base} seed={kickoff:%Y%m%d%H%M}"
        without_cold_start = configs.resolve(preset=preset.value, overrides="cold_start.steps=0")
        config = configs.overridden(configs.overridden(without_cold_start, overrides), fixed)
        preflight.check(config)
        if is_local() and "://" not in out:
            folder = Path(out or "runs") / f"{name}-{key}"
            starting.open_run(config, folder)
            return settled(config, str(folder.absolute()))
        place = f"{(out or f'{execution_store()}/runs').rstrip('/')}/{name}-{key}"
        if "://" in place:
            open_store(config, place)
        return settled(config, place)


@task(container_image=CPU_IMAGE, requests=SMALL)
def offer(state: TrainState, registry: str, name: str) -> str:
    """Publish the run's champion and promote it, if the gate accepted one; return the version that is champion now.

    The alias only moves from the version that the run began at: what was promoted by others meanwhile stays.
    """
    with user_errors():
        ledger, history = Ledger.from_json(local(state.ledger).read_text()), local(state.history)
        base = configs.from_text((history / "config.yaml").read_text()).model.source.rpartition("@")[2]
        shared = Registry(registry)
        if ledger.champion is None or ledger.champion.iteration == 0:
            log.info("the gate accepted no candidate: %s@%s stays at %s", name, CHAMPION, base[:12])
            return shared.resolve(name, CHAMPION).id
        checkpoint, scores = local(state.champion), local(state.champion_scores)
        attached = registry_runs.attach(
            history, checkpoint, scores, iteration=ledger.champion.iteration
        )
        version = shared.publish(name, checkpoint, attached)
        shared.promote(name, version.id, CANDIDATE)
        if all(move.version != version.id for move in shared.history(name, CHAMPION)):
            shared.promote(name, version.id, CHAMPION, expected=base, note="accepted by the gate of a retraining")
        return shared.resolve(name, CHAMPION).id
