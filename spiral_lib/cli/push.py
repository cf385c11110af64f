"""``spiral push``: a checkpoint to the Hugging Face hub."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from spiral_lib.cli._options import folder, json_option
from spiral_lib.cli._screen import print_json, progress


@click.command(
    epilog="""\b
Examples:
  spiral push runs/tiny-0f3a1c2b me/kuhn --stage out/kuhn
  spiral push runs/tiny-0f3a1c2b me/kuhn
  spiral push runs/tiny-0f3a1c2b me/kuhn --iteration 4 --trajectories --public

\b
The token is that of: hf auth login"""
)
@click.argument("run", type=folder())
@click.argument("repo")
@click.option("--iteration", type=click.IntRange(0), help="Iteration to push.  [default: the champion's]")
@click.option("--trajectories", is_flag=True, help="Also push every turn of the run as Parquet.")
@click.option("--public", is_flag=True, help="Make a new repository public.  [default: private]")
@click.option("--stage", type=folder(exists=False), help="Only write what would be pushed to this new folder.")
@json_option
def COMMAND(
    run: Path, repo: str, iteration: int | None, trajectories: bool, public: bool, stage: Path | None, as_json: bool
) -> None:
    """Push RUN's checkpoint to REPO with a generated card, its evaluation and its lineage."""
    from spiral_lib import hub

    if stage is not None:
        out = hub.stage(run, stage, repo=repo, iteration=iteration, trajectories=trajectories)
        if as_json:
            print_json({"pushed": None, "folder": str(out)})
        else:
            click.echo(f"nothing pushed; look at {out}")
        return
    with tempfile.TemporaryDirectory() as temporary:
        out = hub.stage(run, Path(temporary) / "push", repo=repo, iteration=iteration, trajectories=trajectories)
        with progress(f"pushing to {repo}", None, unit=""):
            address = hub.push_to_hub(out, repo, private=not public)
    if as_json:
        print_json({"pushed": address, "folder": None})
    else:
        click.echo(address)
