"""The gate between rollout and learner: nothing is trained on that has not been counted and checked."""

from __future__ import annotations

import dataclasses
import html
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spiral_lib.config import RunConfig
from spiral_lib.durable import place, sha256_file, write_text
from spiral_lib.quality_turns import RULES, ShardFacts, read_shard

if TYPE_CHECKING:
    from spiral_lib.quality_suite import Outcome


@dataclass(frozen=True, kw_only=True, slots=True)
class QualityReport:
    """The verdict on an iteration's shards.

    ``failures`` are lines that begin with a rule's name. ``bad_shards`` maps each shard that must not be trained on to
    its reasons; a failure of the iteration as a whole that no single shard explains condemns all of them.
    ``html`` is a self-contained page; ``outcomes`` are those of the expectation suite, empty where it did not run.
    """

    ok: bool
    failures: tuple[str, ...]
    bad_shards: Mapping[Path, tuple[str, ...]]
    metrics: Mapping[str, float]
    html: str
    outcomes: tuple[Outcome, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return what the report shows of it, small enough to be kept for every iteration."""
        return {
            "failures": list(self.failures),
            "expectations": [dataclasses.asdict(outcome) for outcome in self.outcomes],
        }


def check(paths: Sequence[Path], *, planned: int, config: RunConfig, full: bool = True) -> QualityReport:
    """Return the verdict on the shards of one learner step, of which ``planned`` matches were asked for.

    The streamed structural checks always run; ``full`` adds the Great Expectations suite on the merged numeric columns.
    """
    shards = [read_shard(path) for path in paths]
    _blame_repeats(shards)
    bad = {shard.path: shard.reasons() for shard in shards if shard.faults}
    whole = [f"{rule}: {detail}" for rule, detail in _whole_faults(shards, planned, config)]
    outcomes = _outcomes(shards, planned) if full else []
    whole += [f"{o.rule}: {o.expectation}: {o.detail}" for o in outcomes if not o.success]
    failures = [f"{reason} in '{path.name}'" for path, reasons in bad.items() for reason in reasons] + whole
    if whole and not bad:
        bad = {path: tuple(whole) for path in paths}
    metrics = _metrics(shards, bad)
    return QualityReport(
        ok=not failures,
        failures=tuple(failures),
        bad_shards=bad,
        metrics=metrics,
        html=_page(failures, metrics, outcomes),
        outcomes=tuple(outcomes),
    )


def quarantine(path: Path, reasons: Iterable[str], folder: Path) -> Path:
    """Move a shard into the run's ``folder`` with its reasons as JSON beside it; return where it lies now."""
    target = folder / f"{path.parent.name}-{path.name}"
    full, root = path.resolve(), folder.parent.resolve()
    origin = full.relative_to(root) if full.is_relative_to(root) else full
    digest = sha256_file(path) if path.is_file() else None
    note = {"path": origin.as_posix(), "sha256": digest, "reasons": list(reasons)}
    # The note first: a shard that moved without one would look lost.
    write_text(target.with_name(f"{target.name}.json"), json.dumps(note, indent=1))
    if digest is not None:
        place(path, target)
    return target


def _blame_repeats(shards: Sequence[ShardFacts]) -> None:
    """Blame the later of two shards for a match that occurs in both, by its id or by its seed."""
    ids: dict[str, Path] = {}
    seeds: dict[tuple[str, int], str] = {}
    for shard in shards:
        for episode, seed in shard.episodes.items():
            if episode in ids:
                shard.blame("duplicate_episode", f"'{episode}' is in '{ids[episode].name}' as well")
            elif seed in seeds:
                shard.blame("duplicate_episode", f"'{episode}' has the seed of '{seeds[seed]}'")
            ids.setdefault(episode, shard.path)
            seeds.setdefault(seed, episode)


def _whole_faults(shards: Sequence[ShardFacts], planned: int, config: RunConfig) -> Iterable[tuple[str, str]]:
    num_rows = sum(s.num_rows for s in shards)
    num_episodes = sum(len(s.episodes) for s in shards)
    if not num_rows:
        yield "rows", f"{len(shards)} shards hold no rows"
    if num_episodes != planned or not planned:
        yield "episode_count", f"{num_episodes} matches are there, {planned} were planned"
    if not num_episodes:
        return
    void, illegal = sum(s.num_void for s in shards), sum(s.num_illegal for s in shards)
    num_learner = sum(s.num_learner_turns for s in shards)
    limits = config.rollout
    if void > limits.max_void_share * num_episodes:
        yield "void_share", f"{void} of {num_episodes} matches are void, {limits.max_void_share:g} may be"
    if illegal > limits.max_invalid_share * num_learner:
        yield "invalid_share", f"{illegal} of {num_learner} turns are illegal, {limits.max_invalid_share:g} may be"
    seats = sum((s.seats for s in shards), Counter[tuple[str, int]]())
    for kind in sorted({kind for kind, _ in seats}):
        first, second = seats[kind, 0], seats[kind, 1]
        # Four standard deviations of a fair coin: planned seats alternate, and voids or games may thin them out.
        if abs(first - second) > 4 * (first + second) ** 0.5:
            yield "role_balance", f"against '{kind}' the learner sits {first} times in seat 0, {second} in seat 1"
    for step in sorted({step for s in shards for step in s.digests}):
        digests = {digest for s in shards for digest in s.digests.get(step, ())}
        if len(digests) > 1:
            yield "trainable", f"the trained turns of step {step} come from {len(digests)} different weights"


def _outcomes(shards: Sequence[ShardFacts], planned: int) -> list[Outcome]:
    from spiral_lib import quality_suite

    columns: dict[str, list[float]] = {}
    offset = 0
    for shard in shards:
        for name, values in shard.numbers.items():
            # Matches are numbered in each shard from 1.
            columns.setdefault(name, []).extend(v + offset if name == "episode" else v for v in values)
        offset += len(shard.episodes)
    return quality_suite.validate(columns, planned=planned) if columns else []


def _metrics(shards: Sequence[ShardFacts], bad: Mapping[Path, object]) -> dict[str, float]:
    num_episodes = sum(len(s.episodes) for s in shards)
    num_learner = sum(s.num_learner_turns for s in shards)
    return {
        "quality/rows": float(sum(s.num_rows for s in shards)),
        "quality/matches": float(num_episodes),
        "quality/shards": float(len(shards)),
        "quality/bad_shards": float(len(bad)),
        "quality/void_share": sum(s.num_void for s in shards) / num_episodes if num_episodes else math.nan,
        "quality/invalid_share": sum(s.num_illegal for s in shards) / num_learner if num_learner else math.nan,
    }


def _page(failures: Sequence[str], metrics: Mapping[str, float], outcomes: Sequence[Outcome]) -> str:
    """Return one HTML page without references to anything outside; all text is escaped."""
    verdict = "failed" if failures else "passed"
    broken = {line.partition(":")[0] for line in failures}
    rules = [(name, text, "failed" if name in broken else "ok") for name, text in RULES.items()]
    return "".join(
        [
            "<!doctype html><meta charset='utf-8'><title>Data quality</title>",
            "<style>body{font:14px sans-serif;margin:2em}td,th{padding:2px 10px;text-align:left}</style>",
            f"<h1>Data quality: {verdict}</h1>",
            "<ul>" + "".join(f"<li>{html.escape(line)}</li>" for line in failures) + "</ul>" if failures else "",
            _table(("measure", "value"), [(name, f"{value:g}") for name, value in metrics.items()]),
            _table(("rule", "demands", "result"), rules),
            _table(
                ("rule", "expectation", "found", "result"),
                [(o.rule, o.expectation, o.detail, "ok" if o.success else "failed") for o in outcomes],
            )
            if outcomes
            else "",
        ]
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"<tr>{''.join(f'<th>{html.escape(cell)}</th>' for cell in head)}</tr>"]
    lines += [f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows]
    return f"<table>{''.join(lines)}</table>"
