"""Micro-batches in which what prompts begin with in common is one segment, run once with gradient for all its rows.

Shape suffixes as in ``packing``. Exact: a row's tokens see the segment's keys and values, whose gradients add up over
the rows. All tokens stand in one line, the common ones first, so that one ordinary forward pass does it all.

What is common is the rules and the role, the same in all prompts of a seat; in a small game also whole prompts, which
many matches meet, and the beginning of a longer history. Which rows go together is chosen by the tokens it takes.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any, Final

from spiral_lib.learner import packing

MIN_HEADER: Final = 16
"""Tokens below which a common beginning is not worth a segment of its own."""
GROUP_COST: Final = 128
"""What one more micro-batch costs, in tokens."""

Group = tuple[int, list[int]]


def packs(rows: Sequence[packing.Row], budget: int, *, device: Any = "cpu") -> list[packing.Pack]:
    """Return all micro-batches of the rows; those whose prompts begin alike share that beginning."""
    out, rest = [], list[int]()
    for header, indices in groups([r.prompt_ids for r in rows]):
        if not header:
            rest += indices
            continue
        lengths = [packing.input_length(rows[i]) - header for i in indices]
        for part in packing.plan(lengths, max(1, budget - header)):
            out.append(make(rows, [indices[i] for i in part], header, device=device))
    return out + _plain(rows, sorted(rest), budget, device)


def groups(prompts: Sequence[Sequence[int]]) -> list[Group]:
    """Return (number of shared first tokens, rows) for rows in groups such that few tokens are run in all.

    Every prompt keeps at least its last token for itself. Rows of a group that shares nothing stand under 0. Prompts in
    alphabetical order are a tree of their beginnings; at each fork it is cheaper either to share what all have or to
    take every branch for itself.
    """
    order = sorted(range(len(prompts)), key=lambda i: (tuple(prompts[i]), i))
    shared = [common_length([prompts[a], prompts[b]]) for a, b in itertools.pairwise(order)]
    lengths = [len(prompts[i]) for i in order]

    def best(low: int, high: int) -> tuple[int, list[Group]]:
        if high - low == 1:
            return lengths[low], [(0, [order[low]])]
        header = min(shared[low : high - 1])
        forks = [i + 1 for i in range(low, high - 1) if shared[i] == header]
        apart = [best(a, b) for a, b in itertools.pairwise([low, *forks, high])]
        cost = sum(c for c, _ in apart)
        together = sum(lengths[low:high]) - (high - low - 1) * header + GROUP_COST
        if header >= MIN_HEADER and together <= cost:
            return together, [(header, sorted(order[low:high]))]
        return cost, [group for _, part in apart for group in part]

    return best(0, len(order))[1] if order else []


def common_length(prompts: Sequence[Sequence[int]]) -> int:
    """Return how many first tokens all prompts share, less than the shortest: its last token belongs to its row."""
    ordered = sorted(tuple(p) for p in prompts)
    low, high, limit = ordered[0], ordered[-1], min(len(p) for p in prompts) - 1
    return next((i for i in range(limit) if low[i] != high[i]), limit)


def make(rows: Sequence[packing.Row], indices: Sequence[int], header: int, *, device: Any = "cpu") -> packing.Pack:
    """Return one line of tokens: the header, then every row's own tokens, padded on the right to one length."""
    import torch

    chosen = [rows[i] for i in indices]
    lengths = [packing.input_length(r) - header for r in chosen]
    width = max(lengths)
    ids, positions = list(chosen[0].prompt_ids[:header]), list(range(header))
    where, target = list[int](), list[int]()
    for row, length in zip(chosen, lengths, strict=True):
        start = len(ids) - header
        ids += [*row.prompt_ids, *row.response_ids][header : header + length] + [0] * (width - length)
        positions += range(header, header + width)
        where += range(start + len(row.prompt_ids) - 1, start + header + length)
        target += row.response_ids
    return packing.Pack(
        rows=tuple(indices),
        response_lengths=tuple(len(r.response_ids) for r in chosen),
        segments=(width,) * len(chosen),
        ids_BT=torch.tensor(ids, device=device)[None],
        positions_BT=torch.tensor(positions, device=device)[None],
        where_R=torch.tensor(where, device=device),
        target_R=torch.tensor(target, device=device),
        header=header,
    )


def _plain(rows: Sequence[packing.Row], rest: Sequence[int], budget: int, device: Any) -> list[packing.Pack]:
    made = packing.packs([rows[i] for i in rest], budget, can_pack=True, device=device)
    return [dataclasses.replace(p, rows=tuple(rest[i] for i in p.rows)) for p in made]
