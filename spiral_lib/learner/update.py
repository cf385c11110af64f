"""The learner of a run: weights and optimizer of a checkpoint, stepped over episodes, saved as the next one."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spiral_lib.config import RunConfig
from spiral_lib.errors import ConfigError
from spiral_lib.learner import averaging, batch, shaping
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
        import torch

        from spiral_lib import checkpoints

        device = "cuda" if torch.cuda.is_available() else "cpu"
        self._config = config
        self._parent = checkpoints.read_manifest(checkpoint)
        self._tokenizer = checkpoints.load_tokenizer(checkpoint)
        model = checkpoints.load_model(checkpoint, "float32").to(device)
        frozen = None
        if config.learner.kl_reference == "previous":
            reference = checkpoint
        if reference is not None and config.learner.kl_coef > 0:
            frozen = checkpoints.load_model(reference, "float32").to(device)
        self._average = self._begin_average(model, optimizer)
        self._update = PolicyUpdate(model, frozen, config)
        if optimizer is not None and config.learner.optimizer_state == "full":
            self._update.backend.load_optimizer(optimizer)

    def _begin_average(self, model: Any, optimizer: Path | None) -> averaging.WeightAverage | None:
        """Take the checkpoint as the average and go on from the live weights, where they are kept apart."""
        decay = self._config.learner.ema_decay
        if decay == 0.0:
            return None
        if self._config.learner.backend != "torch":
            raise ConfigError(f"learner.ema_decay={decay:g} needs learner.backend=torch; set it to 0")
        average = averaging.WeightAverage(decay, model.state_dict())
        live = averaging.read_live(optimizer)
        if live is not None:
            model.load_state_dict(live)
        return average

    def step(
        self, episodes: Iterable[Episode], baselines: RoleBaselines, *, step: int, lr_scale: float = 1.0
    ) -> dict[str, float]:
        """Learn from one step's episodes and return metrics; ``step`` counts the run's learner steps from 1.

        Moves ``baselines``. Raises LearnerError, weights untouched, where engine and learner disagree about the
        log-probs, or where more than 3 optimizer steps in a row had to be skipped.
        """
        found = batch.build(episodes, baselines, self._config)
        metrics = found.metrics | self._update.run(found.samples, step=step, lr_scale=lr_scale)
        if self._average is not None:
            self._average.update(self.state_dict())
        return metrics

    def state_dict(self) -> dict[str, Tensor]:
        """Return the live weights by name, tied ones included; copy them before the next step."""
        return {name: t.detach() for name, t in self._update.backend.model.state_dict().items()}

    def save(self, out: Path, *, iteration: int) -> CheckpointManifest:
        """Write a checkpoint whose parent is the one this learner started from: the average where one is kept."""
        from spiral_lib import checkpoints
        from spiral_lib.config import config_hash

        return checkpoints.save(
            self._update.backend.model,
            self._tokenizer,
            out,
            parent=self._parent.id,
            iteration=iteration,
            base_model=self._parent.base_model,
            config_hash=config_hash(self._config),
            state_dict=None if self._average is None else self._average.weights,
        )

    def save_optimizer(self, out: Path) -> None:
        """Write the optimizer state as the folder ``out``; with the checkpoint it resumes exactly."""
        self._update.backend.save_optimizer(out)
        if self._average is not None:
            averaging.write_live(self.state_dict(), out)
