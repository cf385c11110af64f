"""Local token generation with continuous refill: a finished row's slot is filled while the others go on.

Sampling is keyed: token t of a request takes uniform number t of ``numpy.random.Philox(key=request.seed)`` and inverts
the cumulative distribution, so a completion depends on nothing but the weights, the prompt and the request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from spiral_lib import checkpoints
from spiral_lib.config import RunConfig
from spiral_lib.errors import EngineError
from spiral_lib.prompts import Renderer
from spiral_lib.types import Completion, Request

if TYPE_CHECKING:
    import torch

_REFILL_GROUP = 16  # rows prefilled together at least, while others still decode
_SCORE_TOKENS = 8192
Ids = Sequence[int]


class Decoder(Protocol):
    """What the engine asks of a model: rows in the first ``num_rows`` slots, logits for each of them."""

    device: Any
    num_rows: int

    def load(self, state_dict: Mapping[str, torch.Tensor]) -> None: ...
    def admit(self, prompts: Sequence[tuple[int, ...]], header_lens: Sequence[int], room: int) -> torch.Tensor: ...
    def advance(self, tokens_B: torch.Tensor) -> torch.Tensor: ...
    def move(self, holes: Sequence[int], tail: Sequence[int], rows: int) -> None: ...
    def score(self, pairs: Sequence[tuple[Ids, Ids]], temperature: float) -> list[list[float]]: ...


class HfEngine:
    """Engine over a checkpoint folder, with ``rollout.concurrency`` slots and a window of ``model.context_tokens``.

    Qwen3 and Llama weights run in our decoder, other architectures through their transformers class.
    A temperature of 0 takes the most likely token and reports log-probabilities at temperature 1.
    """

    name = "hf"

    def __init__(self, checkpoint: Path, config: RunConfig) -> None:
        import torch

        from spiral_lib.engines._sampling import Rows

        model = checkpoints.load_model(checkpoint, config.model.dtype)
        model = model.to("cuda" if torch.cuda.is_available() else "cpu")
        renderer = Renderer(checkpoints.load_tokenizer(checkpoint), config.prompt)
        self.digest = _digest(checkpoint, model)
        self.num_steps = 0
        self.window = min(config.model.context_tokens, _model_window(model))
        self._slots = config.rollout.concurrency
        with torch.inference_mode():
            self._decoder: Decoder | None = _decoder(model, self._slots)
        self._decode: Callable[[Ids], str] = renderer.decode
        self._rows = Rows(self._slots, model.get_input_embeddings().weight.shape[0], renderer.stop_ids, model.device)
        self._queue: deque[Request] = deque()
        self._refused: list[tuple[int, Completion]] = []

    @property
    def num_live(self) -> int:
        """Requests submitted and not yet returned."""
        return len(self._queue) + len(self._refused) + len(self._rows.requests)

    def submit(self, request: Request) -> None:
        """Queue a request. A prompt that fills the window is returned by the next step, without tokens."""
        if not request.prompt_ids or request.max_new_tokens < 1:
            raise EngineError(f"request {request.id} needs a prompt and max_new_tokens of at least 1")
        if len(request.prompt_ids) >= self.window:
            self._refused.append((request.id, _completion(request, (), (), "", "context")))
            return
        self._queue.append(request)

    def step(self) -> list[tuple[int, Completion]]:
        """Decode until at least one request finishes, refilling free slots first; empty only when nothing is live."""
        import torch

        if self._refused:
            done, self._refused = self._refused, []
            return done
        decoder = self._open()
        with torch.inference_mode():
            finished = self._refill(decoder)
            while not finished and self._rows.requests:
                self.num_steps += 1
                finished = self._rows.append(decoder.advance(self._rows.last_tokens()), 0)
            return self._release(decoder, finished)

    def score(self, pairs: Sequence[tuple[Ids, Ids]], *, temperature: float = 1.0) -> list[list[float]]:
        """Return teacher-forced log-probabilities (nats) of each response after its prompt, in order."""
        import torch

        decoder = self._open()
        scores: list[list[float]] = [[] for _ in pairs]
        with torch.inference_mode():
            for batch in _score_batches(pairs):
                found = decoder.score([pairs[i] for i in batch], temperature)
                for index, logprobs in zip(batch, found, strict=True):
                    scores[index] = logprobs
        return scores

    def load_weights(self, state_dict: Mapping[str, torch.Tensor], digest: str) -> None:
        """Swap the weights in place; nothing cached with the old ones survives.

        Raises EngineError while requests are live.
        """
        import torch

        if self.num_live:
            raise EngineError(f"weights cannot be swapped while {self.num_live} requests are live; finish them first")
        with torch.inference_mode():
            self._open().load(state_dict)
        self.digest = digest

    def close(self) -> None:
        """Release weights and caches."""
        self._decoder = None
        self._queue.clear()

    def _open(self) -> Decoder:
        if self._decoder is None:
            raise EngineError("the engine is closed; make a new one with engines.make")
        return self._decoder

    def _refill(self, decoder: Decoder) -> list[int]:
        """Admit queued requests in groups and return the rows that finish with their first token."""
        live = decoder.num_rows
        count = min(self._slots - live, len(self._queue))
        # A prefill costs about as much for one row as for many, so while others decode a group has to gather first;
        # the group shrinks with the number of requests there are.
        if not count or (live and count < min(_REFILL_GROUP, (live + len(self._queue)) // 4)):
            return []
        group = [self._queue.popleft() for _ in range(count)]
        limits = [min(r.max_new_tokens, self.window - len(r.prompt_ids)) for r in group]
        room = max(len(r.prompt_ids) + limit for r, limit in zip(group, limits, strict=True))
        logits = decoder.admit([r.prompt_ids for r in group], [r.header_len for r in group], room)
        self._rows.add(group, limits)
        return self._rows.append(logits, live)

    def _release(self, decoder: Decoder, finished: list[int]) -> list[tuple[int, Completion]]:
        """Return the completions of finished rows and close the gaps with the last rows still running."""
        if not finished:
            return []
        done = []
        for row in finished:
            request, response_ids, logprobs, stopped = self._rows.result(row)
            used_up = len(response_ids) == request.max_new_tokens
            reason = "stop" if stopped else "length" if used_up else "context"
            text = self._decode(response_ids[:-1] if stopped else response_ids)
            done.append((request.id, _completion(request, response_ids, logprobs, text, reason)))
        gone = set(finished)
        rows = len(self._rows.requests) - len(gone)
        holes = [row for row in finished if row < rows]
        tail = [row for row in range(rows, len(self._rows.requests)) if row not in gone]
        decoder.move(holes, tail, rows)
        self._rows.move(holes, tail, rows)
        return done


def _completion(
    request: Request, ids: tuple[int, ...], logprobs: tuple[float, ...], text: str, reason: str
) -> Completion:
    return Completion(
        prompt_ids=request.prompt_ids, response_ids=ids, logprobs=logprobs, text=text, finish_reason=reason
    )


def _decoder(model: Any, slots: int) -> Decoder:
    from spiral_lib.engines import _decoder, _hf_cache

    if _decoder.supports(model.config):
        return _decoder.SlotDecoder(model, slots=slots)
    return _hf_cache.HfCacheDecoder(model)


def _model_window(model: Any) -> int:
    for name in ("max_position_embeddings", "n_positions"):
        if (window := getattr(model.config, name, None)) is not None:
            return int(window)
    raise EngineError(f"cannot tell the window of a {model.config.model_type} model: no max_position_embeddings")


def _digest(checkpoint: Path, model: Any) -> str:
    """Return the manifest's id, or for a folder without a manifest a hash of the weights."""
    if (checkpoint / checkpoints.MANIFEST).is_file():
        return checkpoints.read_manifest(checkpoint).id
    return checkpoints.digest_weights(model.state_dict())


def _score_batches(pairs: Sequence[tuple[Ids, Ids]]) -> list[list[int]]:
    """Return the pairs' indices in batches of similar length and bounded size."""
    order = sorted(range(len(pairs)), key=lambda i: len(pairs[i][0]) + len(pairs[i][1]))
    batches: list[list[int]] = []
    for index in order:
        prompt, response = pairs[index]
        if not prompt or not response:
            raise EngineError("score needs a prompt and a response of at least one id each")
        size = len(prompt) + len(response)
        if not batches or (len(batches[-1]) + 1) * size > _SCORE_TOKENS:
            batches.append([])
        batches[-1].append(index)
    return batches


ENGINE = HfEngine
