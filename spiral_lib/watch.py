"""A live view of a run in the terminal: where it stands, its curves, the gate's last words, alarms."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spiral_lib import measures, report_curves
from spiral_lib.report_files import Rows, RunFiles, read

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_BLOCKS = "▁▂▃▄▅▆▇█"
_TRAINING = (
    ("illegal turns", "rollout/invalid_rate"),
    ("response tokens", "rollout/response_tokens"),
    ("KL to the cold start", "learner/kl"),
    ("gradient norm", "learner/grad_norm"),
)


def watch(run: Path, *, console: Console, every_s: float = 2.0, once: bool = False) -> None:
    """Show a run until all its iterations are finished, or once; the folder may still be empty, or not there yet.

    Raises LineageError where the folder is none of a run, or something in it is damaged.
    """
    from rich.live import Live
    from rich.text import Text

    if once:
        console.print(view(read(run)))
        return
    with Live(Text(f"waiting for the cold start of {run}"), console=console, auto_refresh=False) as live:
        while True:
            if _has_begun(run):
                files = read(run)
                live.update(view(files), refresh=True)
                if files.ledger.iteration >= files.config.iterations:
                    return
            time.sleep(every_s)


def _has_begun(run: Path) -> bool:
    """Return whether there is something to show. Raises LineageError where other things lie in the folder."""
    if not (run / "config.yaml").is_file():
        if run.is_dir() and any(run.iterdir()):
            read(run)  # says what is missing
        return False
    return (run / "ledger.json").is_file() and (run / "metrics.jsonl").is_file()


def view(files: RunFiles) -> RenderableType:
    """Return the view of a run: progress, one curve a row with its first and last value, and what the gate said."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    done, wanted = files.ledger.iteration, files.config.iterations
    seconds = sum(r.seconds for r in files.records)
    head = Text(f"{files.name}: {done} of {wanted} iterations, {seconds:.0f} s in steps", style="bold")
    table = Table(box=None, pad_edge=False)
    table.add_column()
    table.add_column("curve", no_wrap=True)
    table.add_column("start", justify="right")
    table.add_column("now", justify="right")
    table.add_column()
    for measure in measures.outside_self_play(*(m for _, m in files.iterations)):
        cells = _row(measure.label.partition(" (")[0], files.iterations, measure.name)
        table.add_row(*cells, _verdict(measure, files.iterations))
    rows, _ = report_curves.finest(files)
    for label, metric in _TRAINING:
        if any(metric in m for _, m in rows):
            table.add_row(*_row(label, rows, metric), "")
    parts: list[RenderableType] = [head, table]
    if files.ledger.decisions:
        last = files.ledger.decisions[-1]
        parts.append(Text(f"gate, iteration {last.iteration}: {last.decision}; {'; '.join(last.reasons)}"))
    parts += [Text(f"! {report_curves.title(name)} in iteration {i}", style="bold red") for i, name in files.alarms]
    return Group(*parts)


def standing(files: RunFiles) -> dict[str, Any]:
    """Return where a run stands, for scripts."""
    return {
        "run": files.name,
        "iteration": files.ledger.iteration,
        "iterations": files.config.iterations,
        "seconds": sum(r.seconds for r in files.records),
        "metrics": dict(files.iterations[-1][1]) if files.iterations else {},
        "decision": str(files.ledger.decisions[-1].decision) if files.ledger.decisions else None,
        "alarms": [{"iteration": i, "alarm": name} for i, name in files.alarms],
    }


def _row(label: str, rows: Rows, metric: str) -> tuple[RenderableType, ...]:
    from rich.text import Text

    values = [m[metric] for _, m in rows if metric in m and math.isfinite(m[metric])]
    if not values:
        return Text(label), Text(""), "–", "–"
    return Text(label), Text(curve(values)), f"{values[0]:.3f}", f"{values[-1]:.3f}"


def _verdict(measure: measures.Measure, rows: Rows) -> str:
    have = [m for _, m in rows if measure.name in m]
    return measures.change(measure, have[0], have[-1]).verdict if len(have) > 1 else ""


def curve(values: Sequence[float], width: int = 24) -> str:
    """Return values as one line of blocks, scaled from their least to their greatest; longer series are averaged."""
    columns = _averaged(values, width)
    low, high = min(columns), max(columns)
    top = len(_BLOCKS) - 1
    return "".join(_BLOCKS[round(top * (v - low) / (high - low)) if high > low else 0] for v in columns)


def _averaged(values: Sequence[float], most: int) -> list[float]:
    if len(values) <= most:
        return list(values)
    edges = [i * len(values) // most for i in range(most + 1)]
    return [math.fsum(values[a:b]) / (b - a) for a, b in itertools.pairwise(edges)]
