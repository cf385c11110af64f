"""What the DeepSpeed tests compute: the same cases alone and, started by torchrun, in several processes at once.

One start serves all cases, because starting takes far longer than computing.
"""

import dataclasses
import math
import sys
from pathlib import Path
from typing import Any

from learner_cases import random_model, sampled, settings
from safetensors.torch import save_file

from spiral_lib import durable
from spiral_lib.config import RunConfig, update
from spiral_lib.learner import backends
from spiral_lib.learner.batch import Sample
from spiral_lib.learner.loop import PolicyUpdate
from spiral_lib.strict_yaml import parse_overrides

TEXT = "epochs=2 minibatch=7 kl_coef=0.05 max_mismatch=100.0 lr=1e-3 lr_decay_steps=4 lr_final=0.1 pack_tokens=48"
RESUMED = {"resumed_at_1": 1, "resumed_at_3": 3}
LOW = "lr=1e-6 lr_decay_steps=0 kl_coef=0.0"


def model() -> Any:
    return random_model(0, tie_word_embeddings=True)


def samples() -> list[Sample]:
    return sampled(model(), 13)


def spoilt() -> list[Sample]:
    """Samples of which one, in one of two mini-batches, has an advantage that is no number."""
    found = samples()
    return [*found[:4], dataclasses.replace(found[4], advantage=math.nan), *found[5:]]


def configuration(text: str = "", *, stage: int = 0, dtype: str = "float32") -> RunConfig:
    spread = f"backend=deepspeed processes=2 zero_stage={stage}" if stage else ""
    return update(settings(f"{TEXT} {spread}"), {"learner": parse_overrides(text), "model": {"dtype": dtype}})


def trained(config: RunConfig, make_backend: Any, rows: list[Sample], steps: range, state: Path | None = None) -> Any:
    """The loop after some steps, and the metrics of the last one."""
    start = model()
    if state is not None:
        start.load_state_dict(_read(state / "weights.safetensors"), strict=False)
    loop = PolicyUpdate(start, random_model(1, tie_word_embeddings=True), config, make_backend)
    if state is not None:
        loop.backend.load_optimizer(state / "optimizer")
    metrics: dict[str, float] = {}
    for step in steps:
        metrics = loop.run(rows, step=step)
    return loop, metrics


def alone(text: str = "", steps: int = 3, rows: list[Sample] | None = None) -> Any:
    return trained(configuration(text), backends.make, rows or samples(), range(1, steps + 1))


def _read(path: Path) -> Any:
    from safetensors.torch import load_file

    return load_file(path)


def main(out: Path, *chosen: str) -> None:
    """Run the chosen cases, or all, in this process's part of the machine and save what came of them."""
    import json

    import torch

    from spiral_lib.learner.deepspeed_backend import DeepSpeedBackend, start_processes

    torch.set_num_threads(1)
    processes = start_processes()

    def case(name: str, config: RunConfig, rows: list[Sample], steps: range, state: Path | None = None) -> None:
        if chosen and name not in chosen:
            return
        make = lambda m, _: DeepSpeedBackend(m, config, processes)  # noqa: E731
        loop, metrics = trained(config, make, rows, steps, state)
        weights = loop.backend.weights()
        loop.save_optimizer(out / name / "optimizer")
        if processes.rank == 0:
            (out / name).mkdir(exist_ok=True)
            save_file({n: t.contiguous() for n, t in weights.items()}, out / name / "weights.safetensors")
            durable.write_text(out / name / "metrics.json", json.dumps(metrics))
        torch.distributed.barrier()

    for stage in (1, 2, 3):
        case(f"stage_{stage}", configuration(stage=stage), samples(), range(1, 4))
        case(f"spoilt_{stage}", configuration("epochs=1", stage=stage), spoilt(), range(1, 2))
    case("offload", configuration("offload=true checkpoint_activations=true", stage=2), samples(), range(1, 4))
    case("half", configuration(stage=2), samples(), range(1, 3))
    for name, stage in RESUMED.items():
        case(name, configuration(stage=stage), samples(), range(3, 4), out / "half")
    case("low", configuration(LOW, stage=2, dtype="bfloat16"), samples(), range(1, 3))
    case("nothing", configuration(stage=3), [], range(1, 2))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
