"""``spiral report``: the page of a run, or of two runs side by side."""

from __future__ import annotations

from pathlib import Path

import click

from spiral_lib.cli._options import folder, json_option
from spiral_lib.cli._screen import print_json


@click.command(
    epilog="""\b
Examples:
  spiral report runs/tiny-0f3a1c2b
  spiral report runs/seed-0 runs/seed-1
  spiral report runs/seed-0 runs/seed-1 --out compare.html"""
)
@click.argument("run", type=folder())
@click.argument("other", type=folder(), required=False)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Comparison page to write.  [default: compare-<first>.html in the second run's folder]",
)
@json_option
def COMMAND(run: Path, other: Path | None, out: Path | None, as_json: bool) -> None:
    """Write RUN's report.html again from its files; with OTHER, write a page that compares the two."""
    from spiral_lib import compare, report

    if other is None:
        if out is not None:
            raise click.UsageError("--out is for a comparison; the page of one run is its report.html")
        files = report.read(run)
        path, lines = report.write(run), report.summary(files)
    else:
        path = compare.write(run, other, out)
        lines = compare.summary(report.read(run), report.read(other))
    if as_json:
        print_json({"report": str(path), "summary": lines})
        return
    click.echo(str(path))
    for line in lines:
        click.echo(f"  {line}")
