"""The gate's decision becomes the next state, the pool and the ledger."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import micro_runs
import pytest
from micro_runs import checkpoint_ids

from spiral_lib import checkpoints, deciding
from spiral_lib.ledger import Ledger
from spiral_lib.state import Learned, State
from spiral_lib.types import Decision, Evaluation


@pytest.fixture
def run(micro_run: Path, tmp_path: Path) -> Path:
    """A copy of the micro run as it stood before the decision of iteration 1."""
    copy = tmp_path / "run"
    shutil.copytree(micro_run, copy)
    for name in ("ledgers/0001.json", "ledgers/0002.json", "state.json"):
        (copy / name).unlink()
    for record in copy.glob("lineage/*-decide.json"):
        record.unlink()
    shutil.rmtree(copy / "pool")
    return copy


def before(run: Path) -> State:
    start, scores = run / "checkpoints" / "0000", run / "evaluations" / "0000.json"
    return State(
        iteration=0,
        checkpoint=start,
        optimizer=None,
        champion=start,
        champion_scores=scores,
        cold_start=start,
        cold_start_scores=scores,
        opponents=(),
        ledger=run / "ledgers" / "0000.json",
    )


def candidate(run: Path) -> Learned:
    return Learned(
        checkpoint=run / "checkpoints" / "0001",
        optimizer=run / "optimizer" / "0001",
        training=run / "training" / "0001.json",
        shards=(run / "trajectories" / "iteration=0001" / "shard-00.parquet",),
    )


def decide(run: Path, checkpoint: Path, more: str, scores: Path | None) -> tuple[State, Ledger]:
    config = micro_runs.config(checkpoint, more)
    after = deciding.decide(config, before(run), candidate(run), scores, run=run)
    return after, Ledger.from_json(after.ledger.read_text())


def scored(run: Path, **changes: float) -> Path:
    """Return the candidate's scores: those of the cold start with a few metrics changed."""
    made = Evaluation.from_json((run / "evaluations" / "0000.json").read_text())
    identity = checkpoint_ids(run)[1]
    changed = dataclasses.replace(made, metrics={**made.metrics, **changes}, iteration=1, checkpoint=identity)
    path = run / "evaluations" / "0001.json"
    path.write_text(changed.to_json())
    return path


def test_without_scores_training_goes_on_and_the_champion_stays(run: Path, micro_checkpoint: Path) -> None:
    after, ledger = decide(run, micro_checkpoint, "", None)
    assert after.iteration == 1
    assert after.checkpoint == candidate(run).checkpoint
    assert after.optimizer == candidate(run).optimizer
    assert after.champion == before(run).champion
    assert ledger.decisions == ()
    assert ledger.champion is not None and ledger.champion.iteration == 0


def test_an_accepted_candidate_becomes_the_champion(run: Path, micro_checkpoint: Path) -> None:
    scores = scored(run)
    after, ledger = decide(run, micro_checkpoint, "gates.enabled=false", scores)
    assert [d.decision for d in ledger.decisions] == [Decision.ACCEPT]
    assert (after.champion, after.champion_scores) == (candidate(run).checkpoint, scores)
    assert ledger.champion is not None
    assert (ledger.champion.iteration, ledger.champion.checkpoint) == (1, checkpoint_ids(run)[1])
    assert after.cold_start == before(run).cold_start


def test_a_held_candidate_is_trained_further_but_is_no_champion(run: Path, micro_checkpoint: Path) -> None:
    after, ledger = decide(run, micro_checkpoint, "", scored(run))
    assert [d.decision for d in ledger.decisions] == [Decision.HOLD], "equal scores are no improvement"
    assert ledger.holds == 1
    assert after.checkpoint == candidate(run).checkpoint
    assert after.champion == before(run).champion


def test_baselines_and_gradient_norms_of_the_training_reach_the_ledger(run: Path, micro_checkpoint: Path) -> None:
    training = json.loads(candidate(run).training.read_text())
    _, ledger = decide(run, micro_checkpoint, "", None)
    assert dict(ledger.baselines) == training["baselines"] != {}
    assert list(ledger.grad_norms) == training["grad_norms"] != []


@pytest.mark.parametrize(("more", "size"), [("", 1), ("opponents.snapshot_every=2", 0)])
def test_snapshots_are_taken_when_due_and_shown_as_folders(
    run: Path, micro_checkpoint: Path, more: str, size: int
) -> None:
    after, ledger = decide(run, micro_checkpoint, more, None)
    assert len(after.opponents) == len(ledger.pool) == size
    shown = sorted((run / "pool").glob("*"))
    assert [p.name for p in shown] == [f"0001-{checkpoint_ids(run)[1][:12]}"] * size
    for folder in shown:
        assert checkpoints.verify(folder).id == checkpoint_ids(run)[1]


@pytest.mark.parametrize("name", ["model.safetensors", "manifest.json", "config.json"])
@pytest.mark.parametrize("content", [None, b"{}"])
def test_a_damaged_snapshot_is_linked_again(
    run: Path, micro_checkpoint: Path, name: str, content: bytes | None
) -> None:
    decide(run, micro_checkpoint, "", None)
    (snapshot,) = (run / "pool").iterdir()
    (snapshot / name).unlink()
    if content is not None:
        (snapshot / name).write_bytes(content)
    decide(run, micro_checkpoint, "", None)
    assert checkpoints.verify(snapshot).id == checkpoint_ids(run)[1]


def test_a_snapshot_costs_no_disk(run: Path, micro_checkpoint: Path) -> None:
    decide(run, micro_checkpoint, "", None)
    weights = next((run / "pool").glob("*/model.safetensors"))
    assert weights.samefile(candidate(run).checkpoint / "model.safetensors")


def test_deciding_twice_gives_the_same_ledger(run: Path, micro_checkpoint: Path) -> None:
    scores = scored(run)
    first = decide(run, micro_checkpoint, "", scores)
    (run / "lineage" / "0001-decide.json").unlink()
    assert decide(run, micro_checkpoint, "", scores) == first
