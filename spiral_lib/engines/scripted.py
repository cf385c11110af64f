"""A token generator without a model, with the real protocol: what it says is a function of prompt and seed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from spiral_lib.types import Completion, Request

Reply = Callable[[tuple[int, ...], int], str | Sequence[int]]


def encode_bytes(text: str) -> tuple[int, ...]:
    """Return the text's UTF-8 bytes as ids."""
    return tuple(text.encode())


def decode_bytes(ids: Sequence[int]) -> str:
    """Return the text of UTF-8 bytes."""
    return bytes(ids).decode(errors="replace")


class ScriptedEngine:
    """Answers each request with ``reply(prompt_ids, seed)``, one id a step, in at most ``slots`` slots.

    A reply is text (coded by ``encode``) or ids (decoded by ``decode``). It ends with ``stop_id`` unless the request's
    token limit or the window cuts it off; every log-probability is 0.
    """

    name = "scripted"

    def __init__(
        self,
        reply: Reply,
        *,
        slots: int = 8,
        window: int = 1 << 20,
        stop_id: int = 256,
        encode: Callable[[str], Sequence[int]] = encode_bytes,
        decode: Callable[[Sequence[int]], str] = decode_bytes,
    ) -> None:
        self.digest = "scripted"
        self.num_steps = 0
        self.window = window
        self._reply, self._slots, self._stop_id = reply, slots, stop_id
        self._encode, self._decode = encode, decode
        self._queue: deque[Request] = deque()
        self._live: dict[int, tuple[int, Completion]] = {}  # steps still to go

    def submit(self, request: Request) -> None:
        """Queue a request; its id must not be live."""
        self._queue.append(request)

    def step(self) -> list[tuple[int, Completion]]:
        """Add one id to every live request and return those that finished."""
        self.num_steps += 1
        while self._queue and len(self._live) < self._slots:
            request = self._queue.popleft()
            completion = self._completion(request)
            self._live[request.id] = (len(completion.response_ids), completion)
        self._live = {number: (left - 1, completion) for number, (left, completion) in self._live.items()}
        done = [(number, completion) for number, (left, completion) in self._live.items() if left <= 0]
        for number, _ in done:
            del self._live[number]
        return done

    def close(self) -> None:
        """Forget all requests."""
        self._queue.clear()
        self._live.clear()

    def _completion(self, request: Request) -> Completion:
        reply = self._reply(request.prompt_ids, request.seed)
        ids = (*(self._encode(reply) if isinstance(reply, str) else reply), self._stop_id)
        room = max(0, self.window - len(request.prompt_ids))
        kept = ids[: min(room, request.max_new_tokens)]
        stopped = len(kept) == len(ids)
        return Completion(
            prompt_ids=request.prompt_ids,
            response_ids=kept,
            logprobs=(0.0,) * len(kept),
            text=self._decode(kept[:-1] if stopped else kept),
            finish_reason="stop" if stopped else "length" if len(kept) == request.max_new_tokens else "context",
        )
