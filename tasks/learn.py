"""The learner step over checked shards."""


from flytekit import task

from spiral_lib import config as configs
from spiral_lib import lineage, steps
from tasks.config import user_errors
from tasks.resources import CACHE_VERSION, CPU, CPU_IMAGE
from tasks.types import Learned, Shard, TrainState, directory, file, paths_of, placed, run_folder


@task(container_image=CPU_IMAGE, requests=CPU, cache=True, cache_version=CACHE_VERSION, retries=2)
def learn(state: TrainState, shards: list[Shard], config: str, out: str) -> Learned:
    """Check the shards, quarantine bad ones, and take one RAE policy-gradient step over the good ones."""
    with user_errors(), run_folder(out) as run:
        turns = [placed(s.turns, run, out) for s in shards]
        made = steps.learn(configs.from_text(config), paths_of(state, run, out), turns, run=run)
        record = lineage.record_path(run, state.iteration + 1, "learn")
        return Learned(
            checkpoint=directory(made.checkpoint, run, out),
            optimizer=directory(made.optimizer, run, out),
            training=file(made.training, run, out),
            shards=[s.turns for s in shards],
            records=[*(s.record for s in shards), file(record, run, out)],
        )
