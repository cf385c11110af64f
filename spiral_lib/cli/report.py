"""``spiral report``: the page of a run, or of two runs side by side."""

from __future__ import annotations

from pathlib import Path

import click

from spiral_lib.cli._options import folder, json_option
from spiral_lib.cli._screen import print_json, progress


@click.command(
    epilog="""\b
Examples:
  spiral report runs/tiny-0f3a1c2b
  spiral report runs/tiny-0f3a1c2b --matches 40
  spiral report runs/tiny-0f3a1c2b --verdicts verdicts.json
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
@click.option(
    "--matches",
    type=click.IntRange(1, 1000),
    help="Draw so many matches by stratum into a page for reviewers, match_audit/index.html.",
)
@click.option("--seed", type=click.IntRange(0), help="Which sample --matches draws.  [default: 0]")
@click.option(
    "--verdicts",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A reviewer's verdicts from that page, to keep in the run folder and show in the report.",
)
@json_option
def COMMAND(
    run: Path,
    other: Path | None,
    out: Path | None,
    matches: int | None,
    seed: int | None,
    verdicts: Path | None,
    as_json: bool,
) -> None:
    """Write RUN's report.html again from its files; with OTHER, write a page that compares the two."""
    from spiral_lib import compare, report, report_verdicts

    if other is not None and (matches is not None or verdicts is not None):
        raise click.UsageError("--matches and --verdicts are for one run")
    if seed is not None and matches is None:
        raise click.UsageError("--seed belongs to --matches")
    if matches is not None:
        from spiral_lib import match_audit_page

        with progress("drawing matches", None, unit=""):
            page = match_audit_page.write(run, matches=matches, seed=seed or 0)
        click.echo(f"match audit: {page}", err=as_json)
    if verdicts is not None:
        click.echo(f"verdicts kept: {report_verdicts.save(run, verdicts)}", err=as_json)
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
