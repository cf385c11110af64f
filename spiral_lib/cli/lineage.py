"""``spiral lineage``: a run's step records for people and for other tools."""

from __future__ import annotations

from pathlib import Path

import click

from spiral_lib.cli._options import folder


@click.command(
    epilog="""\b
Examples:
  spiral lineage runs/tiny-0f3a1c2b > lineage.md
  spiral lineage runs/tiny-0f3a1c2b --openlineage events.jsonl
  spiral lineage runs/tiny-0f3a1c2b --send https://marquez.example.org --store s3://bucket/runs/tiny-0f3a1c2b"""
)
@click.argument("run", type=folder())
@click.option("--openlineage", "out", type=click.Path(dir_okay=False, path_type=Path), help="Write OpenLineage events.")
@click.option("--send", "url", help="Send OpenLineage events to this service.")
@click.option("--store", metavar="URL", help="Where the run lies for the readers of the events.  [default: RUN]")
def COMMAND(run: Path, out: Path | None, url: str | None, store: str | None) -> None:
    """Print what each step of RUN read and wrote as Markdown, or export it as OpenLineage events."""
    from spiral_lib import lineage_page, openlineage_export

    if out is None and url is None:
        click.echo(lineage_page.write(run))
    if out is not None:
        click.echo(f"{openlineage_export.write_file(run, out, store=store)} events: {out}")
    if url is not None:
        click.echo(f"{openlineage_export.send(run, url, store=store)} events sent to {url}")
