"""Self-play: the cold start, mapped rollout shards, and iterations that play and learn in one process."""

from pathlib import Path

from flytekit import task
from flytekit.types.directory import FlyteDirectory

from spiral_lib import config as configs
from spiral_lib import durable, lineage, starting, steps
from spiral_lib.config import RunConfig
from spiral_lib.state import State, read_state
from tasks import attempts
from tasks.config import user_errors
from tasks.resources import CACHE_VERSION, CPU, CPU_IMAGE, SECRETS, SITE, image_for
from tasks.types import (
    Learned,
    Shard,
    TrainState,
    directory,
    fetch,
    file,
    history,
    is_remote,
    local,
    paths_of,
    run_folder,
)

PLAYING = {
    "container_image": CPU_IMAGE,
    "requests": CPU,
    "environment": SITE,
    "cache": True,
    "cache_version": CACHE_VERSION,
    "secret_requests": SECRETS,
}


@task(**PLAYING)
def cold_start(config: str, out: str) -> TrainState:
    """Fetch or train the checkpoint of iteration 0 and evaluate it."""
    resolved = configs.from_text(config)
    with user_errors(out), run_folder(out, image_for(resolved)) as run:
        if not (run / "config.yaml").is_file():
            starting.open_run(resolved, run)
        made = starting.cold_start(resolved, run)
        return _first_state(made, run, out)


@task(**PLAYING)
def adopt(earlier: FlyteDirectory, config: str, out: str) -> TrainState:
    """Begin a run at the last state of an earlier one; where the rewards differ, evaluate it first."""
    resolved = configs.from_text(config)
    with user_errors(out), run_folder(out, image_for(resolved)) as run:
        return _begun(read_state(local(earlier), fetch), resolved, run, out)


@task(**PLAYING)
def begin(start: TrainState, config: str, out: str) -> TrainState:
    """Begin a run at a state of another run of this execution."""
    resolved = configs.from_text(config)
    with user_errors(out), run_folder(out, image_for(resolved)) as run:
        return _begun(paths_of(start, run, out), resolved, run, out)


def _begun(earlier: State, config: RunConfig, run: Path, out: str) -> TrainState:
    if not (run / "config.yaml").is_file():
        durable.write_text(run / "config.yaml", configs.dump_yaml(config))
    return _first_state(starting.adopt(config, earlier, run), run, out)


@task(**PLAYING, retries=2)
def play_shard(shard: int, state: TrainState, config: str, out: str) -> Shard:
    """Play one shard of this iteration's matches; returns its turns as Parquet."""
    settings = configs.from_text(config)
    with user_errors(out), run_folder(out, image_for(settings)) as run:
        turns = steps.play_shard(settings, paths_of(state, run, out), shard=shard, run=run)
        record = lineage.record_path(run, state.iteration + 1, f"play-{shard:02d}")
        return Shard(turns=file(turns, run, out), record=file(record, run, out))


@task(**PLAYING, retries=2)
def play_and_learn(state: TrainState, config: str, out: str) -> Learned:
    """Take all rollout-update steps of an iteration in one process, on-policy; a killed task goes on where it was."""
    settings = configs.from_text(config)
    with user_errors(out), run_folder(out, image_for(settings)) as run:
        on_save = attempts.continued(run) if is_remote(out) else None  # a run folder on this machine stays by itself
        made = steps.segment(settings, paths_of(state, run, out), run=run, on_save=on_save)
        return Learned(
            checkpoint=directory(made.checkpoint, run, out),
            optimizer=directory(made.optimizer, run, out),
            training=file(made.training, run, out),
            shards=[file(p, run, out) for p in made.shards if p.is_file()],  # some may have expired by rule
            records=[file(lineage.record_path(run, state.iteration + 1, "segment"), run, out)],
        )


def _first_state(made: State, run: Path, out: str) -> TrainState:
    checkpoint = directory(made.checkpoint, run, out)
    same, replies = made.champion == made.checkpoint, run / "evaluations" / "0000"
    start, scores = directory(made.cold_start, run, out), file(made.cold_start_scores, run, out)
    return TrainState(
        iteration=0,
        checkpoint=checkpoint,
        optimizer=None if made.optimizer is None else directory(made.optimizer, run, out),
        champion=checkpoint if same else directory(made.champion, run, out),
        champion_scores=file(made.champion_scores, run, out),
        cold_start=start,
        cold_start_scores=scores,
        opponents=[directory(o, run, out) for o in made.opponents],
        ledger=file(made.ledger, run, out),
        history=history(run, out, 0),
        replies=directory(replies, run, out) if replies.is_dir() else None,
    )
