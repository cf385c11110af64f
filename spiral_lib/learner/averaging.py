"""A moving average of the weights over learner steps: what is published, while learning goes on from the live weights.

Self-play on a zero-sum game circles around its equilibrium; the average of the weights comes much nearer to it than the
last ones (measured on Kuhn poker, docs/results.md). The checkpoint of an iteration is then the average, and the live
weights travel in the optimizer folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

WEIGHTS_FILE = "weights.safetensors"


class WeightAverage:
    """``average <- decay average + (1 - decay) live`` after every learner step, starting at the checkpoint."""

    def __init__(self, decay: float, weights: Mapping[str, Tensor]) -> None:
        self.decay = decay
        self.weights = {name: tensor.detach().clone() for name, tensor in weights.items()}

    def update(self, live: Mapping[str, Tensor]) -> None:
        """Move the average towards the live weights."""
        for name, tensor in self.weights.items():
            if tensor.is_floating_point():
                tensor.lerp_(live[name].detach(), 1.0 - self.decay)
            else:
                tensor.copy_(live[name])


def write_live(weights: Mapping[str, Tensor], folder: Path) -> None:
    """Add the live weights to an optimizer folder."""
    from safetensors.torch import save_file

    save_file({name: tensor.detach().cpu().clone() for name, tensor in weights.items()}, folder / WEIGHTS_FILE)


def live_file(folder: Path | None) -> Path | None:
    """Return where an optimizer folder keeps the live weights; None where the checkpoint itself is live."""
    if folder is None or not (folder / WEIGHTS_FILE).is_file():
        return None
    return folder / WEIGHTS_FILE


def read_live(folder: Path | None) -> dict[str, Tensor] | None:
    """Return the live weights of an optimizer folder; None where the checkpoint itself is live."""
    from safetensors.torch import load_file

    file = live_file(folder)
    return None if file is None else dict(load_file(file))
