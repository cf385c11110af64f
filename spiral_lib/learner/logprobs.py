"""Log-probabilities of response tokens without ever holding all logits.

Shape suffixes: B rows or 1, T tokens, R response tokens, C response tokens of one chunk, E hidden size, V vocabulary.
All log-probs are nats at the sampling temperature, computed in float32 (float64 for a float64 model).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from spiral_lib.learner import packing, scored_rows

if TYPE_CHECKING:
    from torch import Tensor

CACHED: Final = 65_536
"""Logits handled at once on a CPU: 256 kB in float32, a part of a core's second-level cache."""
LINE: Final = 16
"""Logits in a line of the cache, in float32."""


def token_logprobs(model: Any, pack: packing.Pack, *, temperature: float, chunk: int) -> tuple[Tensor, Tensor]:
    """Return (log-prob, entropy) of every response position of the pack, both (R,) and differentiable."""
    weight_VE = plain_head(model)
    if weight_VE is None:
        logits_RV = model(**_inputs(model, pack)).logits.flatten(0, 1).index_select(0, pack.where_R)
        return logits_to_logprobs(logits_RV, pack.target_R, temperature)
    hidden_RE = response_hidden(model, pack)
    return head_logprobs(hidden_RE, weight_VE, pack.target_R, temperature=temperature, chunk=chunk)


def response_hidden(model: Any, pack: packing.Pack) -> Tensor:
    """Return the hidden states that predict response tokens, (R, E), in the precision that products run in."""
    import torch

    hidden_BTE = getattr(model, model.base_model_prefix)(**_inputs(model, pack)).last_hidden_state
    hidden_RE = hidden_BTE.flatten(0, 1).index_select(0, pack.where_R)
    device = hidden_RE.device.type
    if torch.is_autocast_enabled(device):
        hidden_RE = hidden_RE.to(torch.get_autocast_dtype(device))
    return hidden_RE


def _inputs(model: Any, pack: packing.Pack) -> dict[str, Any]:
    inputs = {"input_ids": pack.ids_BT, "use_cache": False, **scored_rows.keyword(model, pack.where_R)}
    if pack.segments is not None:
        inputs |= {"position_ids": pack.positions_BT, "segments": pack.segments}
    if pack.header:
        inputs |= {"header": pack.header}
    return inputs


def score(
    model: Any, rows: Sequence[packing.Row], *, temperature: float, chunk: int, budget: int, can_pack: bool
) -> list[Tensor]:
    """Return each row's response log-probs, in the order of the rows, without gradient."""
    import torch

    out: list[Any] = [None] * len(rows)
    with torch.no_grad():
        for pack in packing.packs(rows, budget, can_pack=can_pack, device=model.device):
            logprobs_R, _ = token_logprobs(model, pack, temperature=temperature, chunk=chunk)
            for i, part in zip(pack.rows, logprobs_R.split(pack.response_lengths), strict=True):
                out[i] = part
    return out


def logits_to_logprobs(logits_RV: Tensor, target_R: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Return (log-prob, entropy) from full logits: the plain definition, for models with an unusual head."""
    import torch

    all_RV = torch.log_softmax(_wide(logits_RV) / temperature, dim=-1)
    return all_RV.gather(-1, target_R[:, None]).squeeze(-1), -(all_RV.exp() * all_RV).sum(-1)


def head_logprobs(
    hidden_RE: Tensor, weight_VE: Tensor, target_R: Tensor, *, temperature: float, chunk: int
) -> tuple[Tensor, Tensor]:
    """Return (log-prob, entropy) of a linear head, ``chunk`` positions at a time in both directions."""
    import torch

    # In both directions alike: autocast is not in force during backward. The dot product of the entropy would heed it.
    with torch.autocast(hidden_RE.device.type, enabled=False):
        logprobs_R, entropy_R = _chunked_head().apply(hidden_RE, weight_VE, target_R, temperature, chunk)
    return logprobs_R, entropy_R


def plain_head(model: Any) -> Tensor | None:
    """Return the head's weight, or None where logits are more than a product with it (bias, soft cap, scale)."""
    import torch

    head = model.get_output_embeddings()
    special = ("final_logit_softcapping", "logit_scale", "logits_scaling")
    plain = type(head) is torch.nn.Linear and head.bias is None
    if not plain or any(getattr(model.config, name, None) not in (None, 1, 1.0) for name in special):
        return None
    return head.weight


def _wide(x: Tensor) -> Tensor:
    import torch

    return x if x.dtype == torch.float64 else x.float()


@functools.cache
def _chunked_head() -> Any:
    """Return the autograd function; made on first use, since torch is only imported when a learner runs."""
    import torch

    class ChunkedHead(torch.autograd.Function):  # type: ignore[misc]
        """(hidden, weight, target) -> (log-prob, entropy); weight gradients add up in at least float32."""

        @staticmethod
        def forward(ctx: Any, hidden_RE: Tensor, weight_VE: Tensor, target_R: Tensor, t: float, chunk: int) -> Any:
            logprobs, entropies = [], []
            for h_CE, y_C in zip(hidden_RE.split(chunk), target_R.split(chunk), strict=True):
                p_CV = _logits(h_CE, weight_VE, t)
                n = _cached_rows(p_CV)
                for z_NV, y_N in zip(p_CV.split(n), y_C.split(n), strict=True):
                    all_NV = torch.log_softmax(z_NV, dim=-1)
                    logprobs.append(all_NV.gather(-1, y_N[:, None]).squeeze(-1))
                    entropies.append(-torch.linalg.vecdot(torch.exp(all_NV, out=z_NV), all_NV))
            ctx.t, ctx.chunk = t, chunk
            ctx.set_materialize_grads(False)
            entropy_R = torch.cat(entropies)
            # Where one chunk holds every position, it is kept: as large as what backward would need to make it again.
            kept_CV = p_CV if len(hidden_RE) <= chunk else None
            ctx.save_for_backward(hidden_RE, weight_VE, target_R, entropy_R, kept_CV)
            return torch.cat(logprobs), entropy_R

        @staticmethod
        def backward(ctx: Any, d_logprobs_R: Tensor | None, d_entropy_R: Tensor | None) -> Any:
            hidden_RE, weight_VE, target_R, entropy_R, kept_CV = ctx.saved_tensors
            d_hidden_RE = torch.empty_like(hidden_RE)
            d_weight_VE: Any = None
            low_VE = weight_VE.to(hidden_RE.dtype)
            for start in range(0, hidden_RE.shape[0], ctx.chunk):
                c = slice(start, start + ctx.chunk)
                # A kept chunk is written over, which a second backward pass would be told by autograd.
                p_CV = _logits(hidden_RE[c], weight_VE, ctx.t).softmax(-1) if kept_CV is None else kept_CV
                g_C = None if d_logprobs_R is None else d_logprobs_R[c]
                e_C = None if d_entropy_R is None else d_entropy_R[c]
                _to_logits_gradient(p_CV, target_R[c], g_C, e_C, entropy_R[c])
                d_CV = (p_CV if ctx.t == 1.0 else p_CV.div_(ctx.t)).to(hidden_RE.dtype)
                d_hidden_RE[c] = d_CV @ low_VE
                more_VE = _wide(d_CV.T @ hidden_RE[c])
                d_weight_VE = more_VE if d_weight_VE is None else d_weight_VE.add_(more_VE)
            return d_hidden_RE, d_weight_VE.to(weight_VE.dtype), None, None, None

    return ChunkedHead


def _logits(hidden_CE: Tensor, weight_VE: Tensor, temperature: float) -> Tensor:
    """Return logits at the temperature as a tensor of their own, in at least float32."""
    import torch

    positions, vocabulary = hidden_CE.shape[0], weight_VE.shape[0]
    low_EV = weight_VE.to(hidden_CE.dtype).T
    dtype = torch.promote_types(hidden_CE.dtype, torch.float32)
    # Rows start a cache line behind a round number: at a vocabulary such as 49,152 the products of backward, which
    # go down the columns, would find all rows in the same few sets of the cache.
    logits_CV = hidden_CE.new_empty(positions, vocabulary + LINE, dtype=dtype)[:, :vocabulary]
    if dtype == hidden_CE.dtype:
        torch.mm(hidden_CE, low_EV, out=logits_CV)
    else:
        logits_CV.copy_(hidden_CE @ low_EV)
    return logits_CV if temperature == 1.0 else logits_CV.div_(temperature)


def _cached_rows(logits_CV: Tensor) -> int:
    """Return how many positions to handle at once: on a CPU so few that they stay in the cache from use to use."""
    count: int = logits_CV.shape[0]
    return max(1, CACHED // logits_CV.shape[1]) if logits_CV.device.type == "cpu" else max(1, count)


def _to_logits_gradient(
    p_CV: Tensor, target_C: Tensor, d_logprobs_C: Tensor | None, d_entropy_C: Tensor | None, entropy_C: Tensor
) -> None:
    """Turn probabilities into d/dz of sum(g log p_y + e H): g (onehot - p) - e (p log p + p H), in their place."""
    import torch

    scale_C1 = torch.zeros_like(p_CV[:, :1]) if d_logprobs_C is None else -d_logprobs_C[:, None]
    if d_entropy_C is None:
        p_CV.mul_(scale_C1)
    else:
        n, columns = _cached_rows(p_CV), (p_CV, scale_C1, d_entropy_C[:, None], entropy_C[:, None])
        for p_NV, g_N1, e_N1, h_N1 in zip(*(x.split(n) for x in columns), strict=True):
            plogp_NV = torch.special.xlogy(p_NV, p_NV)
            p_NV.mul_(g_N1 - e_N1 * h_N1).sub_(plogp_NV.mul_(e_N1))
    p_CV.scatter_add_(1, target_C[:, None], -scale_C1)
