"""The learner step over checked shards."""

from collections.abc import Sequence
from pathlib import Path

from flytekit import task

from spiral_lib import config as configs
from spiral_lib import lineage, steps
from spiral_lib.learner import ranks
from tasks.config import user_errors
from tasks.resources import CACHE_VERSION, CPU, CPU_IMAGE, SITE, elastic, image_for
from tasks.types import Learned, Shard, TrainState, directory, file, paths_of, placed, run_folder

LEARNING = {
    "container_image": CPU_IMAGE,
    "requests": CPU,
    "environment": SITE,
    "cache": True,
    "cache_version": CACHE_VERSION,
    "retries": 2,
}


@task(**LEARNING)
def learn(state: TrainState, shards: list[Shard | None], config: str, out: str) -> Learned:
    """Check the shards, quarantine bad ones, and take one RAE policy-gradient step over the good ones.

    A shard that was lost within ``rollout.max_bad_shards`` is None, in its own place.
    """
    return _learn(state, shards, config, out)


@task(**LEARNING, **elastic())
def learn_on_ranks(state: TrainState, shards: list[Shard | None], config: str, out: str) -> Learned:
    """The same in several processes, of which the first does everything but the gradients alone."""
    if ranks.follows():
        ranks.follow()
        return None  # Flyte takes the first process's answer
    try:
        return _learn(state, shards, config, out)
    finally:
        if ranks.are_given():
            ranks.dismiss()


def _learn(state: TrainState, shards: Sequence[Shard | None], config: str, out: str) -> Learned:
    settings, iteration = configs.from_text(config), state.iteration + 1
    with user_errors(out), run_folder(out, image_for(settings)) as run:
        turns = [_turns(shard, i, iteration, run, out) for i, shard in enumerate(shards)]
        made = steps.learn(settings, paths_of(state, run, out), turns, run=run)
        record = lineage.record_path(run, iteration, "learn")
        played = [shard for shard in shards if shard is not None]
        return Learned(
            checkpoint=directory(made.checkpoint, run, out),
            optimizer=directory(made.optimizer, run, out),
            training=file(made.training, run, out),
            shards=[s.turns for s in played],
            records=[*(s.record for s in played), file(record, run, out)],
        )


def _turns(shard: Shard | None, number: int, iteration: int, run: Path, out: str) -> Path:
    return placed(shard.turns, run, out) if shard is not None else steps.shard_path(run, iteration, number)
