"""Which metrics become which curves. Alarms are marked on the chart of the metric that raised them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from spiral_lib.charts import Mark, Series, line_chart
from spiral_lib.config import GateConfig
from spiral_lib.gates import MIN_DEPENDENCE_SHARE
from spiral_lib.report_files import Rows, RunFiles

_UNIFORM = {"kuhn_poker": 0.4583, "leduc_poker": 2.3736}
"""Exploitability of uniformly random play, to compare with."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Monitor:
    """A collapse monitor: the alarm's name, its metric, and its limit from the settings and the cold start's value."""

    alarm: str
    metric: str
    title: str
    limit: Callable[[GateConfig, float], float]
    low_is_bad: bool = False


MONITORS = (
    Monitor(
        alarm="short_responses",
        metric="reasoning/median_tokens",
        title="Median response length, tokens",
        limit=lambda gates, start: gates.min_length_share * start,
        low_is_bad=True,
    ),
    Monitor(
        alarm="low_variety",
        metric="reasoning/distinct_4grams",
        title="Distinct 4-grams, ratio",
        limit=lambda gates, start: gates.min_distinct_share * start,
        low_is_bad=True,
    ),
    Monitor(
        alarm="same_reasoning",
        metric="reasoning/state_dependence",
        title="Reasoning that follows hidden cards, 0: the same for all",
        limit=lambda gates, start: MIN_DEPENDENCE_SHARE * start,
        low_is_bad=True,
    ),
    Monitor(
        alarm="empty_reasoning",
        metric="reasoning/empty_share",
        title="Replies without reasoning, share",
        limit=lambda gates, start: max(gates.max_empty_share, start),
    ),
    Monitor(
        alarm="invalid_actions",
        metric="reasoning/invalid_share",
        title="Illegal turns, share",
        limit=lambda gates, start: max(gates.max_invalid_share, start),
    ),
    Monitor(
        alarm="one_seat_wins",
        metric="reasoning/seat_share",
        title="Decisive matches won by one seat, share",
        limit=lambda gates, start: max(gates.max_seat_share, start),
    ),
)

_LEARNER = (
    ("KL to the cold start", "learner/kl"),
    ("Token entropy, nats", "learner/entropy"),
    ("Advantage variance, RAE over raw", "rae/variance_ratio"),
    ("Largest likelihood ratio", "learner/ratio_max"),
    ("Engine against learner, k3", "learner/mismatch/k3"),
    ("Learning rate", "learner/lr"),
)


def series(rows: Rows, metric: str, name: str | None = None) -> Series:
    """Return a metric's points, with its interval where every point has one."""
    have = [(float(i), m) for i, m in rows if metric in m]
    low, high = f"{metric}_low", f"{metric}_high"
    full = bool(have) and all(low in m and high in m for _, m in have)
    return Series(
        name=name or metric.split("/", 1)[1],
        points=tuple((x, m[metric]) for x, m in have),
        interval=tuple((m[low], m[high]) for _, m in have) if full else (),
    )


def outside(files: RunFiles) -> Iterator[str]:
    """Yield the charts of what is measured outside self-play."""
    rows = files.iterations
    names = sorted({k for _, m in rows for k in m})
    for name in (n for n in names if n.endswith("/exploitability")):
        game = name.split("/")[1]
        uniform = [("uniform play", _UNIFORM[game])] if game in _UNIFORM else []
        note = "exact best response; lower is better"
        yield line_chart(
            f"Exploitability, {title(game)}", [series(rows, name, "exploitability")], note=note, references=uniform
        )
        mass = name.replace("exploitability", "legal_mass")
        yield line_chart(
            f"Legal mass, {title(game)}", [series(rows, mass, "legal mass")], note="probability on legal actions"
        )
    for game in sorted({n.split("/")[1] for n in names if n.endswith("/win_rate")}):
        yield from _game_charts(files, game, names)
    yield line_chart("Fixed bank", [series(rows, "eval/bank/accuracy", "accuracy")], note="short answers, no game")
    others = [n for n in names if n.count("/") == 2 and n.endswith("/accuracy") and n != "eval/bank/accuracy"]
    yield line_chart("Benchmarks", [series(rows, n, n.split("/")[1]) for n in others], note="accuracy")


def _game_charts(files: RunFiles, game: str, names: Sequence[str]) -> Iterator[str]:
    rows = files.iterations
    wins = [n for n in names if n.startswith(f"eval/{game}/") and n.endswith("/win_rate")]
    lost = [Mark(x=i, name="loses to cold start") for i, a in files.alarms if a == "losing_to_cold_start"]
    shown = [series(rows, n, n.split("/")[2].replace("_", " ")) for n in wins]
    yield line_chart(f"Win rate, {title(game)}", shown, note="95 % intervals; a draw is no win", marks=lost)
    agreement = series(rows, f"eval/{game}/minimax_agreement", "agreement")
    yield line_chart(f"Minimax agreement, {title(game)}", [agreement], note="where not every move keeps the value")
    regret = series(rows, f"eval/{game}/regret", "regret")
    yield line_chart(f"Regret a move, {title(game)}", [regret], note="against perfect play; lower is better")


def roles(files: RunFiles) -> Iterator[str]:
    """Yield, for every game, return and baseline of each role in self-play, and illegal turns by role."""
    rows, x_label = finest(files)
    cells = sorted({k.removeprefix("rae/reward/") for _, m in rows for k in m if k.startswith("rae/reward/")})
    for game in dict.fromkeys(cell.rpartition("/")[0] for cell in cells):
        of_game = [cell.rpartition("/")[2] for cell in cells if cell.rpartition("/")[0] == game]
        for what, heading in (("reward", "Mean reward"), ("baseline", "RAE baseline")):
            lines = [series(rows, f"rae/{what}/{game}/{role}", role) for role in of_game]
            yield line_chart(f"{heading} by role, {title(game)}", lines, note="self-play", x_label=x_label)
        illegal = [
            series(rows, f"reasoning/{game}/{role.replace(' ', '_')}/invalid_share", role) for role in of_game
        ]
        yield line_chart(f"Illegal turns by role, {title(game)}", illegal, note="share", x_label=x_label)


def monitors(files: RunFiles) -> Iterator[str]:
    """Yield a chart for every collapse monitor, with its limit and the alarms it raised."""
    rows, x_label = finest(files)
    for monitor in MONITORS:
        limit = limit_of(monitor, files)
        near = _is_near(rows, monitor.metric, limit)
        yield line_chart(
            monitor.title,
            [series(rows, monitor.metric)],
            note="" if near else f"alarm limit {limit:.3g}",
            references=[("alarm limit", limit)] if near else [],
            marks=marks(files, (monitor.alarm, "not_finite")),
            x_label=x_label,
        )
    norm = series(rows, "learner/grad_norm")
    alarms = marks(files, ("gradient_vanished", "not_finite"))
    yield line_chart("Gradient norm before clipping", [norm], marks=alarms, x_label=x_label)


def limit_of(monitor: Monitor, files: RunFiles) -> float:
    """Return where a monitor raises its alarm; a metric that the cold start lacks starts at 0, as in the gate."""
    start = files.iterations[0][1] if files.iterations else {}
    return monitor.limit(files.config.gates, start.get(monitor.metric, 0.0))


def learner(files: RunFiles) -> Iterator[str]:
    """Yield the learner's charts."""
    rows, x_label = finest(files)
    for heading, metric in _LEARNER:
        yield line_chart(heading, [series(rows, metric)], x_label=x_label)


def marks(files: RunFiles, names: Sequence[str]) -> list[Mark]:
    """Return the alarms of these names where the finest axis shows them: at the last step of their iteration."""
    per = files.config.rollout.steps_per_iteration if files.steps else 1
    return [Mark(x=iteration * per, name=title(alarm)) for iteration, alarm in files.alarms if alarm in names]


def finest(files: RunFiles) -> tuple[Rows, str]:
    """Return the rows of learner steps, or of iterations where there are none, and the name of their axis."""
    return (files.steps, "learner step") if files.steps else (files.iterations, "iteration")


def title(name: str) -> str:
    return name.replace("_", " ")


def _is_near(rows: Rows, metric: str, limit: float) -> bool:
    """Whether a limit can be drawn without squeezing the curve into a corner of the chart."""
    values = [m[metric] for _, m in rows if metric in m]
    return bool(values) and min(values) / 3 <= limit <= 3 * max(values)
