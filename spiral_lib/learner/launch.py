"""A learner step in several processes: a job file, started by torchrun, answered with weights and optimizer state.

``RemoteUpdate`` stands where ``loop.PolicyUpdate`` stands and holds no weights itself, so that the processes have the
memory. What passes between them is JSON and safetensors. ``python -m spiral_lib.learner.launch JOB`` is the other side.
Where somebody else has started the processes (``ranks``), nothing is started here: they share the work of each job.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spiral_lib import errors
from spiral_lib.config import RunConfig, from_text, to_json
from spiral_lib.durable import link_folder, write_text
from spiral_lib.errors import CheckpointError, LearnerError, SpiralError
from spiral_lib.learner import ranks
from spiral_lib.learner.batch import Sample

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger(__name__)

WEIGHTS: Final = "weights.safetensors"
_ATTEMPTS: Final = 2
_TAIL: Final = 2000


class RemoteUpdate:
    """Learner steps run by ``learner.processes`` processes, one job a step.

    They begin with the checkpoint's weights, or with ``weights`` by parameter name where those go on from others.
    """

    def __init__(
        self,
        checkpoint: Path,
        reference: Path | None,
        config: RunConfig,
        optimizer: Path | None,
        *,
        weights: Path | None = None,
    ) -> None:
        self._checkpoint = checkpoint
        self._reference = reference
        self._config = config
        self._optimizer = optimizer
        self._weights = weights
        self._scratch = tempfile.TemporaryDirectory(prefix="spiral-learner-")
        self._jobs = 0

    def run(self, samples: Sequence[Sample], *, step: int, lr_scale: float = 1.0) -> dict[str, float]:
        """Run one learner step as a job and return its metrics. Raises what the job raised."""
        self._jobs += 1
        out = Path(self._scratch.name) / f"{self._jobs:04d}"
        out.mkdir()
        write_text(out / "samples.json", json.dumps([dataclasses.asdict(s) for s in samples]))
        job = {
            "checkpoint": str(self._checkpoint),
            "reference": _text(self._reference),
            "weights": _text(self._weights),
            "optimizer": _text(self._optimizer),
            "config": to_json(self._config),
            "step": step,
            "lr_scale": lr_scale,
        }
        write_text(out / "job.json", json.dumps(job))
        if ranks.are_given():
            ranks.lead(out / "job.json", self._config)
        else:
            _start(out, self._config)
        metrics: dict[str, float] = json.loads((out / "metrics.json").read_text(encoding="utf-8"))
        self._weights, self._optimizer = out / WEIGHTS, out / "optimizer"
        return metrics

    @property
    def model(self) -> Any:
        """Return the model with the weights of the last step, loaded from disk."""
        return load(self._checkpoint, self._weights)

    def save_optimizer(self, out: Path) -> None:
        """Write the optimizer state of the last step as the folder ``out``."""
        if self._optimizer is None:
            raise CheckpointError("there is no optimizer state before the first learner step")
        link_folder(self._optimizer, out)


def load(checkpoint: Path, weights: Path | None) -> Any:
    """Return a checkpoint's float32 model with other weights by parameter name, where there are some."""
    from safetensors.torch import load_file

    from spiral_lib import checkpoints

    model: Any = checkpoints.load_model(checkpoint, "float32")
    if weights is not None:
        found = load_file(weights)
        absent = {name for name, _ in model.named_parameters()} - set(found)
        if absent:
            raise CheckpointError(f"'{weights}' lacks {sorted(absent)[:3]}")
        model.load_state_dict(found, strict=False)
    return model


def _start(out: Path, config: RunConfig) -> None:
    """Run a job's processes to their end; once more where they did not even find each other."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={_processes(config)}"]
    command += ["-m", "spiral_lib.learner.launch", str(out / "job.json")]
    for attempt in range(1, _ATTEMPTS + 1):
        done = subprocess.run(command, env=_environment(config), capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return
        if (out / "error.json").exists():
            error = json.loads((out / "error.json").read_text(encoding="utf-8"))
            raise getattr(errors, error["kind"])(error["message"])
        if (out / "started").exists() or attempt == _ATTEMPTS:
            raise LearnerError(f"the learner's processes failed with {done.returncode}: {done.stderr[-_TAIL:]}")
        log.warning("the learner's processes did not start (%d); once more", done.returncode)


def _processes(config: RunConfig) -> int:
    import torch

    return config.learner.processes or torch.cuda.device_count() or 1


def _environment(config: RunConfig) -> dict[str, str]:
    import torch

    source = str(Path(__file__).resolve().parents[2])
    paths = [source, *filter(None, [os.environ.get("PYTHONPATH")])]
    changes = {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": str(config.threads)}
    if not torch.cuda.is_available():
        changes["DS_ACCELERATOR"] = "cpu"
    return {**os.environ, **changes}


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path.resolve())


def main(file: Path) -> None:
    """Do one process's part of a job."""
    from spiral_lib.learner import deepspeed_backend

    processes = deepspeed_backend.start_processes()
    first = processes.rank == 0
    if first:
        (file.parent / "started").touch()
    try:
        _work(file, processes)
    except SpiralError as error:
        # All processes see the same numbers and raise together; the first one tells.
        if first:
            content = {"kind": type(error).__name__, "message": str(error)}
            write_text(file.parent / "error.json", json.dumps(content))
        raise


def _work(file: Path, processes: Any) -> None:
    import torch
    from safetensors.torch import save_file

    from spiral_lib.learner.deepspeed_backend import DeepSpeedBackend, own_device
    from spiral_lib.learner.loop import PolicyUpdate

    job, out = json.loads(file.read_text(encoding="utf-8")), file.parent
    config = from_text(job["config"])
    torch.set_num_threads(config.threads)
    samples = [_sample(row) for row in json.loads((out / "samples.json").read_text(encoding="utf-8"))]
    device = own_device()
    model = load(Path(job["checkpoint"]), job["weights"] and Path(job["weights"])).to(device)
    reference = None
    if job["reference"] and config.learner.kl_coef > 0:
        reference = load(Path(job["reference"]), None).to(device)
    update = PolicyUpdate(model, reference, config, lambda m, _: DeepSpeedBackend(m, config, processes))
    if job["optimizer"]:
        update.backend.load_optimizer(Path(job["optimizer"]))
    metrics = update.run(samples, step=job["step"], lr_scale=job["lr_scale"])
    weights: dict[str, Tensor] = update.backend.weights()
    update.backend.save_optimizer(out / "optimizer")
    if processes.rank == 0:
        save_file({name: t.contiguous() for name, t in weights.items()}, out / WEIGHTS)
        write_text(out / "metrics.json", json.dumps(metrics))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def _sample(row: dict[str, Any]) -> Sample:
    lists = {name: tuple(row[name]) for name in ("prompt_ids", "response_ids", "old_logprobs")}
    return Sample(**(row | lists))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
