"""``spiral lineage``: a run's step records for people and for other tools."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from spiral_lib.cli._options import folder, json_option
from spiral_lib.cli._screen import print_json


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
@json_option
def COMMAND(run: Path, out: Path | None, url: str | None, store: str | None, as_json: bool) -> None:
    """Print what each step of RUN read and wrote as Markdown, or export it as OpenLineage events."""
    from spiral_lib import lineage, lineage_page, openlineage_export

    if out is None and url is None:
        if as_json:
            print_json([dataclasses.asdict(record) for record in lineage.read_all(run)])
        else:
            click.echo(lineage_page.write(run))
        return
    exported = {}
    if out is not None:
        exported[str(out)] = openlineage_export.write_file(run, out, store=store)
    if url is not None:
        exported[url] = openlineage_export.send(run, url, store=store)
    if as_json:
        print_json(exported)
        return
    for place, events in exported.items():
        click.echo(f"{events} events: {place}")
