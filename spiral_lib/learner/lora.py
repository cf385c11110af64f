"""LoRA: only low-rank adapters train, and every checkpoint holds the merged weights.

Adapters live for one learner: the next iteration starts new ones on the merged weights, so that a checkpoint stays an
ordinary model and nothing else has to know of adapters.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spiral_lib.errors import LearnerError
from spiral_lib.seeds import seed_for

if TYPE_CHECKING:
    from torch import Tensor

WEIGHTS_FILE: Final = "adapters.safetensors"
_NAME: Final = "default"
_SCALE: Final = 2
"""The adapters' product is added twice, the usual alpha of two ranks."""


def add(model: Any, rank: int, *, seed: int, checkpoint: str) -> None:
    """Freeze the model and put adapters on all its linear layers but the head; their start depends on the arguments.

    Raises LearnerError without peft.
    """
    import torch

    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise LearnerError(
            f"learner.lora_rank={rank} needs peft, which is not installed: pip install 'spiral-pipeline[lora]'"
        ) from error
    config = LoraConfig(r=rank, lora_alpha=_SCALE * rank, target_modules="all-linear", lora_dropout=0.0)
    with torch.random.fork_rng():  # peft draws from the process's generator; what it drew is replaced below
        inject_adapter_in_model(config, model)
    drawn = torch.Generator().manual_seed(seed_for(seed, "lora", checkpoint))
    for name, p in model.named_parameters():
        p.requires_grad_("lora_" in name)
        if "lora_A" in name:
            bound = 1.0 / math.sqrt(p.shape[1])
            with torch.no_grad():
                p.copy_((2.0 * torch.rand(p.shape, generator=drawn) - 1.0) * bound)
    model.eval()


def merged(model: Any) -> dict[str, Tensor]:
    """Return the state that an ordinary model of this kind has, adapters added in; the model itself stays as it is."""
    out = {}
    layers = {name: m for name, m in model.named_modules(remove_duplicate=False) if hasattr(m, "get_delta_weight")}
    for name, tensor in model.state_dict().items():
        if ".lora_" in name:
            continue
        owner, found, rest = name.rpartition(".base_layer.")
        if found and rest == "weight":
            tensor = tensor + layers[owner].get_delta_weight(_NAME)
        out[f"{owner}.{rest}" if found else name] = tensor.detach()
    return out


def write(model: Any, folder: Path) -> None:
    """Add the adapters to an optimizer folder, for going on within an iteration."""
    from safetensors.torch import save_file

    adapters = {name: t.detach().cpu().clone() for name, t in model.state_dict().items() if ".lora_" in name}
    save_file(adapters, folder / WEIGHTS_FILE)


def read(model: Any, folder: Path) -> None:
    """Restore what ``write`` wrote."""
    from safetensors.torch import load_file

    model.load_state_dict(load_file(folder / WEIGHTS_FILE), strict=False)
