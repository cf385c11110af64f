"""One table for several routes from one cold start: what each became, at what cost, and what of it is beyond chance.

Checkpoints that answered the same items or played the same matches are compared pair by pair (exact sign test,
sign-flip test over seat-swapped pairs), everything else by its intervals.
"""

from __future__ import annotations

import dataclasses
import html
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from spiral_lib import durable, measures, stats
from spiral_lib.errors import LineageError
from spiral_lib.measures import Change, Measure
from spiral_lib.report_files import RunFiles, read
from spiral_lib.report_style import framed, page, section, table
from spiral_lib.types import Decision, Evaluation

PAGE: Final = "routes.html"
_NAMES: Final = {"cold_start": "cold start", "sft": "SFT", "rlvr": "RLVR", "self_play": "self-play"}
_BANK: Final = "eval/bank/accuracy"
_LEVEL: Final = 0.05
_PLAYED: Final = (
    ("Illegal turns in evaluation matches", "reasoning/invalid_share", "{:.1%}"),
    ("Median reply tokens in evaluation matches", "reasoning/median_tokens", "{:g}"),
)
_SCHEMA: Final = pa.schema(
    [
        ("route", pa.string()),
        ("measure", pa.string()),
        ("value", pa.float64()),
        ("low", pa.float64()),
        ("high", pa.float64()),
        ("against_cold_start", pa.string()),
        ("p", pa.float64()),
    ]
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Arm:
    """A route, or the cold start: its newest evaluation and what it took to get there.

    ``tokens`` are response tokens to learn from, each counted once; ``seconds`` are those of all steps of its run.
    """

    name: str
    about: str
    evaluation: Evaluation
    learner_steps: int
    optimizer_steps: int
    tokens: int
    seconds: float
    decisions: tuple[Decision, ...]
    champion: int

    @property
    def title(self) -> str:
        """Return the name for readers."""
        return _NAMES.get(self.name, self.name)


def read_arm(name: str, run: Path) -> Arm:
    """Return a run as one column of the table. Raises LineageError where the folder is no run that was evaluated."""
    files = read(run)
    evaluated = [e.iteration for e in files.ledger.evaluations]
    path = run / "evaluations" / f"{evaluated[-1] if evaluated else 0:04d}.json"
    if not path.is_file():
        raise LineageError(f"'{run}' has no evaluation to compare; train at least one iteration that is evaluated")
    rows, games = [m for _, m in files.steps], ", ".join(g.name for g in files.config.games)
    return Arm(
        name=name,
        about=f"Preset {files.config.preset}, {games}, seed {files.config.seed}.",
        evaluation=Evaluation.from_json(path.read_text(encoding="utf-8")),
        learner_steps=len(rows),
        optimizer_steps=round(sum(m.get("learner/optimizer_steps", 0.0) for m in rows)),
        tokens=round(sum(m.get("rollout/trained_turns", 0.0) * m.get("rollout/response_tokens", 0.0) for m in rows)),
        seconds=_seconds(files),
        decisions=tuple(d.decision for d in files.ledger.decisions),
        champion=files.ledger.champion.iteration if files.ledger.champion else 0,
    )


def _seconds(files: RunFiles) -> float:
    return sum(record.seconds for record in files.records if record.step != "budget")


def read_arms(start: Path, runs: Mapping[str, Path]) -> list[Arm]:
    """Return the cold start and then every route, in order."""
    return [read_arm("cold_start", start), *(read_arm(name, run) for name, run in runs.items())]


def write(start: Path, runs: Mapping[str, Path], out: Path) -> Path:
    """Write ``routes.html``, ``routes.md`` and ``routes.parquet`` into a folder and return the page's path."""
    arms = read_arms(start, runs)
    durable.write_text(out / "routes.md", markdown(arms))
    write_rows(arms, out / "routes.parquet")
    durable.write_text(out / PAGE, page("Routes", body(arms)))
    return out / PAGE


def write_rows(arms: Sequence[Arm], path: Path) -> Path:
    """Write the table in long form, a row for each route and measure, as Parquet."""
    with durable.new_file(path) as temporary:
        pq.write_table(pa.Table.from_pylist(list(long_rows(arms)), schema=_SCHEMA), temporary, compression="zstd")
    return path


def body(arms: Sequence[Arm]) -> str:
    """Return the page's content, style included: the same for the file and for a Flyte deck."""
    answers = "".join(f"<p>{html.escape(line)}</p>" for line in summary(arms))
    numbers = range(1, len(arms) + 1)
    parts = [
        "<h1>Routes from one cold start</h1>",
        f'<p class="soft">{html.escape(arms[0].about)}</p><div class="head">{answers}</div>',
        section("What each became", _html_table(arms, results(arms), numbers)),
        section("What each took", _html_table(arms, costs(arms), numbers)),
    ]
    against = duels(arms)
    if against:
        headings = ("measure", *(f"{second.title} against {first.title}" for first, second in _pairs(arms)))
        rows = [tuple(map(html.escape, row)) for row in against]
        parts.append(section("Route against route", table(headings, rows)))
    return framed("".join([*parts, *(f'<p class="soft">{html.escape(note)}</p>' for note in notes(arms))]))


def _html_table(arms: Sequence[Arm], rows: Sequence[tuple[str, ...]], numbers: Sequence[int]) -> str:
    cells = [tuple(map(html.escape, row)) for row in rows]
    return table(("", *(arm.title for arm in arms)), cells, numbers=numbers)


def markdown(arms: Sequence[Arm]) -> str:
    """Return the same as Markdown."""
    titles = ("", *(arm.title for arm in arms))
    lines = ["# Routes from one cold start", "", arms[0].about, "", *(f"- {line}" for line in summary(arms)), ""]
    lines += [*_markdown_table(titles, [*results(arms), *costs(arms)]), ""]
    against = duels(arms)
    if against:
        pairs = ("", *(f"{second.title} against {first.title}" for first, second in _pairs(arms)))
        lines += [*_markdown_table(pairs, against), ""]
    return "\n".join([*lines, *notes(arms)]) + "\n"


def _markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(headings)} |"
    yield f"|{'---|' * len(headings)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', '/') for cell in row)} |"


def summary(arms: Sequence[Arm]) -> list[str]:
    """Return one sentence for each route: whether it is better than the cold start outside its training."""
    lines = []
    for arm in arms[1:]:
        found = [change(m, arms[0], arm) for m in _measures(arms)]
        judged = [c for c in found if c.verdict not in ("", measures.TOO_FEW)]
        better, worse = (sum(c.verdict == word for c in judged) for word in ("better", "worse"))
        tally = f"{better} of {len(judged)} measures significantly better, {worse} worse"
        tally = tally if judged else "too few items to say"
        lines.append(f"{arm.title} against the cold start: {tally}.")
    return lines


def results(arms: Sequence[Arm]) -> list[tuple[str, ...]]:
    """Return a row for each measure: value, 95 % interval and, for routes, the verdict against the cold start."""
    rows = []
    for m in _measures(arms):
        cells = [_cell(m, arm, "" if arm is arms[0] else change(m, arms[0], arm).verdict) for arm in arms]
        rows.append((m.label, *cells))
    for label, name, shown in _PLAYED:
        values = [arm.evaluation.metrics.get(name, math.nan) for arm in arms]
        if any(map(math.isfinite, values)):
            rows.append((label, *(shown.format(v) if math.isfinite(v) else "–" for v in values)))
    return rows


def _cell(m: Measure, arm: Arm, verdict: str) -> str:
    value = arm.evaluation.metrics.get(m.name, math.nan)
    if not math.isfinite(value):
        return "not measured"
    low, high = measures.interval(arm.evaluation.metrics, m.name)
    span = f" ({low:.3f} to {high:.3f})" if math.isfinite(low) and math.isfinite(high) else ""
    return f"{value:.3f}{span}{', ' if verdict else ''}{verdict}"


def costs(arms: Sequence[Arm]) -> list[tuple[str, ...]]:
    """Return a row for each thing a route took, as measured; the cold start's own training is everybody's."""
    shown: dict[str, Callable[[Arm], str]] = {
        "Learner steps": lambda a: str(a.learner_steps),
        "Optimizer steps": lambda a: str(a.optimizer_steps),
        "Response tokens to learn from": lambda a: f"{a.tokens:,}",
        "Seconds, evaluations included": lambda a: f"{a.seconds:.0f}",
        "Gate": lambda a: ", ".join(f"{d.value} {a.decisions.count(d)}" for d in Decision if d in a.decisions) or "–",
        "Champion": lambda a: f"iteration {a.champion}" if a.champion else "cold start",
    }
    return [(label, *(cell(arm) for arm in arms)) for label, cell in shown.items()]


def duels(arms: Sequence[Arm]) -> list[tuple[str, ...]]:
    """Return, for each measure, how the second route of every pair differs from the first; nothing for one route."""
    pairs = _pairs(arms)
    return [(m.label, *(_duel(change(m, *pair)) for pair in pairs)) for m in _measures(arms)] if pairs else []


def _duel(found: Change) -> str:
    if not found.verdict:
        return "cannot be told"
    chance = f"p={found.p:.3f}" if found.p >= 0.001 else "p<0.001"
    return f"{found.verdict} ({found.after - found.before:+.3f}, {chance})"


def _pairs(arms: Sequence[Arm]) -> list[tuple[Arm, Arm]]:
    return list(itertools.combinations(arms[1:], 2))


def notes(arms: Sequence[Arm]) -> list[str]:
    """Return what a reader must know to take the table for no more than it is."""
    count = len(_measures(arms)) * (len(arms) - 1 + len(_pairs(arms)))
    return [
        f"Verdicts are two-sided at 5 % for each of {count} comparisons: about one in twenty of those without a real "
        "difference reads better or worse by chance. In brackets: the first-named less the other. "
        "Win rates are judged by the returns of the same seat-swapped matches, the bank by the same items, "
        "the rest by its intervals.",
        "Intervals and verdicts cover the measurement and not the luck of training: this is one seed. Each route has "
        "its newest evaluation here, whatever the gate made of it.",
    ]


def change(measure: Measure, first: Arm, second: Arm) -> Change:
    """Return how the second differs from the first, by a paired test where both answered or played the same."""
    found = measures.change(measure, first.evaluation.metrics, second.evaluation.metrics)
    gains = _paired_gains(measure, first.evaluation, second.evaluation)
    if gains is None or found.verdict == measures.TOO_FEW:
        return found
    if measure.name == _BANK:
        worse, better = gains.count(-1.0), gains.count(1.0)
        tails = stats.sign_test(worse, better), stats.sign_test(better, worse)
    else:
        tails = stats.sign_flip_test(gains), stats.sign_flip_test([-g for g in gains])
    p = min(1.0, 2 * min(tails))
    verdict = measures.NOT_SIGNIFICANT if p >= _LEVEL else "better" if sum(gains) > 0 else "worse"
    return dataclasses.replace(found, p=p, verdict=verdict)


def _paired_gains(measure: Measure, first: Evaluation, second: Evaluation) -> list[float] | None:
    """Return what the second gained on each item, or on each pair of matches that are not void; None without pairs."""
    if measure.name == _BANK and len(first.bank_correct) == len(second.bank_correct) > 0:
        return [float(b) - a for a, b in zip(first.bank_correct, second.bank_correct, strict=True)]
    before, after = (_returns(measure, e) for e in (first, second))
    if not before or len(before) != len(after):
        return None
    quads = ([*before[i : i + 2], *after[i : i + 2]] for i in range(0, len(before), 2))
    known = ([r for r in quad if r is not None] for quad in quads)
    return [quad[2] + quad[3] - quad[0] - quad[1] for quad in known if len(quad) == 4]


def _returns(measure: Measure, evaluation: Evaluation) -> tuple[float | None, ...]:
    """Return the returns behind a win rate; nothing for another measure."""
    for key, returns in evaluation.match_returns.items():
        game, _, opponent = key.partition("/")
        if measure.name == f"eval/{game}/vs_{opponent.replace(':', '_').replace('/', '_')}/win_rate":
            return returns
    return ()


def _measures(arms: Sequence[Arm]) -> list[Measure]:
    return measures.outside_self_play(*(arm.evaluation.metrics for arm in arms))


def long_rows(arms: Sequence[Arm]) -> Iterator[dict[str, str | float | None]]:
    """Yield a row for each route and measure, and for each thing that the route took."""
    for arm in arms:
        metrics = arm.evaluation.metrics
        for m in _measures(arms):
            low, high = measures.interval(metrics, m.name)
            row: dict[str, str | float | None] = {"route": arm.name, "measure": m.name, "value": metrics.get(m.name)}
            row |= {"low": low, "high": high}
            if arm is not arms[0]:
                found = change(m, arms[0], arm)
                row |= {"against_cold_start": found.verdict, "p": found.p}
            yield row
        others: dict[str, float | None] = {name: metrics.get(name) for _, name, _ in _PLAYED}
        others |= {"learner_steps": arm.learner_steps, "optimizer_steps": arm.optimizer_steps}
        others |= {"response_tokens": arm.tokens, "seconds": arm.seconds, "champion": arm.champion}
        yield from ({"route": arm.name, "measure": name, "value": value} for name, value in others.items())
