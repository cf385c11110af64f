"""Local token generation with continuous refill: a finished row's slot is filled while the others go on.

Sampling is keyed: token t of a request takes uniform number t of ``numpy.random.Philox(key=request.seed)`` and inverts
the cumulative distribution, so a completion depends on nothing but the weights, the prompt and the request.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

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
    def score(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[list[float]]: ...


class HfEngine:
    """Engine over a checkpoint folder, with ``rollout.concurrency`` slots and a window of ``model.context_tokens``.

    Qwen3 and Llama weights run in our decoder, other architectures through their transformers class.
    A temperature of 0 takes the most likely token and reports log-probabilities at temperature 1.
    """

    name = "hf"

    def __init__(self, checkpoint: Path, config: RunConfig) -> None:
        import torch

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
        self._rows = _Rows(self._slots, model.get_input_embeddings().weight.shape[0], renderer.stop_ids, model.device)
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

    def score(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[list[float]]:
        """Return teacher-forced log-probabilities (nats, temperature 1) of each response after its prompt, in order."""
        import torch

        decoder = self._open()
        scores: list[list[float]] = [[] for _ in pairs]
        with torch.inference_mode():
            for batch in _score_batches(pairs):
                for index, logprobs in zip(batch, decoder.score([pairs[i] for i in batch]), strict=True):
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


class _Rows:
    """What sampling keeps for each slot: uniforms, temperature, and the tokens and log-probabilities so far."""

    def __init__(self, slots: int, num_tokens: int, stop_ids: Sequence[int], device: Any) -> None:
        import torch

        self.requests: list[Request] = []
        self._device = device
        self._is_stop_V = torch.zeros(num_tokens, dtype=torch.bool, device=device)
        self._is_stop_V[list(stop_ids)] = True
        self._temperature_B = torch.ones(slots, 1, device=device)
        self._greedy_B = torch.zeros(slots, dtype=torch.bool, device=device)
        self._count_B = torch.zeros(slots, dtype=torch.long, device=device)
        self._limit_B = torch.zeros(slots, dtype=torch.long, device=device)
        self._index_B = torch.arange(slots, device=device)
        self._some_greedy = False
        self._allocate(64)

    def _allocate(self, limit: int) -> None:
        import torch

        slots = len(self._index_B)
        self._uniform_BT = torch.zeros(slots, limit, dtype=torch.float64, device=self._device)
        self._token_BT = torch.zeros(slots, limit, dtype=torch.long, device=self._device)
        self._logprob_BT = torch.zeros(slots, limit, device=self._device)

    def _tables(self) -> list[torch.Tensor]:
        return [self._uniform_BT, self._token_BT, self._logprob_BT]

    def add(self, requests: Sequence[Request], limits: Sequence[int]) -> None:
        """Give the next slots to requests that may have that many tokens."""
        import torch

        first, width = len(self.requests), max(limits)
        if width > self._token_BT.shape[1]:
            old = self._tables()
            self._allocate(width)
            for mine, kept in zip(self._tables(), old, strict=True):
                mine[:first, : kept.shape[1]] = kept[:first]
        uniforms = np.zeros((len(requests), width))
        for row, (request, limit) in enumerate(zip(requests, limits, strict=True)):
            uniforms[row, :limit] = np.random.Generator(np.random.Philox(key=request.seed)).random(limit)
        here = slice(first, first + len(requests))
        self._uniform_BT[here, :width] = torch.from_numpy(uniforms).to(self._device)
        temperature = torch.tensor([r.temperature for r in requests], device=self._device)
        self._greedy_B[here] = temperature == 0
        self._temperature_B[here, 0] = temperature.masked_fill(temperature == 0, 1.0)
        self._count_B[here] = 0
        self._limit_B[here] = torch.tensor(limits, device=self._device)
        self.requests += requests
        self._some_greedy = any(r.temperature == 0 for r in self.requests)

    def last_tokens(self) -> torch.Tensor:
        """Return the newest token of every row."""
        rows = self._index_B[: len(self.requests)]
        return self._token_BT[rows, self._count_B[: len(rows)] - 1]

    def append(self, logits_BV: torch.Tensor, first: int) -> list[int]:
        """Sample one token for each row from ``first`` on and return the rows that are finished, ascending."""
        import torch

        here = slice(first, len(self.requests))
        rows, count_B = self._index_B[here], self._count_B[here]
        probs_BV = (logits_BV.float() / self._temperature_B[here]).softmax(-1)
        # Summed in double precision: in single, the tail of a large vocabulary would shift by more than its tokens.
        mass_BV = probs_BV.cumsum(-1, dtype=torch.float64)
        target = self._uniform_BT[rows, count_B][:, None] * mass_BV[:, -1:]
        tokens_B1 = torch.searchsorted(mass_BV, target, right=True).clamp_(max=mass_BV.shape[1] - 1)
        if self._some_greedy:
            tokens_B1 = torch.where(self._greedy_B[here, None], logits_BV.argmax(-1, keepdim=True), tokens_B1)
        tokens_B = tokens_B1[:, 0]
        self._token_BT[rows, count_B] = tokens_B
        self._logprob_BT[rows, count_B] = probs_BV.gather(1, tokens_B1)[:, 0].log()
        count_B += 1
        done_B = self._is_stop_V[tokens_B] | (count_B >= self._limit_B[here])
        return [first + row for row in done_B.nonzero()[:, 0].tolist()]

    def result(self, row: int) -> tuple[Request, tuple[int, ...], tuple[float, ...], bool]:
        """Return a row's request, ids, log-probabilities and whether its last id is a stop id."""
        count = int(self._count_B[row])
        ids = tuple(self._token_BT[row, :count].tolist())
        logprobs = tuple(self._logprob_BT[row, :count].tolist())
        return self.requests[row], ids, logprobs, bool(self._is_stop_V[ids[-1]])

    def move(self, holes: Sequence[int], tail: Sequence[int], rows: int) -> None:
        """Copy the rows ``tail`` into ``holes`` and keep the first ``rows``."""
        if holes:
            for table in (*self._tables(), self._temperature_B, self._greedy_B, self._count_B, self._limit_B):
                table[holes] = table[tail]
            for hole, row in zip(holes, tail, strict=True):
                self.requests[hole] = self.requests[row]
        del self.requests[rows:]


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
    digest = hashlib.sha256()
    for name, weight in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(weight.detach().cpu().contiguous().flatten().view(dtype=_bytes()).numpy())
    return digest.hexdigest()


def _bytes() -> Any:
    import torch

    return torch.uint8


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
