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

from spiral_lib import lineage, presets
from tasks import evaluate, learn, opponents, resources, rollout
from tasks.types import run_folder
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


def test_every_task_that_needs_them_gets_the_sites_settings_in_its_container() -> None:
    playing = (rollout.cold_start, rollout.adopt, rollout.play_shard, rollout.play_and_learn)
    for task in (spiral.self_play, *playing, learn.learn, learn.learn_on_ranks, evaluate.evaluate, opponents.decide):
        assert task.environment == resources.SITE, task.name


def registered(code: str, seed: str = "0", **site: str) -> str:
    """Return what a fresh interpreter prints that imports the workflows under a site's settings."""
    out = subprocess.run(
        [sys.executable, "-c", SERIALIZE + code],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONHASHSEED": seed, **site},
        capture_output=True,
        text=True,
        check=True,
    )
    return out.stdout.strip()


SERIALIZE = """
import hashlib
from collections import OrderedDict
from flytekit.configuration import ImageConfig, SerializationSettings
from flytekit.tools.translator import get_serializable
from workflows import schedules, spiral

def serialized(*entities):
    image = ImageConfig.auto(img_name="spiral-cpu:0.1.0")
    settings, found = SerializationSettings(project="p", domain="d", version="v", image_config=image), OrderedDict()
    for entity in entities:
        get_serializable(found, settings, entity)
    return [spec.to_flyte_idl() for spec in found.values() if hasattr(spec, "to_flyte_idl")]
"""


def test_several_gpus_make_the_learner_an_elastic_task_in_a_pod_and_the_result_has_the_sites_name() -> None:
    pytest.importorskip("flytekitplugins.kfpytorch", reason="needs the extra elastic")
    code = """
config = spiral.configs.resolve(preset="gpu_kuhn")
made = serialized(spiral.learn_sharded(on_gpus=True, on_ranks=spiral.has_ranks(config), min_success_ratio=0.75))
templates = [m.template for m in made if hasattr(m, "template")]
learner = [t for t in templates if "on_ranks" in t.id.name][0]
mapped, node = [t for t in templates if hasattr(t, "nodes")][0].nodes
print(learner.type, learner.WhichOneof("target"), spiral.tasks.learn.learn_on_ranks.task_config.nproc_per_node)
print(mapped.array_node.min_success_ratio, node.task_node.overrides.extended_resources.shared_memory.size_limit)
finish = [m.template for m in serialized(spiral.train) if hasattr(m, "template") and "finish" in m.template.id.name][0]
print(finish.interface.outputs.variables["o0"].artifact_partial_id.artifact_key.name)
"""
    shown = registered(code, SPIRAL_LEARNER_GPUS="4", SPIRAL_ARTIFACT="spiral_run").split()
    assert shown == ["python-task", "container", "4", "0.75", "32Gi", "spiral_run"]


def test_a_learner_that_is_one_process_needs_no_elastic_task() -> None:
    assert resources.elastic() == {}
    assert not resources.has_ranks(presets.get("gpu_kuhn"))
    assert not resources.has_ranks(presets.get("tiny"))


@pytest.mark.slow
def test_the_same_code_registers_as_the_same_thing_every_time() -> None:
    code = """
plans = schedules.nightly_retrain, schedules.weekly_audit
made = serialized(spiral.train, spiral.evaluate, spiral.play_tournament, *plans)
print(hashlib.sha256(b"".join(m.SerializeToString(deterministic=True) for m in made)).hexdigest())
"""
    assert len({registered(code, seed) for seed in ("1", "2")}) == 1


def test_step_records_name_the_image_of_the_container_and_none_on_this_machine(
    micro_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert {record.image for record in lineage.read_all(micro_run)} == {""}
    monkeypatch.delenv(lineage.IMAGE_VARIABLE, raising=False)
    with run_folder("", resources.image_for(presets.get("gpu_kuhn"))):
        assert os.environ.pop(lineage.IMAGE_VARIABLE) == resources.GPU_IMAGE
