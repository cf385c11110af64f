"""Supervised fine-tuning on responses, with the learner's micro-batches and log-probs."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from spiral_lib.errors import LearnerError
from spiral_lib.learner import backends, host_memory, logprobs, packing
from spiral_lib.seeds import generator

Example = tuple[Sequence[int], Sequence[int]]
"""Prompt ids and response ids; only the response is learnt."""

_BETAS: Final = (0.9, 0.99)
_MAX_NORM: Final = 1.0
_CHUNK: Final = 512
_WARMUP_SHARE: Final = 0.05


@dataclass(frozen=True, kw_only=True, slots=True)
class _Pair:
    prompt_ids: Sequence[int]
    response_ids: Sequence[int]


def train(
    model: Any,
    examples: Sequence[Example],
    *,
    steps: int,
    batch: int,
    lr: float,
    seed: int,
    pack_tokens: int,
    on_step: Callable[[int, float], None] = lambda step, loss: None,
) -> dict[str, float]:
    """Train the model in place and return metrics; the same seed gives the same weights.

    The loss is the mean cross entropy over a batch's response tokens. The rate warms up over the first 5% of the
    steps and then falls to 0 along a cosine. ``on_step`` gets the steps done and the last loss.
    Raises LearnerError at a loss that is not finite, since a cold start has nothing to fall back on.
    """
    rows = [_Pair(prompt_ids=p, response_ids=r) for p, r in examples if p and r]
    if not rows or steps < 1:
        raise LearnerError(f"nothing to learn from: {len(rows)} examples with a prompt and a response, {steps} steps")
    model.eval()
    can_pack = packing.prepare(model)
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = backends.adamw(parameters, betas=_BETAS, weight_decay=0.0)
    losses, tokens = [], 0
    with host_memory.kept(model.device):
        for step in range(steps):
            chosen = [rows[i] for i in _batch_indices(len(rows), batch, seed, step)]
            tokens += sum(len(r.response_ids) for r in chosen)
            losses.append(_accumulate(model, chosen, pack_tokens, can_pack))
            norm = backends.clip_(parameters, _MAX_NORM)
            if not math.isfinite(losses[-1]) or not math.isfinite(norm):
                raise LearnerError(f"the loss is not finite at supervised step {step}; lower cold_start.lr={lr:g}")
            for group in optimizer.param_groups:
                group["lr"] = lr * _schedule(step, steps)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            on_step(step + 1, losses[-1])
    counts = {"sft/tokens": float(tokens), "sft/steps": float(steps)}
    return {"sft/loss_first": losses[0], "sft/loss_last": losses[-1]} | counts


def _accumulate(model: Any, rows: Sequence[_Pair], pack_tokens: int, can_pack: bool) -> float:
    """Add the gradient of the mean token loss, micro-batch by micro-batch, and return that mean."""
    count, total = sum(len(r.response_ids) for r in rows), 0.0
    for pack in packing.packs(rows, pack_tokens, can_pack=can_pack, device=model.device):
        logprobs_R, _ = logprobs.token_logprobs(model, pack, temperature=1.0, chunk=_CHUNK)
        loss = -logprobs_R.sum() / count
        loss.backward()
        total += float(loss.detach())
    return total


def _batch_indices(count: int, batch: int, seed: int, step: int) -> list[int]:
    """Return the step's rows: consecutive pieces of one shuffled pass after another."""
    places = [divmod(position, count) for position in range(step * batch, (step + 1) * batch)]
    orders = {p: _order(count, seed, p) for p in {p for p, _ in places}}
    return [orders[p][i] for p, i in places]


@functools.lru_cache(maxsize=2)
def _order(count: int, seed: int, epoch: int) -> list[int]:
    order = list(range(count))
    generator(seed, "sft", epoch).shuffle(order)
    return order


def _schedule(step: int, steps: int) -> float:
    warm = max(1, round(_WARMUP_SHARE * steps))
    if step < warm:
        return (step + 1) / warm
    return 0.5 * (1.0 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))
