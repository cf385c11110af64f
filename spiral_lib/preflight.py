"""What can be found wrong before anything runs: names, parameters and folders in a configuration. Cheap, no torch."""

from __future__ import annotations

import difflib
from pathlib import Path

from spiral_lib import checkpoint_sources, games, plugins, registry_runs, routes
from spiral_lib.config import RunConfig
from spiral_lib.errors import ConfigError
from spiral_lib.learner.shaping import ALL
from spiral_lib.registry_types import PREFIX
from spiral_lib.types import PolicyRef, RefKind

_ITSELF = "cold_start"  # an evaluation opponent that is no PolicyRef


def check(config: RunConfig, *, fresh: bool = True) -> None:
    """Raise ConfigError or CheckpointError where the run could not do what the configuration asks for.

    ``fresh`` says that the run begins at ``model.source``, which then has to be there.
    """
    check_names(config)
    for opponent in config.evaluation.opponents:
        ref = None if opponent == _ITSELF else PolicyRef.parse(opponent)
        if ref is not None and ref.kind is RefKind.CHECKPOINT and not Path(ref.locator).is_dir():
            raise ConfigError(f"evaluation.opponents names '{opponent}': there is no such folder; check the path")
    if fresh and config.model.source.startswith(PREFIX):
        registry_runs.require_source(config.model.source)
    elif fresh and config.model.source != "init:tiny":
        checkpoint_sources.require(config)


def check_names(config: RunConfig) -> None:
    """Raise ConfigError where the configuration names something that no machine could have, or wrong parameters."""
    for game in config.games:
        made = games.make(game.name, seed=config.seed, **game.params)
        if game.name in config.evaluation.exploitability_games and made.spec.openspiel is not None:
            games.views(game.name, **game.params)
    for name in config.evaluation.exploitability_games:
        games.make(name, seed=config.seed)
        plugins.load("spiral_lib.games", name, "views")
    for opponent in config.evaluation.opponents:
        if opponent != _ITSELF:
            PolicyRef.parse(opponent)
    for name in config.evaluation.benchmarks:
        plugins.load("spiral_lib.evaluation.benchmark_tasks", name, "task")
    for term in config.rewards.terms:
        plugins.load("spiral_lib.rewards", term.name, "shape")
    plugins.load("spiral_lib.engines", config.rollout.engine, "ENGINE")
    routes.check(config)
    check_roles(config)


def check_roles(config: RunConfig) -> None:
    """Raise ConfigError where a schedule or rate names a role that none of the run's games has."""
    known = sorted({role for g in config.games for role in games.spec(g.name).roles})
    for role in (*config.learner.role_schedule, *config.learner.role_lr):
        if role != ALL and role not in known:
            near = difflib.get_close_matches(role, known, n=1)
            hint = f"Did you mean '{near[0]}'? " if near else ""
            raise ConfigError(f"learner.role_schedule or learner.role_lr names the role '{role}'. {hint}Known: {known}")
    if any(factor < 0 for factor in config.learner.role_lr.values()):
        raise ConfigError(f"learner.role_lr is {config.learner.role_lr}; its factors must be at least 0")
