"""GPU nodes for what needs them, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
from flytekit.configuration import ImageConfig, SerializationSettings
from flytekit.tools.translator import get_serializable

from spiral_lib import presets
from tasks import resources
from workflows import spiral


def nodes(workflow: Any) -> list[Any]:
    settings = SerializationSettings(
        project="p", domain="d", version="v", image_config=ImageConfig.auto(img_name="spiral-cpu:0.1.0")
    )
    return list(get_serializable(OrderedDict(), settings, workflow).to_flyte_idl().template.nodes)


def gpus(node: Any) -> tuple[list[str], list[str]]:
    """Return the GPUs that a node requests and is limited to."""
    given = node.task_node.overrides.resources
    kind = given.GPU
    return [r.value for r in given.requests if r.name == kind], [r.value for r in given.limits if r.name == kind]


@pytest.mark.parametrize("name", presets.names())
def test_exactly_the_gpu_presets_ask_for_gpus(name: str) -> None:
    assert resources.needs_gpu(presets.get(name)) == name.startswith("gpu_")


def test_shards_run_on_interruptible_gpu_nodes_and_the_learner_does_not() -> None:
    mapped, learner = nodes(spiral.learn_sharded(on_gpus=True))
    shard = mapped.array_node.node
    assert gpus(shard) == (["1"], ["1"])
    assert shard.metadata.interruptible
    assert shard.metadata.retries.retries == resources.ROLLOUT_GPU.retries
    assert gpus(learner) == ([str(resources.LEARNER_GPUS)],) * 2
    assert not learner.metadata.interruptible
    for node in (shard, learner):
        overrides = node.task_node.overrides
        assert overrides.container_image == resources.GPU_IMAGE
        assert overrides.extended_resources.shared_memory.size_limit
        assert node.metadata.timeout.seconds > 3600


def test_the_decision_never_waits_for_a_gpu() -> None:
    measure, decide = nodes(spiral.judge_on_gpus)
    assert gpus(measure) == (["1"], ["1"])
    assert gpus(decide) == ([], [])
    assert decide.task_node.overrides.container_image == ""


def test_a_site_sets_images_accelerator_learner_and_secrets_when_it_registers() -> None:
    site = {
        "SPIRAL_IMAGE_GPU": "example.org/gpu@sha256:0",
        "SPIRAL_ACCELERATOR": "nvidia-h100",
        "SPIRAL_LEARNER_GPUS": "4",
        "SPIRAL_SECRETS": "HF_TOKEN,OPENAI_API_KEY",
    }
    code = (
        "from tasks import resources as r, rollout;"
        "o = r.LEARNER_GPU.overrides();"
        "print(o['container_image'], o['accelerator']._device, o['requests'].gpu, r.SITE['SPIRAL_LEARNER_GPUS'],"
        " [s.env_var for s in rollout.play_shard.security_context.secrets])"
    )
    out = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[2],
        env={**os.environ, **site},
        capture_output=True,
        text=True,
        check=True,
    )
    assert out.stdout.split(None, 4) == [
        "example.org/gpu@sha256:0",
        "nvidia-h100",
        "4",
        "4",
        "['HF_TOKEN', 'OPENAI_API_KEY']\n",
    ]


def test_the_task_that_makes_the_graph_in_a_container_gets_the_sites_settings() -> None:
    assert spiral.self_play.environment == resources.SITE
