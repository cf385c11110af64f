"""The key-value cache of ``_decoder``; shape suffixes as there."""

from __future__ import annotations

import torch

_CAPACITY_STEP = 64


class SlotCache:
    """Keys and values of the slots, with the rotary tables of as many positions; grows to the need."""

    def __init__(self, *, layers: int, rows: int, kv_heads: int, head_size: int, inv_freq_D: torch.Tensor, scale: float,
                 dtype: torch.dtype) -> None:  # fmt: skip
        self._shape = (layers, 2, rows, kv_heads, head_size)
        self._inv_freq_D, self._scale, self._dtype = inv_freq_D, scale, dtype
        self.capacity = 0
        self._allocate(_CAPACITY_STEP)

    def reserve(self, length: int, rows: int) -> None:
        """Make room for positions below ``length``, keeping the first ``rows`` slots."""
        if length <= self.capacity:
            return
        old = self.kv
        kept = self.capacity
        self._allocate(-(-length // _CAPACITY_STEP) * _CAPACITY_STEP)
        self.kv[:, :, :rows, :, :kept] = old[:, :, :rows]

    def _allocate(self, capacity: int) -> None:
        layers, two, rows, kv_heads, head_size = self._shape
        device = self._inv_freq_D.device
        self.capacity = capacity
        # Zeros and not empty: masked positions still enter products, where a stray NaN would spread.
        self.kv = torch.zeros(layers, two, rows, kv_heads, capacity, head_size, dtype=self._dtype, device=device)
        self.index_L = torch.arange(capacity, device=device)
        angles = self.index_L[:, None].float() * self._inv_freq_D
        cos, sin = angles.cos() * self._scale, angles.sin() * self._scale
        self.cos_LD = torch.cat((cos, cos), -1).to(self._dtype)
        # The rotation of halves is a roll; its sign sits in the table.
        self.sin_LD = torch.cat((-sin, sin), -1).to(self._dtype)
