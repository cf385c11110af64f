"""Our engines behind lm-eval's model interface: one adapter for every engine, a seed and a record for every reply."""

from __future__ import annotations

import hashlib
import logging
from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spiral_lib.errors import EngineError
from spiral_lib.evaluation.replies import Progress, sample_replies
from spiral_lib.prompts import Renderer
from spiral_lib.seeds import seed_for
from spiral_lib.types import Completion, Engine, Request

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance

log = logging.getLogger(__name__)

TOO_LONG = "too_long"
"""Finish reason of a reply that was never asked for, because its prompt alone fills the window."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """One reply and how it was made; ``clamped`` says that the limit asked for did not fit the window."""

    prompt: str
    text: str
    seed: int
    temperature: float
    prompt_tokens: int
    response_tokens: int
    max_new_tokens: int
    clamped: bool
    finish_reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class _Planned:
    """A request; ``request`` is None where the prompt does not fit. ``until`` are the texts a reply is cut at."""

    prompt: str
    prompt_tokens: int
    request: Request | None
    seed: int
    temperature: float
    wanted: int
    until: tuple[str, ...]


def model_class() -> type[Any]:
    """Return the adapter class; it is made here because its base class takes seconds to import."""
    from lm_eval.api.model import LM

    class EngineModel(LM):  # type: ignore[misc]
        """An engine as an lm-eval model; only generation, each request one user message through the chat template.

        Without a renderer the engine is an endpoint, which has a template and a window of its own.
        """

        def __init__(
            self,
            engine: Engine,
            renderer: Renderer | None,
            *,
            context_tokens: int,
            seed: int,
            on_progress: Progress | None,
        ) -> None:
            super().__init__()
            self.replies: dict[str, deque[Reply]] = defaultdict(deque)
            """Replies to each prompt in the order of asking, which is the order of the items."""
            self._engine, self._renderer = engine, renderer
            self._context_tokens, self._seed, self._on_progress = context_tokens, seed, on_progress

        def generate_until(self, requests: Sequence[Instance], disable_tqdm: bool = False) -> list[str]:
            """Return the replies, cut at the first stop text of the request.

            The k-th request for one prompt has a seed of its own, so that repeats differ and re-runs do not.
            """
            del disable_tqdm
            occurrences: Counter[str] = Counter()
            planned: list[_Planned] = []
            number = 0
            for context, options in (request.args for request in requests):
                occurrences[context] += 1
                planned.append(self._plan(number, context, options, occurrences[context]))
                number += planned[-1].request is not None
            asked = [p.request for p in planned if p.request is not None]
            completions = iter(sample_replies(self._engine, asked, self._on_progress))
            replies = [_reply(p, None if p.request is None else next(completions)) for p in planned]
            for reply in replies:
                self.replies[reply.prompt].append(reply)
            _warn(replies, self._context_tokens)
            return [reply.text for reply in replies]

        def _plan(self, number: int, context: str, options: Mapping[str, Any], occurrence: int) -> _Planned:
            prompt_ids = () if self._renderer is None else self._renderer.encode_text(context)
            wanted = int(options.get("max_gen_toks", 256))
            room = wanted if self._renderer is None else self._context_tokens - len(prompt_ids)
            key = hashlib.sha256(context.encode()).hexdigest()
            seed = seed_for(self._seed, "benchmark", key, occurrence)
            # A temperature of 0 is greedy in every engine.
            temperature = float(options.get("temperature", 1.0)) if options.get("do_sample") else 0.0
            request = Request(
                id=number,
                prompt_ids=prompt_ids,
                header_len=0,
                seed=seed,
                temperature=temperature,
                max_new_tokens=min(wanted, room),
                text=context if self._renderer is None else "",
            )
            until = options.get("until") or []
            return _Planned(
                prompt=context,
                prompt_tokens=len(prompt_ids),
                request=request if room > 0 else None,
                seed=seed,
                temperature=temperature,
                wanted=wanted,
                until=(until,) if isinstance(until, str) else tuple(until),
            )

        def loglikelihood(self, requests: Sequence[Instance]) -> list[tuple[float, bool]]:
            """Refuse: every benchmark here is generative."""
            raise EngineError("this benchmark asks for log-likelihoods; only generate_until tasks are supported")

        def loglikelihood_rolling(self, requests: Sequence[Instance]) -> list[float]:
            """Refuse: every benchmark here is generative."""
            raise EngineError("this benchmark asks for perplexities; only generate_until tasks are supported")

    return EngineModel


def _reply(planned: _Planned, completion: Completion | None) -> Reply:
    """Return the record of a reply. Raises EngineError where there is none: a silent endpoint is no wrong answer."""
    request = planned.request
    if completion is not None and completion.finish_reason == "error":
        raise EngineError(f"a benchmark item was not answered ({completion.text}); a score without it would be wrong")
    limit = 0 if request is None else request.max_new_tokens
    return Reply(
        prompt=planned.prompt,
        text="" if completion is None else _cut(completion.text, planned.until),
        seed=planned.seed,
        temperature=planned.temperature,
        prompt_tokens=planned.prompt_tokens,
        response_tokens=0 if completion is None else len(completion.response_ids),
        max_new_tokens=limit,
        clamped=limit < planned.wanted,
        finish_reason=TOO_LONG if completion is None else completion.finish_reason,
    )


def _cut(text: str, until: Sequence[str]) -> str:
    for stop in until:
        text = text.partition(stop)[0] if stop else text
    return text


def _warn(replies: Sequence[Reply], context_tokens: int) -> None:
    clamped = sum(r.clamped for r in replies)
    too_long = sum(r.finish_reason == TOO_LONG for r in replies)
    if clamped:
        log.warning(
            "%d of %d replies got fewer tokens than asked for, %d none at all: the window has %d",
            clamped, len(replies), too_long, context_tokens,
        )  # fmt: skip
