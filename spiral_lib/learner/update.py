"""The learner of a run: weights and optimizer of a checkpoint, stepped over episodes, saved as the next one."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spiral_lib.config import RunConfig
from spiral_lib.errors import ConfigError
from spiral_lib.learner import averaging, batch, lora, shaping
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

        self._config = config
        self._parent = checkpoints.read_manifest(checkpoint)
        self._tokenizer = checkpoints.load_tokenizer(checkpoint)
        self._average: averaging.WeightAverage | None = None
        if config.learner.kl_reference == "previous":
            reference = checkpoint
        if shaping.resolved(config).learner.kl_coef == 0:
            reference = None
        self._update: PolicyUpdate | RemoteUpdate
        if config.learner.backend == "deepspeed":
            self._update = self._remote(checkpoint, reference, optimizer)
        else:
            self._update = self._local(checkpoint, reference, optimizer)

    def _local(self, checkpoint: Path, reference: Path | None, optimizer: Path | None) -> PolicyUpdate:
        import torch

        from spiral_lib import checkpoints

        config, device = self._config, "cuda" if torch.cuda.is_available() else "cpu"
        model: Any = checkpoints.load_model(checkpoint, "float32")
        model = model.to(device)
        frozen: Any = None if reference is None else checkpoints.load_model(reference, "float32")
        self._average = self._begun_average(model)
        # Learning goes on from the live weights, where they are kept apart.
        if self._average is not None and (live := averaging.read_live(optimizer)) is not None:
            model.load_state_dict(live)
        if config.learner.lora_rank:
            lora.add(model, config.learner.lora_rank, seed=config.seed, checkpoint=self._parent.id)
        update = PolicyUpdate(model, None if frozen is None else frozen.to(device), config)
        # Adapters are new in every learner, and so are their moments.
        if optimizer is not None and config.learner.optimizer_state == "full" and not config.learner.lora_rank:
            update.backend.load_optimizer(optimizer)
        return update

    def _remote(self, checkpoint: Path, reference: Path | None, optimizer: Path | None) -> RemoteUpdate:
        from spiral_lib import checkpoints

        kept = optimizer if self._config.learner.optimizer_state == "full" else None
        live: Path | None = None
        if self._config.learner.ema_decay > 0:
            # The average is kept here, whole; the processes only ever see the live weights.
            self._average = self._begun_average(checkpoints.load_model(checkpoint, "float32"))
            live = averaging.live_file(optimizer)
        return RemoteUpdate(checkpoint, reference, self._config, kept, weights=live)

    def _begun_average(self, model: Any) -> averaging.WeightAverage | None:
        """Take the checkpoint as the average."""
        decay = self._config.learner.ema_decay
        return averaging.WeightAverage(decay, model.state_dict()) if decay > 0 else None

    def step(
        self, episodes: Iterable[Episode], baselines: RoleBaselines, *, step: int, lr_scale: float = 1.0
    ) -> dict[str, float]:
        """Learn from one step's episodes and return metrics; ``step`` counts the run's learner steps from 1.

        Moves ``baselines``, except on route sft, where there is nothing to compare with. Raises LearnerError, weights
        untouched, where engine and learner disagree about the log-probs, or where more than 3 optimizer steps in a row
        had to be skipped.
        """
        found = batch.build(episodes, baselines, self._config)
        metrics = found.metrics | self._update.run(found.samples, step=step, lr_scale=lr_scale)
        if self._average is not None:
            self._average.update(self.state_dict())
        return metrics

    def state_dict(self) -> dict[str, Tensor]:
        """Return the live weights by name, tied ones included; copy them before the next step."""
        return self._state_of(self._update.model)

    def _state_of(self, model: Any) -> dict[str, Tensor]:
        if self._config.learner.lora_rank:
            return lora.merged(model)
        return {name: t.detach() for name, t in model.state_dict().items()}

    def save(self, out: Path, *, iteration: int) -> CheckpointManifest:
        """Write a checkpoint whose parent is the one this learner started from: the average where one is kept."""
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
            state_dict=self._state_of(model) if self._average is None else self._average.weights,
        )

    def save_optimizer(self, out: Path) -> None:
        """Write the optimizer state as the folder ``out``; with the checkpoint it resumes exactly."""
        self._update.save_optimizer(out)
        if self._average is not None:
            averaging.write_live(self.state_dict(), out)
        if self._config.learner.lora_rank:
            lora.write(self._update.model, out)

    def restore(self, checkpoint: Path, optimizer: Path) -> None:
        """Go on from what ``save`` and ``save_optimizer`` wrote of a learner of the same start and configuration."""
        from spiral_lib import checkpoints

        if isinstance(self._update, RemoteUpdate):
            raise ConfigError("learner.backend=deepspeed cannot go on within an iteration; set rollout.save_every=0")
        model, saved = self._update.model, checkpoints.load_model(checkpoint, "float32").state_dict()
        if self._average is not None:
            self._average = averaging.WeightAverage(self._average.decay, saved)
        if self._config.learner.lora_rank:
            lora.read(model, optimizer)
        else:
            model.load_state_dict(averaging.read_live(optimizer) or saved)
        self._update.backend.load_optimizer(optimizer)
