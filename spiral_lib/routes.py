"""What each route trains on: self-play, bank questions with a verifier's verdict (rlvr), or an expert's wins (sft).

A route only decides which matches a learner step consists of, and how it learns from them; checkpoints, trajectories,
quality gate, evaluation and decision are the same for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from spiral_lib import rollout
from spiral_lib.config import Named, RunConfig
from spiral_lib.errors import ConfigError
from spiral_lib.policies import optimal
from spiral_lib.types import MatchSpec, RefKind

_EXPERT = RefKind.OPTIMAL.value
BANK = "bank"


def playing(config: RunConfig) -> RunConfig:
    """Return the configuration whose games and opponents the route's matches are made of."""
    if config.route == "self_play":
        return config
    alone = replace(config.opponents, self_play=1.0, pool=0.0, random=0.0, optimal=0.0, api=0.0)
    games = (Named(name=BANK),) if config.route == "rlvr" else config.games
    return replace(config, games=games, opponents=alone)


def plan(config: RunConfig, *, step: int, pool: Sequence[str]) -> list[MatchSpec]:
    """Return the matches of a learner step on the configuration's route, sorted by id.

    On route sft the expert takes both seats, and no turn is marked as the learner's own.
    """
    specs = rollout.plan_matches(playing(config), step=step, pool=pool)
    if config.route != "sft":
        return specs
    return [replace(spec, policies=(_EXPERT, _EXPERT), trainable=(False, False)) for spec in specs]


def check(config: RunConfig) -> None:
    """Raise ConfigError where the route cannot train on what the configuration plays."""
    unsolved = sorted({g.name for g in config.games} - set(optimal.STRATEGIES))
    if config.route == "sft" and unsolved:
        raise ConfigError(
            f"route=sft learns from an expert's wins, and no expert plays {', '.join(unsolved)}; "
            f"it plays {', '.join(sorted(optimal.STRATEGIES))}"
        )
    if config.route == "rlvr" and (config.learner.role_schedule or config.learner.role_lr):
        raise ConfigError("learner.role_schedule and learner.role_lr name a game's roles; route=rlvr plays no game")
