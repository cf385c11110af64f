"""What goes wrong in a cluster: lost nodes, failed runs that go on, dead shards. One control plane for all of it."""

from __future__ import annotations

import datetime as dt
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import control_plane
import micro_runs
import pytest
from control_plane import IMAGE, why

from spiral_lib import cli, cold_start, lineage, pipeline, trajectories
from spiral_lib.config import resolve
from spiral_lib.registry import Registry

s3fs = pytest.importorskip("s3fs", reason="the S3 protocol comes with the extra flyte")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]

MICRO = micro_runs.FROM_NOTHING


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    # The default image of flytekit has neither torch nor the project: a task that would run in it is refused.
    folder = tmp_path_factory.mktemp("cluster")
    with control_plane.opened(folder, system_retries=0, forbid_images=("flytekit",)) as made:
        yield made


def train(plane: Any, out: str, overrides: str, *, domain: str = "development", **options: Any) -> Any:
    arguments = ("--preset", "smoke", "--overrides", f"{MICRO} {overrides}", "--out", out)
    return plane.run_remote("-d", domain, "workflows/spiral.py", "train", *arguments, timeout=1200, **options)


def lose(plane: Any, *losses: dict[str, Any]) -> None:
    """Let attempts be killed as by the loss of their node."""
    from miniflyte.engine import Chaos

    plane.engine.chaos = [Chaos(**loss) for loss in losses]


def phases(node: Any, index: int | None = None) -> list[str]:
    return [attempt.phase for attempt in node.attempts if attempt.index == index]


def test_a_failed_run_goes_on_from_the_cache_or_by_recovery_and_a_lost_learner_from_its_last_save(
    plane: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = "s3://mini/runs/chain"
    overrides = "rollout.steps_per_iteration=3 rollout.save_every=1 retention.keep_recent=1 retention.keep_shards=1"
    segment = r"\.play_and_learn$"
    lose(
        plane,
        {"task": segment, "attempt": 0, "wait_for": "iteration 1, step 2 of 3"},
        {"task": segment, "attempt": None, "wait_for": "iteration 2, step", "times": 99},
    )
    failed = train(plane, out, f"{overrides} iterations=4")
    assert failed.phase_name == "FAILED" and "preempted" in failed.error.msg, why(failed)
    first, second = failed.find(segment)[:2]
    assert phases(first) == ["RETRYABLE", "SUCCEEDED"]
    assert re.search(r"iteration 1 goes on after step [12] of 3", Path(first.attempts[1].log).read_text())
    assert phases(second)[-1] == "FAILED"

    lose(plane)
    again = train(plane, out, f"{overrides} iterations=2")
    assert again.phase_name == "SUCCEEDED", why(again)
    assert [n.cache for n in again.find(segment)] == ["HIT", "MISS"]
    assert [n.cache for n in again.find(r"\.cold_start$")] == ["HIT"]

    done = plane.pyflyte("execution", "--execution-id", failed.id.name, "recover")
    name = done.stdout.strip().splitlines()[-1].rsplit(":", 1)[-1]
    recovered = plane.engine.executions[("flytesnacks", "development", name)].wait(1200)
    assert recovered.phase_name == "SUCCEEDED", why(recovered)
    assert [n.cache for n in recovered.find(segment)][1:] == ["HIT", "MISS", "MISS"]
    assert sum(n.phase == RECOVERED for n in recovered.nodes.values()) >= 3

    local = tmp_path / "local"
    pipeline.train(resolve(preset="smoke", overrides=f"{MICRO} {overrides} iterations=4"), local)
    run = Path(plane.store.path(out))
    assert micro_runs.checkpoint_ids(run) == micro_runs.checkpoint_ids(local)
    records = lineage.read_all(run / "history" / "0004")
    assert {r.image for r in records} == {IMAGE}
    assert not [a.path for r in records for a in r.inputs.values() if Path(a.path).is_absolute()]
    gone = (run / "optimizer" / "0001", run / "trajectories" / "iteration=0001")
    assert not [file for folder in gone for file in folder.iterdir()], "expired by rule"
    assert (run / "checkpoints" / "0001" / "model.safetensors").exists(), "the pool needs it"
    for name, value in plane.storage_env().items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    assert cli.run(["audit", out]) == 0
    assert cli.run(["audit", str(run), "--why", "learner/grad_norm"]) == 0
    assert cli.run(["audit", str(run), "--replay", "4/decide"]) == 0


def test_a_shard_lost_once_is_played_again_and_one_lost_for_good_is_left_out_under_its_own_number(
    plane: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes = itertools.count(1)
    # Every tenth write of a task meets a 503 at first; the client's upload of the code archive is tried only once.
    monkeypatch.setattr(plane.s3.httpd, "fail_puts", lambda key: "uploads" not in key and next(writes) % 10 == 0)
    out = "s3://mini/runs/shards"
    overrides = "rollout.shards=3 rollout.max_bad_shards=0.4 iterations=1 rollout.steps_per_iteration=1"
    shard = {"task": "play_shard", "after": 0.0}
    lose(plane, {**shard, "attempt": None, "index": 1, "times": 9}, {**shard, "attempt": None, "index": 2, "times": 9})
    failed = train(plane, out, overrides)
    assert failed.phase_name == "FAILED" and "1 of 3 succeeded, 2 needed" in failed.error.msg, why(failed)

    lose(plane, {**shard, "attempt": 0, "index": 1}, {**shard, "attempt": None, "index": 2, "times": 9})
    execution = train(plane, out, overrides)
    assert execution.phase_name == "SUCCEEDED", why(execution)
    (mapped,) = [n for n in execution.nodes.values() if n.is_array]
    assert phases(mapped, 0) == ["SUCCEEDED"], "from the cache"
    assert phases(mapped, 1) == ["RETRYABLE", "SUCCEEDED"]
    assert phases(mapped, 2)[-1] == "FAILED"
    run = Path(plane.store.path(out))
    (learned,) = [r for r in lineage.read_all(run / "history" / "0001") if r.step == "learn"]
    assert {n for n in learned.inputs if n.startswith("turns")} == {"turns-00", "turns-01"}
    played = [e.id for f in sorted((run / "trajectories").rglob("*.parquet")) for e in trajectories.read_episodes([f])]
    assert played == [f"000001-00000{match}" for match in range(4)], "the last third is missing, nothing moved up"


def test_a_learner_of_two_processes_that_elastic_starts_ends_where_torchrun_does(plane: Any, tmp_path: Path) -> None:
    pytest.importorskip("flytekitplugins.kfpytorch", reason="needs the extra elastic")
    pytest.importorskip("deepspeed", reason="needs DeepSpeed")
    lose(plane)
    out = "s3://mini/runs/ranks"
    overrides = "learner.backend=deepspeed learner.processes=2 iterations=1 rollout.steps_per_iteration=1"
    site = {"SPIRAL_LEARNER_GPUS": "0", "SPIRAL_LEARNER_RANKS": "2"}
    # Another site's settings with the same code would be the same version with another structure: another domain.
    execution = train(plane, out, overrides, domain="staging", env=site)
    assert execution.phase_name == "SUCCEEDED", why(execution)
    (learner,) = execution.find(r"\.learn_on_ranks$")
    assert phases(learner) == ["SUCCEEDED"]
    local = tmp_path / "local"
    pipeline.train(resolve(preset="smoke", overrides=f"{MICRO} {overrides}"), local)
    run = Path(plane.store.path(out))
    assert micro_runs.checkpoint_ids(run) == micro_runs.checkpoint_ids(local)


def test_the_nightly_plan_fires_on_its_schedule_and_promotes_and_the_weekly_audit_finds_it_whole(
    plane: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose(plane)
    for name, value in plane.storage_env().items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    cold_start.make(resolve(preset="smoke", overrides=MICRO), tmp_path / "first")
    registry = Registry("s3://mini/registry")
    first = registry.publish("kuhn", tmp_path / "first").id
    registry.promote("kuhn", first, "champion")
    more = "cold_start.steps=0 iterations=1 rollout.steps_per_iteration=2 evaluation.every=1 gates.enabled=false"
    site = {
        "SPIRAL_REGISTRY": registry.url,
        "SPIRAL_NAME": "kuhn",
        "SPIRAL_RUNS": "s3://mini/nightly",
        "SPIRAL_PRESET": "smoke",
        "SPIRAL_OVERRIDES": micro_runs.merged(MICRO, more),
        "SPIRAL_NOTIFY": "team@example.org",
    }
    register = ("register", "-d", "production", "--activate-launchplans", "--destination-dir", ".", "workflows")
    plane.pyflyte(*register, env=site)
    sunday = dt.datetime(2026, 3, 1)
    (nightly,) = plane.tick(sunday.replace(hour=1), sunday.replace(hour=3), timeout=1200)
    assert nightly.phase_name == "SUCCEEDED", why(nightly)
    assert nightly.spec.launch_plan.name == "nightly_retrain"
    promoted = Registry(registry.url).aliases("kuhn")
    assert promoted["champion"] == promoted["candidate"] != first
    assert Path(plane.store.path("s3://mini/nightly/kuhn-20260301T0200/checkpoints/0001")).is_dir()
    (weekly,) = plane.tick(sunday.replace(hour=3), sunday.replace(hour=5), timeout=1200)
    assert weekly.phase_name == "SUCCEEDED", why(weekly)
    assert weekly.output("o0").endswith("0 problems")


BARE = """
from flytekit import task, workflow

@task
def bare() -> int:
    return 1

@workflow
def flow() -> int:
    return bare()
"""


def test_a_task_that_would_run_in_the_default_image_is_refused(plane: Any, tmp_path: Path) -> None:
    lose(plane)
    (tmp_path / "flow.py").write_text(BARE)
    refused = plane.run_remote("flow.py", "flow", cwd=tmp_path, timeout=300)
    assert refused.phase_name == "FAILED"
    assert "forbidden image" in refused.error.msg


RECOVERED = 10
