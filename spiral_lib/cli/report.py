"""``spiral report``: the page of a run."""

from __future__ import annotations

from pathlib import Path

import click

from spiral_lib.cli._options import folder, json_option
from spiral_lib.cli._screen import print_json


@click.command(epilog="\b\nExample:\n  spiral report runs/tiny-0f3a1c2b")
@click.argument("run", type=folder())
@json_option
def COMMAND(run: Path, as_json: bool) -> None:
    """Write RUN's report.html again from its files; print its path and what the run achieved."""
    from spiral_lib import report

    files = report.read(run)
    path = report.write(run)
    if as_json:
        print_json({"report": str(path), "summary": report.summary(files)})
        return
    click.echo(str(path))
    for line in report.summary(files):
        click.echo(f"  {line}")
