"""Images, resource profiles, secrets and cache versions: the only place with numbers of processors and GPUs.

What differs between sites is read from ``SPIRAL_*`` variables when the workflow is registered, and travels with it.
"""

import os
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from flytekit import Resources, Secret
from flytekit.extras.accelerators import GPUAccelerator

from spiral_lib.checkpoints import source_digest
from spiral_lib.config import RunConfig

_DEFAULTS = {
    "SPIRAL_IMAGE_CPU": "spiral-cpu:0.1.0",
    "SPIRAL_IMAGE_GPU": "spiral-gpu:0.1.0",
    "SPIRAL_ACCELERATOR": "",
    "SPIRAL_LEARNER_GPUS": "1",
    "SPIRAL_LEARNER_RANKS": "",
    "SPIRAL_SECRETS": "",
    "SPIRAL_REGISTRY": "s3://spiral/registry",
    "SPIRAL_RUNS": "s3://spiral/runs",
    "SPIRAL_NAME": "kuhn",
    "SPIRAL_PRESET": "gpu_kuhn",
    "SPIRAL_OVERRIDES": "iterations=32",
    "SPIRAL_NOTIFY": "",
    "SPIRAL_ARTIFACT": "",
}
SITE = {name: os.environ.get(name, default) for name, default in _DEFAULTS.items()}
"""Given to the tasks as their environment: in a container the graph's dynamic part is made from these again, the
learner's task learns how many processes it is, and step records name the image that ran."""

CPU_IMAGE = SITE["SPIRAL_IMAGE_CPU"]
GPU_IMAGE = SITE["SPIRAL_IMAGE_GPU"]
ACCELERATOR = GPUAccelerator(SITE["SPIRAL_ACCELERATOR"]) if SITE["SPIRAL_ACCELERATOR"] else None
LEARNER_GPUS = int(SITE["SPIRAL_LEARNER_GPUS"])
LEARNER_RANKS = int(SITE["SPIRAL_LEARNER_RANKS"] or LEARNER_GPUS)
"""Processes of the learner's task; above 1 they are started by Flyte's Elastic, one for each GPU by default."""
# A secret that does not exist keeps the pod from starting, so none is asked for unless it is named.
SECRETS = [Secret(group="spiral", key=name, env_var=name) for name in SITE["SPIRAL_SECRETS"].split(",") if name]

SMALL = Resources(cpu="1", mem="2Gi")
CPU = Resources(cpu="2", mem="4Gi")


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Where a GPU task runs.

    ``retries`` are for crashes and recoverable errors; the loss of an interruptible node has the cluster's own budget.
    """

    resources: Resources
    shared_memory: str
    interruptible: bool
    retries: int
    timeout: timedelta

    def overrides(self) -> dict[str, Any]:
        """Return the arguments of ``with_overrides``: requests and limits both, else the old limits would clamp."""
        return {
            "container_image": GPU_IMAGE,
            "requests": self.resources,
            "limits": self.resources,
            "accelerator": ACCELERATOR,
            "shared_memory": self.shared_memory,
            "interruptible": self.interruptible,
            "retries": self.retries,
            "timeout": self.timeout,
        }


# A shard is short and starts again from the same seeds: the place for interruptible nodes.
ROLLOUT_GPU = Profile(
    resources=Resources(cpu="8", mem="64Gi", gpu="1", ephemeral_storage="100Gi"),
    shared_memory="16Gi",
    interruptible=True,
    retries=3,
    timeout=timedelta(hours=4),
)
# Weights, gradients and AdamW moments of a 4B model in float32 are 64 GB, its saved optimizer state 48 GB.
LEARNER_GPU = Profile(
    resources=Resources(
        cpu=str(8 * LEARNER_GPUS), mem=f"{128 * LEARNER_GPUS}Gi", gpu=str(LEARNER_GPUS), ephemeral_storage="300Gi"
    ),
    shared_memory="32Gi",
    interruptible=False,
    retries=2,
    timeout=timedelta(hours=12),
)


def needs_gpu(config: RunConfig) -> bool:
    """Return whether a configuration asks for what only the GPU image has; without learner GPUs, DeepSpeed does not."""
    return config.rollout.engine == "vllm" or (config.learner.backend == "deepspeed" and LEARNER_GPUS > 0)


def has_ranks(config: RunConfig) -> bool:
    """Return whether the learner's task is several processes that Flyte starts."""
    return config.learner.backend == "deepspeed" and LEARNER_RANKS > 1


def image_for(config: RunConfig) -> str:
    """Return the image of the tasks that play, learn and evaluate."""
    return GPU_IMAGE if needs_gpu(config) else CPU_IMAGE


def elastic() -> dict[str, Any]:
    """Return the arguments of a task in ``LEARNER_RANKS`` processes on one node: that needs no operator."""
    if LEARNER_RANKS < 2:
        return {}
    from flytekitplugins.kfpytorch import Elastic

    return {"task_config": Elastic(nnodes=1, nproc_per_node=LEARNER_RANKS, increase_shared_mem=False)}


CACHE_VERSION = "".join(source_digest(Path(__file__).parents[1] / folder)[:8] for folder in ("spiral_lib", "tasks"))
"""Over the sources that decide results: finished steps of other code are never re-used."""
