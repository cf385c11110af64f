"""The metrics of a learner step, and how far engine and learner are apart.

Shape suffix: R response tokens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from spiral_lib.learner import loss
from spiral_lib.learner.processes import Processes
from spiral_lib.types import mean

if TYPE_CHECKING:
    from torch import Tensor

_MEANS: Final = {
    "clip_share": "clipped",
    "clamp_share": "clamped",
    "entropy": "entropy",
    "kl": "kl_k3",
    "kl_k2": "kl_k2",
    "nll": "nll",
}


@dataclass(slots=True)
class Tally:
    """Sums and lists over the micro-batches and optimizer steps of one learner step."""

    sums: Counter[str] = field(default_factory=Counter)
    losses: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    ratio_max: float = 0.0
    clipped_norms: int = 0
    skipped: int = 0
    skipped_in_a_row: int = 0
    differences: list[Tensor] = field(default_factory=list)
    mismatch: dict[str, float] = field(default_factory=dict)

    def merge(self, processes: Processes) -> None:
        """Add up what every process has counted of its own micro-batches."""
        names = sorted(self.sums)
        self.sums = Counter(dict(zip(names, processes.sums([float(self.sums[n]) for n in names]), strict=True)))
        self.ratio_max = processes.largest(self.ratio_max)

    def metrics(self) -> dict[str, float]:
        """Return means over the tokens of all epochs and over the optimizer steps that were made."""
        tokens = self.sums["tokens"]
        out = {"learner/tokens": float(tokens), "learner/skipped": float(self.skipped)} | self.mismatch
        if self.norms:
            steps = len(self.norms)
            out |= {"learner/loss": mean(self.losses), "learner/optimizer_steps": float(steps)}
            out |= {"learner/grad_norm": mean(self.norms), "learner/grad_norm_max": max(self.norms)}
            out |= {"learner/grad_clipped": self.clipped_norms / steps}
        if tokens:
            out |= {f"learner/{name}": self.sums[k] / tokens for name, k in _MEANS.items() if k in self.sums}
            out |= {"learner/ratio_max": self.ratio_max}
        return out


def mismatch(differences: Sequence[Tensor]) -> dict[str, float]:
    """Return how much log-probs of learner and engine differ; ``differences`` are learner minus engine."""
    import torch

    d_R = torch.cat(list(differences)).double()
    ratio_R = loss.bounded(d_R).exp()
    return {
        "learner/mismatch/mean_abs": float(d_R.abs().mean()),
        "learner/mismatch/max_abs": float(d_R.abs().max()) if len(d_R) else 0.0,
        "learner/mismatch/k3": float((ratio_R - 1.0 - loss.bounded(d_R)).mean()),
        "learner/mismatch/outside_0.5_2": float(((ratio_R < 0.5) | (ratio_R > 2.0)).double().mean()),
        "learner/mismatch/outside_0.8_1.25": float(((ratio_R < 0.8) | (ratio_R > 1.25)).double().mean()),
    }
