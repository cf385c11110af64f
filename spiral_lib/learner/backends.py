"""What applies gradients: a small protocol, and plain torch on one device."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from spiral_lib.config import LearnerConfig
from spiral_lib.durable import new_folder
from spiral_lib.errors import CheckpointError, LearnerError
from spiral_lib.learner.logprobs import token_logprobs
from spiral_lib.learner.packing import Pack
from spiral_lib.learner.processes import Processes

if TYPE_CHECKING:
    from torch import Tensor

OPTIMIZER_FILE: Final = "optimizer.safetensors"
STEPS_FILE: Final = "optimizer.json"
MOMENTS: Final = ("exp_avg", "exp_avg_sq")


class Backend(Protocol):
    """Owner of a model's float32 weights and optimizer state."""

    model: Any
    device: Any
    processes: Processes
    autocast: bool
    """Whether matrix products get their precision from autocast, or the weights are already low."""

    def logprobs(self, pack: Pack, *, temperature: float, chunk: int) -> tuple[Tensor, Tensor]:
        """Return (log-prob, entropy) of the pack's response tokens, differentiable."""
        ...

    def backward(self, loss: Tensor, *, last: bool = False) -> None:
        """Add the gradient of one micro-batch's share of the loss; ``last`` marks the one before a step or skip."""
        ...

    def step(self, lr: float) -> float:
        """Apply the added gradients, clipped; return their norm before clipping.

        A norm that is not finite is returned without touching weights, moments or counters. Either way the
        gradients are gone afterwards.
        """
        ...

    def skip(self) -> None:
        """Drop the added gradients."""
        ...

    def weights(self) -> dict[str, Tensor]:
        """Return the float32 weights by parameter name."""
        ...

    def save_optimizer(self, out: Path) -> None:
        """Write the optimizer state by parameter name as the folder ``out``, whole or not at all."""
        ...

    def load_optimizer(self, folder: Path) -> None:
        """Restore what ``save_optimizer`` wrote, exactly. Raises CheckpointError where it belongs to another model."""
        ...


class TorchBackend:
    """AdamW in float32 on one device."""

    autocast = True

    def __init__(self, model: Any, config: LearnerConfig) -> None:
        self.model = model
        self.device = model.device
        self.processes = Processes()
        self._max_norm = config.max_grad_norm
        self._named = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self._optimizer = adamw(
            self._named.values(), betas=(config.beta1, config.beta2), weight_decay=config.weight_decay
        )

    def logprobs(self, pack: Pack, *, temperature: float, chunk: int) -> tuple[Tensor, Tensor]:
        """Return (log-prob, entropy) of the pack's response tokens."""
        return token_logprobs(self.model, pack, temperature=temperature, chunk=chunk)

    def backward(self, loss: Tensor, *, last: bool = False) -> None:
        """Add the gradient of one micro-batch's share of the loss."""
        del last
        loss.backward()

    def step(self, lr: float) -> float:
        """Clip and apply, or drop gradients that are not finite; return the norm before clipping."""
        norm = clip_(self._named.values(), self._max_norm)
        if math.isfinite(norm):
            for group in self._optimizer.param_groups:
                group["lr"] = lr
            self._optimizer.step()
        self.skip()
        return norm

    def skip(self) -> None:
        """Drop the added gradients."""
        self._optimizer.zero_grad(set_to_none=True)

    def save_optimizer(self, out: Path) -> None:
        """Write moments as safetensors keyed ``<parameter>.exp_avg``, and each parameter's step count as JSON."""
        state = self._optimizer.state
        tensors = {f"{n}.{m}": state[p][m] for n, p in self._named.items() if p in state for m in MOMENTS}
        write_optimizer(out, tensors, {n: int(state[p]["step"]) for n, p in self._named.items() if p in state})

    def load_optimizer(self, folder: Path) -> None:
        """Restore moments and step counts exactly."""
        import torch

        tensors, steps = read_optimizer(folder, {name: p.shape for name, p in self._named.items()})
        for name, count in steps.items():
            p = self._named[name]
            moments = {m: tensors[f"{name}.{m}"].to(p.device) for m in MOMENTS}
            step = torch.tensor(float(count), dtype=torch.float32, device=p.device)
            self._optimizer.state[p] = {"step": step, **moments}

    def weights(self) -> dict[str, Tensor]:
        """Return the live weights by parameter name."""
        return {name: p.detach() for name, p in self.model.named_parameters()}


def write_optimizer(out: Path, tensors: dict[str, Tensor], steps: dict[str, int]) -> None:
    """Write float32 moments, keyed ``<parameter>.exp_avg``, and step counts as a folder, whole or not at all."""
    from safetensors.torch import save_file

    with new_folder(out) as folder:
        save_file(tensors, folder / OPTIMIZER_FILE)
        (folder / STEPS_FILE).write_text(json.dumps({"steps": steps}, sort_keys=True), encoding="utf-8")


def read_optimizer(folder: Path, shapes: Mapping[str, Sequence[int]]) -> tuple[dict[str, Tensor], dict[str, int]]:
    """Return what ``write_optimizer`` wrote. Raises CheckpointError where the parameters are others."""
    from safetensors.torch import load_file

    try:
        tensors = load_file(folder / OPTIMIZER_FILE)
        steps: dict[str, int] = json.loads((folder / STEPS_FILE).read_text(encoding="utf-8"))["steps"]
    except (OSError, ValueError, KeyError) as error:
        raise CheckpointError(
            f"no optimizer state in '{folder}' ({error}); learner.optimizer_state=none goes on without"
        ) from error
    expected = {f"{n}.{m}": n for n in steps for m in MOMENTS}
    fits = set(tensors) == set(expected) and set(steps) <= set(shapes)
    if not fits or any(tuple(tensors[key].shape) != tuple(shapes[n]) for key, n in expected.items()):
        raise CheckpointError(
            f"the optimizer state in '{folder}' belongs to another model; learner.optimizer_state=none restarts it"
        )
    return tensors, steps


def checkpoint_activations(model: Any) -> None:
    """Make the model's layers recompute their activations in the backward pass.

    Only the layers themselves are told that they train; what is inside stays in evaluation mode, without dropout.
    """
    from transformers.modeling_layers import GradientCheckpointingLayer

    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    for module in model.modules():
        if isinstance(module, GradientCheckpointingLayer):
            module.training = True


def make(model: Any, config: LearnerConfig) -> Backend:
    """Return the configured backend around a float32 model."""
    if config.backend != "torch":
        raise LearnerError(f"learner.backend={config.backend} needs several processes; use learner.backend=torch")
    return TorchBackend(model, config)


def adamw(parameters: Any, *, betas: tuple[float, float], weight_decay: float) -> Any:
    """Return AdamW with the fused kernel (3 to 6 times faster than the others); the rate is set at each step."""
    import torch

    return torch.optim.AdamW(list(parameters), lr=0.0, betas=betas, eps=1e-8, weight_decay=weight_decay, fused=True)


def clip_(parameters: Any, max_norm: float) -> float:
    """Scale gradients to a total norm of ``max_norm`` (0 is off) and return the norm before.

    Gradients of a norm that is not finite are left alone: one NaN would spread to all.
    """
    import torch

    grads = [p.grad for p in parameters if p.grad is not None]
    norm = torch.nn.utils.get_total_norm(grads)
    value = float(norm)
    if max_norm > 0 and math.isfinite(value):
        # A factor below 1 only: small gradients keep their bits.
        factor = max_norm / (value + 1e-6)
        if factor < 1.0:
            torch._foreach_mul_(grads, factor)
    return value
