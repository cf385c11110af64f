"""Predictions before a run: exact where they can be, else close to a real run; and a refusal of what cannot fit."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import pytest

from spiral_lib import cli, planning, presets, trajectories
from spiral_lib.config import ModelConfig, from_text, resolve
from spiral_lib.errors import ConfigError
from spiral_lib.model_shapes import of_source
from spiral_lib.planning import Machine

H100 = Machine(gpu="h100", learner_gpus=8, disk_gib=1e6)


@pytest.mark.parametrize(
    ("source", "parameters"),
    [
        ("init:tiny", 176_768),
        ("smollm2", 134_515_008),
        ("hf:Qwen/Qwen3-4B-Base", 4_022_468_096),
        ("hf:Qwen/Qwen3-8B-Base", 8_190_735_360),
    ],
)
def test_parameters_are_counted_exactly(source: str, parameters: int) -> None:
    assert of_source(ModelConfig(source=source)).parameters == parameters


def test_the_shape_of_a_folder_is_read_from_its_config(micro_checkpoint: Path) -> None:
    shape = of_source(ModelConfig(source=f"checkpoint:{micro_checkpoint}"))
    held = json.loads((micro_checkpoint / "manifest.json").read_text())["files"]["model.safetensors"]["bytes"]
    assert 4 * shape.stored <= held <= 4 * shape.stored + 8192, "float32, and the file's own header"


def test_a_model_of_unknown_size_is_refused_with_a_way_out() -> None:
    with pytest.raises(ConfigError, match=r"nobody/model.*config\.json"):
        of_source(ModelConfig(source="hf:nobody/model"))


def test_a_real_run_played_what_was_predicted(micro_run: Path) -> None:
    config = dataclasses.replace(from_text((micro_run / "config.yaml").read_text()), iterations=2)
    predicted = planning.count_tokens(config)
    episodes = list(trajectories.read_episodes(sorted((micro_run / "trajectories").rglob("*.parquet"))))
    turns = [turn for episode in episodes for turn in episode.turns]
    prompts = sum(len(turn.prompt_ids) for turn in turns if turn.prompt_ids)
    written = sum((micro_run / name).stat().st_size for name in ("optimizer/0001/optimizer.safetensors",))
    assert predicted.matches == len(episodes)
    assert predicted.turns == pytest.approx(len(turns), rel=0.5)
    assert predicted.prompt == pytest.approx(prompts, rel=0.6)
    assert 8 * of_source(config.model).parameters == pytest.approx(written, rel=0.05)


def test_twice_the_matches_are_twice_the_tokens_of_play_and_no_more_memory() -> None:
    one, two = (
        planning.make(resolve(preset="tiny", overrides=f"rollout.matches={n}"), Machine()) for n in (128, 256)
    )
    assert two.tokens.response == pytest.approx(2 * one.tokens.response)
    assert two.tokens.learner == pytest.approx(2 * one.tokens.learner)
    assert two.learner_gib == one.learner_gib


def test_device_hours_of_shards_do_not_depend_on_their_number_but_the_wall_clock_does() -> None:
    one, eight = (planning.make(resolve(preset="gpu_kuhn", overrides=f"rollout.shards={n}"), H100) for n in (1, 8))
    assert eight.device_hours == pytest.approx(one.device_hours)
    assert eight.rollout_hours == pytest.approx(one.rollout_hours / 8)


def test_the_tiny_preset_is_predicted_to_take_minutes_and_to_fit_a_laptop() -> None:
    machine = Machine(memory_gib=8, disk_gib=5)
    plan = planning.make(presets.tiny(), machine)
    assert planning.problems(plan, machine) == []
    assert 1 / 60 < plan.hours < 0.25


def test_a_4b_learner_fits_eight_80_gib_gpus_and_not_one() -> None:
    plan = planning.make(presets.gpu_kuhn(), H100)
    assert planning.problems(plan, H100) == []
    # 2 + 14/8 bytes a parameter are 15.1 GB; 25 GB are reported for the whole step.
    assert 15 < plan.learner_gib < 28
    single = dataclasses.replace(H100, learner_gpus=1)
    refused = planning.problems(planning.make(presets.gpu_kuhn(), single), single)
    assert [r for r in refused if "the learner needs" in r and "--learner-gpus" in r]


@pytest.mark.parametrize(
    ("limits", "named"),
    [
        ({"max_hours": 0.001}, "hours, more than 0.001"),
        ({"budget": 0.0001}, "the budget is 0.00"),
        ({"disk_gib": 0.001}, "the run writes"),
        ({"memory_gib": 1.0}, "the engine needs"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(limits: dict[str, float], named: str) -> None:
    machine = dataclasses.replace(Machine(), **limits)
    plan = planning.make(presets.tiny(), machine)
    assert any(named in problem for problem in planning.problems(plan, machine))


@pytest.mark.parametrize("name", presets.names())
def test_every_preset_has_a_finite_plan(name: str) -> None:
    plan = planning.make(presets.get(name), H100 if name.startswith("gpu_") else Machine())
    values = [plan.hours, plan.device_hours, plan.learner_gib, plan.engine_gib, plan.disk_gib, plan.cost]
    assert all(math.isfinite(value) and value > 0 for value in values)


def test_rates_between_measured_sizes_lie_between_the_measured_rates() -> None:
    for (size, rate), (bigger, higher) in zip(planning.CPU_TRAINING, planning.CPU_TRAINING[1:], strict=False):
        assert planning._interpolated(planning.CPU_TRAINING, size) == pytest.approx(rate)
        assert rate < planning._interpolated(planning.CPU_TRAINING, math.sqrt(size * bigger)) < higher


def test_the_command_prints_the_plan_and_fails_when_it_does_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["plan", "--preset", "smoke", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tokens"]["matches"] == 64
    assert cli.run(["plan", "--preset", "smoke", "--budget", "0"]) == 1
    assert "refused: the run costs" in capsys.readouterr().err


def test_the_disk_of_a_run_that_expires_by_rule_does_not_grow_with_its_length() -> None:
    def disk_gib(overrides: str) -> float:
        return planning.make(resolve(preset="gpu_kuhn", overrides=overrides), H100).disk_gib

    sizes = [disk_gib(f"iterations={n}") for n in (100, 400)]
    assert sizes[1] < 1.02 * sizes[0]
    kept = [disk_gib(f"iterations={n} retention.enabled=false") for n in (100, 400)]
    assert 3.9 < kept[1] / kept[0] < 4.0
    assert kept[0] > 2 * sizes[0]
