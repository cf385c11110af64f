"""Suites: named sets of benchmarks and games, measured by ``evaluation.evaluate`` and laid out as a table.

``paper`` has the rows of the SPIRAL paper's tables: eight benchmarks with their average, and games by opponent. What
cannot be measured (missing data, no endpoint) is a row that says so, never a zero.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from spiral_lib import stats
from spiral_lib.config import Named, RunConfig
from spiral_lib.errors import ConfigError, DataQualityError
from spiral_lib.evaluation import matches
from spiral_lib.types import Evaluation, PolicyRef, RefKind

PAPER_BENCHMARKS = (
    "math500", "aime24", "aime25", "olympiadbench", "amc23", "minerva272", "gpqa_diamond", "mmlu_pro",
)  # fmt: skip
PAPER_GAMES = (
    "tic_tac_toe", "kuhn_poker", "simple_negotiation",
    "snake", "connect_four", "pig_dice", "liars_dice", "truth_and_deception",
)  # fmt: skip
"""The three games that the paper trains on, then those held out."""

# Accuracies of Qwen3-4B-Base before and after self-play on Kuhn poker (SPIRAL v1), in percent.
_PAPER: Mapping[str, tuple[float, float]] = {
    "math500": (65.8, 76.4), "aime24": (10.0, 13.3), "aime25": (3.3, 10.0), "olympiadbench": (33.3, 38.4),
    "amc23": (50.0, 57.5), "minerva272": (24.3, 42.4), "gpqa_diamond": (30.6, 37.0), "mmlu_pro": (47.2, 57.7),
    "average": (33.0, 41.5),
}  # fmt: skip
_FIXED_MODEL = "fixed model"
SUITES: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {"paper": (PAPER_BENCHMARKS, PAPER_GAMES)}
"""Suite to its benchmarks and games."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One line of the table: a benchmark's accuracy, or a game's win rate against an opponent.

    ``value`` and its interval are None where it was not measured; ``note`` then says why.
    """

    name: str
    opponent: str = ""
    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0
    extraction_failure_rate: float | None = None
    note: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class SuiteResult:
    """The table and the evaluation that it was made from."""

    benchmarks: tuple[Row, ...]
    games: tuple[Row, ...]
    evaluation: Evaluation


def run(
    checkpoint: Path, names: Sequence[str], *, config: RunConfig, records: Path | None = None
) -> SuiteResult:
    """Return the rows of suites and single benchmarks for a checkpoint.

    ``evaluation.matches``, ``benchmark_replies``, ``benchmark_limit`` and the like come from the configuration, its
    games do not; of its opponents the hosted models (``api:<model>``) play, beside random and optimal. Every benchmark
    reply goes to ``<records>/<benchmark>.parquet``.
    """
    from spiral_lib import evaluation

    wanted, games = _expand(names)
    found = [_find(name, config) for name in wanted]
    models = tuple(o for o in config.evaluation.opponents if o.startswith(f"{RefKind.API.value}:"))
    opponents = (RefKind.RANDOM.value, RefKind.OPTIMAL.value, *models)
    settings = dataclasses.replace(
        config.evaluation,
        opponents=opponents if games else (),
        exploitability_games=tuple(g for g in config.evaluation.exploitability_games if g in games),
        bank="bank" in wanted,
        benchmarks=tuple(b.name for b in found if not b.missing and b.name != "bank"),
    )
    # A configuration needs a game; without an opponent it is not played.
    played = tuple(Named(name=game) for game in games or ("kuhn_poker",))
    measured = dataclasses.replace(config, games=played, evaluation=settings)
    made = evaluation.evaluate(checkpoint, cold_start=checkpoint, config=measured, iteration=0, records=records)
    rows = tuple(_benchmark(benchmark, made.metrics, config) for benchmark in found)
    if set(PAPER_BENCHMARKS) <= set(wanted):
        rows += (_average(rows),)
    return SuiteResult(
        benchmarks=rows,
        games=tuple(row for game in games for row in _game(game, made, opponents)),
        evaluation=made,
    )


def ask_endpoint(model: str, names: Sequence[str], *, config: RunConfig, records: Path | None = None) -> SuiteResult:
    """Return the rows of benchmarks for a model behind the configuration's endpoint; games are not played.

    Raises EngineError where the endpoint fails on an item: that is no wrong answer.
    """
    from spiral_lib import engines
    from spiral_lib.evaluation import benchmarks

    found = [_find(name, config) for name in _expand(names)[0]]
    metrics: dict[str, float] = {}
    engine = engines.endpoint(model, config)
    try:
        for one in found:
            if one.missing:
                continue
            result = benchmarks.run(
                one.name,
                engine,
                None,
                config.evaluation,
                context_tokens=config.model.context_tokens,
                seed=config.seed,
            )
            metrics |= benchmarks.metrics(result)
            if records is not None:
                benchmarks.write_records(records / f"{result.name}.parquet", result)
    finally:
        engine.close()
    rows = tuple(_benchmark(one, metrics, config) for one in found)
    if {one.name for one in found} >= set(PAPER_BENCHMARKS):
        rows += (_average(rows),)
    made = Evaluation(metrics=metrics, bank_correct=(), match_returns={}, iteration=0, checkpoint=engine.digest)
    return SuiteResult(benchmarks=rows, games=(), evaluation=made)


def text(result: SuiteResult) -> str:
    """Return the table as aligned lines; accuracies and win rates in percent, with 95 % intervals and n."""
    lines = []
    for row in (*result.benchmarks, *result.games):
        name = f"{row.name} vs {row.opponent}" if row.opponent else row.name
        if row.value is None:
            lines.append(f"{name:<38}  not measured: {row.note}")
            continue
        interval = "" if row.low is None or row.high is None else f"[{100 * row.low:.1f}, {100 * row.high:.1f}]"
        unread = row.extraction_failure_rate
        extra = "" if unread is None else f"unread {100 * unread:.1f} %"
        notes = "; ".join(part for part in (extra, row.note) if part)
        lines.append(f"{name:<38}  {100 * row.value:5.1f} {interval:<15} n={row.n:<6} {notes}".rstrip())
    return "\n".join(lines)


def _expand(names: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if not names:
        raise ConfigError(f"name a suite ({', '.join(SUITES)}) or at least one benchmark")
    wanted: dict[str, None] = {}
    games: dict[str, None] = {}
    for name in names:
        listed, played = SUITES.get(name, ((name,), ()))
        wanted |= dict.fromkeys(listed)
        games |= dict.fromkeys(played)
    return tuple(wanted), tuple(games)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Found:
    """A benchmark as asked for, the name that its metrics carry, and why it cannot be measured, or ""."""

    name: str
    task: str
    missing: str


def _find(name: str, config: RunConfig) -> _Found:
    """Return whether a benchmark can be measured here. An unknown name raises ConfigError."""
    from spiral_lib import plugins
    from spiral_lib.evaluation import benchmarks

    plugins.load(benchmarks.PACKAGE, name, "task")
    try:
        task = benchmarks.task(name, config.evaluation)
    except (ConfigError, DataQualityError) as error:
        return _Found(name=name, task=name, missing=str(error))
    return _Found(name=name, task=str(task["task"]), missing="")


def _benchmark(found: _Found, metrics: Mapping[str, float], config: RunConfig) -> Row:
    name, prefix = found.task, f"eval/{found.task}"
    if found.missing or f"{prefix}/accuracy" not in metrics:
        return Row(name=name, note=found.missing or "it has no items")
    notes = []
    if name in _PAPER:
        notes.append("paper {} -> {} (Qwen3-4B-Base)".format(*_PAPER[name]))
    if config.evaluation.benchmark_limit:
        notes.append("a part of its items")
    if config.evaluation.benchmark_replies > 1 and name != "bank":
        notes.append(f"average of {config.evaluation.benchmark_replies} replies an item")
    if clamped := metrics[f"{prefix}/clamped_n"]:
        notes.append(f"{clamped:.0f} replies with fewer tokens than asked for")
    return Row(
        name=name,
        value=metrics[f"{prefix}/accuracy"],
        low=metrics[f"{prefix}/accuracy_low"],
        high=metrics[f"{prefix}/accuracy_high"],
        n=int(metrics[f"{prefix}/accuracy_n"]),
        extraction_failure_rate=metrics[f"{prefix}/extraction_failure_rate"],
        note="; ".join(notes),
    )


def _average(rows: Sequence[Row]) -> Row:
    """Return the plain mean of the paper's benchmarks; over fewer than eight it is no average of the paper's."""
    found = [(row.value, row.n) for row in rows if row.name in PAPER_BENCHMARKS and row.value is not None]
    if len(found) < len(PAPER_BENCHMARKS):
        return Row(name="average", note=f"only {len(found)} of {len(PAPER_BENCHMARKS)} benchmarks were measured")
    value = math.fsum(v for v, _ in found) / len(found)
    half = stats.Z95 * math.sqrt(math.fsum(v * (1 - v) / n for v, n in found)) / len(found)
    return Row(
        name="average",
        value=value,
        low=max(0.0, value - half),
        high=min(1.0, value + half),
        n=sum(n for _, n in found),
        note="paper {} -> {} (Qwen3-4B-Base)".format(*_PAPER["average"]),
    )


def _game(game: str, made: Evaluation, opponents: Sequence[str]) -> list[Row]:
    rows = []
    for opponent in opponents:
        prefix = matches.prefix_of(game, opponent)
        if f"{prefix}/win_rate" not in made.metrics:
            if f"{prefix}/void_n" in made.metrics:
                rows.append(Row(name=game, opponent=opponent, note="the opponent answered in no match"))
            continue
        rows.append(
            Row(
                name=game,
                opponent=opponent,
                value=made.metrics[f"{prefix}/win_rate"],
                low=made.metrics[f"{prefix}/win_rate_low"],
                high=made.metrics[f"{prefix}/win_rate_high"],
                n=int(made.metrics[f"{prefix}/win_rate_n"]),
                note=verdict(made.match_returns[f"{game}/{opponent}"]),
            )
        )
    if not any(PolicyRef.parse(opponent).kind is RefKind.API for opponent in opponents):
        note = 'the paper\'s opponent is a hosted model; name one: evaluation.opponents=["api:<model>"]'
        rows.append(Row(name=game, opponent=_FIXED_MODEL, note=note))
    return rows


def verdict(returns: Sequence[float | None]) -> str:
    """Return in words whether wins and losses differ, by the two-sided exact sign test at 5 %."""
    wins = sum(value is not None and value > 0 for value in returns)
    losses = sum(value is not None and value < 0 for value in returns)
    p = min(1.0, 2 * stats.sign_test(max(wins, losses), min(wins, losses)))
    if p >= 0.05:
        return "wins and losses: no significant difference"
    return "wins more than it loses" if wins > losses else "loses more than it wins"
