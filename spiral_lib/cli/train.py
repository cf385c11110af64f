"""``spiral train``: the whole loop in one process."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from spiral_lib.cli._options import configured, folder, json_option
from spiral_lib.cli._screen import Bar, print_json, progress

if TYPE_CHECKING:
    from spiral_lib.config import RunConfig
    from spiral_lib.state import State


@click.command(
    epilog="""\b
Examples:
  spiral train --preset smoke
  spiral train --preset tiny --set "seed=1 iterations=12" --out runs/seed-1
  spiral train --config my.yaml --resume-from runs/seed-1 --out runs/second

\b
The same command continues a run that was stopped, and extends a finished one when iterations is larger.
On a Flyte cluster: pyflyte run --remote workflows/spiral.py train --preset gpu_kuhn"""
)
@configured("tiny")
@click.option("--resume-from", type=folder(), help="Run folder whose last state this run goes on from.")
@click.option("--out", type=folder(exists=False), help="Run folder.  [default: runs/<preset>-<configuration hash>]")
@json_option
def COMMAND(
    preset: str,
    config_file: Path | None,
    overrides: tuple[str, ...],
    resume_from: Path | None,
    out: Path | None,
    as_json: bool,
) -> int:
    """Train by self-play: cold start, then iterations of matches, quality gate, learner, evaluation and gate."""
    from spiral_lib import config as configs
    from spiral_lib import pipeline, registry_runs, report

    config = registry_runs.pin(configs.resolve(preset=preset, yaml_path=config_file, overrides=" ".join(overrides)))
    run = out or pipeline.default_folder(config)
    click.echo(f"run folder: {run}", err=True)
    finished: list[State] = []
    try:
        with _followed(config) as follower:

            def tell(state: State) -> None:
                finished.append(state)
                follower.finish(state.iteration * config.rollout.steps_per_iteration)

            pipeline.train(config, run, resume_from=resume_from, on_state=tell)
    except KeyboardInterrupt:
        given = _arguments(preset, config_file, overrides, resume_from)
        return _stopped(run, given)
    files = report.read(run)
    if as_json:
        last = dict(files.iterations[-1][1]) if files.iterations else {}
        done = {"run": str(run), "report": str(run / "report.html"), "iteration": finished[-1].iteration}
        print_json({**done, "metrics": last})
        return 0
    for line in report.summary(files):
        click.echo(line)
    click.echo(f"report: {run / 'report.html'}")
    return 0


@contextmanager
def _followed(config: RunConfig) -> Iterator[_Follower]:
    """Show a bar over learner steps that also follows the steps inside an iteration, from the library's log."""
    total = config.iterations * config.rollout.steps_per_iteration
    with progress("starting", total, unit="learner steps") as bar:
        follower = _Follower(bar)
        log, lineage = logging.getLogger("spiral_lib"), logging.getLogger("spiral_lib.lineage")
        level = lineage.level
        log.addHandler(follower)
        lineage.setLevel(logging.DEBUG)
        try:
            yield follower
        finally:
            log.removeHandler(follower)
            lineage.setLevel(level)


class _Follower(logging.Handler):
    """Moves the bar by what log records carry: the learner step that ended, or the step of the run that begins."""

    def __init__(self, bar: Bar) -> None:
        super().__init__()
        self._bar = bar
        self._done = 0
        self._worked = True

    def finish(self, done: int) -> None:
        """Show the end of an iteration. The cold start, or one only read from disk, says nothing about the rate."""
        self._bar(done, restart=done == 0 or not self._worked)
        self._done, self._worked = done, False

    def emit(self, record: logging.LogRecord) -> None:
        done, step = getattr(record, "learner_step", None), getattr(record, "step", None)
        if done is not None:
            self._done = done
            self._bar(done)
        elif step is not None:
            self._worked = True
            self._bar(self._done, text=f"{step} of iteration {getattr(record, 'iteration', '')}")


def _arguments(
    preset: str, config_file: Path | None, overrides: tuple[str, ...], resume_from: Path | None
) -> list[str]:
    given = ["--preset", preset]
    given += ["--config", str(config_file)] if config_file else []
    given += [word for value in overrides for word in ("--set", value)]
    return given + (["--resume-from", str(resume_from)] if resume_from else [])


def _stopped(run: Path, given: list[str]) -> int:
    """Say what is kept and which command goes on, and return the exit code."""
    from spiral_lib.cli import INTERRUPTED
    from spiral_lib.state import kept_in

    click.echo(f"stopped: {kept_in(run)} in {run}", err=True)
    click.echo(f"continue with: spiral train {shlex.join([*given, '--out', str(run)])}", err=True)
    return INTERRUPTED
