"""The SPIRAL pipeline on Flyte: wiring only.

    pyflyte run workflows/spiral.py train --preset tiny
    pyflyte run workflows/spiral.py compare --preset tiny
    pyflyte run --remote workflows/spiral.py train --preset gpu_kuhn --out s3://bucket/runs/kuhn-1
"""

from functools import partial

from flytekit import dynamic, map_task, workflow
from flytekit.core.workflow import WorkflowBase
from flytekit.types.directory import FlyteDirectory
from flytekit.types.file import FlyteFile

import tasks.config
import tasks.evaluate
import tasks.learn
import tasks.opponents
import tasks.report
import tasks.rollout
import tasks.routes
import tasks.tournament
from spiral_lib import config as configs
from tasks.config import Preset, Resolved
from tasks.resources import CPU_IMAGE, LEARNER_GPU, ROLLOUT_GPU, SITE, SMALL, has_ranks, needs_gpu
from tasks.types import Learned, TrainState


def learn_sharded(*, on_gpus: bool = False, on_ranks: bool = False, min_success_ratio: float = 1.0) -> WorkflowBase:
    """Return the workflow of one learner step over mapped rollout shards, on the hardware that it needs.

    :param on_gpus: GPU nodes, interruptible ones for the shards
    :param on_ranks: the learner's task is several processes
    :param min_success_ratio: share of the shards that must be played; the learner gets None for one that was lost
    """

    def learn_sharded(state: TrainState, shards: list[int], config: str, out: str) -> Learned:
        play = partial(tasks.rollout.play_shard, state=state, config=config, out=out)
        turns = map_task(play, min_success_ratio=min_success_ratio)(shard=shards)
        if on_gpus:
            turns = turns.with_overrides(**ROLLOUT_GPU.overrides())
        learn = tasks.learn.learn_on_ranks if on_ranks else tasks.learn.learn
        learned = learn(state=state, shards=turns, config=config, out=out)
        return learned.with_overrides(**LEARNER_GPU.overrides()) if on_gpus else learned

    return workflow(learn_sharded)


@workflow
def judge(state: TrainState, learned: Learned, config: str, out: str) -> TrainState:
    """Evaluate a candidate and let the gate decide."""
    scores = tasks.evaluate.evaluate(state=state, learned=learned, config=config, out=out)
    return tasks.opponents.decide(state=state, learned=learned, scores=scores, config=config, out=out)


@workflow
def judge_on_gpus(state: TrainState, learned: Learned, config: str, out: str) -> TrainState:
    """The same with the evaluation on a GPU node."""
    scores = tasks.evaluate.evaluate(state=state, learned=learned, config=config, out=out)
    measured = scores.with_overrides(**ROLLOUT_GPU.overrides())
    return tasks.opponents.decide(state=state, learned=learned, scores=measured, config=config, out=out)


@dynamic(container_image=CPU_IMAGE, requests=SMALL, environment=SITE)
def self_play(resolved: Resolved, resume_from: FlyteDirectory | None) -> TrainState:
    """Begin a run and chain its iterations."""
    config, out = resolved.config, resolved.out
    if resume_from is None:
        state = tasks.rollout.cold_start(config=config, out=out)
    else:
        state = tasks.rollout.adopt(earlier=resume_from, config=config, out=out)
    if needs_gpu(configs.from_text(config)):
        state = state.with_overrides(**LEARNER_GPU.overrides())
    return chain(state, resolved, adopted=resume_from is not None)


def chain(state: TrainState, resolved: Resolved, *, adopted: bool) -> TrainState:
    """Return the state after all iterations; each is made of static sub-workflows, so that the graph stays small."""
    settings = configs.from_text(resolved.config)
    config, out = resolved.config, resolved.out
    on_gpus = needs_gpu(settings)
    measure = judge_on_gpus if on_gpus else judge
    learn_from_shards = learn_sharded(
        on_gpus=on_gpus, on_ranks=has_ranks(settings), min_success_ratio=1.0 - settings.rollout.max_bad_shards
    )
    for iteration in range(1, resolved.iterations + 1):
        if settings.rollout.steps_per_iteration > 1:
            learned = tasks.rollout.play_and_learn(state=state, config=config, out=out)
            if on_gpus:
                learned = learned.with_overrides(**LEARNER_GPU.overrides())
        else:
            shards = list(range(settings.rollout.shards))
            learned = learn_from_shards(state=state, shards=shards, config=config, out=out)
        if configs.is_evaluated(settings, iteration, adopted=iteration == 1 and adopted):
            state = measure(state=state, learned=learned, config=config, out=out)
        else:
            state = tasks.opponents.decide(state=state, learned=learned, scores=None, config=config, out=out)
    return state


@workflow
def train(
    preset: Preset = Preset.TINY,
    config: FlyteFile | None = None,
    overrides: str = "",
    resume_from: FlyteDirectory | None = None,
    out: str = "",
) -> TrainState:
    """Train by self-play: cold start, then iterations of rollouts, quality gate, RAE learner, evaluation and gate.

    :param preset: configuration to start from
    :param config: YAML file with settings that replace the preset's
    :param overrides: settings that replace both, such as "learner.lr=1e-6 rollout.shards=8"
    :param resume_from: run folder whose last state this run goes on from (in a store: one of its history folders)
    :param out: run folder, or the URL of a store; by default runs/<preset>-<configuration hash>
    """
    resolved = tasks.config.resolve_config(
        preset=preset, config=config, overrides=overrides, resume_from=resume_from, out=out
    )
    final = self_play(resolved=resolved, resume_from=resume_from)
    return tasks.report.finish(state=final)


@dynamic(container_image=CPU_IMAGE, requests=SMALL, environment=SITE)
def follow(start: TrainState, resolved: Resolved) -> TrainState:
    """Train on one route from a cold start that others share."""
    state = tasks.rollout.begin(start=start, config=resolved.config, out=resolved.out)
    return chain(state, resolved, adopted=True)


@dynamic(container_image=CPU_IMAGE, requests=SMALL, environment=SITE)
def run_routes(resolved: Resolved, routes: list[str]) -> FlyteDirectory:
    """Make the cold start, run the routes beside each other and put them into one table."""
    config, place = resolved.config, f"{resolved.out.rstrip('/')}/cold_start"
    start = tasks.rollout.cold_start(config=config, out=place)
    budget = tasks.routes.measure(start=start, routes=routes, config=config, out=place)
    if needs_gpu(configs.from_text(config)):
        start = start.with_overrides(**LEARNER_GPU.overrides())
        budget = budget.with_overrides(**LEARNER_GPU.overrides())
    ends = []
    for route in routes:
        own = tasks.routes.resolve_route(route=route, budget=budget, resolved=resolved)
        ends.append(follow(start=start, resolved=own))
    return tasks.routes.tabulate(start=start, ends=ends, routes=routes, out=resolved.out)


@workflow
def compare(
    preset: Preset = Preset.TINY,
    config: FlyteFile | None = None,
    overrides: str = "",
    routes: list[str] = ["sft", "rlvr", "self_play"],  # noqa: B006 - flytekit reads defaults, it never shares them
    out: str = "",
) -> FlyteDirectory:
    """Train on several routes from one cold start with the same budget and evaluation; returns one table of them.

    :param preset: configuration to start from
    :param config: YAML file with settings that replace the preset's
    :param overrides: settings that replace both, such as "seed=1 iterations=3"
    :param routes: sft, rlvr and self_play, as a JSON list
    :param out: folder of the runs and the table, or the URL of a store; by default runs/<preset>-routes-<hash>
    """
    resolved = tasks.routes.resolve(preset=preset, config=config, overrides=overrides, routes=routes, out=out)
    return run_routes(resolved=resolved, routes=routes)


@dynamic(container_image=CPU_IMAGE, requests=SMALL, environment=SITE)
def measure(checkpoint: FlyteDirectory, cold_start: FlyteDirectory | None, config: str, out: str) -> FlyteFile:
    """Measure on the hardware that the configuration needs."""
    made = tasks.tournament.measure(checkpoint=checkpoint, cold_start=cold_start, config=config, out=out)
    return made.with_overrides(**LEARNER_GPU.overrides()) if needs_gpu(configs.from_text(config)) else made


@dynamic(container_image=CPU_IMAGE, requests=SMALL, environment=SITE)
def compete(
    policies: list[str],
    entrants: list[FlyteDirectory],
    games: list[str],
    matches: int,
    seed: int,
    config: str,
    out: str,
) -> FlyteDirectory:
    """Play a tournament on the hardware that the configuration needs."""
    made = tasks.tournament.play(
        policies=policies, entrants=entrants, games=games, matches=matches, seed=seed, config=config, out=out
    )
    return made.with_overrides(**LEARNER_GPU.overrides()) if needs_gpu(configs.from_text(config)) else made


@workflow
def evaluate(
    checkpoint: FlyteDirectory,
    cold_start: FlyteDirectory | None = None,
    preset: Preset = Preset.TINY,
    config: FlyteFile | None = None,
    overrides: str = "",
    out: str = "",
) -> FlyteFile:
    """Measure one checkpoint outside self-play, as training does; returns the evaluation as JSON.

    :param checkpoint: checkpoint folder
    :param cold_start: checkpoint for the cold_start matches; by default the checkpoint itself
    :param preset: configuration to start from: the one the checkpoint was trained with
    :param config: YAML file with settings that replace the preset's
    :param overrides: settings that replace both, such as "evaluation.matches=400"
    :param out: folder or the URL of a store
    """
    resolved = tasks.tournament.resolve(preset=preset, config=config, overrides=overrides)
    return measure(checkpoint=checkpoint, cold_start=cold_start, config=resolved, out=out)


@workflow
def play_tournament(
    policies: list[str],
    checkpoints: list[FlyteDirectory] = [],  # noqa: B006 - flytekit reads defaults, it never shares them
    games: list[str] = [],  # noqa: B006
    matches: int = 100,
    seed: int = 0,
    preset: Preset = Preset.TINY,
    config: FlyteFile | None = None,
    overrides: str = "",
    out: str = "",
) -> FlyteDirectory:
    """Let policies and checkpoints play each other in seat-swapped pairs; returns ratings, payoffs, turns and a page.

    :param policies: scripted policies as a JSON list, such as '["random", "optimal"]'
    :param checkpoints: checkpoint folders as a JSON list
    :param games: games as a JSON list; by default those of the configuration
    :param matches: matches of each pair in each game
    :param seed: base of every derived seed
    :param preset: configuration that the checkpoints were trained with
    :param config: YAML file with settings that replace the preset's
    :param overrides: settings that replace both
    :param out: folder or the URL of a store
    """
    resolved = tasks.tournament.resolve(preset=preset, config=config, overrides=overrides)
    return compete(
        policies=policies,
        entrants=checkpoints,
        games=games,
        matches=matches,
        seed=seed,
        config=resolved,
        out=out,
    )
