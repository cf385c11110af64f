"""``spiral eval``: what a checkpoint can do outside self-play."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
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

\b
A run folder means its champion. Seeds come from the configuration alone: equal checkpoints get equal scores."""
)
@click.argument("checkpoint")
@click.option(
    "--cold-start",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Checkpoint to play the cold_start matches against.  [default: that of the run]",
)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="File for the evaluation as JSON.")
@configured(None)
@json_option
def COMMAND(
    checkpoint: str,
    cold_start: Path | None,
    out: Path | None,
    preset: str | None,
    config_file: Path | None,
    overrides: tuple[str, ...],
    as_json: bool,
) -> None:
    """Measure CHECKPOINT: exact game metrics, matches against fixed opponents, the bank, reasoning indicators."""
    from spiral_lib import durable, evaluation, lineup, steps
    from spiral_lib.cli._options import chosen_config

    folder = lineup.locate(checkpoint)
    config = chosen_config(preset, config_file, overrides) or lineup.config_of(folder)
    start = cold_start or _cold_start_of(folder)
    if start is None:
        config = _without_cold_start(config)
    steps.set_threads(config)
    with progress("evaluating", None, unit="of this stage") as bar:

        def show(stage: str, done: int, total: int) -> None:
            bar(done, total, stage)

        made = evaluation.evaluate(folder, cold_start=start or folder, config=config, iteration=0, on_progress=show)
    if out is not None:
        durable.write_text(out, made.to_json())
    if as_json:
        print_json(dataclasses.asdict(made))
        return
    rows = [(name, _shown(name, made.metrics)) for name in made.metrics if not _part(name, made.metrics)]
    print_table(("measure", "value [95 % interval] (n)"), rows, title=f"{folder}")


def _cold_start_of(checkpoint: Path) -> Path | None:
    from spiral_lib import lineup
    from spiral_lib.state import read_state

    run = lineup.run_of(checkpoint)
    return None if run is None else read_state(run).cold_start


def _without_cold_start(config: RunConfig) -> RunConfig:
    opponents = tuple(name for name in config.evaluation.opponents if name != "cold_start")
    return dataclasses.replace(config, evaluation=dataclasses.replace(config.evaluation, opponents=opponents))


def _part(name: str, metrics: Mapping[str, float]) -> bool:
    """Return whether a metric is shown beside another: an end of its interval or its n."""
    return any(name.endswith(end) and name.removesuffix(end) in metrics for end in ("_low", "_high", "_n"))


def _shown(name: str, metrics: Mapping[str, float]) -> str:
    low, high, n = (metrics.get(f"{name}{end}") for end in ("_low", "_high", "_n"))
    interval = f" [{low:.3f}, {high:.3f}]" if low is not None and high is not None else ""
    return f"{metrics[name]:.3f}{interval}" + (f" ({n:.0f})" if n is not None else "")
