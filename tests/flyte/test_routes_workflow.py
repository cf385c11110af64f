"""Routes on Flyte: the graph of the comparison, its help, and the same table as the plain driver's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import control_plane
import micro_runs
import pytest
from flytekit.configuration import ImageConfig, SerializationSettings
from flytekit.core.context_manager import ExecutionState, FlyteContextManager

from spiral_lib import lineage, presets, route_runs
from spiral_lib.config import ROUTES, resolve
from tasks import resources
from tasks.config import settled
from workflows import spiral

ROOT = Path(__file__).parents[2]
REMOTE = (
    "iterations=1 cold_start.steps=20 cold_start.batch=8 cold_start.examples=200 cold_start.bank_examples=10 "
    "cold_start.gate_matches=2 model.hidden=48 model.layers=2 model.mlp=96 rollout.matches=8 rollout.shards=2 "
    "rollout.steps_per_iteration=1 rollout.max_invalid_share=1 rollout.max_new_tokens=24 opponents.pool=0 "
    "evaluation.matches=2 evaluation.exploitability_replies=2 evaluation.bank_limit=4 evaluation.bank_max_new_tokens=8"
)


def graph(preset: str, routes: list[str]) -> dict[str, list[Any]]:
    """Return the nodes of the comparison's graph by the task they run."""
    images = ImageConfig.auto(img_name="spiral-cpu:0.1.0")
    context = FlyteContextManager.current_context()
    settings = SerializationSettings(project="p", domain="d", version="v", image_config=images)
    state = context.new_execution_state().with_params(mode=ExecutionState.Mode.TASK_EXECUTION)
    inside = context.with_serialization_settings(settings).with_execution_state(state)
    spiral.run_routes._wf = None  # flytekit keeps the first graph it makes
    with FlyteContextManager.with_context(inside) as ctx:
        found: dict[str, list[Any]] = {}
        given = {"resolved": settled(presets.get(preset), "s3://bucket/routes"), "routes": routes}
        for node in spiral.run_routes.compile_into_workflow(ctx, spiral.run_routes.task_function, **given).nodes:
            found.setdefault(node.task_node.reference_id.name.rsplit(".", 1)[-1], []).append(node.to_flyte_idl())
        return found


def sources(node: Any) -> set[str]:
    return {n for n in node.upstream_node_ids if n}


def test_routes_are_branches_beside_each_other_between_one_cold_start_and_one_table() -> None:
    made = graph("tiny", list(ROUTES))
    assert {name: len(nodes) for name, nodes in made.items()} == {
        **{"cold_start": 1, "measure": 1, "resolve_route": 3, "follow": 3, "tabulate": 1}
    }
    (start,), (table,), branches = made["cold_start"], made["tabulate"], {n.id for n in made["follow"]}
    assert branches | {start.id} == sources(table)
    for branch in made["follow"]:
        assert not sources(branch) & branches
        assert start.id in sources(branch)


def test_what_runs_the_model_gets_a_gpu_where_the_preset_needs_one() -> None:
    made = graph("gpu_kuhn", ["rlvr", "self_play"])
    images = {name: {n.task_node.overrides.container_image for n in nodes} for name, nodes in made.items()}
    assert images["cold_start"] == images["measure"] == {resources.GPU_IMAGE}
    assert images["resolve_route"] == images["follow"] == images["tabulate"] == {""}


def compare(*arguments: str, home: Path, timeout: float = 900) -> subprocess.CompletedProcess[str]:
    changed = {"HOME": str(home), "TMPDIR": str(home), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    changed |= {"COLUMNS": "300", "NO_COLOR": "1"}
    command = [str(Path(sys.executable).with_name("pyflyte")), "run", "workflows/spiral.py", "compare", *arguments]
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, **changed}, capture_output=True, text=True, timeout=timeout
    )


def test_an_unknown_route_is_refused_in_one_message_and_leaves_nothing(tmp_path: Path) -> None:
    out = tmp_path / "routes"
    refused = compare("--preset", "smoke", "--routes", '["sft", "dpo"]', "--out", str(out), home=tmp_path)
    assert refused.returncode != 0
    text = " ".join((refused.stdout + refused.stderr).replace("│", " ").split())
    assert "name one or more of self_play, rlvr, sft" in text
    assert "Traceback" not in text
    assert not out.exists()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_flyte_and_the_plain_driver_end_with_the_same_checkpoints_and_again_compute_nothing(
    micro_checkpoint: Path, tmp_path: Path
) -> None:
    overrides = micro_runs.overrides(micro_checkpoint, "iterations=1")
    plain, out = tmp_path / "plain", tmp_path / "routes"
    route_runs.compare(resolve(preset="smoke", overrides=overrides), plain)
    arguments = ("--preset", "smoke", "--overrides", overrides, "--out", str(out))
    done = compare(*arguments, home=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert str(out / "table" / "routes.html") in done.stdout + done.stderr
    for route in ROUTES:
        assert micro_runs.checkpoint_ids(out / route) == micro_runs.checkpoint_ids(plain / route)
        assert (out / route / "metrics.jsonl").read_text() == (plain / route / "metrics.jsonl").read_text()
        assert lineage.audit(out / route) == []
    before = {route: micro_runs.records(out / route) for route in ("cold_start", *ROUTES)}
    assert compare(*arguments, home=tmp_path).returncode == 0
    assert {route: micro_runs.records(out / route) for route in before} == before


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_a_remote_comparison_ends_at_the_checkpoints_of_the_local_one(tmp_path: Path) -> None:
    out = "s3://mini/runs/routes"
    with control_plane.opened(tmp_path) as plane:
        arguments = ("--preset", "smoke", "--overrides", REMOTE, "--routes", '["rlvr", "self_play"]', "--out", out)
        execution = plane.run_remote("workflows/spiral.py", "compare", *arguments, timeout=2000)
        assert execution.phase_name == "SUCCEEDED", control_plane.why(execution)
        folder = Path(plane.store.path(out))
        local = tmp_path / "local"
        route_runs.compare(resolve(preset="smoke", overrides=REMOTE), local, ["rlvr", "self_play"])
        for route in ("rlvr", "self_play"):
            assert micro_runs.checkpoint_ids(folder / route) == micro_runs.checkpoint_ids(local / route)
        assert (folder / "table" / "routes.md").is_file()
