"""Micro-batches divided among processes, and numbers put together again; alone, everything is returned as it is.

Shape suffix: R response tokens. Every process holds all samples and must take part in every call, in the same order.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spiral_lib.learner.packing import Pack

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class Processes:
    """The place of this process among those of one learner step."""

    rank: int = 0
    world: int = 1

    def share(self, packs: Sequence[Pack]) -> list[tuple[Pack, bool]]:
        """Return this process's packs, as many as everyone else has; False marks one that only fills up.

        Collective operations hang in forward and backward where the numbers of passes differ.
        """
        if self.world == 1:
            return [(pack, True) for pack in packs]
        rounds = -(-len(packs) // self.world)
        own = [i * self.world + self.rank for i in range(rounds)]
        return [(packs[i], True) if i < len(packs) else (packs[0], False) for i in own]

    def complete(self, parts: Sequence[Tensor | None], lengths: Sequence[int]) -> list[Tensor]:
        """Return all rows' tensors, each computed by one process and None in the others; some may have none at all."""
        import torch

        if self.world > 1:
            device = "cuda" if torch.distributed.get_backend() == "nccl" else "cpu"
            blank = next((p for p in parts if p is not None), torch.zeros(0, device=device))
            filled = [blank.new_zeros(n) if p is None else p for p, n in zip(parts, lengths, strict=True)]
            return list(self._reduced(torch.cat(filled)).split(list(lengths)))
        return [p for p in parts if p is not None]

    def gather(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """Return the parts of all processes, in the order of the processes."""
        import torch

        if self.world == 1:
            return list(parts)
        own_R = torch.cat(list(parts))
        sizes = [int(n) for n in self.sums([float(len(own_R)) * (r == self.rank) for r in range(self.world)])]
        ends = list(itertools.accumulate(sizes))
        all_R = own_R.new_zeros(ends[-1])
        all_R[ends[self.rank] - sizes[self.rank] : ends[self.rank]] = own_R
        return [self._reduced(all_R)]

    def sums(self, values: Sequence[float]) -> list[float]:
        """Return each value summed over the processes."""
        return self._numbers(values, "sum")

    def largest(self, value: float) -> float:
        """Return the largest of the processes' values."""
        return self._numbers([value], "max")[0]

    def _numbers(self, values: Sequence[float], how: str) -> list[float]:
        import torch

        if self.world == 1:
            return list(values)
        device = "cuda" if torch.distributed.get_backend() == "nccl" else "cpu"
        reduced: list[float] = self._reduced(torch.tensor(values, dtype=torch.float64, device=device), how).tolist()
        return reduced

    def _reduced(self, values: Tensor, how: str = "sum") -> Tensor:
        from torch import distributed

        kind = distributed.ReduceOp.SUM if how == "sum" else distributed.ReduceOp.MAX
        distributed.all_reduce(values, op=kind)
        return values
