"""The plain Python driver: the same steps as the Flyte workflow, in one process."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

from spiral_lib import deciding, durable, retention, starting, steps
from spiral_lib.config import RunConfig, config_hash, is_evaluated
from spiral_lib.state import Learned, State, read_state

log = logging.getLogger(__name__)


def default_folder(config: RunConfig) -> Path:
    """Return ``runs/<preset>-<configuration hash>``: the same command finds its run again and continues it."""
    return Path("runs") / f"{config.preset}-{config_hash(config)[:8]}"


def train(
    config: RunConfig, run: Path, *, resume_from: Path | None = None, on_state: Callable[[State], None] | None = None
) -> State:
    """Train to ``config.iterations`` in a run folder, re-using every finished step, and return the final state.

    ``on_state`` is called with the state after the cold start and after every iteration.
    """
    tell = on_state or (lambda state: None)
    with durable.told_when_full(run), _opened(config, run, resume_from):
        if resume_from is not None:
            state = starting.adopt(config, read_state(resume_from), run)
        else:
            state = starting.cold_start(config, run)
        tell(state)
        while state.iteration < config.iterations:
            state = iterate(config, state, run)
            tell(state)
    log.info("done: %s", run / "report.html")
    return state


@contextlib.contextmanager
def _opened(config: RunConfig, run: Path, resume_from: Path | None) -> Iterator[None]:
    """Hold the run folder while it is written to."""
    starting.open_run(config, run, resume_from=resume_from)
    try:
        yield
    finally:
        durable.release(run)


def iterate(config: RunConfig, state: State, run: Path) -> State:
    """Run one iteration: rollouts, quality gate, learner, evaluation when due, decision."""
    learned = learn(config, state, run)
    iteration = state.iteration + 1
    scores = None
    is_adopted = state.iteration == 0 and state.checkpoint != state.cold_start
    if is_evaluated(config, iteration, adopted=is_adopted):
        scores = steps.evaluate(config, learned.checkpoint, state.cold_start, iteration=iteration, run=run)
    after = deciding.decide(config, state, learned, scores, run=run)
    retention.tidy(config, run, iteration)
    return after


def learn(config: RunConfig, state: State, run: Path) -> Learned:
    """Play and learn: in one process when an iteration has several steps, else shard by shard."""
    if config.rollout.steps_per_iteration > 1:
        return steps.segment(config, state, run=run)
    shards = [steps.play_shard(config, state, shard=i, run=run) for i in range(config.rollout.shards)]
    return steps.learn(config, state, shards, run=run)
