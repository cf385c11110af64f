"""Structural checks of turn rows, streamed: one match at a time, whatever the size of the shards."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spiral_lib.errors import DataQualityError
from spiral_lib.trajectories import NO_TURN, expected_turns, read_batches
from spiral_lib.types import EndReason, RefKind

# What each rule demands. Failures begin with the rule's name; the suite of expectations uses the same names.
RULES = {
    "readable": "the file is Parquet with exactly our schema",
    "rows": "there is at least one row",
    "episode_count": "every planned match is there once",
    "duplicate_episode": "no match occurs twice, neither by id nor by seed",
    "turns": "the turns of a match are numbered 0, 1, ... to its recorded length",
    "end_reason": "a match has one outcome: end reason, returns, forfeit, seed and seats are the same in all its rows",
    "finite": "returns and temperatures are finite numbers, temperatures above 0",
    "returns": "returns lie in [-1, 1]; a forfeit costs exactly 1, a void match nothing",
    "zero_sum": "the returns of a match sum to exactly 0",
    "tokens": "every response token has its log-prob, no id is negative, trained turns have tokens",
    "logprobs": "log-probs are finite and at most 0",
    "legality": "legal flags agree with the end reason: only the last turn of a forfeited or void match is illegal",
    "trainable": "only turns of the learner's own current weights are trained on",
    "void_share": "few matches are lost to endpoint errors",
    "invalid_share": "not nearly all turns of the learner are illegal",
    "role_balance": "against every kind of opponent the learner takes both seats about equally often",
}
# What rounding of a log-softmax in single precision may leave above 0.
LOGPROB_TOLERANCE = 1e-5
# The columns with one value in all rows of a match, and the others that are looked at.
_PER_EPISODE = (
    *("step", "num_turns", "game", "episode_seed", "policy_0", "policy_1"),
    *("return_0", "return_1", "end_reason", "forfeited_by"),
)
_PER_TURN = (
    *("turn", "player", "policy", "policy_digest", "temperature", "trainable"),
    *("prompt_ids", "response_ids", "logprobs", "action", "legal", "invalid_reason"),
)
_LEARNER = RefKind.SELF.value
_REASONS = frozenset(EndReason)
_FORFEITS = (EndReason.ILLEGAL_ACTION, EndReason.TRUNCATED)

Row = Mapping[str, Any]
Fault = tuple[str, str]


@dataclass(kw_only=True, slots=True)
class ShardFacts:
    """What one shard holds: its faults by rule (with their number), counts, and numeric columns for the suite."""

    path: Path
    faults: dict[str, list[str]] = field(default_factory=dict)
    episodes: dict[str, tuple[str, int]] = field(default_factory=dict)
    num_rows: int = 0
    num_void: int = 0
    num_learner_turns: int = 0
    num_illegal: int = 0
    seats: Counter[tuple[str, int]] = field(default_factory=Counter)
    digests: dict[int, set[str]] = field(default_factory=dict)
    numbers: dict[str, list[float]] = field(default_factory=dict)

    def blame(self, rule: str, detail: str) -> None:
        """Add a fault."""
        self.faults.setdefault(rule, []).append(detail)

    def reasons(self) -> tuple[str, ...]:
        """Return one line per broken rule, with the first case and the number of others."""
        lines = []
        for rule, details in self.faults.items():
            more = f" (and {len(details) - 1} more)" if len(details) > 1 else ""
            lines.append(f"{rule}: {details[0]}{more}")
        return tuple(lines)


def read_shard(path: Path) -> ShardFacts:
    """Return a shard's facts; whatever is wrong with it, up to an unreadable file, becomes a fault."""
    facts = ShardFacts(path=path)
    try:
        batches = read_batches(path, ("episode", *_PER_EPISODE, *_PER_TURN))
        rows = (row for batch in batches for row in batch.to_pylist())
        for episode, group in itertools.groupby(rows, key=lambda row: row["episode"]):
            _add(facts, str(episode), list(group))
    except DataQualityError as error:
        facts.blame("readable", str(error))
    return facts


def _add(facts: ShardFacts, episode: str, rows: Sequence[Row]) -> None:
    first = rows[0]
    if episode in facts.episodes:
        facts.blame("duplicate_episode", f"'{episode}' occurs twice")
    facts.episodes[episode] = (first["game"], first["episode_seed"])
    for rule, detail in _faults(rows):
        facts.blame(rule, f"'{episode}' {detail}")
    played = [row for row in rows if row["turn"] != NO_TURN]
    facts.num_rows += len(rows)
    facts.num_void += first["end_reason"] == EndReason.OPPONENT_ERROR
    seats = [seat for seat in (0, 1) if first[f"policy_{seat}"] == _LEARNER]
    if len(seats) == 1:
        facts.seats[str(first[f"policy_{1 - seats[0]}"]).partition(":")[0], seats[0]] += 1
    for row in played:
        if row["policy"] == _LEARNER:
            facts.num_learner_turns += 1
            facts.num_illegal += not row["legal"] and first["end_reason"] != EndReason.OPPONENT_ERROR
        if row["trainable"]:
            facts.digests.setdefault(first["step"], set()).add(row["policy_digest"])
    for row in rows:
        for name, value in _numbers(row, len(facts.episodes)).items():
            facts.numbers.setdefault(name, []).append(value)


def _faults(rows: Sequence[Row]) -> Iterator[Fault]:
    first = rows[0]
    numbers = [row["turn"] for row in rows]
    if len(set(numbers)) < len(numbers):
        yield "duplicate_episode", f"has turns {numbers}"
    elif numbers != expected_turns(first["num_turns"]):
        yield "turns", f"has turns {numbers}, {first['num_turns']} were played"
    for name in _PER_EPISODE:
        # By repr: nan is not equal to itself.
        if len({repr(row[name]) for row in rows}) > 1:
            yield "end_reason", f"has several values of {name}"
    if first["end_reason"] not in _REASONS:
        yield "end_reason", f"ended by {first['end_reason']!r}"
        return
    yield from _outcome_faults(rows)
    if numbers != [NO_TURN]:
        for row in rows:
            yield from _turn_faults(row)
        yield from _legality_faults(rows)
    elif first["end_reason"] != EndReason.OPPONENT_ERROR:
        yield "turns", f"ended by {first['end_reason']} without a turn"


def _outcome_faults(rows: Sequence[Row]) -> Iterator[Fault]:
    first = rows[0]
    returns, forfeited_by = (first["return_0"], first["return_1"]), first["forfeited_by"]
    if not all(map(math.isfinite, returns)):
        yield "finite", f"has returns {returns}"
        return
    if sum(returns) != 0:
        yield "zero_sum", f"has returns {returns}"
    if max(map(abs, returns)) > 1 or (forfeited_by in (0, 1) and returns[forfeited_by] != -1):
        yield "returns", f"has returns {returns}, forfeited by {forfeited_by}"
    if first["end_reason"] == EndReason.OPPONENT_ERROR and any(returns):
        yield "returns", f"is void and has returns {returns}"


def _turn_faults(row: Row) -> Iterator[Fault]:
    here = f"turn {row['turn']}"
    if row["player"] not in (0, 1):
        yield "turns", f"{here} by player {row['player']}"
        return
    if not (math.isfinite(row["temperature"]) and row["temperature"] > 0):
        yield "finite", f"{here} at temperature {row['temperature']}"
    num_ids, logprobs = len(row["response_ids"]), row["logprobs"]
    if num_ids != len(logprobs):
        yield "tokens", f"{here} has {num_ids} response ids and {len(logprobs)} log-probs"
    if min(row["response_ids"], default=0) < 0 or min(row["prompt_ids"], default=0) < 0:
        yield "tokens", f"{here} has a negative token id"
    if row["trainable"] and not (num_ids and len(row["prompt_ids"])):
        yield "tokens", f"{here} is trained on and has no prompt or response"
    # Written so that nan fails as well; -inf is caught apart.
    if not all(lp <= LOGPROB_TOLERANCE and lp > -math.inf for lp in logprobs):
        yield "logprobs", f"{here} has a log-prob that is not finite or above 0"
    if row["trainable"] and {row["policy"], row[f"policy_{row['player']}"]} != {_LEARNER}:
        yield "trainable", f"{here} by '{row['policy']}' is marked as trained on"


def _legality_faults(rows: Sequence[Row]) -> Iterator[Fault]:
    last, reason = rows[-1], rows[-1]["end_reason"]
    for row in rows:
        if row["legal"] != (row["invalid_reason"] is None) or (row["legal"] and not row["action"]):
            yield "legality", f"turn {row['turn']} is legal={row['legal']}, reason {row['invalid_reason']!r}"
        if row is not last and not row["legal"]:
            yield "legality", f"goes on after the illegal turn {row['turn']}"
    forfeited = reason in _FORFEITS
    if last["legal"] == (forfeited or reason == EndReason.OPPONENT_ERROR):
        yield "legality", f"ended by {reason} and its last turn is legal={last['legal']}"
    if last["forfeited_by"] != (last["player"] if forfeited else None):
        yield "legality", f"ended by {reason}, turn of player {last['player']}, forfeited by {last['forfeited_by']}"


def _numbers(row: Row, episode: int) -> dict[str, float]:
    return {
        "episode": episode,
        "turn": row["turn"],
        "player": row["player"],
        "legal": row["legal"],
        "temperature": row["temperature"],
        "return_0": row["return_0"],
        "return_1": row["return_1"],
        "return_sum": row["return_0"] + row["return_1"],
        "num_response_ids": len(row["response_ids"]),
        "num_logprobs": len(row["logprobs"]),
        "lowest_logprob": min(row["logprobs"], default=0.0),
        "highest_logprob": max(row["logprobs"], default=0.0),
    }
