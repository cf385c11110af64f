"""Any causal language model of transformers behind the slot interface of ``_decoder``: rows padded on the left.

Slower than our decoder (keys are copied whenever rows join or leave), and right for every architecture whose state is
keys and values. Shape suffixes as in ``_decoder``.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from transformers import DynamicCache

from spiral_lib.errors import EngineError


class HfCacheDecoder:
    """A transformers model with one dynamic cache for all rows."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.device = model.device
        self.num_rows = 0
        # Without the model's configuration the cache keeps every position, also where attention has a sliding window.
        self._cache = DynamicCache()
        self._mask_BL = torch.zeros(0, 0, dtype=torch.long, device=self.device)
        self._takes_positions = "position_ids" in inspect.signature(model.forward).parameters

    def load(self, state_dict: Mapping[str, torch.Tensor]) -> None:
        """Take over a state dict named as in transformers; tied weights may be left out."""
        own = self._model.state_dict()
        given = {own[name].data_ptr() for name in state_dict if name in own}
        missing = [name for name, weight in own.items() if weight.data_ptr() not in given]
        unknown = sorted(set(state_dict) - set(own))
        if missing or unknown:
            raise EngineError(
                f"weights do not fit the model: missing {missing[:3]}, unknown {unknown[:3]}; "
                "give the full state dict of the same model"
            )
        self._model.load_state_dict(dict(state_dict), strict=False)

    def admit(self, prompts: Sequence[tuple[int, ...]], header_lens: Sequence[int], room: int) -> torch.Tensor:
        """Add rows for prompts and return the logits after each, (B, V). Headers are computed with the prompts."""
        width = max(map(len, prompts))
        tokens_BS = np.zeros((len(prompts), width), dtype=np.int64)
        mask_BS = np.zeros_like(tokens_BS)
        for row, prompt in enumerate(prompts):
            tokens_BS[row, width - len(prompt) :] = prompt
            mask_BS[row, width - len(prompt) :] = 1
        mask = torch.from_numpy(mask_BS).to(self.device)
        cache = DynamicCache()
        logits_BV = self._run(torch.from_numpy(tokens_BS).to(self.device), mask, cache)
        self._join(cache, mask)
        self.num_rows += len(prompts)
        return logits_BV

    def advance(self, tokens_B: torch.Tensor) -> torch.Tensor:
        """Append one token to every row and return the logits after it, (B, V)."""
        self._mask_BL = torch.cat((self._mask_BL, self._mask_BL.new_ones(self.num_rows, 1)), 1)
        return self._run(tokens_B[:, None], self._mask_BL, self._cache)

    def move(self, holes: Sequence[int], tail: Sequence[int], rows: int) -> None:
        """Copy the rows ``tail`` into the places ``holes``, keep the first ``rows``, drop padding common to all."""
        order = np.arange(rows)
        order[list(holes)] = tail
        order_B = torch.from_numpy(order).to(self.device)
        self.num_rows = rows
        if not rows:
            self._cache, self._mask_BL = DynamicCache(), self._mask_BL[:0, :0]
            return
        mask_BL = self._mask_BL[order_B]
        unused = int(mask_BL.argmax(1).min())
        self._mask_BL = mask_BL[:, unused:]
        for layer in self._cache.layers:
            layer.keys = layer.keys[order_B, :, unused:]
            layer.values = layer.values[order_B, :, unused:]

    def score(self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]], temperature: float) -> list[list[float]]:
        """Return the log-probabilities of each response's ids after its prompt, in nats."""
        width = max(len(p) + len(r) for p, r in pairs)
        tokens_BS = torch.zeros(len(pairs), width, dtype=torch.long, device=self.device)
        mask_BS = torch.zeros_like(tokens_BS)
        for row, (prompt, response) in enumerate(pairs):
            tokens_BS[row, : len(prompt) + len(response)] = torch.as_tensor([*prompt, *response])
            mask_BS[row, : len(prompt) + len(response)] = 1
        logits_BSV = self._model(input_ids=tokens_BS, attention_mask=mask_BS, use_cache=False).logits
        scores = []
        for row, (prompt, response) in enumerate(pairs):
            begin, end = len(prompt), len(prompt) + len(response)
            logprobs_SV = (logits_BSV[row, begin - 1 : end - 1].float() / temperature).log_softmax(-1)
            scores.append(logprobs_SV.gather(1, tokens_BS[row, begin:end, None])[:, 0].tolist())
        return scores

    def _run(self, tokens_BS: torch.Tensor, mask_BL: torch.Tensor, cache: DynamicCache) -> torch.Tensor:
        positions = {}
        if self._takes_positions:
            positions["position_ids"] = (mask_BL.cumsum(1) - 1).clamp_(min=0)[:, -tokens_BS.shape[1] :]
        result = self._model(
            input_ids=tokens_BS, attention_mask=mask_BL, past_key_values=cache, use_cache=True, **positions
        )
        logits_BV: torch.Tensor = result.logits[:, -1]
        return logits_BV

    def _join(self, cache: DynamicCache, mask_BL: torch.Tensor) -> None:
        """Append the rows of a second cache, padding the shorter of the two on the left."""
        if not self.num_rows:
            self._cache, self._mask_BL = cache, mask_BL
            return
        width = max(self._mask_BL.shape[1], mask_BL.shape[1])
        self._mask_BL = torch.cat((_widened(self._mask_BL, width, 1), _widened(mask_BL, width, 1)))
        for mine, new in zip(self._cache.layers, cache.layers, strict=True):
            mine.keys = torch.cat((_widened(mine.keys, width, 2), _widened(new.keys, width, 2)))
            mine.values = torch.cat((_widened(mine.values, width, 2), _widened(new.values, width, 2)))


def _widened(tensor: torch.Tensor, width: int, axis: int) -> torch.Tensor:
    missing = width - tensor.shape[axis]
    if not missing:
        return tensor
    shape = list(tensor.shape)
    shape[axis] = missing
    return torch.cat((tensor.new_zeros(shape), tensor), axis)
