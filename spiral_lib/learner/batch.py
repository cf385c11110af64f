"""From episodes to weighted samples: rewards, baselines, discount, and what is left out and counted."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from spiral_lib.config import RunConfig
from spiral_lib.errors import LearnerError
from spiral_lib.prompts import is_trimmed
from spiral_lib.rae import RoleBaselines, cell
from spiral_lib.types import EndReason, Episode, Turn, mean

MAX_BAD_LOGPROBS: Final = 0.01
"""Share of turns with unusable engine log-probs above which something is broken."""

_ROUNDING: Final = 1e-3


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """One turn to learn from. Return, baseline and advantage stay apart, so that none is ever subtracted twice.

    ``advantage`` is (reward - baseline) times the discount; ``old_logprobs`` are the engine's, in nats at the sampling
    temperature, one for each response id.
    """

    episode: str
    turn: int
    game: str
    role: str
    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    old_logprobs: tuple[float, ...]
    reward: float
    baseline: float
    advantage: float
    truncated: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """Samples in canonical order (episode id, turn), and metrics about all trainable turns, kept or not."""

    samples: tuple[Sample, ...]
    metrics: dict[str, float]


@dataclass(slots=True)
class _Tally:
    """Running lists for the metrics."""

    counts: Counter[str] = field(default_factory=Counter)
    rewards: list[float] = field(default_factory=list)
    centred: list[float] = field(default_factory=list)
    by_role: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    turns: list[Turn] = field(default_factory=list)


def build(episodes: Iterable[Episode], baselines: RoleBaselines, config: RunConfig) -> Batch:
    """Return the samples of a learner step; moves ``baselines`` once for each trained seat of each match.

    Matches are taken in the order of their ids, seat 0 first, so that neither shards nor scheduling can change the
    result. Void matches (opponent_error) are skipped. A seat trains if its turns do: a frozen opponent's tokens never
    yield a sample, nor does its result move a baseline; a seat that never got to move has no turn to advise either.
    On route sft they are an expert's ``demonstrations``, and no baseline moves.
    Raises LearnerError where more than 1% of the turns carry unusable log-probs.
    """
    from spiral_lib.rewards import rewards

    if config.route == "sft":
        return demonstrations(episodes, config)

    tally, samples = _Tally(), []
    for episode in sorted(episodes, key=lambda e: e.id):
        if episode.end_reason is EndReason.OPPONENT_ERROR:
            tally.counts["void"] += 1
            continue
        tally.counts["matches"] += 1
        pair = rewards(episode, config.rewards)
        found: list[Sample] = []
        for player in (0, 1):
            own = [t for t in episode.turns if t.player == player and t.trainable]
            if own:
                found += _seat(episode, own, pair[player], baselines, config, tally)
        samples += sorted(found, key=lambda s: s.turn)
    bad, total = tally.counts["dropped_logprobs"], len(tally.turns)
    if bad > MAX_BAD_LOGPROBS * total:
        raise LearnerError(
            f"{bad} of {total} turns have log-probs that are missing, positive or not finite; the engine must return "
            "one for each response id, in nats at the sampling temperature"
        )
    return Batch(samples=tuple(samples), metrics=_metrics(tally, baselines, len(samples)))


def demonstrations(episodes: Iterable[Episode], config: RunConfig) -> Batch:
    """Return the turns of every seat that did not lose a finished match, each of weight 1 (route sft).

    A draw counts: between players that make no mistakes it is all there is. Turns beyond the window are left out.
    """
    tally, samples = _Tally(), []
    for episode in sorted(episodes, key=lambda e: e.id):
        tally.counts["matches"] += 1
        for turn in episode.turns:
            if episode.end_reason is not EndReason.FINISHED or episode.returns[turn.player] < 0:
                continue
            if not turn.response_ids or len(turn.prompt_ids) + len(turn.response_ids) > config.model.context_tokens:
                tally.counts["dropped_empty"] += 1
                continue
            tally.turns.append(turn)
            tally.rewards.append(1.0)
            samples.append(
                Sample(
                    episode=episode.id,
                    turn=turn.index,
                    game=episode.game,
                    role=turn.role,
                    prompt_ids=turn.prompt_ids,
                    response_ids=turn.response_ids,
                    old_logprobs=turn.logprobs,
                    reward=1.0,
                    baseline=0.0,
                    advantage=1.0,
                )
            )
    return Batch(samples=tuple(samples), metrics=_metrics(tally, RoleBaselines(config.rae.decay), len(samples)))


def _seat(
    episode: Episode, own: Sequence[Turn], reward: float, baselines: RoleBaselines, config: RunConfig, tally: _Tally
) -> list[Sample]:
    """Return the samples of one seat; exactly one baseline update, whatever becomes of its turns."""
    role = own[0].role
    centred = baselines.advantage(episode.game, role, reward)
    tally.by_role.setdefault((episode.game, role), []).append(reward)
    samples = []
    for i, turn in enumerate(own):
        tally.turns.append(turn)
        tally.rewards.append(reward)
        tally.centred.append(centred)
        advantage = centred * config.learner.gamma ** (len(own) - 1 - i)
        reason = _unusable(turn, advantage)
        if reason:
            tally.counts[reason] += 1
            continue
        samples.append(
            Sample(
                episode=episode.id,
                turn=turn.index,
                game=episode.game,
                role=role,
                prompt_ids=turn.prompt_ids,
                response_ids=turn.response_ids,
                old_logprobs=turn.logprobs,
                reward=reward,
                baseline=reward - centred,
                advantage=advantage,
                truncated=turn.finish_reason in ("length", "context"),
            )
        )
    return samples


def _unusable(turn: Turn, advantage: float) -> str:
    """Return why a turn yields no sample, or "". Emptiness comes first: it has no log-probs to judge."""
    if not turn.response_ids or not turn.prompt_ids:
        return "dropped_empty"
    values = turn.logprobs
    if len(values) != len(turn.response_ids) or not all(math.isfinite(x) and x <= _ROUNDING for x in values):
        return "dropped_logprobs"
    # Exactly zero carries no gradient; it would only dilute the divisor (upstream filters it as well).
    return "dropped_zero" if advantage == 0.0 else ""


def _metrics(tally: _Tally, baselines: RoleBaselines, num_samples: int) -> dict[str, float]:
    out = {f"learner/{k}": float(tally.counts[k]) for k in ("dropped_zero", "dropped_empty", "dropped_logprobs")}
    out |= {"learner/samples": float(num_samples), "rollout/matches": float(tally.counts["matches"])}
    out |= {"rollout/void": float(tally.counts["void"]), "rollout/trained_turns": float(len(tally.turns))}
    for (game, role), values in sorted(tally.by_role.items()):
        name = cell(game, role)
        out |= {f"rae/reward/{name}": mean(values), f"rae/baseline/{name}": baselines.value(game, role)}
    if tally.turns:
        out |= _turn_metrics(tally)
    return out


def _turn_metrics(tally: _Tally) -> dict[str, float]:
    turns, n = tally.turns, len(tally.turns)
    lengths = [len(t.response_ids) for t in turns]
    spread = statistics.pvariance(tally.rewards)
    out = {
        "rollout/response_tokens": mean(lengths),
        "rollout/response_tokens_median": float(statistics.median(lengths)),
        "rollout/prompt_tokens": mean([len(t.prompt_ids) for t in turns]),
        "rollout/invalid_rate": sum(not t.legal for t in turns) / n,
        "rollout/truncated_rate": sum(t.finish_reason in ("length", "context") for t in turns) / n,
    }
    if trimmed := sum(is_trimmed(t.observation) for t in turns):
        out["rollout/trimmed_turns"] = float(trimmed)
    if spread > 0:
        out["rae/variance_ratio"] = statistics.pvariance(tally.centred) / spread
    return out
