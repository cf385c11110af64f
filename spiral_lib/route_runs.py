"""Several routes from one cold start: as many learner steps, about as many tokens, the same evaluation and seeds.

``compare`` fills a folder: ``cold_start/`` and one run folder for each route, which all begin at that cold start, and
``table/`` of ``route_table``. How many matches of a route make a learner step follows from one step of each that is
played by the cold start: a route's step then has about as many response tokens to learn from as self-play's.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from spiral_lib import duel_bank, durable, lineage, pipeline, rollout, route_table, routes, steps
from spiral_lib.config import ROUTES, RunConfig, config_hash
from spiral_lib.errors import ConfigError
from spiral_lib.ledger import Ledger
from spiral_lib.rae import RoleBaselines
from spiral_lib.state import State

log = logging.getLogger(__name__)

START = "cold_start"
TABLE = "table"
SELF_PLAY = ROUTES[0]
CHOSEN = ("sft", "rlvr", SELF_PLAY)
"""The routes that are compared, in the table's order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """What one match of a route gives the learner on average: turns, and response tokens in them."""

    turns: float
    tokens: float


def default_folder(config: RunConfig) -> Path:
    """Return ``runs/<preset>-routes-<configuration hash>``: the same command finds its runs again."""
    return Path("runs") / f"{config.preset}-routes-{config_hash(start_config(config))[:8]}"


def compare(
    config: RunConfig, out: Path, chosen: Sequence[str] = CHOSEN, on_state: Callable[[str, State], None] | None = None
) -> Path:
    """Run the chosen routes one after the other, every finished step re-used, and return the page with the table.

    ``on_state`` is called with the route and its state after the cold start and after every iteration.
    """
    check(config, chosen)
    tell = on_state or (lambda route, state: None)
    start = out / START
    state = pipeline.train(replace(start_config(config), iterations=0), start)
    tell(START, state)
    sizes = read_sizes(measure(config, state, chosen, run=start))
    for route in chosen:
        log.info("route %s", route)
        own = config_for(config, route, sizes)
        pipeline.train(own, out / route, resume_from=start, on_state=functools.partial(tell, route))
    return route_table.write(start, {route: out / route for route in chosen}, out / TABLE)


def check(config: RunConfig, chosen: Sequence[str]) -> None:
    """Raise ConfigError for a route that is unknown, named twice, or has nothing to train on."""
    unknown = [r for r in chosen if r not in ROUTES]
    if unknown or not chosen or len(set(chosen)) < len(chosen):
        raise ConfigError(f"routes {', '.join(chosen) or 'none'}: name one or more of {', '.join(ROUTES)}, each once")
    for route in chosen:
        routes.check(replace(config, route=route))


def start_config(config: RunConfig) -> RunConfig:
    """Return the configuration of the cold start that the routes share."""
    return replace(config, route=SELF_PLAY)


def measure(config: RunConfig, state: State, chosen: Sequence[str], *, run: Path) -> Path:
    """Play one learner step of self-play and of every chosen route with the cold start; return their sizes as JSON.

    The cold start stands in for pool snapshots too, so that self-play's share of matches with one learning seat counts.
    """
    out, wanted = run / "budget.json", [r for r in ROUTES if r in (SELF_PLAY, *chosen)]
    steps.set_threads(config)

    def body() -> None:
        sizes = {r: dataclasses.asdict(_size(replace(config, route=r), state)) for r in wanted}
        durable.write_text(out, json.dumps(sizes, sort_keys=True))

    lineage.run_step(
        "budget",
        run=run,
        order=0,
        inputs={"checkpoint": state.checkpoint},
        values={"routes": wanted},
        config=start_config(config),
        outputs={"budget": out},
        body=body,
    )
    return out


def _size(config: RunConfig, state: State) -> Size:
    from spiral_lib.learner import batch

    playing = duel_bank.filled(routes.playing(config), Ledger()) if duel_bank.is_carried(config) else config
    with steps.opened_policies(routes.playing(config), replace(state, opponents=(state.checkpoint,))) as table:
        plan = routes.plan(playing, step=0, pool=table.pool)
        episodes = list(rollout.play_matches(plan, table.by_ref, concurrency=config.rollout.concurrency))
    found = batch.build(episodes, RoleBaselines(config.rae.decay), config).metrics
    turns = found["rollout/trained_turns"] / len(plan)
    return Size(turns=turns, tokens=turns * found.get("rollout/response_tokens", 0.0))


def read_sizes(path: Path) -> dict[str, Size]:
    """Return what ``measure`` wrote."""
    return {route: Size(**size) for route, size in json.loads(path.read_text(encoding="utf-8")).items()}


def config_for(config: RunConfig, route: str, sizes: Mapping[str, Size]) -> RunConfig:
    """Return a route's configuration: self-play's with as many matches as give its tokens.

    Mini-batches grow with the turns, so that a learner step has about as many optimizer steps on every route.
    """
    if route == SELF_PLAY:
        return start_config(config)
    wanted, size = sizes[SELF_PLAY], sizes[route]
    if not size.tokens:
        raise ConfigError(f"route={route} finds nothing to learn from in {config.rollout.matches} matches")
    matches = max(config.rollout.shards, round(config.rollout.matches * wanted.tokens / size.tokens))
    growth = matches * size.turns / (config.rollout.matches * wanted.turns)
    minibatch = max(1, round(config.learner.minibatch * growth)) if config.learner.minibatch else 0
    learner = replace(config.learner, minibatch=minibatch)
    return replace(config, route=route, rollout=replace(config.rollout, matches=matches), learner=learner)
