"""The learner of a run: weights and optimizer of a checkpoint, stepped over episodes, saved as the next one."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spiral_lib.config import RunConfig
from spiral_lib.learner import batch, lora, shaping
from spiral_lib.learner.launch import RemoteUpdate
from spiral_lib.learner.loop import PolicyUpdate
from spiral_lib.rae import RoleBaselines
from spiral_lib.types import Episode

if TYPE_CHECKING:
    from torch import Tensor

    from spiral_lib.checkpoints import CheckpointManifest


class Learner:
    """A checkpoint's weights with their optimizer, and the frozen reference for the KL term.

    Weights are float32 whatever ``model.dtype`` says (steps of 1e-6 vanish in bfloat16); bfloat16 only sets the
    precision of matrix products.
    """

    def __init__(
        self, checkpoint: Path, reference: Path | None, config: RunConfig, optimizer: Path | None = None
    ) -> None:
        from spiral_lib import checkpoints

        shaping.check_roles(config)
        self._config = config
        self._parent = checkpoints.read_manifest(checkpoint)
        self._tokenizer = checkpoints.load_tokenizer(checkpoint)
        if config.learner.kl_reference == "previous":
            reference = checkpoint
        if config.learner.kl_coef == 0:
            reference = None
        # Adapters are new in every learner, and so are their moments.
        if config.learner.optimizer_state == "none" or config.learner.lora_rank:
            optimizer = None
        self._update: PolicyUpdate | RemoteUpdate
        if config.learner.backend == "deepspeed":
            self._update = RemoteUpdate(checkpoint, reference, config, optimizer)
        else:
            self._update = self._local(checkpoint, reference, optimizer)

    def _local(self, checkpoint: Path, reference: Path | None, optimizer: Path | None) -> PolicyUpdate:
        import torch

        from spiral_lib import checkpoints

        config, device = self._config, "cuda" if torch.cuda.is_available() else "cpu"
        model: Any = checkpoints.load_model(checkpoint, "float32")
        if config.learner.lora_rank:
            lora.add(model, config.learner.lora_rank, seed=config.seed, checkpoint=self._parent.id)
        frozen: Any = None if reference is None else checkpoints.load_model(reference, "float32")
        update = PolicyUpdate(model.to(device), None if frozen is None else frozen.to(device), config)
        if optimizer is not None:
            update.backend.load_optimizer(optimizer)
        return update

    def step(
        self, episodes: Iterable[Episode], baselines: RoleBaselines, *, step: int, lr_scale: float = 1.0
    ) -> dict[str, float]:
        """Learn from one step's episodes and return metrics; ``step`` counts the run's learner steps from 1.

        Moves ``baselines``. Raises LearnerError, weights untouched, where engine and learner disagree about the
        log-probs, or where more than 3 optimizer steps in a row had to be skipped.
        """
        found = batch.build(episodes, baselines, self._config)
        return found.metrics | self._update.run(found.samples, step=step, lr_scale=lr_scale)

    def state_dict(self) -> dict[str, Tensor]:
        """Return the live weights by name, tied ones included; copy them before the next step."""
        model = self._update.model
        if self._config.learner.lora_rank:
            return lora.merged(model)
        return {name: t.detach() for name, t in model.state_dict().items()}

    def save(self, out: Path, *, iteration: int) -> CheckpointManifest:
        """Write a checkpoint whose parent is the one this learner started from."""
        from spiral_lib import checkpoints
        from spiral_lib.config import config_hash

        model = self._update.model
        return checkpoints.save(
            model,
            self._tokenizer,
            out,
            parent=self._parent.id,
            iteration=iteration,
            base_model=self._parent.base_model,
            config_hash=config_hash(self._config),
            state_dict=lora.merged(model) if self._config.learner.lora_rank else None,
        )

    def save_optimizer(self, out: Path) -> None:
        """Write the optimizer state as the folder ``out``; with the checkpoint it resumes exactly."""
        self._update.save_optimizer(out)
