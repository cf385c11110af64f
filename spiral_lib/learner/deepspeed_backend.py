"""ZeRO on several processes: the same update with weights, gradients and moments partitioned by DeepSpeed.

Only imported inside a process that ``launch`` started. Weights and moments travel by parameter name in float32, so
that a state written here resumes at another stage, another number of processes, or in the plain torch backend.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import deepspeed
import torch
from deepspeed import utils as zero
from torch import Tensor

from spiral_lib.config import RunConfig
from spiral_lib.errors import LearnerError
from spiral_lib.learner import backends, logprobs, packing
from spiral_lib.learner.processes import Processes

_NEVER: Final = 1 << 40


def start_processes() -> Processes:
    """Join the other processes of this learner step; ``torchrun`` has set the environment for it."""
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    else:
        # Without a GPU DeepSpeed would compile a shared-memory operation for minutes; gloo does the same job.
        deepspeed.ops.__compatible_ops__ = {}
    deepspeed.init_distributed(dist_backend="nccl" if on_gpu else "gloo", verbose=False)
    return Processes(rank=torch.distributed.get_rank(), world=torch.distributed.get_world_size())


def own_device() -> torch.device:
    """Return the device of this process."""
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")


class DeepSpeedBackend:
    """AdamW over float32 masters; the model computes in ``model.dtype``."""

    autocast = False

    def __init__(self, model: Any, config: RunConfig, processes: Processes) -> None:
        self.processes = processes
        self.device = own_device()
        self.model = model
        named = list(model.named_parameters())
        self._names = [name for name, _ in named]
        self._shapes = {name: p.shape for name, p in named}
        low = config.model.dtype == "bfloat16"
        masters = [p.detach().clone() for _, p in named] if low else []
        learner = config.learner
        optimizer = backends.adamw(
            [p for _, p in named], betas=(learner.beta1, learner.beta2), weight_decay=learner.weight_decay
        )
        self._engine, *_ = deepspeed.initialize(
            model=_Scorer(model), optimizer=optimizer, config=_settings(config, processes.world)
        )
        self._parameters = [p for _, p in named]
        # DeepSpeed makes its masters from weights already rounded to bfloat16.
        for p, master in zip(self._parameters, masters, strict=low):
            zero.safe_set_full_fp32_param(p, master.to(self.device))

    def logprobs(self, pack: packing.Pack, *, temperature: float, chunk: int) -> tuple[Tensor, Tensor]:
        """Return (log-prob, entropy) of the pack's response tokens."""
        new_R, entropy_R = self._engine(pack, temperature, chunk)
        return new_R, entropy_R

    def backward(self, loss: Tensor, *, last: bool = False) -> None:
        """Add the gradient of one micro-batch's share of the loss; the last one sums over the processes."""
        self._engine.set_gradient_accumulation_boundary(last)
        # DeepSpeed averages over the processes; the loss is a sum.
        self._engine.backward(loss * self.processes.world, scale_wrt_gas=False)

    def step(self, lr: float) -> float:
        """Clip and apply, or drop gradients that are not finite anywhere; return the norm before clipping."""
        for group in self._engine.optimizer.param_groups:
            group["lr"] = lr
        skipped = self._engine.skipped_steps
        self._engine.step()
        if self._engine.skipped_steps > skipped:
            return math.inf
        return float(self._engine.get_global_grad_norm())

    def skip(self) -> None:
        """Drop the added gradients; they hold a NaN, or the learner step ends with an error."""
        self.step(0.0)

    def weights(self) -> dict[str, Tensor]:
        """Return the float32 masters by parameter name, complete in every process."""
        found = (zero.safe_get_full_fp32_param(p) for p in self._parameters)
        return {name: t.detach().cpu().clone() for name, t in zip(self._names, found, strict=True)}

    def save_optimizer(self, out: Path) -> None:
        """Write what the torch backend writes, from the first process."""
        steps, tensors = self._steps(), dict[str, Tensor]()
        for name, p in zip(self._names, self._parameters, strict=True) if steps else ():
            for moment in backends.MOMENTS:
                full = zero.safe_get_full_optimizer_state(p, moment)
                if self.processes.rank == 0:
                    tensors[f"{name}.{moment}"] = full.detach().float().cpu().clone()
        if self.processes.rank == 0:
            backends.write_optimizer(out, tensors, dict.fromkeys(self._names, steps) if steps else {})

    def load_optimizer(self, folder: Path) -> None:
        """Restore moments and the step count, from whatever stage or number of processes."""
        tensors, steps = backends.read_optimizer(folder, self._shapes)
        if not steps:
            return
        if len(set(steps.values())) > 1 or set(steps) != set(self._names):
            raise LearnerError(f"the parameters in '{folder}' have different step counts; use learner.backend=torch")
        self._prime()
        for name, p in zip(self._names, self._parameters, strict=True):
            for moment in backends.MOMENTS:
                zero.safe_set_full_optimizer_state(p, tensors[f"{name}.{moment}"].to(self.device), moment)
        for state in self._engine.optimizer.optimizer.state.values():
            state["step"] = torch.full_like(torch.as_tensor(state["step"]), float(next(iter(steps.values()))))

    def _prime(self) -> None:
        """Make one step that changes no weight, so that there are moments to overwrite."""
        row = _Row(prompt_ids=(0,), response_ids=(0,))
        pack = packing.make([row], [0], packed=False, device=self.device)
        new_R, entropy_R = self.logprobs(pack, temperature=1.0, chunk=1)
        self.backward((new_R + entropy_R).sum() * 0.0, last=True)
        self.step(0.0)

    def _steps(self) -> int:
        found = [int(s["step"]) for s in self._engine.optimizer.optimizer.state.values() if "step" in s]
        return max(found, default=0)


class _Row:
    def __init__(self, *, prompt_ids: tuple[int, ...], response_ids: tuple[int, ...]) -> None:
        self.prompt_ids = prompt_ids
        self.response_ids = response_ids


class _Scorer(torch.nn.Module):  # type: ignore[misc]
    """A model whose forward pass ends in log-probs, so that partitioned weights are gathered around every part."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        if logprobs.plain_head(model) is None:
            raise LearnerError("learner.backend=deepspeed needs a linear head without bias or cap; use backend=torch")
        head = model.get_output_embeddings()
        head.forward = _scoring(head)

    def forward(self, pack: packing.Pack, temperature: float, chunk: int) -> Any:
        hidden_RE = logprobs.response_hidden(self.model, pack)
        return self.model.get_output_embeddings()(hidden_RE, pack.target_R, temperature, chunk)


def _scoring(head: Any) -> Callable[..., tuple[Tensor, Tensor]]:
    def forward(hidden_RE: Tensor, target_R: Tensor, temperature: float, chunk: int) -> tuple[Tensor, Tensor]:
        return logprobs.head_logprobs(hidden_RE, head.weight, target_R, temperature=temperature, chunk=chunk)

    return forward


def _settings(config: RunConfig, world: int) -> dict[str, Any]:
    learner = config.learner
    stage: dict[str, Any] = {"stage": learner.zero_stage}
    if learner.offload:
        stage["offload_optimizer"] = {"device": "cpu"}
    return {
        "train_batch_size": world,
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": learner.max_grad_norm,
        "zero_optimization": stage,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "bf16": {"enabled": config.model.dtype == "bfloat16"},
        "data_types": {"grad_accum_dtype": "fp32"},
        "steps_per_print": _NEVER,
    }
