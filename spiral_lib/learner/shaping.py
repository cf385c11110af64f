"""What is decided about a learner step before its loss: whose turn it is, at which rate, how far from entropy's target.

Everything follows from the samples and the step's number, so that a resumed run decides the same.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence
from typing import Final

from spiral_lib.config import LearnerConfig, RunConfig
from spiral_lib.learner.batch import Sample

ALL: Final = "all"
_VLLM_CAP: Final = 2.0


def resolved(config: RunConfig) -> RunConfig:
    """Return the configuration with what other settings imply.

    The engine weight's cap is decided: hf computes as the learner does, vllm nearly. On route sft nothing was sampled,
    and the loss is the likelihood alone: no correction of an engine, no KL, no entropy bonus.
    """
    if config.route == "sft":
        alone = dataclasses.replace(
            config.learner, tis_cap=0.0, recompute_logprobs=False, kl_coef=0.0, entropy_coef=0.0
        )
        return dataclasses.replace(config, learner=alone)
    if config.learner.tis_cap >= 0:
        return config
    cap = _VLLM_CAP if config.rollout.engine == "vllm" else 0.0
    return dataclasses.replace(config, learner=dataclasses.replace(config.learner, tis_cap=cap))


def scheduled(samples: Sequence[Sample], config: LearnerConfig, step: int) -> list[Sample]:
    """Return the samples of the role whose turn it is in this learner step, counted from 1."""
    if not config.role_schedule:
        return list(samples)
    role = config.role_schedule[(step - 1) % len(config.role_schedule)]
    return [s for s in samples if role in (ALL, s.role)]


def whitened(samples: Sequence[Sample], config: LearnerConfig) -> list[Sample]:
    """Return the samples with advantages of mean 0 and deviation 1 over those that count.

    Advantages that are all equal stay as they are: RAE makes such steps legal, and their deviation of 0 says nothing.
    """
    counted = [s.advantage for s in samples if math.isfinite(s.advantage) and not is_masked(s, config)]
    if not config.whiten_advantages or len(counted) < 2:
        return list(samples)
    mean, deviation = statistics.fmean(counted), statistics.pstdev(counted)
    if deviation < 1e-8:
        return list(samples)
    return [dataclasses.replace(s, advantage=(s.advantage - mean) / deviation) for s in samples]


def with_entropy_target(samples: Sequence[Sample], config: LearnerConfig) -> LearnerConfig:
    """Return the configuration with the entropy bonus faded in proportion to how near the target is.

    The entropy is estimated by minus the mean log-prob of the sampled tokens: known beforehand, unbiased, no state.
    """
    if config.entropy_target == 0.0 or config.entropy_coef == 0.0:
        return config
    values = [x for s in samples if not is_masked(s, config) for x in s.old_logprobs]
    missing = 1.0 + statistics.fmean(values) / config.entropy_target if values else 0.0
    return dataclasses.replace(config, entropy_coef=config.entropy_coef * min(1.0, max(0.0, missing)))


def rate_groups(samples: Sequence[Sample], config: LearnerConfig) -> list[tuple[float, list[int]]]:
    """Return (factor of the learning rate, indices): one group for each role where roles have rates of their own."""
    if not config.role_lr:
        return [(1.0, list(range(len(samples))))]
    default = config.role_lr.get(ALL, 1.0)
    roles = sorted({s.role for s in samples})
    return [(config.role_lr.get(r, default), [i for i, s in enumerate(samples) if s.role == r]) for r in roles]


def is_masked(sample: Sample, config: LearnerConfig) -> bool:
    """Return whether a sample only counts in the divisor."""
    return config.mask_truncated and sample.truncated
