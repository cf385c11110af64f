"""Scheduled work: wiring only. Register and activate with

    pyflyte register workflows --activate-launchplans --destination-dir .

What is retrained, and where registry and runs lie, is set by ``SPIRAL_*`` variables then (see tasks/resources.py).
"""

from datetime import datetime

from flytekit import CronSchedule, Email, LaunchPlan, workflow
from flytekit.models.core.execution import WorkflowExecutionPhase

import tasks.registry
import tasks.report
from tasks.config import Preset
from tasks.resources import SITE
from workflows.audit import audit_registry
from workflows.spiral import self_play


@workflow
def retrain(
    kickoff: datetime, registry: str, name: str, preset: Preset = Preset.TINY, overrides: str = "", out: str = ""
) -> str:
    """Go on training from the registry's champion; what the gate accepts becomes the champion.

    :param kickoff: time the retraining is for: the same time means the same run
    :param registry: folder or URL of the registry
    :param name: name under which the checkpoints are published
    :param preset: configuration to start from
    :param overrides: settings that replace the preset's
    :param out: folder or URL under which the run's outputs go
    """
    resolved = tasks.registry.begin_retraining(
        kickoff=kickoff, registry=registry, name=name, preset=preset, overrides=overrides, out=out
    )
    final = tasks.report.finish(state=self_play(resolved=resolved, resume_from=None))
    return tasks.registry.offer(state=final, registry=registry, name=name)


FAILURES = [WorkflowExecutionPhase.FAILED, WorkflowExecutionPhase.ABORTED, WorkflowExecutionPhase.TIMED_OUT]
RECIPIENTS = [address for address in SITE["SPIRAL_NOTIFY"].split(",") if address]
NOTIFICATIONS = [Email(phases=FAILURES, recipients_email=RECIPIENTS)] if RECIPIENTS else []
SHARED = {"registry": SITE["SPIRAL_REGISTRY"], "name": SITE["SPIRAL_NAME"]}

nightly_retrain = LaunchPlan.get_or_create(
    workflow=retrain,
    name="nightly_retrain",
    schedule=CronSchedule(schedule="0 2 * * *", kickoff_time_input_arg="kickoff"),
    fixed_inputs=SHARED,
    default_inputs={
        "preset": Preset(SITE["SPIRAL_PRESET"]),
        "overrides": SITE["SPIRAL_OVERRIDES"],
        "out": SITE["SPIRAL_RUNS"],
    },
    notifications=NOTIFICATIONS,
    max_parallelism=16,
)

weekly_audit = LaunchPlan.get_or_create(
    workflow=audit_registry,
    name="weekly_audit",
    schedule=CronSchedule(schedule="0 4 * * 0"),
    fixed_inputs=SHARED,
    notifications=NOTIFICATIONS,
)
