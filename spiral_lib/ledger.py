"""What a run remembers besides weights: one small frozen record, carried from iteration to iteration as JSON."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spiral_lib.errors import LineageError
from spiral_lib.types import Decision

LEDGER_VERSION = 1
Note = int | float | str | bool


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolEntry:
    """A snapshot in the opponent pool: ``id`` is the checkpoint's id, ``digest`` the hash of its folder's files.

    ``rating`` is None until a tournament has rated it.
    """

    id: str
    iteration: int
    digest: str
    rating: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Champion:
    """The best accepted checkpoint so far and its metrics."""

    iteration: int
    checkpoint: str
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationRecord:
    """Metrics of one evaluated iteration."""

    iteration: int
    metrics: Mapping[str, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class DecisionRecord:
    """What the gate decided on an iteration's candidate, and why."""

    iteration: int
    decision: Decision
    reasons: tuple[str, ...] = ()
    alarms: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class RewardChange:
    """The reward configurations before and after a change, as JSON, and the bank's verdicts just before it."""

    before: str
    after: str
    bank_correct: tuple[bool, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Ledger:
    """State of a run between iterations, weights and optimizer excepted.

    ``baselines`` are the RAE cells as ``RoleBaselines.to_json`` names them; ``iteration`` is the last finished one
    (0: the cold start); ``lr_scale`` multiplies the learning rate; ``holds`` counts held iterations in a row;
    ``grad_norms`` is the history the collapse sentinel compares with, oldest first; ``known_problems`` are the digests
    of the problems posed so far, oldest first, by duel game, and empty where no game carries its bank; ``rewards`` is
    the reward configuration as JSON ("" in ledgers that do not say), ``reward_change`` its change when the run began.
    """

    iteration: int = 0
    baselines: Mapping[str, float] = field(default_factory=dict)
    pool: tuple[PoolEntry, ...] = ()
    champion: Champion | None = None
    evaluations: tuple[EvaluationRecord, ...] = ()
    decisions: tuple[DecisionRecord, ...] = ()
    lr_scale: float = 1.0
    holds: int = 0
    grad_norms: tuple[float, ...] = ()
    notes: Mapping[str, Note] = field(default_factory=dict)
    known_problems: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    rewards: str = ""
    reward_change: RewardChange | None = None

    def to_json(self) -> str:
        """Return JSON text with sorted keys: equal ledgers give equal text, which ``from_json`` reads back exactly."""
        content = {"version": LEDGER_VERSION, **dataclasses.asdict(self)}
        for name in ("known_problems", "rewards", "reward_change"):
            if not content[name]:
                del content[name]
        return json.dumps(_encode(content), sort_keys=True, indent=1, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Ledger:
        """Return the ledger that ``to_json`` wrote. Raises LineageError on another version or an unknown field."""
        try:
            content = json.loads(text)
            version = content.pop("version")
        except (ValueError, AttributeError, KeyError, TypeError, RecursionError) as error:
            raise LineageError(f"this is no ledger ({error!r}); restore it from the last iteration's step") from error
        if version != LEDGER_VERSION:
            raise LineageError(f"ledger version {version!r} is not {LEDGER_VERSION}; go on with the code that wrote it")
        try:
            return _decode_ledger(content)
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise LineageError(f"ledger is damaged: {error!r}; restore it from the last iteration's step") from error


def _decode_ledger(content: dict[str, Any]) -> Ledger:
    champion, change = content.pop("champion"), content.pop("reward_change", None)
    return Ledger(
        reward_change=None if change is None else RewardChange(**change | {"bank_correct": _bools(change)}),
        baselines=_floats(content.pop("baselines")),
        pool=tuple(PoolEntry(**{**e, "rating": _optional(e["rating"])}) for e in content.pop("pool")),
        champion=None if champion is None else Champion(**{**champion, "metrics": _floats(champion["metrics"])}),
        evaluations=tuple(
            EvaluationRecord(**{**e, "metrics": _floats(e["metrics"])}) for e in content.pop("evaluations")
        ),
        decisions=tuple(
            DecisionRecord(
                iteration=d["iteration"],
                decision=Decision(d["decision"]),
                reasons=tuple(d["reasons"]),
                alarms=tuple(d["alarms"]),
            )
            for d in content.pop("decisions")
        ),
        lr_scale=_decode_float(content.pop("lr_scale")),
        grad_norms=tuple(_decode_float(g) for g in content.pop("grad_norms")),
        notes={k: _decode_float(v["float"]) if isinstance(v, dict) else v for k, v in content.pop("notes").items()},
        known_problems={game: tuple(digests) for game, digests in content.pop("known_problems", {}).items()},
        **content,
    )


def _encode(value: Any) -> Any:
    """Return plain JSON; the three floats that JSON lacks become ``{"float": "nan"}`` and the like."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if isinstance(value, Mapping):
        return {k: _encode(v) for k, v in value.items()}
    if isinstance(value, tuple | list):
        return [_encode(v) for v in value]
    return value


def _decode_float(value: Any) -> float:
    return float(value["float"] if isinstance(value, dict) else value)


def _floats(values: Mapping[str, Any]) -> dict[str, float]:
    return {k: _decode_float(v) for k, v in values.items()}


def _bools(change: Mapping[str, Any]) -> tuple[bool, ...]:
    return tuple(bool(correct) for correct in change["bank_correct"])


def _optional(value: Any) -> float | None:
    return None if value is None else _decode_float(value)
