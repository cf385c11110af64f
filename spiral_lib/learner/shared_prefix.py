"""Micro-batches in which the common beginning of prompts is one segment, run once with gradient for all rows.

Shape suffixes as in ``packing``. Exact: a row's tokens see the header's keys and values, whose gradients add up over
the rows. All tokens stand in one line, the header first, so that one ordinary forward pass does it all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Sequence
from typing import Any, Final

from spiral_lib.learner import packing

MIN_HEADER: Final = 16
"""Tokens below which a common beginning is not worth a segment of its own."""


def packs(
    rows: Sequence[packing.Row], keys: Sequence[Hashable], budget: int, *, device: Any = "cpu"
) -> list[packing.Pack]:
    """Return all micro-batches of the rows; rows of one key (a game and role) share what their prompts begin with."""
    groups: dict[Hashable, list[int]] = {}
    for i, key in enumerate(keys):
        groups.setdefault(key, []).append(i)
    out, rest = [], list[int]()
    for indices in groups.values():
        header = common_length([rows[i].prompt_ids for i in indices])
        if len(indices) < 2 or header < MIN_HEADER:
            rest += indices
            continue
        lengths = [packing.input_length(rows[i]) - header for i in indices]
        for group in packing.plan(lengths, max(1, budget - header)):
            out.append(make(rows, [indices[i] for i in group], header, device=device))
    return out + _plain(rows, rest, budget, device)


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
