"""The gate: whether a candidate checkpoint becomes the champion, is only held, or is given up.

Self-play reward never counts: both seats are the same policy, so it is about zero whatever the policy is worth. What
counts is measured outside self-play, on items and matches that are the same for every checkpoint, so that two
checkpoints are compared pair by pair.

Comparisons. Against the champion and, so that many small steps down cannot add up, against the cold start as well:

- the bank: discordant items, exact one-sided sign test (McNemar); tolerated drop ``max_bank_drop``;
- exploitability of every game that has it: difference over its jackknife error, normal test; tolerated rise
  ``max_exploitability_rise``;
- returns against frozen opponents, for games without exploitability: paired sums of seat-swapped matches, sign-flip
  test; tolerated drop ``MAX_RETURN_DROP``. Where exploitability is known these returns do not count, because a policy
  that learns to mix wins less against a weak opponent than one that only exploits it;
- for every game, the return against the cold start, which is 0 for the cold start itself: sign-flip test on pairs;
- where the run went on from another one under another reward configuration, the bank against the same bank just before
  the change.

A comparison is a clear loss when its p-value is below ``alpha`` divided by the number of comparisons (Bonferroni: the
gate as a whole is wrong with probability ``alpha`` at most) and it is worse by more than its tolerance. It is doubtful
when it is worse by more than its tolerance only.

The rule, first match wins:

1. A collapse alarm: ``on_collapse`` (``halt`` also asks the driver to stop).
2. A clear loss: rollback if the run has been held ``patience`` times in a row already, else hold.
3. A doubtful or missing comparison: hold.
4. Better than the champion on balance, that is the comparisons' z-values sum to more than 0: accept. Else hold.

Collapse alarms compare the candidate with the cold start (a tiny model's cold start already reasons little, so nothing
is absolute but the shares) in both the training matches and the evaluation matches, see ``_alarms``. A clear loss of
matches against the cold start is reported as the alarm ``losing_to_cold_start`` and decided by rule 2. Where an
iteration is not evaluated, ``watch`` still looks at what its training shows.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from spiral_lib import stats
from spiral_lib.config import RunConfig
from spiral_lib.ledger import Ledger
from spiral_lib.types import Decision, Evaluation

MAX_RETURN_DROP = 0.1
"""Mean return (in [-1, 1]) that a candidate may lose against a frozen opponent before it is held."""

MIN_DEPENDENCE_SHARE = 0.25
"""How far reasoning must still follow what only its player knows, relative to the cold start."""

_MIN_DEPENDENCE = 0.1  # a cold start that hardly follows its cards has nothing to lose that could be told from chance
_MIN_COUNTS = {  # below these a value is chance
    "reasoning/seat_share": 20,
    "reasoning/state_dependence": 100,
}
_MIN_HISTORY = 3  # gradient norms before their median means anything
_EXPLOITABILITY_NOISE = 0.05  # times 1/sqrt(replies): 0.005 at 100 replies, measured; a smaller estimate is luck


@dataclass(frozen=True, kw_only=True, slots=True)
class GateDecision:
    """What the gate says, with its reasons in words; ``halt`` asks the driver to stop the run."""

    decision: Decision
    reasons: tuple[str, ...]
    alarms: tuple[str, ...] = ()
    halt: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """Candidate against a reference on one measure: ``improvement`` above 0 is better, ``z`` is it over its error."""

    name: str
    against: str
    improvement: float
    z: float
    p_worse: float
    tolerance: float

    @property
    def beyond(self) -> bool:
        """Whether it is worse by more than its tolerance; a number that is none counts as worse."""
        return not self.improvement >= -self.tolerance

    def describe(self) -> str:
        """Return one line for the report."""
        change = "worse" if self.improvement < 0 else "better"
        by = f"by {abs(self.improvement):.4f}, p={self.p_worse:.4f} for worse"
        return f"{self.name} {change} than the {self.against} ({by})"


def decide(
    *,
    candidate: Evaluation,
    champion: Evaluation,
    cold_start: Evaluation,
    ledger: Ledger,
    training: Mapping[str, float],
    config: RunConfig,
) -> GateDecision:
    """Return the decision by the rule in this module's docstring; pure, and independent of self-play reward.

    ``training`` are the iteration's own metrics (``reasoning/*`` of its matches, ``learner/grad_norm``), which can only
    raise alarms. With ``gates.enabled`` false every candidate is accepted and alarms are only reported.
    """
    alarms = _alarms(candidate.metrics, cold_start.metrics, training, ledger, config)
    if not config.gates.enabled:
        reasons = ("gates.enabled is false", *alarms.values())
        return GateDecision(decision=Decision.ACCEPT, reasons=reasons, alarms=tuple(alarms))
    if alarms:
        return _on_collapse(alarms, config)
    comparisons = [*compare(candidate, champion, cold_start, config), *since_reward_change(candidate, ledger, config)]
    return _weigh(comparisons, missing(candidate, champion), ledger, config)


def watch(
    *, cold_start: Evaluation, ledger: Ledger, training: Mapping[str, float], config: RunConfig
) -> GateDecision | None:
    """Return the decision on an iteration that is not evaluated: what its alarms ask for, None where there are none.

    A collapse must not go on until the next evaluation. With ``gates.enabled`` false nothing is decided.
    """
    alarms = _alarms({}, cold_start.metrics, training, ledger, config)
    return _on_collapse(alarms, config) if alarms and config.gates.enabled else None


def _on_collapse(alarms: Mapping[str, str], config: RunConfig) -> GateDecision:
    policy = config.gates.on_collapse
    return GateDecision(
        decision=Decision.ROLLBACK if policy == "rollback" else Decision.HOLD,
        reasons=tuple(alarms.values()),
        alarms=tuple(alarms),
        halt=policy == "halt",
    )


def _weigh(comparisons: Sequence[Comparison], absent: Sequence[str], ledger: Ledger, config: RunConfig) -> GateDecision:
    gates = config.gates
    level = gates.alpha / max(1, len(comparisons))
    losses = [c for c in comparisons if c.beyond and c.p_worse < level]
    if losses:
        patient = ledger.holds < gates.patience
        after = f"held {ledger.holds} times in a row, patience is {gates.patience}"
        return GateDecision(
            decision=Decision.HOLD if patient else Decision.ROLLBACK,
            reasons=(*(f"clear loss: {c.describe()}" for c in losses), after),
            alarms=("losing_to_cold_start",) if any(c.name.endswith("/cold_start") for c in losses) else (),
        )
    doubtful = [f"beyond tolerance: {c.describe()}" for c in comparisons if c.beyond]
    doubtful += [f"not measured: {name}" for name in absent]
    if doubtful:
        return GateDecision(decision=Decision.HOLD, reasons=tuple(doubtful))
    own = [c for c in comparisons if c.against == "champion"]
    balance = sum(c.z for c in own)
    lines = tuple(c.describe() for c in own)
    if balance > 0:
        why = f"better on balance, z-values sum to {balance:+.2f}"
        return GateDecision(decision=Decision.ACCEPT, reasons=(why, *lines))
    why = f"not better on balance, z-values sum to {balance:+.2f}" if own else "nothing was measured outside self-play"
    return GateDecision(decision=Decision.HOLD, reasons=(why, *lines))


def compare(
    candidate: Evaluation, champion: Evaluation, cold_start: Evaluation, config: RunConfig
) -> list[Comparison]:
    """Return all comparisons of measures that both sides have."""
    found: list[Comparison] = []
    references = [("champion", champion)] + ([] if champion == cold_start else [("cold start", cold_start)])
    for against, reference in references:
        found += _bank(candidate.bank_correct, reference.bank_correct, against, config.gates.max_bank_drop)
        found += _exploitability(candidate, reference, against, config.gates.max_exploitability_rise)
    found += _returns(candidate, champion)
    for name, returns in candidate.match_returns.items():
        if name.endswith("/cold_start"):
            pairs = _pair_sums(returns, (0.0,) * len(returns))
            found.append(_return_comparison(f"return in {name}", "cold start", pairs))
    return found


def since_reward_change(candidate: Evaluation, ledger: Ledger, config: RunConfig) -> list[Comparison]:
    """Return the bank's comparison with its verdicts just before the rewards changed; none where they did not."""
    if ledger.reward_change is None:
        return []
    before = ledger.reward_change.bank_correct
    return _bank(candidate.bank_correct, before, "time before the reward change", config.gates.max_bank_drop)


def missing(candidate: Evaluation, champion: Evaluation) -> list[str]:
    """Return what the champion was measured on and the candidate was not, or on other items."""
    absent = [name for name in champion.metrics if _is_exploitability(name) and name not in candidate.metrics]
    absent += [name for name in champion.match_returns if name not in candidate.match_returns]
    absent += [
        f"{name} ({len(candidate.match_returns[name])} of {len(returns)} matches)"
        for name, returns in champion.match_returns.items()
        if name in candidate.match_returns and len(returns) != len(candidate.match_returns[name])
    ]
    if len(champion.bank_correct) != len(candidate.bank_correct):
        absent.append(f"bank ({len(candidate.bank_correct)} of {len(champion.bank_correct)} items)")
    return absent


def _bank(
    candidate: Sequence[bool], reference: Sequence[bool], against: str, tolerance: float
) -> list[Comparison]:
    n = len(candidate)
    if n == 0 or n != len(reference):
        return []
    pairs = list(zip(candidate, reference, strict=True))
    better = sum(new and not old for new, old in pairs)
    worse = sum(old and not new for new, old in pairs)
    return [
        Comparison(
            name="bank accuracy",
            against=against,
            improvement=(better - worse) / n,
            z=(better - worse) / math.sqrt(better + worse) if better + worse else 0.0,
            p_worse=stats.sign_test(worse, better),
            tolerance=tolerance,
        )
    ]


def _is_exploitability(name: str) -> bool:
    return name.startswith("eval/") and name.endswith("/exploitability")


def _exploitability(candidate: Evaluation, reference: Evaluation, against: str, tolerance: float) -> list[Comparison]:
    found = []
    for name in sorted(filter(_is_exploitability, candidate.metrics)):
        if name not in reference.metrics:
            continue
        improvement = reference.metrics[name] - candidate.metrics[name]
        z = improvement / math.hypot(*(_exploitability_error(e.metrics, name) for e in (candidate, reference)))
        found.append(
            Comparison(
                name=name.removeprefix("eval/"),
                against=against,
                improvement=improvement,
                z=z,
                p_worse=stats.normal_tail(-z),
                tolerance=tolerance,
            )
        )
    return found


def _exploitability_error(metrics: Mapping[str, float], name: str) -> float:
    replies = metrics.get(f"{name}_n", 1.0)
    return max(metrics.get(f"{name}_se", 0.0), _EXPLOITABILITY_NOISE / math.sqrt(replies))


def _returns(candidate: Evaluation, reference: Evaluation) -> list[Comparison]:
    found = []
    for name in sorted(candidate.match_returns):
        game = name.rpartition("/")[0]
        old = reference.match_returns.get(name, ())
        new = candidate.match_returns[name]
        if f"eval/{game}/exploitability" in candidate.metrics or len(old) != len(new):
            continue
        found.append(_return_comparison(f"return in {name}", "champion", _pair_sums(new, old)))
    return found


def _return_comparison(name: str, against: str, pairs: Sequence[float]) -> Comparison:
    """``pairs`` are the sums over two matches, hence the halves."""
    return Comparison(
        name=name,
        against=against,
        improvement=math.fsum(pairs) / (2 * len(pairs)) if pairs else 0.0,
        z=stats.z_of(pairs),
        p_worse=stats.sign_flip_test(pairs),
        tolerance=MAX_RETURN_DROP,
    )


def _pair_sums(new: Sequence[float | None], old: Sequence[float | None]) -> list[float]:
    """Return new minus old, summed over each seat-swapped pair; a pair with a void match is left out whole.

    The two matches of a pair share their chance draws, so they are one observation and not two.
    """
    moved = [None if a is None or b is None else a - b for a, b in zip(new, old, strict=True)]
    return [a + b for a, b in zip(moved[::2], moved[1::2], strict=False) if a is not None and b is not None]


def _alarms(
    candidate: Mapping[str, float],
    cold_start: Mapping[str, float],
    training: Mapping[str, float],
    ledger: Ledger,
    config: RunConfig,
) -> dict[str, str]:
    """Return the raised collapse alarms, name to sentence.

    short_responses, low_variety: median response tokens and distinct 4-gram ratio below a share of the cold start's.
    same_reasoning: reasoning no longer follows hidden cards and the like, though the cold start's did.
    empty_reasoning, invalid_actions, one_seat_wins: shares above a limit and above the cold start's.
    gradient_vanished: no signal in the whole iteration, or a gradient norm of 0 or below a share of its running median.
    not_finite: any of these numbers is none. Measures over too few replies or matches are left out.
    """
    g = config.gates
    rules: tuple[tuple[str, str, Callable[[float, float], bool]], ...] = (
        ("short_responses", "reasoning/median_tokens", lambda now, start: now < g.min_length_share * start),
        ("low_variety", "reasoning/distinct_4grams", lambda now, start: now < g.min_distinct_share * start),
        (
            "same_reasoning",
            "reasoning/state_dependence",
            lambda now, start: start >= _MIN_DEPENDENCE and now < MIN_DEPENDENCE_SHARE * start,
        ),
        ("empty_reasoning", "reasoning/empty_share", lambda now, start: now > max(g.max_empty_share, start)),
        ("invalid_actions", "reasoning/invalid_share", lambda now, start: now > max(g.max_invalid_share, start)),
        ("one_seat_wins", "reasoning/seat_share", lambda now, start: now >= max(g.max_seat_share, start)),
    )
    raised: dict[str, str] = {}
    for alarm, metric, collapsed in rules:
        # A share that the cold start lacks has no start to exceed; a length or variety has none to fall from.
        start = _counted(cold_start, metric) or 0.0
        for where, metrics in (("training", training), ("evaluation", candidate)):
            now = _counted(metrics, metric)
            if now is None:
                continue
            if not math.isfinite(now):
                raised.setdefault("not_finite", f"{metric} in {where} is {now}")
            elif collapsed(now, start):
                raised.setdefault(alarm, f"{alarm}: {metric} in {where} is {now:.4g}, cold start {start:.4g}")
    return raised | _gradient_alarm(training, ledger, g.min_grad_share)


def _counted(metrics: Mapping[str, float], name: str) -> float | None:
    """Return a metric, None where it is missing or known to stand for too few counts."""
    needed = _MIN_COUNTS.get(name, 0)
    return None if metrics.get(f"{name}_n", needed) < needed else metrics.get(name)


def _gradient_alarm(training: Mapping[str, float], ledger: Ledger, min_share: float) -> dict[str, str]:
    if training.get("learner/no_signal") == 1.0:
        return {"gradient_vanished": "gradient_vanished: no turn of the iteration had an advantage to learn from"}
    now = training.get("learner/grad_norm")
    if now is None:
        return {}
    if not math.isfinite(now):
        return {"not_finite": f"learner/grad_norm in training is {now}"}
    history = [norm for norm in ledger.grad_norms if math.isfinite(norm)]
    if now == 0.0:
        return {"gradient_vanished": "gradient_vanished: learner/grad_norm is 0"}
    if len(history) < _MIN_HISTORY or now >= min_share * statistics.median(history):
        return {}
    median = statistics.median(history)
    return {"gradient_vanished": f"gradient_vanished: learner/grad_norm is {now:.3g}, median so far {median:.3g}"}
