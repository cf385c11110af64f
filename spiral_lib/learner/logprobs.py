"""Log-probabilities of response tokens without ever holding all logits.

Shape suffixes: B rows or 1, T tokens, R response tokens, C response tokens of one chunk, E hidden size, V vocabulary.
All log-probs are nats at the sampling temperature, computed in float32 (float64 for a float64 model).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from spiral_lib.learner import packing

if TYPE_CHECKING:
    from torch import Tensor


def token_logprobs(model: Any, pack: packing.Pack, *, temperature: float, chunk: int) -> tuple[Tensor, Tensor]:
    """Return (log-prob, entropy) of every response position of the pack, both (R,) and differentiable."""
    weight_VE = plain_head(model)
    if weight_VE is None:
        logits_RV = model(**_inputs(pack)).logits.flatten(0, 1).index_select(0, pack.where_R)
        return logits_to_logprobs(logits_RV, pack.target_R, temperature)
    hidden_RE = response_hidden(model, pack)
    return head_logprobs(hidden_RE, weight_VE, pack.target_R, temperature=temperature, chunk=chunk)


def response_hidden(model: Any, pack: packing.Pack) -> Tensor:
    """Return the hidden states that predict response tokens, (R, E), in the precision that products run in."""
    import torch

    hidden_BTE = getattr(model, model.base_model_prefix)(**_inputs(pack)).last_hidden_state
    hidden_RE = hidden_BTE.flatten(0, 1).index_select(0, pack.where_R)
    device = hidden_RE.device.type
    if torch.is_autocast_enabled(device):
        hidden_RE = hidden_RE.to(torch.get_autocast_dtype(device))
    return hidden_RE


def _inputs(pack: packing.Pack) -> dict[str, Any]:
    inputs: dict[str, Any] = {"input_ids": pack.ids_BT, "use_cache": False}
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
                all_CV = _log_softmax(h_CE, weight_VE, t)
                logprobs.append(all_CV.gather(-1, y_C[:, None]).squeeze(-1))
                entropies.append(-torch.linalg.vecdot(all_CV.exp(), all_CV))
            ctx.t, ctx.chunk = t, chunk
            ctx.set_materialize_grads(False)
            entropy_R = torch.cat(entropies)
            # Where one chunk holds every position, it is kept: as large as what backward would need to make it again.
            kept_CV = all_CV if len(entropies) == 1 else None
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
                all_CV = _log_softmax(hidden_RE[c], weight_VE, ctx.t) if kept_CV is None else kept_CV
                d_CV = _logits_gradient(all_CV, target_R[c], d_logprobs_R, d_entropy_R, entropy_R, c)
                d_CV = (d_CV if ctx.t == 1.0 else d_CV.div_(ctx.t)).to(hidden_RE.dtype)
                d_hidden_RE[c] = d_CV @ low_VE
                more_VE = _wide(d_CV.T @ hidden_RE[c])
                d_weight_VE = more_VE if d_weight_VE is None else d_weight_VE.add_(more_VE)
            return d_hidden_RE, d_weight_VE.to(weight_VE.dtype), None, None, None

    return ChunkedHead


def _log_softmax(hidden_CE: Tensor, weight_VE: Tensor, temperature: float) -> Tensor:
    import torch

    # In both directions alike: autocast is not in force during backward.
    with torch.autocast(hidden_CE.device.type, enabled=False):
        logits_CV = _wide(hidden_CE @ weight_VE.to(hidden_CE.dtype).T)
        if temperature != 1.0:
            logits_CV = logits_CV / temperature
        return torch.log_softmax(logits_CV, dim=-1)


def _logits_gradient(
    all_CV: Tensor,
    target_C: Tensor,
    d_logprobs_R: Tensor | None,
    d_entropy_R: Tensor | None,
    entropy_R: Tensor,
    c: slice,
) -> Tensor:
    """Return d/dz of sum(g log p_y + e H): g (onehot - p) - e p (log p + H)."""
    import torch

    p_CV = all_CV.exp()
    scale_C1 = torch.zeros_like(p_CV[:, :1]) if d_logprobs_R is None else -d_logprobs_R[c, None]
    if d_entropy_R is None:
        d_CV = p_CV.mul_(scale_C1)
    else:
        d_CV = p_CV * (scale_C1 - d_entropy_R[c, None] * (all_CV + entropy_R[c, None]))
    return d_CV.scatter_add_(1, target_C[:, None], -scale_C1)
