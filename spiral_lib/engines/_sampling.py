"""Keyed sampling over the slots of an engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from spiral_lib.types import Request


class Rows:
    """What sampling keeps for each slot: uniforms, temperature, and the tokens and log-probabilities so far."""

    def __init__(self, slots: int, num_tokens: int, stop_ids: Sequence[int], device: Any) -> None:
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
        slots = len(self._index_B)
        self._uniform_BT = torch.zeros(slots, limit, dtype=torch.float64, device=self._device)
        self._token_BT = torch.zeros(slots, limit, dtype=torch.long, device=self._device)
        self._logprob_BT = torch.zeros(slots, limit, device=self._device)

    def _tables(self) -> list[torch.Tensor]:
        return [self._uniform_BT, self._token_BT, self._logprob_BT]

    def add(self, requests: Sequence[Request], limits: Sequence[int]) -> None:
        """Give the next slots to requests that may have that many tokens."""
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
