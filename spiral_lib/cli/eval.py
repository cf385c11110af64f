"""``spiral eval``: what a checkpoint can do outside self-play."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import click

from spiral_lib.cli._options import configured, json_option
from spiral_lib.cli._screen import print_json, print_table, progress

if TYPE_CHECKING:
    from spiral_lib.config import RunConfig


@click.command(
    epilog="""\b
Examples:
  spiral eval runs/tiny-0f3a1c2b
  spiral eval runs/tiny-0f3a1c2b/checkpoints/0004 --json > scores.json
  spiral eval my-checkpoint --preset tiny --set "evaluation.matches=400"
  spiral eval runs/tiny-0f3a1c2b --suite paper --records replies
  spiral eval runs/tiny-0f3a1c2b --suite math500 --limit 20
  spiral eval api:my-model --suite math500 --preset tiny --set "endpoint.base_url=http://127.0.0.1:8000/v1"
  spiral eval --power 0.1 --baseline 0.5

\b
A run folder means its champion. Seeds come from the configuration alone: equal checkpoints get equal scores."""
)
@click.argument("checkpoint", required=False)
@click.option(
    "--suite",
    "suites",
    multiple=True,
    metavar="NAME",
    help="Print the table of a suite (paper) or of one benchmark instead; may be repeated.",
)
@click.option(
    "--records",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for every benchmark reply with its verdict, as Parquet.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    metavar="N",
    help="Items of every benchmark, spread evenly over it; 0 is all.  [default: evaluation.benchmark_limit]",
)
@click.option("--power", type=float, metavar="EFFECT", help="How many items or matches show a rise of EFFECT; no run.")
@click.option("--baseline", type=float, help="Share from which --power counts.  [default: 0.5]")
@click.option(
    "--cold-start",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Checkpoint to play the cold_start matches against.  [default: that of the run]",
)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="File for the evaluation as JSON.")
@configured(None)
@json_option
def COMMAND(
    checkpoint: str | None,
    suites: tuple[str, ...],
    records: Path | None,
    limit: int | None,
    power: float | None,
    baseline: float | None,
    cold_start: Path | None,
    out: Path | None,
    preset: str | None,
    config_file: Path | None,
    overrides: tuple[str, ...],
    as_json: bool,
) -> None:
    """Measure CHECKPOINT: exact game metrics, matches against fixed opponents, the bank, reasoning indicators."""
    from spiral_lib import durable, evaluation, lineup, steps
    from spiral_lib.cli import _scores, _suites
    from spiral_lib.cli._options import chosen_config

    if power is not None:
        if checkpoint is not None or suites:
            raise click.UsageError("--power measures nothing; leave CHECKPOINT and --suite out")
        _suites.show_power(power, baseline=0.5 if baseline is None else baseline, as_json=as_json)
        return
    if baseline is not None:
        raise click.UsageError("--baseline belongs to --power")
    if checkpoint is None:
        raise click.UsageError("name a CHECKPOINT or a run folder")
    if checkpoint.startswith("api:"):
        settings = chosen_config(preset, config_file, overrides)
        if not suites or settings is None:
            raise click.UsageError("a model at an endpoint needs --suite and --preset, and endpoint.base_url in --set")
        model, settings = checkpoint.removeprefix("api:"), _limited(settings, limit)
        _suites.run_suites(suites, model, config=settings, records=records, out=out, as_json=as_json)
        return
    folder = lineup.verified(lineup.locate(checkpoint))
    config = _limited(chosen_config(preset, config_file, overrides) or lineup.config_of(folder), limit)
    if suites:
        if cold_start is not None:
            raise click.UsageError("--cold-start belongs to the evaluation without --suite")
        _suites.run_suites(suites, folder, config=config, records=records, out=out, as_json=as_json)
        return
    start = cold_start or _cold_start_of(folder)
    if start is None:
        config = _without_cold_start(config)
    else:
        lineup.verified(start)
    steps.set_threads(config)
    with progress("evaluating", None, unit="of this stage") as bar:

        def show(stage: str, done: int, total: int) -> None:
            bar(done, total, stage)

        made = evaluation.evaluate(
            folder, cold_start=start or folder, config=config, iteration=0, records=records, on_progress=show
        )
    if out is not None:
        durable.write_text(out, made.to_json())
    if as_json:
        print_json(dataclasses.asdict(made))
        return
    click.echo(f"{folder}")
    for title, rows in _scores.grouped(made.metrics):
        print_table((title, "value [95 % interval] (n)"), rows)


def _cold_start_of(checkpoint: Path) -> Path | None:
    from spiral_lib import lineup
    from spiral_lib.state import read_state

    run = lineup.run_of(checkpoint)
    return None if run is None else read_state(run).cold_start


def _limited(config: RunConfig, limit: int | None) -> RunConfig:
    if limit is None:
        return config
    return dataclasses.replace(config, evaluation=dataclasses.replace(config.evaluation, benchmark_limit=limit))


def _without_cold_start(config: RunConfig) -> RunConfig:
    opponents = tuple(name for name in config.evaluation.opponents if name != "cold_start")
    return dataclasses.replace(config, evaluation=dataclasses.replace(config.evaluation, opponents=opponents))
