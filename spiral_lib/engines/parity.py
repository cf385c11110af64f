"""How far apart two engines' log-probabilities of the same tokens are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from spiral_lib.engines.hf import HfEngine
from spiral_lib.errors import EngineError
from spiral_lib.types import Completion, Engine, Request

_MAX_LOG_RATIO = 20.0


class Countable(Engine, Protocol):
    """An engine that says how much it still has to do."""

    @property
    def num_live(self) -> int: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Parity:
    """The differences over some sampled tokens, reference minus engine, in nats.

    ``kl`` is the k3 estimate of KL(engine || reference) per token; ``outside`` the share of probability ratios that are
    not within 0.8 and 1.25.
    """

    tokens: int
    mean_abs: float
    max_abs: float
    kl: float
    outside: float

    def metrics(self, prefix: str) -> dict[str, float]:
        """Return the numbers as metrics."""
        names = ("tokens", "mean_abs", "max_abs", "kl", "outside")
        return {f"{prefix}/{name}": float(getattr(self, name)) for name in names}


def compare(engine: Sequence[float], reference: Sequence[float]) -> Parity:
    """Return how far the log-probs of an engine's tokens are from the reference's. Raises EngineError on nonsense."""
    differences = [r - e for e, r in zip(engine, reference, strict=True)]
    if not differences or not all(math.isfinite(d) for d in differences):
        raise EngineError(f"{len(differences)} tokens cannot be compared: there are none, or not all are finite")
    bounded = [min(max(d, -_MAX_LOG_RATIO), _MAX_LOG_RATIO) for d in differences]
    return Parity(
        tokens=len(differences),
        mean_abs=math.fsum(map(abs, differences)) / len(differences),
        max_abs=max(map(abs, differences)),
        kl=math.fsum(math.expm1(d) - d for d in bounded) / len(bounded),
        outside=sum(not math.log(0.8) <= d <= math.log(1.25) for d in bounded) / len(bounded),
    )


def finish(engine: Countable, requests: Sequence[Request]) -> dict[int, Completion]:
    """Return the completions of requests by their ids, once the engine has answered them all."""
    for request in requests:
        engine.submit(request)
    done: dict[int, Completion] = {}
    while engine.num_live:
        done |= engine.step()
    return done


def measure(engine: Countable, reference: HfEngine, requests: Sequence[Request]) -> Parity:
    """Return how far an engine's log-probs are from the reference's on what it samples for the requests."""
    done = finish(engine, requests)
    theirs: list[float] = []
    ours: list[float] = []
    for temperature in sorted({r.temperature for r in requests}):
        made = [done[r.id] for r in requests if r.temperature == temperature and done[r.id].response_ids]
        theirs += [x for completion in made for x in completion.logprobs]
        pairs = [(completion.prompt_ids, completion.response_ids) for completion in made]
        # Greedy requests report log-probs at temperature 1.
        ours += [x for scored in reference.score(pairs, temperature=temperature or 1.0) for x in scored]
    return compare(theirs, ours)
