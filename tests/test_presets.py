"""Every preset resolves, survives a round trip, and could begin a run here or says what it lacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from spiral_lib import config as configs
from spiral_lib import preflight, presets
from spiral_lib.config import config_hash, dump_yaml, from_text, resolve, to_json
from spiral_lib.errors import ConfigError

PRESETS = presets.names()


def test_the_documented_presets_are_there() -> None:
    assert {"tiny", "smoke", "tiny_tic_tac_toe", "smollm2", "gpu_kuhn", "gpu_multi_game"} <= set(PRESETS)
    assert not {"get", "names", "replace"} & set(PRESETS)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_names_itself_and_explains_itself(name: str) -> None:
    assert presets.get(name).preset == name
    assert (getattr(presets, name).__doc__ or "").endswith(".")


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_survives_yaml_and_json_exactly(name: str, tmp_path: Path) -> None:
    config = presets.get(name)
    assert from_text(dump_yaml(config)) == config
    assert from_text(to_json(config)) == config
    assert to_json(from_text(to_json(config))) == to_json(config)
    file = tmp_path / "run.yaml"
    file.write_text(dump_yaml(config), encoding="utf-8")
    other = next(p for p in PRESETS if p != name)
    assert resolve(preset=other, yaml_path=file) == config, "a complete file replaces everything"


@pytest.mark.parametrize("name", PRESETS)
def test_a_presets_values_keep_their_own_bounds(name: str) -> None:
    config = presets.get(name)
    assert configs.update(config, configs.to_dict(config)) == config


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_names_only_games_rewards_and_opponents_that_exist(name: str) -> None:
    preflight.check(presets.get(name), fresh=False)


def test_presets_have_different_hashes() -> None:
    assert len({config_hash(presets.get(name)) for name in PRESETS}) == len(PRESETS)


def test_an_unknown_preset_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match=r"unknown preset 'tinny'\. Did you mean 'tiny'\?.*smollm2"):
        presets.get("tinny")
    for name in ("", "get", "names", "replace", "__doc__"):
        with pytest.raises(ConfigError):
            presets.get(name)
