"""``spiral watch``: a run as it goes, in the terminal."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from spiral_lib.cli._options import folder, json_option
from spiral_lib.cli._screen import print_json


@click.command(epilog="\b\nExamples:\n  spiral watch runs/tiny-0f3a1c2b\n  spiral watch runs/tiny-0f3a1c2b --once")
@click.argument("run", type=folder(exists=False))
@click.option("--once", is_flag=True, help="Show where the run stands and stop.")
@click.option("--every", default=2.0, show_default=True, type=click.FloatRange(0.1), help="Seconds between looks.")
@json_option
def COMMAND(run: Path, once: bool, every: float, as_json: bool) -> int:
    """Follow RUN's curves, gate and alarms until it is finished; Ctrl-C stops watching, not the run.

    --json prints where it stands and stops, as --once does.
    """
    from rich.console import Console

    from spiral_lib import report, watch
    from spiral_lib.cli import INTERRUPTED

    if as_json:
        print_json(watch.standing(report.read(run)))
        return 0
    try:
        watch.watch(run, console=Console(), every_s=every, once=once)
    except KeyboardInterrupt:
        click.echo(f"stopped watching; the run itself goes on. Again: spiral watch {shlex.quote(str(run))}", err=True)
        return INTERRUPTED
    return 0
