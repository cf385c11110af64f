"""Decoder for Qwen3 and Llama weights: fused projections over a key-value cache of slots.

Slots in use are always the first ones, so that every step works on plain slices. Shape suffixes: B rows, S new tokens
of a row, N = B * S tokens, L cached positions, C layers, M model width, H query heads, K key-value heads, D head size,
V vocabulary.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from spiral_lib.engines._decoder_cache import SlotCache
from spiral_lib.errors import EngineError

_STATIC_ROPE = ("default", "linear", "llama3")
_LENGTH_STEP = 16  # keeps the number of different attention shapes small
_PREFILL_TOKENS = 8192
_SMALLEST_CHUNK = 64
_KNOWN_POSITIONS = 8192  # of prompts and headers kept for reuse


def supports(config: Any) -> bool:
    """Return whether this decoder computes exactly what the transformers model of that configuration does."""
    rope = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    return (
        config.model_type in ("qwen3", "llama")
        and rope in _STATIC_ROPE
        and config.hidden_act == "silu"
        and not getattr(config, "attention_bias", False)
        and not getattr(config, "mlp_bias", False)
        and not getattr(config, "use_sliding_window", False)
    )


@dataclass(kw_only=True, slots=True)
class _Layer:
    norm_M: torch.Tensor | None  # None where it is folded into the product that follows
    qkv_PM: torch.Tensor  # P = (H + 2 K) * D: queries, keys, values
    qk_norm_HD: torch.Tensor | None  # (H + K, D); Qwen3 only
    out_MQ: torch.Tensor
    mlp_norm_M: torch.Tensor | None
    gate_up_FM: torch.Tensor
    down_MF: torch.Tensor


@dataclass(frozen=True, slots=True)
class _Known:
    """Keys and values of a prompt, (C, 2, 1, K, L, D), and the logits after it."""

    kv: torch.Tensor
    logits_V: torch.Tensor


class SlotDecoder:
    """One checkpoint's weights and the cache of the rows being decoded."""

    def __init__(self, model: Any, *, slots: int) -> None:
        config = model.config
        self._heads, self._kv_heads = config.num_attention_heads, config.num_key_value_heads
        self._head_size = getattr(config, "head_dim", None) or config.hidden_size // self._heads
        self._eps = config.rms_norm_eps
        self._tied = bool(config.tie_word_embeddings)
        self._num_layers = config.num_hidden_layers
        rotary = model.model.rotary_emb
        self._inv_freq_D, self._rope_scale = rotary.inv_freq.float().clone(), float(rotary.attention_scaling)
        self.device, self._dtype = model.device, model.dtype
        self._eps_tensor = torch.tensor(self._eps, device=self.device)
        self.load(model.state_dict())
        self._cache = self._new_cache(slots)
        self._lengths_B = torch.zeros(slots, dtype=torch.long, device=self.device)
        self._host_lengths = np.zeros(slots, dtype=np.int64)

    def load(self, state_dict: Mapping[str, torch.Tensor]) -> None:
        """Take over weights named as in transformers; what was cached with the old weights is dropped."""
        weights = {name: w.detach().to(self.device, self._dtype) for name, w in state_dict.items()}
        try:
            self._embed_VM = weights["model.embed_tokens.weight"].clone()
            self._head_VM = self._embed_VM if self._tied else weights["lm_head.weight"].clone()
            self._layers = [self._layer(weights, f"model.layers.{i}.") for i in range(self._num_layers)]
            self._norm_M = weights["model.norm.weight"].clone()
        except KeyError as error:
            raise EngineError(f"weight {error} is missing; give the full state dict of the same model") from None
        self._known: OrderedDict[tuple[int, ...], _Known] = OrderedDict()
        self._known_positions = 0
        self.num_rows = 0

    def _layer(self, weights: Mapping[str, torch.Tensor], at: str) -> _Layer:
        def fused(*names: str) -> torch.Tensor:
            return torch.cat([weights[f"{at}{name}.weight"] for name in names])

        attn = "self_attn."
        qk_norm = None
        if f"{at}{attn}q_norm.weight" in weights:
            q, k = weights[f"{at}{attn}q_norm.weight"], weights[f"{at}{attn}k_norm.weight"]
            qk_norm = torch.cat((q.expand(self._heads, -1), k.expand(self._kv_heads, -1)))
        norm_M, qkv_PM = self._folded(
            fused("input_layernorm"), fused(f"{attn}q_proj", f"{attn}k_proj", f"{attn}v_proj")
        )
        mlp_norm_M, gate_up_FM = self._folded(
            fused("post_attention_layernorm"), fused("mlp.gate_proj", "mlp.up_proj")
        )
        return _Layer(
            norm_M=norm_M,
            qkv_PM=qkv_PM,
            qk_norm_HD=qk_norm,
            out_MQ=fused(f"{attn}o_proj"),
            mlp_norm_M=mlp_norm_M,
            gate_up_FM=gate_up_FM,
            down_MF=fused("mlp.down_proj"),
        )

    def _folded(self, norm_M: torch.Tensor, product: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor]:
        """Return the norm's weight and the product after it, merged where precision allows."""
        if self._dtype is not torch.float32:
            return norm_M, product
        return None, product * norm_M

    def _new_cache(self, rows: int) -> SlotCache:
        return SlotCache(
            layers=self._num_layers,
            rows=rows,
            kv_heads=self._kv_heads,
            head_size=self._head_size,
            inv_freq_D=self._inv_freq_D,
            scale=self._rope_scale,
            dtype=self._dtype,
        )

    def admit(self, prompts: Sequence[tuple[int, ...]], header_lens: Sequence[int], room: int) -> torch.Tensor:
        """Fill the next free slots with prompts and return the logits after each, (B, V).

        Prompts seen lately are not computed again, nor are the first ``header_lens[i]`` ids that prompts share.
        ``room`` is the largest number of positions that any of these rows will reach.
        """
        first = self.num_rows
        self._cache.reserve(room, first)
        rows: dict[tuple[int, ...], list[int]] = {}
        for row, prompt in enumerate(prompts):
            rows.setdefault(prompt, []).append(first + row)
        known = {prompt: entry for prompt in rows if (entry := self._recall(prompt))}
        if new := [prompt for prompt in rows if prompt not in known]:
            header_of = dict(zip(prompts, header_lens, strict=True))
            known |= zip(new, self._prefill(new, [header_of[p] for p in new], first), strict=True)
        self._place(rows, known)
        self.num_rows = first + len(prompts)
        lengths = np.array([len(p) for p in prompts])
        self._host_lengths[first : self.num_rows] = lengths
        self._lengths_B[first : self.num_rows] = torch.from_numpy(lengths)
        return torch.stack([known[prompt].logits_V for prompt in prompts])

    def advance(self, tokens_B: torch.Tensor) -> torch.Tensor:
        """Append one token to every row and return the logits after it, (B, V)."""
        rows = self.num_rows
        longest = int(self._host_lengths[:rows].max()) + 1
        lengths_B = self._lengths_B[:rows]
        hidden_BSM = self._forward(self._cache, tokens_B[:, None], lengths_B[:, None], 0, longest)
        lengths_B += 1
        self._host_lengths[:rows] += 1
        return self._logits(hidden_BSM[:, 0])

    def move(self, holes: Sequence[int], tail: Sequence[int], rows: int) -> None:
        """Copy the rows ``tail`` into the slots ``holes`` and keep the first ``rows`` slots."""
        if holes:
            longest = int(self._host_lengths[list(tail)].max())
            kv = self._cache.kv
            kv[:, :, holes, :, :longest] = kv[:, :, tail, :, :longest]
            self._lengths_B[holes] = self._lengths_B[tail]
            self._host_lengths[holes] = self._host_lengths[tail]
        self.num_rows = rows

    def score(self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]], temperature: float) -> list[list[float]]:
        """Return the log-probabilities of each response's ids after its prompt, in nats."""
        width = max(len(p) + len(r) for p, r in pairs) - 1
        tokens_BS = np.zeros((len(pairs), width), dtype=np.int64)
        for row, (prompt, response) in enumerate(pairs):
            tokens_BS[row, : len(prompt) + len(response) - 1] = [*prompt, *response][:-1]
        cache = self._new_cache(len(pairs))
        cache.reserve(width, 0)
        positions_BS = cache.index_L[:width].expand(len(pairs), -1)
        hidden_BSM = self._forward(cache, torch.from_numpy(tokens_BS).to(self.device), positions_BS, 0, width)
        scores = []
        for row, (prompt, response) in enumerate(pairs):
            hidden_SM = hidden_BSM[row, len(prompt) - 1 : len(prompt) + len(response) - 1]
            logprobs_SV = (self._logits(hidden_SM).float() / temperature).log_softmax(-1)
            targets = torch.as_tensor(list(response), device=self.device)
            scores.append(logprobs_SV.gather(1, targets[:, None])[:, 0].tolist())
        return scores

    def _recall(self, ids: tuple[int, ...]) -> _Known | None:
        known = self._known.get(ids)
        if known is not None:
            self._known.move_to_end(ids)
        return known

    def _keep(self, ids: tuple[int, ...], known: _Known) -> None:
        self._known[ids] = known
        self._known_positions += len(ids)
        while self._known_positions > _KNOWN_POSITIONS:
            self._known_positions -= len(self._known.popitem(last=False)[0])

    def _place(self, rows: Mapping[tuple[int, ...], Sequence[int]], known: Mapping[tuple[int, ...], _Known]) -> None:
        for ids, at in rows.items():
            self._cache.kv[:, :, at, :, : len(ids)] = known[ids].kv

    def _prefill(self, prompts: Sequence[tuple[int, ...]], header_lens: Sequence[int], first: int) -> list[_Known]:
        """Compute prompts in the free slots from ``first`` on and remember them."""
        # The last id is always computed: its logits are wanted.
        headers = [p[: min(n, len(p) - 1)] for p, n in zip(prompts, header_lens, strict=True)]
        rows: dict[tuple[int, ...], list[int]] = {}
        for row, header in enumerate(headers):
            if header:
                rows.setdefault(header, []).append(first + row)
        self._place(rows, {h: self._recall(h) or self._prefill([h], [0], first)[0] for h in rows})
        starts, lengths = np.array([len(h) for h in headers]), np.array([len(p) for p in prompts])
        widest = int((lengths - starts).max())
        self._cache.reserve(int(starts.max()) + widest, first + len(prompts))
        tokens_BS = np.zeros((len(prompts), widest), dtype=np.int64)
        for row, (prompt, start) in enumerate(zip(prompts, starts, strict=True)):
            tokens_BS[row, : len(prompt) - start] = prompt[start:]
        logits_BV = self._logits(self._extend(tokens_BS, starts, lengths, first))
        kv = self._cache.kv
        made = [
            _Known(kv[:, :, first + row : first + row + 1, :, : len(prompt)].clone(), logits_BV[row])
            for row, prompt in enumerate(prompts)
        ]
        for prompt, known in zip(prompts, made, strict=True):
            self._keep(prompt, known)
        return made

    def _extend(self, tokens_BS: np.ndarray, starts: np.ndarray, lengths: np.ndarray, first: int) -> torch.Tensor:
        """Append ragged tokens (padded on the right) to rows and return the hidden state of each row's last one.

        Padding writes behind a row's end, where nothing looks before decoding has overwritten it.
        """
        cache = self._cache
        rows, width = tokens_BS.shape
        chunk = max(_SMALLEST_CHUNK, _PREFILL_TOKENS // rows)
        last_BM = self._embed_VM.new_zeros(rows, self._embed_VM.shape[1])
        last = torch.from_numpy(lengths - starts - 1).to(self.device)
        tokens = torch.from_numpy(tokens_BS).to(self.device)
        starts_B = torch.from_numpy(starts).to(self.device)
        for begin in range(0, width, chunk):
            end = min(begin + chunk, width)
            positions_BS = starts_B[:, None] + cache.index_L[begin:end]
            hidden_BSM = self._forward(cache, tokens[:, begin:end], positions_BS, first, int(starts.max()) + end)
            here = ((last >= begin) & (last < end)).nonzero()[:, 0]
            last_BM[here] = hidden_BSM[here, last[here] - begin]
        return last_BM

    def _forward(
        self, cache: SlotCache, tokens_BS: torch.Tensor, positions_BS: torch.Tensor, first: int, longest: int
    ) -> torch.Tensor:
        """Return the hidden states of new tokens of the rows from ``first`` on, (B, S, M), and cache their keys."""
        rows, width = tokens_BS.shape
        heads, kv_heads, size = self._heads, self._kv_heads, self._head_size
        length = min(-(-longest // _LENGTH_STEP) * _LENGTH_STEP, cache.capacity)
        cos_ND = cache.cos_LD[positions_BS].view(-1, 1, size)
        sin_ND = cache.sin_LD[positions_BS].view(-1, 1, size)
        mask_BSL = torch.zeros((rows, width, length), dtype=self._dtype, device=self.device)
        mask_BSL.masked_fill_(cache.index_L[:length] > positions_BS[:, :, None], float("-inf"))
        at_B = torch.arange(first, first + rows, device=self.device)[:, None]
        hidden_NM = F.embedding(tokens_BS.reshape(-1), self._embed_VM)
        for layer, kv in zip(self._layers, cache.kv, strict=True):
            normed_NM = self._normed(hidden_NM, layer.norm_M)
            qkv_NPD = F.linear(normed_NM, layer.qkv_PM).view(-1, heads + 2 * kv_heads, size)
            qk_NPD = qkv_NPD[:, : heads + kv_heads]
            turned = qk_NPD
            if layer.qk_norm_HD is not None:
                turned = self._normed(qk_NPD, None) * layer.qk_norm_HD
            torch.addcmul(turned * cos_ND, turned.roll(size // 2, -1), sin_ND, out=qk_NPD)
            # (2, rows, K, L, D) indexed by row and position puts rows and tokens first.
            kv[:, at_B, :, positions_BS] = qkv_NPD[:, heads:].view(rows, width, 2, kv_heads, size)
            q_BSHD = qkv_NPD[:, :heads].view(rows, width, heads, size)
            mixed_NQ = self._attend(q_BSHD, kv[:, first : first + rows, :, :length], mask_BSL)
            hidden_NM = torch.addmm(hidden_NM, mixed_NQ, layer.out_MQ.t())
            normed_NM = self._normed(hidden_NM, layer.mlp_norm_M)
            gate_NF, up_NF = F.linear(normed_NM, layer.gate_up_FM).chunk(2, -1)
            hidden_NM = torch.addmm(hidden_NM, F.silu(gate_NF).mul_(up_NF), layer.down_MF.t())
        return hidden_NM.view(rows, width, -1)

    def _normed(self, x: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
        """Return the root-mean-square norm over the last axis."""
        size = x.shape[-1]
        if weight is not None or x.dtype is not torch.float32:
            return F.rms_norm(x, (size,), weight, self._eps)
        # A third of the time of the library's composite on a CPU, where it would be the costliest part of a step.
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return x * torch.addcmul(self._eps_tensor, length, length, value=1 / size).rsqrt_()

    def _attend(self, q_BSHD: torch.Tensor, kv: torch.Tensor, mask_BSL: torch.Tensor) -> torch.Tensor:
        rows, width, heads, size = q_BSHD.shape
        kv_heads, length = kv.shape[2], kv.shape[3]
        if width > 1 or q_BSHD.is_cuda:
            mixed_BHSD = F.scaled_dot_product_attention(
                q_BSHD.transpose(1, 2), kv[0], kv[1], attn_mask=mask_BSL[:, None], enable_gqa=heads != kv_heads
            )
            return mixed_BHSD.transpose(1, 2).reshape(-1, heads * size)
        # One query a row: two batched products take about half the time of the fused kernel on a CPU.
        q = q_BSHD.reshape(rows * kv_heads, heads // kv_heads, size)
        scores = torch.bmm(q, kv[0].view(-1, length, size).transpose(1, 2)).float().mul_(size**-0.5)
        scores.view(rows, -1, length).add_(mask_BSL)
        weights = scores.softmax(-1).to(q.dtype)
        return torch.bmm(weights, kv[1].view(-1, length, size)).view(rows, heads * size)

    def _logits(self, hidden_BM: torch.Tensor) -> torch.Tensor:
        normed_BM = F.rms_norm(hidden_BM, hidden_BM.shape[-1:], self._norm_M, self._eps)
        return F.linear(normed_BM, self._head_VM)
