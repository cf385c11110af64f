"""Whole iterations with engine vllm and the learner in one process: weights reloaded in place between the steps."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import micro_runs
import pytest
from micro_runs import WITHOUT_EVALUATION, checkpoint_ids, turns_hashes, weights_hash

from spiral_lib import engines, pipeline, trajectories

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("vllm") is None, reason="vllm is not installed here; make test-vllm has its own place"
    ),
]

# Steps large enough that old weights would show in the log-probs.
MORE = (
    f"{WITHOUT_EVALUATION} rollout.engine=vllm rollout.concurrency=8 rollout.matches=8 rollout.max_new_tokens=24 "
    "opponents.self_play=0.5 opponents.pool=0.5 learner.lr=3e-3 rollout.save_every=1"
)


def train(checkpoint: Path, run: Path, more: str) -> Path:
    pipeline.train(micro_runs.config(checkpoint, f"{MORE} {more}"), run)
    return run


def steps_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "steps.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module", autouse=True)
def kept_open(micro_checkpoint: Path) -> Iterator[None]:
    """Keep one vLLM for all runs of this file, which they join: starting it takes longer than any of them."""
    engine = engines.make("vllm", micro_checkpoint, micro_runs.config(micro_checkpoint, MORE))
    yield
    engine.close()


@pytest.fixture(scope="module")
def segment(micro_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two iterations: two steps in one process, then two more against the first one's snapshot."""
    return train(
        micro_checkpoint, tmp_path_factory.mktemp("segment") / "run", "iterations=2 rollout.steps_per_iteration=2"
    )


def test_every_step_samples_from_the_weights_of_the_step_before(segment: Path) -> None:
    made = steps_of(segment)
    assert [step["step"] for step in made] == [1, 2, 3, 4]
    for step in made:
        assert step["metrics"]["learner/mismatch/mean_abs"] < 1e-4
        assert step["metrics"]["learner/mismatch/outside_0.8_1.25"] == 0
    # The policy did move, so that stale weights would have been seen.
    assert any(step["metrics"]["learner/kl"] > 1e-3 for step in made)


def test_turns_are_recorded_as_vllms_with_the_opponents_told_apart(segment: Path) -> None:
    episodes = list(trajectories.read_episodes(sorted(segment.rglob("*.parquet"))))
    turns = [t for e in episodes for t in e.turns]
    assert {t.engine for t in turns} == {"vllm"}
    assert {t.policy.partition(":")[0] for t in turns} == {"self", "pool"}
    assert not any(t.trainable for t in turns if t.policy != "self")
    by_policy: dict[str, set[str]] = {}
    for t in turns:
        by_policy.setdefault(t.policy, set()).add(t.policy_digest)
    assert all(len(digests) == 1 for ref, digests in by_policy.items() if ref != "self")
    assert len(by_policy["self"]) == 4, "one for each step"


def test_the_same_seed_gives_the_same_hashes(segment: Path, micro_checkpoint: Path, tmp_path: Path) -> None:
    again = train(micro_checkpoint, tmp_path / "run", "iterations=2 rollout.steps_per_iteration=2")
    assert checkpoint_ids(again) == checkpoint_ids(segment)
    assert turns_hashes(again) == turns_hashes(segment)


def test_single_steps_end_at_the_weights_of_the_segment(micro_checkpoint: Path, tmp_path: Path) -> None:
    # Without a pool, whose snapshots would be taken at other steps.
    alone = "opponents.self_play=1 opponents.pool=0"
    double = train(micro_checkpoint, tmp_path / "double", f"{alone} iterations=1 rollout.steps_per_iteration=2")
    single = train(micro_checkpoint, tmp_path / "single", f"{alone} iterations=2 rollout.steps_per_iteration=1")
    assert weights_hash(single / "checkpoints" / "0002") == weights_hash(double / "checkpoints" / "0001")
    assert steps_of(single) == steps_of(double)
