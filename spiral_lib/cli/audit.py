"""``spiral audit``: whether a run is whole, where a number comes from, and whether a step can be repeated."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from spiral_lib.cli._options import json_option
from spiral_lib.cli._screen import print_json, print_table, progress


@click.command(
    epilog="""\b
Examples:
  spiral audit runs/tiny-0f3a1c2b
  spiral audit runs/tiny-0f3a1c2b --why eval/kuhn_poker/exploitability
  spiral audit runs/tiny-0f3a1c2b --replay 2/segment
  spiral audit s3://bucket/runs/kuhn-1

\b
Exit code 1 when a link is broken or a replay differs. Replaying works in a scratch copy beside the run."""
)
@click.argument("run")
@click.option("--why", "metric", metavar="METRIC", help="Print the steps behind one number.")
@click.option("--iteration", type=click.IntRange(0), help="With --why: of this iteration.  [default: the last]")
@click.option("--replay", "step", metavar="STEP", help="Run a step again and compare, such as segment or 2/segment.")
@json_option
def COMMAND(run: str, metric: str | None, iteration: int | None, step: str | None, as_json: bool) -> int:
    """Hash everything in RUN again, follow every input to the step that made it, check what the run shows.

    RUN is a run folder, or what a run of the cluster left in a store: its URL, or a copy of that on this machine.
    """
    from spiral_lib import stored

    with stored.opened(run) as place:
        if metric is not None:
            return _why(place, metric, iteration, as_json)
        if step is not None:
            return _replay(place, step, as_json)
        return _audit(place, run, as_json)


def _audit(run: Path, shown: str, as_json: bool) -> int:
    from spiral_lib import lineage, published

    with progress("hashing", None, unit=""):
        problems = lineage.audit(run) + published.problems(run)
    if as_json:
        print_json({"ok": not problems, "problems": [dataclasses.asdict(p) for p in problems]})
        return 1 if problems else 0
    if not problems:
        records = lineage.read_all(run)
        outputs = sum(len(r.outputs) for r in records)
        click.echo(f"{shown} is whole: {len(records)} steps, {outputs} outputs hash to what was recorded")
        return 0
    click.echo(f"first broken link: {problems[0]}")
    for problem in problems[1:]:
        click.echo(f"also: {problem}")
    return 1


def _why(run: Path, metric: str, iteration: int | None, as_json: bool) -> int:
    from spiral_lib import replay

    value, number, links = replay.why(run, metric, iteration=iteration)
    if as_json:
        steps = [{"via": link.via, **dataclasses.asdict(link.record)} for link in links]
        print_json({"metric": metric, "value": value, "iteration": number, "steps": steps})
        return 0
    click.echo(f"{metric} = {value:.6g} at iteration {number}, in {links[0].via}")
    rows = [
        (
            f"{r.order}/{r.step}",
            ", ".join(f"{a.path} {a.sha256[:8]}" for a in r.inputs.values()) or "-",
            ", ".join(f"{a.path} {a.sha256[:8]}" for a in r.outputs.values()),
            f"seed {r.seed}, {r.engine}, {r.dtype}, {r.device}",
        )
        for r in (link.record for link in links)
    ]
    print_table(("step", "read", "wrote", "under"), rows, title="The steps behind it, newest first")
    record = links[0].record
    click.echo(f"configuration {record.config_hash}, code {record.code_version[:12]}")
    return 0


def _replay(run: Path, step: str, as_json: bool) -> int:
    from spiral_lib import replay

    with progress(f"replaying {step}", None, unit=""):
        found = replay.replay(run, step)
    if as_json:
        print_json(dataclasses.asdict(found))
    else:
        verdict = "differs in " + ", ".join(found.different) if found.different else "is the same, bit by bit"
        click.echo(f"{found.order}/{found.step} {verdict}; the same: {', '.join(found.same) or 'nothing'}")
        if found.changed:
            click.echo(f"since then changed: {', '.join(found.changed)}")
    return 1 if found.different else 0
