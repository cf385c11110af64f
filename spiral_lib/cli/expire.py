"""``spiral expire``: free disk by rule."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from spiral_lib.cli._options import folder, json_option
from spiral_lib.cli._screen import print_json, progress


@click.command(
    epilog="""\b
Examples:
  spiral expire runs/tiny-0f3a1c2b --dry-run
  spiral expire runs/tiny-0f3a1c2b --keep-recent 3 --keep-every 50

\b
Whatever the rule, these stay: what the run needs to go on, the opponent pool, the champion, the cold start, and for
every checkpoint kept by rule what is needed to replay the step that made it. Hashes of what goes stay on record, so
that spiral audit can tell expired from missing."""
)
@click.argument("run", type=folder())
@click.option("--keep-recent", default=2, show_default=True, type=click.IntRange(0), help="Newest checkpoints to keep.")
@click.option("--keep-every", default=0, show_default=True, type=click.IntRange(0), help="Keep every n-th besides.")
@click.option("--keep-shards", default=2, show_default=True, type=click.IntRange(0), help="Newest iterations' turns.")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@json_option
def COMMAND(
    run: Path, keep_recent: int, keep_every: int, keep_shards: int, dry_run: bool, as_json: bool
) -> None:
    """Delete old checkpoints, optimizer states and shards of RUN that nothing needs."""
    from spiral_lib import durable, retention

    rule = retention.Rule(keep_recent=keep_recent, keep_every=keep_every, keep_shards=keep_shards)
    durable.claim(run)
    try:
        with progress("looking" if dry_run else "deleting", None, unit=""):
            gone = retention.due(run, rule) if dry_run else retention.expire(run, rule)
    finally:
        durable.release(run)
    if as_json:
        print_json({"dry_run": dry_run, "expired": [dataclasses.asdict(t) for t in gone]})
        return
    for tombstone in gone:
        click.echo(f"{tombstone.bytes / 1e6:10.1f} MB  {tombstone.path}")
    verb = "would go" if dry_run else "freed"
    click.echo(f"{sum(t.bytes for t in gone) / 1e6:10.1f} MB  {verb}: {len(gone)} outputs")
