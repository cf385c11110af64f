"""The run folder's small files, rewritten from the immutable ones of all iterations: metrics, samples, report."""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any

from spiral_lib import durable, report, trackers, trajectories
from spiral_lib.errors import LineageError
from spiral_lib.ledger import Ledger
from spiral_lib.types import Decision, Episode, Turn

FILES = (
    "config.yaml",
    "expired.json",
    "ledger.json",
    "metrics.jsonl",
    "steps.jsonl",
    "samples.json",
    "state.json",
    "report.html",
)
FOLDERS = ("training", "evaluations", "ledgers", "lineage", trackers.FOLDER)
SAMPLED_ITERATIONS, MAX_TEXT = 24, 2_000
_CODES = {Decision.ACCEPT: 1.0, Decision.HOLD: 0.0, Decision.ROLLBACK: -1.0}


def ledger_path(run: Path, iteration: int) -> Path:
    """Return where an iteration's ledger lies; ``ledger.json`` is a copy of the newest."""
    return run / "ledgers" / f"{iteration:04d}.json"


def is_past(ledger: Ledger, run: Path) -> bool:
    """Return whether the run has gone on from exactly this ledger already: then nothing newer may be overwritten."""
    try:
        text = (run / "ledger.json").read_text()
        newest = Ledger.from_json(text)
        intact = ledger_path(run, newest.iteration).read_text() == text
    except (OSError, LineageError):
        return False
    return (
        intact
        and newest.iteration > ledger.iteration
        and newest.evaluations[: len(ledger.evaluations)] == ledger.evaluations
        and newest.decisions[: len(ledger.decisions)] == ledger.decisions
        and newest.grad_norms[: len(ledger.grad_norms)] == ledger.grad_norms
    )


def publish(ledger: Ledger, run: Path) -> None:
    """Rewrite ledger.json, metrics.jsonl, steps.jsonl and report.html; add the iteration's TensorBoard events.

    A ledger that the run has gone on from already changes nothing: asking for fewer iterations rewinds no run.
    """
    if is_past(ledger, run):
        return
    durable.write_text(run / "ledger.json", ledger.to_json())
    for name, text in metric_files(ledger, run).items():
        durable.write_text(run / name, text)
    trackers.write_events(run)
    report.write(run)


def metric_files(ledger: Ledger, run: Path) -> dict[str, str]:
    """Return the text of metrics.jsonl and steps.jsonl by name, as it follows from the ledger and ``training/``."""
    evaluations = {e.iteration: e.metrics for e in ledger.evaluations}
    decisions = {d.iteration: d.decision for d in ledger.decisions}
    lines, steps = [], []
    for iteration in range(ledger.iteration + 1):
        training = json.loads((run / "training" / f"{iteration:04d}.json").read_text())
        metrics = {**training["metrics"], **evaluations.get(iteration, {})}
        if iteration in decisions:
            metrics["gate/decision"] = _CODES[decisions[iteration]]
        lines.append(json.dumps({"iteration": iteration, "metrics": metrics}, sort_keys=True))
        steps += [json.dumps(s, sort_keys=True) for s in training["steps"]]
    return {"metrics.jsonl": "".join(f"{line}\n" for line in lines), "steps.jsonl": "".join(f"{s}\n" for s in steps)}


def sample_matches(shard: Path, iteration: int, run: Path) -> None:
    """Keep matches of a shard for the report: one finished, one forfeited and the longest.

    Of a long run only some iterations keep theirs, the first and the newest among them, and long texts are cut: the
    file stays small however long the run.
    """
    if not shard.is_file():
        return  # it was quarantined
    episodes = list(trajectories.read_episodes([shard]))
    finished = next((e for e in episodes if e.forfeited_by is None), None)
    forfeited = next((e for e in episodes if e.forfeited_by is not None), None)
    longest = max(episodes, key=lambda e: sum(len(t.response_ids) for t in e.turns), default=None)
    chosen = {e.id: e for e in (finished, forfeited, longest) if e is not None}
    path = run / "samples.json"
    kept = [s for s in _kept_samples(path) if s["iteration"] != iteration]
    kept += [_sample(e, iteration) for e in chosen.values()]
    shown = thinned({int(s["iteration"]) for s in kept}, SAMPLED_ITERATIONS)
    kept = [s for s in kept if s["iteration"] in shown]
    durable.write_text(path, json.dumps(sorted(kept, key=lambda s: int(s["iteration"]))))


def thinned(iterations: Collection[int], most: int) -> list[int]:
    """Return at most so many iterations, the first and the last among them: those go that leave the smallest gaps."""
    kept = sorted(iterations)
    while len(kept) > max(most, 2):
        del kept[min(range(1, len(kept) - 1), key=lambda i: kept[i + 1] - kept[i - 1])]
    return kept


def _kept_samples(path: Path) -> list[dict[str, Any]]:
    """Return the samples of earlier iterations; a damaged file holds none, since they only decorate the report."""
    try:
        found = json.loads(path.read_text())
        return [s for s in found if isinstance(s["iteration"], int)]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return []


def _sample(episode: Episode, iteration: int) -> dict[str, Any]:
    return {
        "iteration": iteration,
        "game": episode.game,
        "episode": episode.id,
        "end_reason": episode.end_reason.value,
        "returns": list(episode.returns),
        "turns": [_turn(turn) for turn in episode.turns],
    }


def _turn(turn: Turn) -> dict[str, Any]:
    found: dict[str, Any] = {name: getattr(turn, name) for name in ("role", "policy", "legal", "action")}
    for name in ("observation", "text"):
        text = getattr(turn, name)
        cut = len(text) - MAX_TEXT
        found[name] = text if cut <= 0 else f"{text[:MAX_TEXT]} [{cut:,} more characters in the trajectories]"
    return found


def copy_history(run: Path, out: Path) -> Path:
    """Copy a run's small files to ``out`` and return it: what it takes to judge a run, no weights, turns or replies."""
    out.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        if (run / name).is_file():
            shutil.copyfile(run / name, out / name)
    for name in FOLDERS:
        if (run / name).is_dir():
            shutil.copytree(run / name, out / name, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.parquet"))
    return out
