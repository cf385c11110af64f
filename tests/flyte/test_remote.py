"""A whole training through a Flyte control plane: each task in a process that has only the registered code archive."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import control_plane
import micro_runs
import pytest
from flytekit.types.directory import FlyteDirectory

from spiral_lib import checkpoints, lineage, pipeline, trajectories
from spiral_lib.config import dump_yaml, resolve
from spiral_lib.state import read_state
from tasks.audit import audit_run

OVERRIDES = (
    "cold_start.steps=20 cold_start.batch=8 cold_start.examples=200 cold_start.bank_examples=10 "
    "cold_start.gate_matches=2 model.hidden=48 model.layers=2 model.mlp=96 "
    "rollout.matches=8 rollout.shards=2 rollout.steps_per_iteration=1 rollout.max_invalid_share=1 "
    "rollout.max_new_tokens=24 opponents.self_play=0.5 opponents.pool=0.5 "
    "evaluation.matches=2 evaluation.exploitability_replies=2 evaluation.bank_limit=4 evaluation.bank_max_new_tokens=8"
)


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[Any]:
    with control_plane.opened(tmp_path) as made:
        yield made


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_a_remote_training_ends_at_the_checkpoint_of_the_local_one(plane: Any, tmp_path: Path) -> None:
    out = "s3://mini/runs/micro"
    arguments = ("--preset", "smoke", "--overrides", OVERRIDES, "--out", out)
    execution = plane.run_remote("workflows/spiral.py", "train", *arguments, timeout=2000)
    assert execution.phase_name == "SUCCEEDED", control_plane.why(execution)
    run = Path(plane.store.path(out))
    local = tmp_path / "local"
    pipeline.train(resolve(preset="smoke", overrides=OVERRIDES), local)
    assert micro_runs.checkpoint_ids(run) == micro_runs.checkpoint_ids(local)
    for folder in (run / "checkpoints").iterdir():
        checkpoints.verify(folder)
    assert turns(run) == turns(local)
    history = run / "history" / "0002"
    for name in ("metrics.jsonl", "ledger.json"):
        assert (history / name).read_text() == (local / name).read_text(), name
    assert (history / "report.html").stat().st_size > 0
    assert audit_run(run=FlyteDirectory(str(run))).endswith(f"{len(lineage.read_all(local))} step records, 0 problems")
    decided = execution.find(r"\.decide$")
    assert len(decided) == 2
    assert all(node.deck_uri for node in decided)
    state = read_state(history, lambda url: Path(plane.store.path(url)))
    assert checkpoints.read_manifest(state.checkpoint).id == micro_runs.checkpoint_ids(local)[2]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_another_runs_place_in_the_store_is_refused_before_anything_runs(plane: Any) -> None:
    taken = Path(plane.store.path("s3://mini/runs/taken"))
    taken.mkdir(parents=True)
    (taken / "config.yaml").write_text(dump_yaml(resolve(preset="tiny")))
    arguments = ("--preset", "smoke", "--out", "s3://mini/runs/taken")
    refused = plane.run_remote("workflows/spiral.py", "train", *arguments, timeout=500)
    assert refused.phase_name == "FAILED"
    assert "another configuration" in refused.error.msg
    assert [p.name for p in taken.iterdir()] == ["config.yaml"]


def turns(run: Path) -> list[list[object]]:
    found = []
    for file in sorted((run / "trajectories").rglob("*.parquet")):
        found += [[e.id, e.returns, [t.response_ids for t in e.turns]] for e in trajectories.read_episodes([file])]
    return found
