"""``spiral track``: a run's metrics into W&B or MLflow."""

from __future__ import annotations

import time
from pathlib import Path

import click

from spiral_lib.cli._options import folder, json_option
from spiral_lib.cli._screen import print_json, progress


@click.command(
    epilog="""\b
Examples:
  spiral track runs/tiny-0f3a1c2b --to wandb --project kuhn
  spiral track runs/tiny-0f3a1c2b --to mlflow --offline
  spiral track runs/tiny-0f3a1c2b --to wandb --follow

\b
TensorBoard needs no command: tensorboard --logdir runs
Credentials and addresses are those that the tracker's own client finds."""
)
@click.argument("run", type=folder())
@click.option("--to", type=click.Choice(("wandb", "mlflow")), required=True, help="Tracker.")
@click.option("--project", default="spiral", show_default=True, help="Project (W&B) or experiment (MLflow).")
@click.option("--offline", is_flag=True, help="Write into the run folder, send nothing.")
@click.option("--follow", is_flag=True, help="Go on until the run is finished.")
@json_option
def COMMAND(run: Path, to: str, project: str, offline: bool, follow: bool, as_json: bool) -> None:
    """Send everything that RUN has measured to a tracker, as one new run of it."""
    from spiral_lib import report, trackers

    sender = trackers.Sender(run, to, project=project, offline=offline)
    try:
        with progress(f"sending to {to}", None, unit=""):
            sent = sender.send()
        while follow:
            files = report.read(run)
            if files.ledger.iteration >= files.config.iterations:
                break
            time.sleep(2.0)
            sent += sender.send()
    finally:
        sender.close()
    if as_json:
        print_json({"points": sent, "where": sender.where})
    else:
        click.echo(f"{sent} points sent: {sender.where}")
