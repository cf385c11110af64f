"""Routes from one cold start: equal budgets, the plain run's own weights, and resuming."""

from __future__ import annotations

from pathlib import Path

import micro_runs
import pyarrow.parquet as pq
import pytest
from micro_runs import records, weights_hash

from spiral_lib import lineage, presets, route_runs, trajectories
from spiral_lib.config import config_hash, resolve
from spiral_lib.errors import ConfigError
from spiral_lib.route_runs import Size

SIZES = {
    "self_play": Size(turns=2.2, tokens=44.0),
    "rlvr": Size(turns=1.0, tokens=10.0),
    "sft": Size(turns=1.1, tokens=22.0),
}


@pytest.mark.parametrize("route", ["rlvr", "sft", "self_play"])
def test_every_route_has_as_many_tokens_and_optimizer_steps_in_a_learner_step(route: str) -> None:
    config = resolve(preset="tiny")
    own = route_runs.config_for(config, route, SIZES)
    size, wanted = SIZES[route], SIZES["self_play"]
    assert own.rollout.matches * size.tokens == pytest.approx(config.rollout.matches * wanted.tokens, rel=0.01)
    before = config.rollout.matches * wanted.turns / config.learner.minibatch
    assert own.rollout.matches * size.turns / own.learner.minibatch == pytest.approx(before, rel=0.02)
    assert own.route == route


def test_routes_differ_in_the_size_of_a_step_only() -> None:
    config = resolve(preset="tiny", overrides="seed=3")
    for route in ("rlvr", "sft"):
        own = route_runs.config_for(config, route, SIZES)
        changed = resolve(
            preset="tiny",
            overrides=f"seed=3 route={route} rollout.matches={own.rollout.matches} "
            f"learner.minibatch={own.learner.minibatch}",
        )
        assert own == changed
    assert route_runs.config_for(config, "self_play", SIZES) == config


def test_whole_batches_stay_whole_and_every_shard_gets_a_match() -> None:
    config = resolve(preset="tiny", overrides="learner.minibatch=0 rollout.shards=100")
    own = route_runs.config_for(config, "rlvr", SIZES | {"rlvr": Size(turns=1.0, tokens=4000.0)})
    assert (own.learner.minibatch, own.rollout.matches) == (0, 100)


def test_a_route_that_gives_nothing_to_learn_from_is_refused() -> None:
    with pytest.raises(ConfigError, match="route=sft finds nothing"):
        route_runs.config_for(resolve(preset="tiny"), "sft", SIZES | {"sft": Size(turns=0.0, tokens=0.0)})


@pytest.mark.parametrize("chosen", [(), ("sft", "sft"), ("dpo",)])
def test_unknown_doubled_and_missing_routes_are_refused(chosen: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="each once"):
        route_runs.check(presets.tiny(), chosen)


def test_routes_share_a_cold_start_end_in_one_table_and_self_play_is_the_plain_run(
    micro_run: Path, micro_checkpoint: Path, tmp_path: Path
) -> None:
    config, out = micro_runs.config(micro_checkpoint, "iterations=1"), tmp_path / "routes"
    page = route_runs.compare(config, out)
    assert page.is_file()
    start = weights_hash(out / "cold_start" / "checkpoints" / "0000")
    ends = {}
    for route in ("sft", "rlvr", "self_play"):
        assert weights_hash(out / route / "adopted" / "checkpoint") == start
        ends[route] = weights_hash(out / route / "checkpoints" / "0001")
        assert lineage.audit(out / route) == []
    assert len({start, *ends.values()}) == 4
    assert lineage.audit(out / "cold_start") == []
    assert ends["self_play"] == weights_hash(micro_run / "checkpoints" / "0001")
    rows = pq.read_table(page.with_name("routes.parquet")).to_pylist()
    found = {(r["route"], r["measure"]): r["value"] for r in rows}
    assert {found[r, "learner_steps"] for r in ends} == {1.0}
    tokens = [found[r, "response_tokens"] for r in ends]
    assert max(tokens) < 3 * min(tokens), "8 matches a step: equal on average only"
    games = {e.game for e in trajectories.read_episodes(sorted((out / "rlvr" / "trajectories").rglob("*.parquet")))}
    assert games == {"bank"}
    before = {route: records(out / route) for route in ("cold_start", *ends)}
    route_runs.compare(config, out)
    assert {route: records(out / route) for route in before} == before, "nothing is computed again"


def test_the_folder_is_the_same_whatever_the_configured_route() -> None:
    config = resolve(preset="tiny", overrides="route=sft")
    assert route_runs.default_folder(config).name == f"tiny-routes-{config_hash(presets.tiny())[:8]}"
