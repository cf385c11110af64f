"""What ``spiral eval --suite`` and ``--power`` do."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import click

from spiral_lib.cli._screen import print_json

if TYPE_CHECKING:
    from spiral_lib.config import RunConfig


def run_suites(
    names: tuple[str, ...],
    subject: Path | str,
    *,
    config: RunConfig,
    records: Path | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Measure suites and single benchmarks, and print their table; a ``subject`` in text is a model at an endpoint."""
    from spiral_lib import durable, steps
    from spiral_lib.evaluation import suite

    if isinstance(subject, str):
        result = suite.ask_endpoint(subject, names, config=config, records=records)
    else:
        steps.set_threads(config)
        result = suite.run(subject, names, config=config, records=records)
    if out is not None:
        durable.write_text(out, result.evaluation.to_json())
    if as_json:
        print_json(dataclasses.asdict(result))
        return
    click.echo(f"{subject}: percent [95 % interval]")
    click.echo(suite.text(result))


def show_power(effect: float, *, baseline: float, as_json: bool) -> None:
    """Print how many items or matches it takes to see an effect, and what each benchmark can show."""
    from spiral_lib.evaluation import power

    rows, smallest = power.table(effect, baseline=baseline), power.detectable(baseline)
    if as_json:
        print_json({
            "sizes": [dataclasses.asdict(row) for row in rows],
            "detectable": [dataclasses.asdict(one) for one in smallest],
        })
        return
    click.echo("To see it in 80 % of the cases at a two-sided level of 5 %:")
    click.echo(power.text(rows))
    click.echo(f"\nThe smallest rise from {baseline:.3g} that a benchmark can show, one reply an item:")
    for one in smallest:
        shown = "none" if one.effect is None else f"{one.effect:.3f}"
        click.echo(f"  {one.benchmark:<14} n={one.n:<6} {shown}")
