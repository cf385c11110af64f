"""Replies of a model behind any OpenAI-compatible chat endpoint, for opponents and judges; it cannot be trained.

Requests run on an event loop of their own, which moves only within ``step``: no threads, and other engines go on in
between. A request that fails for good is a completion with finish_reason ``error`` whose text is the reason.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections import Counter
from pathlib import Path
from typing import Any

from spiral_lib.config import RunConfig
from spiral_lib.engines._cassette import Answer, open_cassette
from spiral_lib.engines._http import HttpError, Reply, Target, post
from spiral_lib.engines._spending import Spending
from spiral_lib.errors import ConfigError, EngineError
from spiral_lib.seeds import uniform
from spiral_lib.settings import EndpointConfig
from spiral_lib.types import Completion, Request

log = logging.getLogger(__name__)

_POLL_S = 0.02  # the most that a step waits: a local engine's requests go on meanwhile
_MAX_WAIT_S = 60.0
_PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
_FINISH = {"stop": "stop", "length": "length"}


class _Failure(Exception):
    """One attempt failed; ``passing`` says whether another may succeed, ``after_s`` when the endpoint wants it."""

    def __init__(self, reason: str, *, passing: bool = True, after_s: float = 0.0) -> None:
        super().__init__(reason)
        self.reason, self.passing, self.after_s = reason, passing, after_s


class OpenAiEngine:
    """Engine over ``POST <base_url>/chat/completions``; it takes ``Request.text`` and returns no token ids.

    ``failures`` counts requests that failed for good, by reason; ``spending`` what was used, replies in the cassette
    included. After ``max_failures`` such requests in a row no more are sent: the endpoint is taken to be gone.
    """

    name = "openai"

    def __init__(self, model: str, config: EndpointConfig) -> None:
        if not config.base_url:
            raise ConfigError(f"model '{model}' needs endpoint.base_url, for example http://127.0.0.1:8000/v1")
        self._target = Target.parse(config.base_url.rstrip("/"))
        self.digest = f"{self._target.host}:{self._target.port}/{model}"
        self.failures: Counter[str] = Counter()
        self.spending = Spending(config)
        self.num_sent = 0
        self._model, self._config = model, config
        self._cassette = open_cassette(config.cassette, required=config.replay_only)
        for answer in self._cassette.answers if self._cassette else ():
            self.spending.add((answer.prompt_tokens, answer.reply_tokens))
        self._failed_in_a_row = 0
        self._fields = {"Content-Type": "application/json", "Accept": "application/json"}
        if key := os.environ.get(config.key_env, "").strip():
            self._fields["Authorization"] = f"Bearer {key}"
        self._loop = asyncio.new_event_loop()
        self._slots = asyncio.Semaphore(config.concurrency)
        self._tasks: dict[asyncio.Task[Completion], int] = {}

    @property
    def num_live(self) -> int:
        """Requests submitted and not yet returned."""
        return len(self._tasks)

    def submit(self, request: Request) -> None:
        """Queue a request; at most ``concurrency`` are in flight."""
        if not request.text:
            raise EngineError(f"request {request.id} has no text; an endpoint cannot be asked with token ids")
        if self._loop.is_closed():
            raise EngineError("the engine is closed; make a new one")
        self._tasks[self._loop.create_task(self._complete(request))] = request.id

    def step(self) -> list[tuple[int, Completion]]:
        """Let requests go on, for a moment at most, and return those that finished.

        Raises EngineError where a request is not in a cassette that has to have it.
        """
        if not self._tasks:
            return []
        waiting = asyncio.wait(self._tasks, timeout=_POLL_S, return_when=asyncio.FIRST_COMPLETED)
        done, _ = self._loop.run_until_complete(waiting)
        return [(self._tasks.pop(task), task.result()) for task in sorted(done, key=self._tasks.__getitem__)]

    def close(self) -> None:
        """Break off what is in flight."""
        if self._loop.is_closed():
            return
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            self._loop.run_until_complete(asyncio.wait(self._tasks))
        self._tasks.clear()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    async def _complete(self, request: Request) -> Completion:
        body = self._body(request)
        if self._cassette is not None and (kept := self._cassette.get(body)) is not None:
            return _completion(kept.text, kept.finish_reason)
        if self._config.replay_only:
            raise EngineError(
                f"cassette '{self._config.cassette}' lacks a request to '{self._model}' (seed {request.seed}); "
                "use the configuration it was recorded with, or endpoint.replay_only=false"
            )
        async with self._slots:
            try:
                answer = await self._attempts(request, body)
            except _Failure as failure:
                return self._failed(failure.reason)
        self._failed_in_a_row = 0
        if self._cassette is not None:
            self._cassette.add(body, answer)
        return _completion(answer.text, answer.finish_reason)

    async def _attempts(self, request: Request, body: dict[str, Any]) -> Answer:
        """Return the answer of the first attempt that succeeds. Raises the last one's _Failure."""
        for attempt in range(self._config.retries + 1):
            if self._failed_in_a_row >= self._config.max_failures:
                raise _Failure("given_up", passing=False)
            try:
                return await self._attempt(request, body)
            except _Failure as failure:
                if not failure.passing or attempt == self._config.retries:
                    raise
                # Keyed jitter: those that failed together do not come back together, and a replay waits the same.
                wait = self._config.backoff_s * 2**attempt * (0.5 + uniform(request.seed, "backoff", attempt))
                log.debug("endpoint: %s, next attempt in %.1f s", failure.reason, wait)
                await asyncio.sleep(min(max(wait, failure.after_s), _MAX_WAIT_S))
        raise AssertionError("unreachable")

    async def _attempt(self, request: Request, body: dict[str, Any]) -> Answer:
        held = self.spending.estimate(request.text, request.max_new_tokens)
        if not self.spending.hold(held):
            raise _Failure("over_budget", passing=False)
        used = (0, 0)
        try:
            self.num_sent += 1
            async with asyncio.timeout(self._config.timeout_s):
                reply = await post(self._target, "/chat/completions", self._fields, json.dumps(body).encode())
            if reply.status == 200:
                used = held  # it was computed, whether or not it can be read
            answer = _read(reply)
            used = (answer.prompt_tokens, answer.reply_tokens) if answer.prompt_tokens else held
            return answer
        except TimeoutError:
            used = held
            raise _Failure("timeout") from None
        except HttpError as error:
            used = held
            raise _Failure(error.reason) from None
        except OSError:
            raise _Failure("no_connection") from None
        finally:
            self.spending.settle(held, used)

    def _failed(self, reason: str) -> Completion:
        self._failed_in_a_row += 1
        self.failures[reason] += 1
        if self.failures[reason] == 1:
            log.warning(
                "endpoint of '%s': a request failed for good (%s); a match that needs it is void", self._model, reason
            )
        return _completion(reason, "error")

    def _body(self, request: Request) -> dict[str, Any]:
        return {
            "model": self._model,
            "messages": [{"role": "user", "content": request.text}],
            "temperature": request.temperature,
            self._config.limit_name: request.max_new_tokens,
            "seed": request.seed % (1 << 31),  # what every server takes
        }


def _read(reply: Reply) -> Answer:
    """Return the answer in a reply. Raises _Failure where there is none."""
    if reply.status == 400 and _window_is_full(reply.body):
        return Answer(text="", finish_reason="context", prompt_tokens=0, reply_tokens=0)
    if reply.status != 200:
        after = reply.fields.get("retry-after", "")
        raise _Failure(
            f"http_{reply.status}",
            passing=reply.status in _PASSING,
            after_s=float(after) if after.isascii() and after.isdigit() else 0.0,
        )
    try:
        content = json.loads(reply.body)
    except (ValueError, RecursionError):
        raise _Failure("no_json") from None
    try:
        choice, usage = content["choices"][0], content.get("usage") or {}
        text, reason = choice["message"]["content"], choice["finish_reason"]
        spent = [usage.get(name, 0) for name in ("prompt_tokens", "completion_tokens")]
    except (AttributeError, IndexError, KeyError, TypeError):
        raise _Failure("wrong_schema") from None
    if not isinstance(text, str) or not isinstance(reason, str):
        raise _Failure("wrong_schema")
    if not all(type(n) is int and 0 <= n < 1 << 40 for n in spent):
        raise _Failure("wrong_schema")
    if reason not in _FINISH:
        raise _Failure("refused", passing=False)  # content filters, tool calls
    text = text.encode("utf-8", "replace").decode()  # JSON can hold half a surrogate pair, which no file can
    return Answer(text=text, finish_reason=_FINISH[reason], prompt_tokens=spent[0], reply_tokens=spent[1])


def _window_is_full(body: bytes) -> bool:
    text = body.decode(errors="replace").lower()
    return "context_length_exceeded" in text or "context length" in text or "context window" in text


def _completion(text: str, finish_reason: str) -> Completion:
    return Completion(prompt_ids=(), response_ids=(), logprobs=(), text=text, finish_reason=finish_reason)


def engine(checkpoint: Path, config: RunConfig) -> OpenAiEngine:
    """Refuse to generate for the learner: an endpoint has no weights of ours and returns no token ids."""
    raise ConfigError(
        f"engine openai cannot play '{checkpoint}'; choose rollout.engine=hf or vllm, and name an endpoint's model as "
        f"an opponent: opponents.api=0.2 opponents.api_model=... endpoint.base_url={config.endpoint.base_url or '...'}"
    )


ENGINE = engine
