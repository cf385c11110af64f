"""Micro-batches: which rows go together, and attention that never crosses from one row into another.

Shape suffixes: B rows or 1, T tokens, R response tokens of all rows one after the other, H heads, D head size.

Two layouts hold the same numbers. ``padded`` is a (rows, longest) block whose padding stands on the right, where causal
attention cannot see it; ``packed`` is one line of tokens in which every row is a segment of its own. Rows are grouped
by length, so padding is little, and for short rows on a CPU the padded block is then faster; see ``MAX_PADDING``.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from spiral_lib.learner import scored_rows

if TYPE_CHECKING:
    from torch import Tensor

ATTENTION: Final = "spiral_segments"
MAX_PADDING: Final = 0.15
MAX_PADDING_LONG: Final = 0.03
LONG: Final = 128
"""Shares of padding above which the packed layout is taken where the model allows it: of short rows, and of rows of
``LONG`` tokens and more on average. Attention is called for each segment, a fixed cost that only long rows make up for.
"""


class Row(Protocol):
    """A prompt and the response to it, as token ids; neither may be empty."""

    @property
    def prompt_ids(self) -> Sequence[int]: ...

    @property
    def response_ids(self) -> Sequence[int]: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Pack:
    """The tensors of one micro-batch.

    ``rows`` are positions in the sequence of rows it was made from. ``segments`` are segment lengths, None when padded.
    The first ``header`` tokens, before all segments, belong to every row. ``where_R`` are flat positions whose hidden
    state predicts ``target_R``: the one before each response token, so that the last token of a row is never an input.
    """

    rows: tuple[int, ...]
    response_lengths: tuple[int, ...]
    segments: tuple[int, ...] | None
    ids_BT: Tensor
    positions_BT: Tensor
    where_R: Tensor
    target_R: Tensor
    header: int = 0


def input_length(row: Row) -> int:
    """Return the number of tokens a row needs as input: all but its last."""
    return len(row.prompt_ids) + len(row.response_ids) - 1


def plan(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Return groups of row indices, similar lengths together, each within ``budget`` tokens, padding included.

    A row longer than the budget is a group of its own. Depends on nothing but the lengths and their order.
    """
    groups: list[list[int]] = []
    for i in sorted(range(len(lengths)), key=lambda i: (lengths[i], i)):
        if groups and (len(groups[-1]) + 1) * lengths[i] <= budget:
            groups[-1].append(i)
        else:
            groups.append([i])
    return groups


def make(rows: Sequence[Row], indices: Sequence[int], *, packed: bool, device: Any = "cpu") -> Pack:
    """Return the tensors of the chosen rows in the packed or the padded layout."""
    import torch

    chosen = [rows[i] for i in indices]
    lengths = [input_length(r) for r in chosen]
    width = max(lengths)
    ids, positions, where, target = list[int](), list[int](), list[int](), list[int]()
    start = 0
    for row, length in zip(chosen, lengths, strict=True):
        tokens = [*row.prompt_ids, *row.response_ids]
        padding = 0 if packed else width - length
        ids += tokens[:length] + [0] * padding
        positions += range(length + padding)
        where += range(start + len(row.prompt_ids) - 1, start + length)
        target += row.response_ids
        start += length + padding
    shape = (1, -1) if packed else (len(chosen), width)
    return Pack(
        rows=tuple(indices),
        response_lengths=tuple(len(r.response_ids) for r in chosen),
        segments=tuple(lengths) if packed else None,
        ids_BT=torch.tensor(ids, device=device).view(shape),
        positions_BT=torch.tensor(positions, device=device).view(shape),
        where_R=torch.tensor(where, device=device),
        target_R=torch.tensor(target, device=device),
    )


def packs(rows: Sequence[Row], budget: int, *, can_pack: bool, device: Any = "cpu") -> list[Pack]:
    """Return all micro-batches of the rows, each in the layout that wastes least, within ``budget`` tokens.

    A line has no padding, so it also takes the group that follows where the tokens of both fit: every micro-batch has
    a fixed cost, above all the gradients of a large vocabulary.
    """
    lengths = [input_length(r) for r in rows]
    groups: list[tuple[list[int], bool]] = []
    for group in plan(lengths, budget):
        used = sum(lengths[i] for i in group)
        padding = 1.0 - used / (len(group) * max(lengths[i] for i in group))
        most = MAX_PADDING_LONG if used >= LONG * len(group) else MAX_PADDING
        if groups and groups[-1][1] and sum(lengths[i] for i in groups[-1][0]) + used <= budget:
            groups[-1][0].extend(group)
        else:
            groups.append((group, can_pack and padding > most))
    return [make(rows, group, packed=packed, device=device) for group, packed in groups]


def prepare(model: Any) -> bool:
    """Give the model segment attention; return False (model unchanged) where its attention cannot be replaced.

    Models with a sliding window keep their own attention, which knows the window, and are always padded; so do models
    whose attention needs more than queries, keys and values, or whose layers do not hand the segments on. The last
    layer of a model with segment attention also leaves out what no loss uses, see ``scored_rows``.
    """
    kinds = getattr(model.config, "layer_types", None)
    window = kinds is None and getattr(model.config, "sliding_window", None) is not None
    if not getattr(model, "_supports_attention_backend", False) or window or set(kinds or ()) - {"full_attention"}:
        return False
    own = model.config._attn_implementation
    if own != ATTENTION and not _hands_segments_on(model):
        model.set_attn_implementation(own)
        return False
    scored_rows.prepare(model)
    return True


def _hands_segments_on(model: Any) -> bool:
    """Switch the model to segment attention and try it on four tokens: every layer must get what the pass was given."""
    import torch
    from transformers import AttentionInterface

    given = {"segments": (1, 2), "header": 1}
    seen: list[bool] = []

    def attention(*args: Any, **kwargs: Any) -> tuple[Tensor, None]:
        seen.append(all(kwargs.get(name) == value for name, value in given.items()))
        return segment_attention(*args, **kwargs)

    ids = torch.zeros(1, 4, dtype=torch.long, device=model.device)
    AttentionInterface.register(ATTENTION, attention)
    try:
        model.set_attn_implementation(ATTENTION)
        with torch.no_grad():
            getattr(model, model.base_model_prefix)(
                input_ids=ids, position_ids=torch.arange(4, device=model.device)[None], use_cache=False, **given
            )
    except (AttributeError, TypeError, ValueError):  # what models raise that call attention in another way
        return False
    finally:
        AttentionInterface.register(ATTENTION, segment_attention)
    return all(seen) and len(seen) == model.config.get_text_config().num_hidden_layers


def segment_attention(
    module: Any,
    query_BHTD: Tensor,
    key_BHTD: Tensor,
    value_BHTD: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    segments: Sequence[int] | None = None,
    header: int = 0,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Return causal attention within each segment, as (B, T, H, D); without segments, within each line of the batch.

    Tokens of a segment also see the ``header`` tokens that stand before all segments.

    The signature is that of transformers' attention functions. Raises ValueError at a mask, since rows are kept apart
    by layout alone, at keys of a cache, and at capped scores or attention sinks, which it does not have.
    """
    import torch

    if attention_mask is not None:
        raise ValueError("segment attention takes no mask: pad on the right and leave attention_mask out")
    if softcap is not None or s_aux is not None:
        raise ValueError("segment attention has no soft cap and no attention sinks")
    if query_BHTD.shape[2] != key_BHTD.shape[2]:
        raise ValueError("segment attention takes no cache: load the model anew to generate with it")
    parts = [t.transpose(1, 2) for t in (query_BHTD, key_BHTD, value_BHTD)]
    if segments is None:
        return _causal(parts, scaling), None
    # Neighbours of one length are one batched call; groups come sorted by length, so runs are long.
    runs = [(length, len(list(run))) for length, run in itertools.groupby(segments)]
    # One split, not slices: its gradient is one concatenation, that of a slice is as long as the whole line.
    sizes = [header, *(length * count for length, count in runs)]
    heads, *blocks = zip(*(t[0].split(sizes) for t in parts), strict=True)
    out = [_causal([t[None] for t in heads], scaling)[0]] if header else []
    for (length, count), block in zip(runs, blocks, strict=True):
        own = [t.unflatten(0, (count, length)) for t in block]
        out.append((_after(heads, own, scaling) if header else _causal(own, scaling)).flatten(0, 1))
    return torch.cat(out).unsqueeze(0), None


def _causal(parts_BTHD: Sequence[Tensor], scaling: float | None) -> Tensor:
    from torch.nn.functional import scaled_dot_product_attention

    q, k, v = (t.transpose(1, 2) for t in parts_BTHD)
    grouped = q.shape[1] != k.shape[1]
    out = scaled_dot_product_attention(q, k, v, is_causal=True, scale=scaling, enable_gqa=grouped)
    return out.transpose(1, 2)


def _after(header_LHD: Sequence[Tensor], block_NLHD: Sequence[Tensor], scaling: float | None) -> Tensor:
    """Return attention of N segments that all follow the same header."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    q, (count, length), header = block_NLHD[0], block_NLHD[0].shape[:2], header_LHD[0].shape[0]
    k, v = (
        torch.cat([head.expand(count, -1, -1, -1), own], dim=1)
        for head, own in zip(header_LHD[1:], block_NLHD[1:], strict=True)
    )
    seen = torch.ones(length, header + length, dtype=torch.bool, device=q.device).tril(header)
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    out = scaled_dot_product_attention(q, k, v, attn_mask=seen, scale=scaling, enable_gqa=q.shape[1] != k.shape[1])
    return out.transpose(1, 2)
