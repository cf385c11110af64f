"""Search in play inside a run: off by default, for pool opponents, for the evaluator."""

from __future__ import annotations

from pathlib import Path

import micro_runs
import pytest

from spiral_lib import evaluation, rollout, steps
from spiral_lib.config import RunConfig
from spiral_lib.engines.hf import HfEngine
from spiral_lib.state import State

LEAN = "evaluation.bank=false evaluation.exploitability_games=[] evaluation.opponents=[random] evaluation.matches=4"


def with_opponent(checkpoint: Path) -> State:
    """Return a state whose pool holds the checkpoint itself."""
    none = checkpoint / "none"
    return State(iteration=0, checkpoint=checkpoint, optimizer=None, champion=checkpoint, champion_scores=none,
                 cold_start=checkpoint, cold_start_scores=none, opponents=(checkpoint,), ledger=none)  # fmt: skip


def test_nothing_searches_unless_it_is_asked_to(micro_checkpoint: Path) -> None:
    assert RunConfig().opponents.candidates == RunConfig().evaluation.candidates == 1
    with steps.opened_policies(micro_runs.config(micro_checkpoint), with_opponent(micro_checkpoint)) as table:
        assert table.pool and {policy.engine for policy in table.by_ref.values()} == {"hf"}


def test_pool_opponents_search_and_the_learner_does_not(micro_checkpoint: Path) -> None:
    config = micro_runs.config(micro_checkpoint, "opponents.candidates=3 opponents.pool=1 opponents.self_play=0")
    with steps.opened_policies(config, with_opponent(micro_checkpoint)) as table:
        specs = rollout.plan_matches(config, step=9, pool=table.pool)
        episodes = list(rollout.play_matches(specs, table.by_ref, concurrency=8))
    turns = [t for e in episodes for t in e.turns]
    assert {(t.policy.partition(":")[0], t.engine) for t in turns} == {("self", "hf"), ("pool", "hf+vote3")}
    assert all(t.trainable == (t.policy == "self") for t in turns)


def test_the_evaluator_asks_for_every_candidate(micro_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    submit = HfEngine.submit
    monkeypatch.setattr(HfEngine, "submit", lambda self, request: (asked.append(request.seed), submit(self, request)))

    def measured(candidates: int) -> int:
        asked.clear()
        config = micro_runs.config(micro_checkpoint, f"{LEAN} evaluation.candidates={candidates}")
        found = evaluation.evaluate(micro_checkpoint, cold_start=micro_checkpoint, config=config, iteration=0)
        assert len(found.match_returns["kuhn_poker/random"]) == 4
        assert len(set(asked)) == len(asked), "every candidate has a seed of its own"
        return len(asked)

    assert measured(1) >= 4
    assert measured(5) >= 5 * 4
