"""Every record that crosses a module border, and the protocols of games, policies and engines."""

from __future__ import annotations

import enum
import json
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Protocol

from spiral_lib.errors import ConfigError

Returns = tuple[float, float]


class EndReason(enum.StrEnum):
    """Why a match ended; every requested match ends in exactly one of these and is counted."""

    FINISHED = "finished"
    ILLEGAL_ACTION = "illegal_action"
    MAX_TURNS = "max_turns"
    TRUNCATED = "truncated"
    OPPONENT_ERROR = "opponent_error"


class Decision(enum.StrEnum):
    """What the gate says about a candidate checkpoint."""

    ACCEPT = "accept"
    HOLD = "hold"
    ROLLBACK = "rollback"


@dataclass(frozen=True, kw_only=True, slots=True)
class GameSpec:
    """What is constant about a game.

    ``rules`` is the full text shown in prompts, one text for both roles; ``roles`` are the names RAE conditions on;
    ``openspiel`` is the OpenSpiel game string whose rules, action order and information-state keys this game follows.
    """

    name: str
    title: str
    roles: tuple[str, str]
    max_turns: int
    rules: str
    action_format: str
    has_private_information: bool
    openspiel: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    """All that a policy gets to see of a game.

    ``legal_actions`` are strings such as ``[bet]``, or None where actions are parameterised; then ``sample_actions``
    holds some legal ones, from which scripted play draws (they are not shown to a model). ``info_state`` is a compact
    key of exactly what this player knows (OpenSpiel's key where the game exists there). ``is_whole_prompt`` says that
    the observation is the whole message for a model, with no rules or instruction around it.
    """

    game: str
    role: str
    player: int
    rules: str
    action_format: str
    observation: str
    legal_actions: tuple[str, ...] | None
    info_state: str
    sample_actions: tuple[str, ...] = ()
    is_whole_prompt: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownCase:
    """A whole match of which the result is known; a game module may list some in ``KNOWN_CASES``.

    With ``refused`` the last action must be refused for that reason, and ``returns`` are those of the forfeit.
    """

    actions: tuple[str, ...]
    returns: Returns
    refused: str | None = None
    seed: int = 0
    params: tuple[tuple[str, int | float | str | bool], ...] = ()


class Game(Protocol):
    """One play of a game: single-use, no global random, legal actions from state and never from text."""

    spec: GameSpec

    @property
    def current_player(self) -> int | None:
        """Seat to move, or None when the match is over."""
        ...

    def view(self, player: int) -> View:
        """Return what a player sees; has no side effects."""
        ...

    def apply(self, action: str) -> None:
        """Play one action of the current player. Raises IllegalAction and leaves the state unchanged."""
        ...

    def returns(self) -> Returns:
        """Return both players' results in [-1, 1], summing to exactly 0. Only valid when the match is over."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Extraction:
    """The move read from a response: status ``valid`` with an action, or ``invalid`` with a reason."""

    status: str
    action: str | None
    reason: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One generation request. The first ``header_len`` prompt tokens are the same for many requests (game and role).

    An endpoint takes ``text``, the user's message, in place of ids.
    """

    id: int
    prompt_ids: tuple[int, ...]
    header_len: int
    seed: int
    temperature: float
    max_new_tokens: int
    text: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Completion:
    """What an engine returns.

    ``logprobs`` are nats at the sampling temperature, one for each response id, the final end token included.
    ``finish_reason`` is ``stop``, ``length`` (token limit), ``context`` (no room in the window) or ``error``, and then
    ``text`` is the reason. An endpoint's completion has no ids.
    """

    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    text: str
    finish_reason: str


class Engine(Protocol):
    """A token generator over one checkpoint's weights, driven step by step; no threads."""

    name: str
    digest: str

    def submit(self, request: Request) -> None:
        """Queue a request; it joins the running batch as soon as a slot is free."""
        ...

    def step(self) -> list[tuple[int, Completion]]:
        """Advance all live requests by at least one token and return those that finished."""
        ...

    def close(self) -> None:
        """Release weights and caches."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Move:
    """A policy's answer to a view.

    ``action`` is "" when none could be read (``reason`` says why); ``failed`` marks a policy that gave no answer at all
    (an endpoint error), which voids the match; ``finish_reason`` is the completion's, or ``stop`` for scripted play.
    ``shown`` is what was shown of an observation that had to be cut to fit the window.
    """

    action: str
    text: str
    reason: str | None = None
    completion: Completion | None = None
    finish_reason: str = "stop"
    failed: bool = False
    shown: str | None = None


class Policy(Protocol):
    """Something that acts on views: a model, scripted play or a person."""

    ref: str
    engine: str
    temperature: float

    @property
    def digest(self) -> str:
        """Identity of the weights behind it; an engine's weights may be swapped between matches."""
        ...

    def act(self, view: View, *, seed: int) -> Awaitable[Move]:
        """Return a move; ``seed`` keys every random draw it makes."""
        ...


class RefKind(enum.StrEnum):
    """Kinds of PolicyRef."""

    SELF = "self"
    RANDOM = "random"
    OPTIMAL = "optimal"
    HUMAN = "human"
    CHECKPOINT = "checkpoint"
    POOL = "pool"
    API = "api"


_WITH_LOCATOR = {RefKind.CHECKPOINT, RefKind.POOL, RefKind.API}


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyRef:
    """Names a policy; the text form (``self``, ``random``, ``checkpoint:<uri>``, ``pool:<id>``) is used everywhere."""

    kind: RefKind
    locator: str = ""

    @classmethod
    def parse(cls, text: str) -> PolicyRef:
        """Return the reference for its text form. Raises ConfigError naming the known forms."""
        kind_text, colon, locator = text.strip().partition(":")
        try:
            kind = RefKind(kind_text)
        except ValueError:
            known = ", ".join(f"{k}:<...>" if k in _WITH_LOCATOR else k.value for k in RefKind)
            raise ConfigError(f"unknown policy '{text}'. Known forms: {known}") from None
        if (kind in _WITH_LOCATOR) != bool(locator):
            form = f"{kind}:<locator>" if kind in _WITH_LOCATOR else kind.value
            raise ConfigError(f"policy '{text}' has the wrong form; write '{form}'")
        del colon
        return cls(kind=kind, locator=locator)

    def __str__(self) -> str:
        return f"{self.kind}:{self.locator}" if self.locator else self.kind.value


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """One turn of an episode. Token ids are stored as sampled.

    They are empty for scripted play, but for an expert's turns (route sft), which are learned from as they are written
    and whose log-probs are 0.
    """

    index: int
    player: int
    role: str
    seed: int
    policy: str
    policy_digest: str
    engine: str
    temperature: float
    trainable: bool
    info_state: str
    observation: str
    text: str
    action: str
    legal: bool
    invalid_reason: str | None
    finish_reason: str
    prompt_ids: tuple[int, ...] = ()
    response_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Episode:
    """The record of one match. ``returns`` are raw, in [-1, 1] and sum to 0 unless a forfeit table says otherwise."""

    id: str
    game: str
    seed: int
    policies: tuple[str, str]
    turns: tuple[Turn, ...]
    returns: Returns
    end_reason: EndReason
    forfeited_by: int | None = None
    params: tuple[tuple[str, int | float | str | bool], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class MatchSpec:
    """One match to play: who sits where, and the seeds it depends on."""

    id: str
    game: str
    seed: int
    policies: tuple[str, str]
    trainable: tuple[bool, bool]
    params: tuple[tuple[str, int | float | str | bool], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluation:
    """What was measured of one checkpoint outside self-play, so that two checkpoints can be compared item by item.

    ``bank_correct`` holds one verdict per bank item. ``match_returns`` maps ``game/opponent`` to the checkpoint's
    return in each match, None where the match is void; entries 2k and 2k+1 are one seat-swapped pair of one seed.
    """

    metrics: Mapping[str, float]
    bank_correct: tuple[bool, ...] = ()
    match_returns: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    iteration: int = 0
    checkpoint: str = ""

    def to_json(self) -> str:
        """Return canonical JSON that ``from_json`` reads back to an equal value; nan and infinity are refused."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Evaluation:
        """Return the evaluation that ``to_json`` wrote."""
        content = json.loads(text)
        return cls(
            metrics={name: float(value) for name, value in content["metrics"].items()},
            bank_correct=tuple(bool(value) for value in content["bank_correct"]),
            match_returns={
                name: tuple(None if value is None else float(value) for value in values)
                for name, values in content["match_returns"].items()
            },
            iteration=int(content["iteration"]),
            checkpoint=str(content["checkpoint"]),
        )


def zero_sum(first: float) -> Returns:
    """Return a pair that sums to exactly zero (and has no negative zero)."""
    return (first + 0.0, -first + 0.0)


def mean(values: Sequence[float]) -> float:
    """Return the mean, or nan for nothing: an empty sum must never look like a zero."""
    return sum(values) / len(values) if values else float("nan")
