"""The clipped policy-gradient loss of response tokens, with KL, entropy and engine correction.

Shape suffix: R response tokens of a micro-batch. Everything is a plain sum over tokens; the caller divides by the
constant N and by the number of samples of the whole mini-batch, so that splitting a batch cannot change a result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from spiral_lib.config import LearnerConfig

if TYPE_CHECKING:
    from torch import Tensor

MAX_LOG_RATIO: Final = 20.0
"""Log-ratios are clamped to this before exp: nothing real comes near, and exp stays finite."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenInputs:
    """What the loss needs of each response token; all (R,), none but the new log-probs with a gradient.

    ``mask_R`` False takes a token out of everything; whatever stands there, NaN included, has no effect. ``lengths``
    are the responses' token counts, needed for ratios of whole responses.
    """

    old_R: Tensor
    advantage_R: Tensor
    mask_R: Tensor
    engine_R: Tensor | None = None
    reference_R: Tensor | None = None
    lengths: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenLoss:
    """The summed loss (differentiable), and sums for the metrics, all (R,) reduced to scalars."""

    total: Tensor
    sums: dict[str, float]
    ratio_max: float


def token_loss(new_R: Tensor, entropy_R: Tensor, inputs: TokenInputs, config: LearnerConfig) -> TokenLoss:
    """Return the loss summed over unmasked tokens: max(-A r, -A clip(r)), weighted, plus KL, less entropy bonus."""
    import torch

    mask_R, fixed_R = inputs.mask_R, new_R.detach()
    old_R = torch.where(mask_R, inputs.old_R, fixed_R)
    advantage_R = torch.where(mask_R, inputs.advantage_R, 0.0)
    log_ratio_R = new_R - old_R
    if config.ratio == "sequence":
        log_ratio_R = _response_means(log_ratio_R, inputs.lengths)
    ratio_R = bounded(log_ratio_R).exp()
    clipped_R = ratio_R.clamp(1.0 - config.clip_low, 1.0 + config.clip_high)
    loss_R = torch.maximum(-advantage_R * ratio_R, -advantage_R * clipped_R)
    if inputs.engine_R is not None and config.tis_cap > 0:
        weight_R = bounded(old_R - torch.where(mask_R, inputs.engine_R, old_R)).exp()
        loss_R = loss_R * weight_R.detach().clamp(max=config.tis_cap)
    sums: dict[str, float] = {}
    if inputs.reference_R is not None:
        terms = kl_terms(new_R, torch.where(mask_R, inputs.reference_R, fixed_R))
        loss_R = loss_R + config.kl_coef * terms[config.kl_estimator]
        sums = {f"kl_{k}": float(v.detach().sum()) for k, v in terms.items()}
    if config.entropy_coef:
        loss_R = loss_R - config.entropy_coef * entropy_R
    with torch.no_grad():
        worse_R = (-advantage_R * clipped_R > -advantage_R * ratio_R) & mask_R
        sums |= {
            "tokens": float(mask_R.sum()),
            "clipped": float(worse_R.sum()),
            "clamped": float(((new_R - old_R).abs() > MAX_LOG_RATIO).sum()),
            "entropy": float(torch.where(mask_R, entropy_R, 0.0).sum()),
        }
        ratio_max = float(ratio_R.max())
    return TokenLoss(total=torch.where(mask_R, loss_R, 0.0).sum(), sums=sums, ratio_max=ratio_max)


def likelihood(new_R: Tensor, entropy_R: Tensor, inputs: TokenInputs) -> TokenLoss:
    """Return -A log-prob summed over unmasked tokens: supervised learning of given responses, of weight A each."""
    import torch

    mask_R = inputs.mask_R
    loss_R = torch.where(mask_R, -inputs.advantage_R * new_R, 0.0)
    sums = {
        "tokens": float(mask_R.sum()),
        "nll": -float(torch.where(mask_R, new_R.detach(), 0.0).sum()),
        "entropy": float(torch.where(mask_R, entropy_R.detach(), 0.0).sum()),
    }
    return TokenLoss(total=loss_R.sum(), sums=sums, ratio_max=1.0)


def _response_means(values_R: Tensor, lengths: tuple[int, ...]) -> Tensor:
    """Return each response's mean at all of its tokens.

    The loss stays a sum over tokens, so that on-policy its gradient is that of token ratios: every token pushes the
    mean by 1/n, and the ratio stands at n tokens.
    """
    import torch

    return torch.cat([part.mean().expand(len(part)) for part in values_R.split(list(lengths))])


def kl_terms(new_R: Tensor, reference_R: Tensor) -> dict[str, Tensor]:
    """Return the estimators k1, k2, k3 of KL(policy || reference) for tokens sampled from the policy.

    k1 and k3 have the KL as mean; only k2 has its gradient, which is why the loss takes k2 and the log shows k3.
    """
    import torch

    log_ratio_R = bounded(reference_R - new_R)
    return {"k1": -log_ratio_R, "k2": log_ratio_R.square() / 2, "k3": torch.expm1(log_ratio_R) - log_ratio_R}


def bounded(log_ratio_R: Tensor) -> Tensor:
    """Return log-ratios within the range in which exp is harmless."""
    return log_ratio_R.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
