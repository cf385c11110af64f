"""One learner step over samples: epochs of mini-batches, with guards around every optimizer step.

Shape suffix: R response tokens of a micro-batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spiral_lib.config import LearnerConfig, RunConfig
from spiral_lib.errors import LearnerError
from spiral_lib.learner import backends, batch, host_memory, logprobs, loss, packing, shaping, shared_prefix
from spiral_lib.learner.tally import Tally, mismatch
from spiral_lib.seeds import generator

if TYPE_CHECKING:
    from torch import Tensor

MAX_SKIPS: Final = 3
"""Optimizer steps in a row that may be skipped for non-finite numbers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Fixed:
    """Per sample, the log-probs that stay constant during a step; lists are parallel to the samples."""

    engine: list[Tensor]
    old: list[Tensor]
    reference: list[Tensor] | None


class PolicyUpdate:
    """The loop over epochs, mini-batches and micro-batches; it knows samples, a model and a backend.

    With several processes every one runs this same loop over all samples and computes its share of the micro-batches.
    """

    def __init__(
        self,
        model: Any,
        reference: Any | None,
        config: RunConfig,
        make_backend: Callable[[Any, LearnerConfig], backends.Backend] = backends.make,
    ) -> None:
        for each in (model, reference):
            if each is not None:
                each.eval()  # no dropout: the old log-probs must be those of the very same function
        self._can_pack = packing.prepare(model)
        self._config = config = shaping.resolved(config)
        self._is_supervised = config.route == "sft"
        self._reference = reference
        if reference is not None:
            packing.prepare(reference)
            reference.requires_grad_(False)
        if config.learner.checkpoint_activations:
            backends.checkpoint_activations(model)
        self.backend = make_backend(model, config.learner)

    @property
    def model(self) -> Any:
        """Return the live model."""
        return self.backend.model

    def save_optimizer(self, out: Path) -> None:
        """Write the optimizer state as the folder ``out``."""
        self.backend.save_optimizer(out)

    def run(self, samples: Sequence[batch.Sample], *, step: int, lr_scale: float = 1.0) -> dict[str, float]:
        """Update the weights from samples in canonical order and return metrics.

        Without a sample that carries a gradient nothing is touched: AdamW would move weights by momentum alone.
        """
        config = self._config.learner
        lr = learning_rate(config, step) * lr_scale
        samples = shaping.whitened(shaping.scheduled(samples, config, step), config)
        if not self._has_signal(samples):
            return {"learner/no_signal": 1.0, "learner/lr": lr, "learner/tokens": 0.0, "learner/skipped": 0.0}
        with host_memory.kept(self.backend.device):
            tally = self._epochs(samples, step, lr)
        return tally.metrics() | {"learner/no_signal": 0.0, "learner/lr": lr}

    def _epochs(self, samples: Sequence[batch.Sample], step: int, lr: float) -> Tally:
        config = self._config.learner
        fixed = self._fixed(samples)
        tally = Tally()
        if fixed.old is not fixed.engine:
            tally.differences = [
                o - e for o, e, s in zip(fixed.old, fixed.engine, samples, strict=True) if not self._is_masked(s)
            ]
            self._refuse_mismatch(tally)
        effective, groups = shaping.with_entropy_target(samples, config), shaping.rate_groups(samples, config)
        for epoch in range(config.epochs):
            for factor, indices in groups:
                for part in minibatches(len(indices), config.minibatch, self._config.seed, step, epoch):
                    chosen = [indices[i] for i in part]
                    rows = [samples[i] for i in chosen]
                    self._minibatch(rows, _select(fixed, chosen), lr * factor, effective, tally)
        tally.merge(self.backend.processes)
        return tally

    def _minibatch(
        self, samples: Sequence[batch.Sample], fixed: _Fixed, lr: float, config: LearnerConfig, tally: Tally
    ) -> None:
        """Accumulate micro-batches, then make one optimizer step or skip it; nothing where all is masked."""
        if not self._has_signal(samples):
            return
        total, culprits = self._accumulate(samples, fixed, config, tally)
        if not tally.mismatch and tally.differences:
            tally.differences = self.backend.processes.gather(tally.differences)
            self._refuse_mismatch(tally)
        if culprits:
            self.backend.skip()
            self._count_skip(tally, culprits)
            return
        norm = self.backend.step(lr)
        if not math.isfinite(norm):
            self._count_skip(tally, sorted({s.episode for s in samples}))
            return
        tally.skipped_in_a_row = 0
        tally.losses.append(total)
        tally.norms.append(norm)
        tally.clipped_norms += 0 < config.max_grad_norm < norm

    def _accumulate(
        self, samples: Sequence[batch.Sample], fixed: _Fixed, config: LearnerConfig, tally: Tally
    ) -> tuple[float, list[str]]:
        """Add up the gradients of all micro-batches; return the loss, and the episodes that spoil it."""
        # Both factors are constants of the whole mini-batch: neither lengths nor the split into packs matter.
        scale = 1.0 / (config.normalizer * len(samples))
        total, culprits, processes = 0.0, list[str](), self.backend.processes
        shares = processes.share(self._packs(samples))
        for i, (pack, live) in enumerate(shares):
            last, inputs = i == len(shares) - 1, self._inputs(pack, samples, fixed, live)
            with self._precision(self.backend.autocast):
                new_R, entropy_R = self._logprobs(pack)
                if self._is_supervised:
                    part = loss.likelihood(new_R, entropy_R, inputs)
                else:
                    part = loss.token_loss(new_R, entropy_R, inputs, config)
            value = float(part.total.detach()) * scale
            if not math.isfinite(value) or not bool(new_R.isfinite().all()):
                culprits += _culprits(pack, samples, new_R, inputs)
                # Other processes wait for this pass; a NaN makes every one of them drop the step.
                self.backend.backward(part.total * math.nan, last=last)
                if not self._is_supervised:
                    tally.differences.append(new_R.new_zeros(0))
                tally.sums.update(dict.fromkeys(part.sums, 0.0))
                continue
            if not tally.mismatch and not self._is_supervised:
                tally.differences.append((new_R.detach() - inputs.old_R)[inputs.mask_R])
            self.backend.backward(part.total * scale, last=last)
            total += value
            tally.sums.update(part.sums)
            tally.ratio_max = max(tally.ratio_max, part.ratio_max)
        sums = processes.sums([total, *(float(s.episode in culprits) for s in samples)])
        return sums[0], sorted({s.episode for s, spoilt in zip(samples, sums[1:], strict=True) if spoilt})

    def _count_skip(self, tally: Tally, culprits: Sequence[str]) -> None:
        tally.skipped += 1
        tally.skipped_in_a_row += 1
        if tally.skipped_in_a_row > MAX_SKIPS:
            shown = ", ".join(culprits[:8]) + (f" and {len(culprits) - 8} more" if len(culprits) > 8 else "")
            raise LearnerError(
                f"{tally.skipped_in_a_row} optimizer steps in a row met numbers that are not finite; last in episodes "
                f"{shown}. The weights are those of the last good step; look at these episodes, or lower learner.lr"
            )

    def _refuse_mismatch(self, tally: Tally) -> None:
        """Report how far the learner's log-probs are from the engine's; refuse to learn from nonsense."""
        tally.mismatch = mismatch(tally.differences)
        tally.differences = []
        k3, limit = tally.mismatch["learner/mismatch/k3"], self._config.learner.max_mismatch
        if k3 > limit:
            self.backend.skip()
            far = tally.mismatch["learner/mismatch/outside_0.5_2"]
            raise LearnerError(
                f"engine and learner disagree about the sampled tokens: k3 {k3:.4g} per token is above "
                f"learner.max_mismatch={limit:g}, {far:.1%} of the ratios are outside [0.5, 2]. Likely causes: "
                "rollouts of other weights or a stale prefix cache; sampling at another temperature than "
                f"rollout.temperature={self._config.rollout.temperature:g}, or log-probs from before it; "
                "top-p or top-k; another tokenizer or chat template; low precision"
            )

    def _fixed(self, samples: Sequence[batch.Sample]) -> _Fixed:
        import torch

        config, device = self._config.learner, self.backend.device
        engine = [torch.tensor(s.old_logprobs, dtype=torch.float32, device=device) for s in samples]
        old = engine
        if config.recompute_logprobs or config.tis_cap > 0:
            old = self._score(self._logprobs, samples, self.backend.autocast)
        reference = None if self._reference is None else self._score(self._reference_logprobs, samples, True)
        return _Fixed(engine=engine, old=old, reference=reference)

    def _score(
        self, compute: Callable[[packing.Pack], tuple[Tensor, Tensor]], samples: Sequence[batch.Sample], autocast: bool
    ) -> list[Tensor]:
        import torch

        processes, out = self.backend.processes, list[Any]([None] * len(samples))
        with torch.no_grad(), self._precision(autocast):
            for pack, live in processes.share(self._packs(samples)):
                logprobs_R, _ = compute(pack)
                for i, part in zip(pack.rows, logprobs_R.split(pack.response_lengths), strict=True):
                    out[i] = part if live else out[i]
        return processes.complete(out, [len(s.response_ids) for s in samples])

    def _logprobs(self, pack: packing.Pack) -> tuple[Tensor, Tensor]:
        config = self._config
        return self.backend.logprobs(pack, temperature=config.rollout.temperature, chunk=config.learner.chunk)

    def _reference_logprobs(self, pack: packing.Pack) -> tuple[Tensor, Tensor]:
        temperature, chunk = self._config.rollout.temperature, self._config.learner.chunk
        return logprobs.token_logprobs(self._reference, pack, temperature=temperature, chunk=chunk)

    def _packs(self, samples: Sequence[batch.Sample]) -> list[packing.Pack]:
        device, budget = self.backend.device, self._config.learner.pack_tokens
        if self._config.learner.share_header and self._can_pack:
            return shared_prefix.packs(samples, budget, device=device)
        return packing.packs(samples, budget, can_pack=self._can_pack, device=device)

    def _inputs(
        self, pack: packing.Pack, samples: Sequence[batch.Sample], fixed: _Fixed, live: bool
    ) -> loss.TokenInputs:
        import torch

        rows, device = [samples[i] for i in pack.rows], self.backend.device
        lengths = torch.tensor(pack.response_lengths, device=device)
        kept = torch.tensor([live and not self._is_masked(s) for s in rows], device=device)
        advantages = torch.tensor([s.advantage for s in rows], dtype=torch.float32, device=device)
        corrected = self._config.learner.tis_cap > 0
        return loss.TokenInputs(
            old_R=torch.cat([fixed.old[i] for i in pack.rows]),
            advantage_R=advantages.repeat_interleave(lengths),
            mask_R=kept.repeat_interleave(lengths),
            engine_R=torch.cat([fixed.engine[i] for i in pack.rows]) if corrected else None,
            reference_R=None if fixed.reference is None else torch.cat([fixed.reference[i] for i in pack.rows]),
            lengths=pack.response_lengths,
        )

    def _has_signal(self, samples: Sequence[batch.Sample]) -> bool:
        return any(s.advantage != 0 and not self._is_masked(s) for s in samples)

    def _is_masked(self, sample: batch.Sample) -> bool:
        return shaping.is_masked(sample, self._config.learner)

    def _precision(self, autocast: bool) -> Any:
        import torch

        low = autocast and self._config.model.dtype == "bfloat16"
        return torch.autocast(self.backend.device.type, dtype=torch.bfloat16, enabled=low)


def learning_rate(config: LearnerConfig, step: int) -> float:
    """Return the rate of a learner step, counted from 1: linear warm-up, then linear decay to ``lr_final``."""
    warm, decay = config.lr_warmup_steps, config.lr_decay_steps
    if step <= warm:
        return config.lr * step / warm
    if decay == 0:
        return config.lr
    done = min(1.0, (step - warm - 1) / decay)
    return config.lr * (1.0 - done * (1.0 - config.lr_final))


def minibatches(count: int, size: int, seed: int, step: int, epoch: int) -> list[list[int]]:
    """Return shuffled indices in parts of at most ``size`` (0 is all), as equal as they can be.

    Equal parts, because the divisor is each part's own count: a small rest would get a full step of its own.
    """
    order = list(range(count))
    generator(seed, "minibatch", step, epoch).shuffle(order)
    parts = math.ceil(count / size) if size else 1
    return [order[i * count // parts : (i + 1) * count // parts] for i in range(parts)]


def _select(fixed: _Fixed, part: Sequence[int]) -> _Fixed:
    reference = None if fixed.reference is None else [fixed.reference[i] for i in part]
    return _Fixed(engine=[fixed.engine[i] for i in part], old=[fixed.old[i] for i in part], reference=reference)


def _culprits(
    pack: packing.Pack, samples: Sequence[batch.Sample], new_R: Tensor, inputs: loss.TokenInputs
) -> list[str]:
    """Return the episodes whose tokens are not finite; all of the pack's where only their sum is."""
    fine_R = new_R.isfinite() & inputs.old_R.isfinite() & inputs.advantage_R.isfinite()
    episodes = [samples[i].episode for i in pack.rows]
    parts = fine_R.split(pack.response_lengths)
    found = {e for e, fine in zip(episodes, parts, strict=True) if not bool(fine.all())}
    return sorted(found or set(episodes))
