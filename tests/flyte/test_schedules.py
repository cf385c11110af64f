"""Launch plans serialize offline; a retraining begins at the champion and promotes only through the gate."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import OrderedDict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import micro_runs
import pytest
from flytekit import LaunchPlan
from flytekit.configuration import ImageConfig, SerializationSettings
from flytekit.tools.translator import get_serializable

from spiral_lib import registry_runs
from spiral_lib.registry import Registry
from tasks.config import Preset
from workflows import schedules
from workflows.audit import audit_registry, audit_run

KICKOFF = datetime(2026, 3, 1, 2, 0, tzinfo=UTC)


def serialized(plan: LaunchPlan) -> Any:
    settings = SerializationSettings(
        project="p", domain="d", version="v", image_config=ImageConfig.auto(img_name="spiral-cpu:0.1.0")
    )
    return get_serializable(OrderedDict(), settings, plan).to_flyte_idl()


@pytest.mark.parametrize(
    ("plan", "cron", "kickoff"),
    [(schedules.nightly_retrain, "0 2 * * *", "kickoff"), (schedules.weekly_audit, "0 4 * * 0", "")],
)
def test_a_schedule_gives_every_input_but_the_kickoff_time(plan: LaunchPlan, cron: str, kickoff: str) -> None:
    made = serialized(plan).spec
    schedule = made.entity_metadata.schedule
    assert (schedule.cron_schedule.schedule, schedule.kickoff_time_input_arg) == (cron, kickoff)
    assert set(made.fixed_inputs.literals) == {"registry", "name"}
    open_inputs = {name for name, p in made.default_inputs.parameters.items() if p.required}
    assert open_inputs == ({kickoff} if kickoff else set())
    given = set(made.fixed_inputs.literals) | set(made.default_inputs.parameters)
    assert given >= set(plan.workflow.interface.inputs)


def test_what_is_retrained_and_who_is_told_comes_from_the_site(tmp_path: Path) -> None:
    code = (
        "from workflows import schedules as s;"
        "print(s.nightly_retrain.fixed_inputs.literals['name'].scalar.primitive.string_value,"
        " s.nightly_retrain.notifications[0].to_flyte_idl().email.recipients_email[0])"
    )
    site = {"SPIRAL_NAME": "negotiation", "SPIRAL_NOTIFY": "team@example.org", "PATH": "", "HOME": str(tmp_path)}
    root = Path(__file__).parents[2]
    out = subprocess.run([sys.executable, "-c", code], cwd=root, env=site, capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["negotiation", "team@example.org"]


def retrain(url: str, out: Path, kickoff: datetime, more: str) -> str:
    return str(
        schedules.retrain(
            kickoff=kickoff,
            registry=url,
            name="kuhn",
            preset=Preset.SMOKE,
            overrides=f"{micro_runs.SMALL} iterations=1 {more}",
            out=str(out),
        )
    )


def test_a_retraining_promotes_what_the_gate_accepts_and_a_second_firing_changes_nothing(
    micro_checkpoint: Path, tmp_path: Path
) -> None:
    url, out = str(tmp_path / "registry"), tmp_path / "runs"
    registry = Registry(url)
    start = registry.publish("kuhn", micro_checkpoint).id
    registry.promote("kuhn", start, "champion")
    first = retrain(url, out, KICKOFF, "gates.enabled=false")
    assert first != start
    assert registry.resolve("kuhn").id == first
    assert registry_runs.check_version(registry, registry.resolve("kuhn")) == []
    assert registry.resolve("kuhn", "candidate").facts["started from"] == f"registry:{url}/kuhn@{start}"

    again = retrain(url, out, KICKOFF, "gates.enabled=false")
    assert again == first
    assert len(registry.history("kuhn", "champion")) == 2
    assert audit_registry(registry=url, name="kuhn").endswith("0 problems")


def test_a_retraining_whose_candidate_is_not_accepted_leaves_the_champion(
    micro_checkpoint: Path, tmp_path: Path
) -> None:
    url = str(tmp_path / "registry")
    registry = Registry(url)
    start = registry.publish("kuhn", micro_checkpoint).id
    registry.promote("kuhn", start, "champion")
    assert retrain(url, tmp_path / "runs", KICKOFF, micro_runs.WITHOUT_EVALUATION) == start
    assert registry.aliases("kuhn") == {"champion": start}


def test_an_audit_passes_a_whole_run_and_names_a_changed_shard(micro_run: Path, tmp_path: Path) -> None:
    assert str(audit_run(run=str(micro_run))).endswith("0 problems")
    changed = tmp_path / "run"
    shutil.copytree(micro_run, changed)
    shard = sorted((changed / "trajectories").rglob("*.parquet"))[0]
    shard.write_bytes(shard.read_bytes() + b"x")
    with pytest.raises(Exception, match=shard.relative_to(changed).as_posix()):
        audit_run(run=str(changed))
