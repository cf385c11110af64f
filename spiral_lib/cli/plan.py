"""``spiral plan``: what a run will cost, before it starts."""

from __future__ import annotations

import dataclasses
import math
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import click

from spiral_lib.cli._options import configured, json_option
from spiral_lib.cli._screen import print_json, print_table

if TYPE_CHECKING:
    from spiral_lib.planning import Machine, Plan


@click.command(
    epilog="""\b
Examples:
  spiral plan --preset tiny
  spiral plan --preset gpu_kuhn --gpu h100 --learner-gpus 8 --disk-gib 20000 --max-hours 48
  spiral plan --preset gpu_kuhn --gpu h100 --gpu-price 1.9 --budget 500 && pyflyte run --remote ...

\b
Exit code 1 when the run does not fit. GPU figures are computed from the cards' published peaks, not measured."""
)
@configured("tiny")
@click.option("--gpu", type=click.Choice(["a100-80", "h100", "h200", "l40s"]), help="Kind of GPU.  [default: CPU only]")
@click.option("--learner-gpus", default=1, show_default=True, type=click.IntRange(1), help="GPUs of the learner.")
@click.option("--memory-gib", type=float, help="Memory that a CPU run may use.  [default: this machine's]")
@click.option("--disk-gib", type=float, help="Disk or bucket space for the run.  [default: what is free here]")
@click.option("--gpu-price", default=2.5, show_default=True, help="Price of a GPU hour.")
@click.option("--core-price", default=0.05, show_default=True, help="Price of a core hour, for runs without GPUs.")
@click.option("--max-hours", type=float, help="Refuse runs that take longer.")
@click.option("--budget", type=float, help="Refuse runs that cost more.")
@json_option
def COMMAND(
    preset: str,
    config_file: Path | None,
    overrides: tuple[str, ...],
    gpu: str | None,
    learner_gpus: int,
    memory_gib: float | None,
    disk_gib: float | None,
    gpu_price: float,
    core_price: float,
    max_hours: float | None,
    budget: float | None,
    as_json: bool,
) -> int:
    """Predict tokens, hours, memory, disk and money of a run, and refuse what cannot fit."""
    from spiral_lib import config as configs
    from spiral_lib import planning, preflight

    config = configs.resolve(preset=preset, yaml_path=config_file, overrides=" ".join(overrides))
    preflight.check_names(config)
    machine = planning.Machine(
        gpu=gpu or "",
        learner_gpus=learner_gpus,
        memory_gib=_memory() if memory_gib is None else memory_gib,
        disk_gib=shutil.disk_usage(".").free / 2**30 if disk_gib is None else disk_gib,
        gpu_price=gpu_price,
        core_price=core_price,
        max_hours=math.inf if max_hours is None else max_hours,
        budget=math.inf if budget is None else budget,
    )
    plan = planning.make(config, machine)
    found = planning.problems(plan, machine)
    if as_json:
        print_json({**dataclasses.asdict(plan), "hours": plan.hours, "problems": found})
        return 1 if found else 0
    print_table(("", "predicted", ""), _rows(plan, machine))
    for problem in found:
        click.echo(f"refused: {problem}", err=True)
    return 1 if found else 0


def _memory() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


def _rows(plan: Plan, machine: Machine) -> list[tuple[str, str, str]]:
    tokens, unit = plan.tokens, "GPU hours" if machine.gpu else "core hours"
    return [
        ("model", f"{plan.shape.parameters / 1e6:,.1f} M", "parameters"),
        ("matches", f"{tokens.matches:,}", f"{tokens.turns:,.0f} turns"),
        ("tokens played", f"{tokens.response / 1e6:,.2f} M", f"after {tokens.prompt / 1e6:,.2f} M of prompts"),
        ("tokens learned", f"{(tokens.learner + tokens.cold_start) / 1e6:,.2f} M", "every pass counted"),
        ("tokens evaluated", f"{tokens.evaluation / 1e6:,.2f} M", ""),
        ("rollouts", _time(plan.rollout_hours), ""),
        ("learner", _time(plan.learner_hours), "cold start included"),
        ("evaluation", _time(plan.evaluation_hours), ""),
        ("the pipeline itself", _time(plan.overhead_hours), ""),
        ("all", _time(plan.hours), f"{plan.device_hours:,.2f} {unit}"),
        ("memory", f"{plan.learner_gib:,.1f} GiB", f"learner; engine {plan.engine_gib:,.1f} GiB"),
        ("disk", f"{plan.disk_gib:,.2f} GiB", f"{plan.iteration_gib:,.3f} GiB an iteration"),
        ("cost", f"{plan.cost:,.2f}", f"at {machine.gpu_price if machine.gpu else machine.core_price:g} an hour"),
    ]


def _time(hours: float) -> str:
    return f"{hours:,.1f} h" if hours >= 1 else f"{60 * hours:,.1f} min"
