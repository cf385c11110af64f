"""The strict loader: every kind of mistake is one ConfigError that names the setting, and nothing is dropped."""

from __future__ import annotations

import contextlib
import dataclasses
import typing
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from spiral_lib import config as configs
from spiral_lib.config import RunConfig, config_hash, describe, dump_yaml, from_text, resolve, to_json, update
from spiral_lib.errors import ConfigError


def tiny(overrides: str = "", yaml_text: str | None = None, folder: Path | None = None) -> RunConfig:
    path = None
    if yaml_text is not None and folder is not None:
        path = folder / "run.yaml"
        path.write_text(yaml_text, encoding="utf-8")
    return resolve(preset="tiny", yaml_path=path, overrides=overrides)


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        ("learner.lrr=1", ["learner.lrr", "Did you mean 'learner.lr'?"]),
        ("lerner.lr=1", ["'lerner'", "Did you mean 'learner'?"]),
        ("qqq=1", ["'qqq'", "Known here", "learner"]),
        ("learner.lr.deep=1", ["learner.lr"]),
        ("learner=3", ["'learner' is a section"]),
        ("rollout.matches=many", ["rollout.matches", "'many'", "a whole number"]),
        ("rollout.matches=1.5", ["rollout.matches", "1.5", "a whole number"]),
        ("rollout.matches=true", ["rollout.matches", "a whole number"]),
        ("rollout.matches=", ["rollout.matches", "None"]),
        ("learner.lr=fast", ["learner.lr", "'fast'", "a number"]),
        ("learner.lr=true", ["learner.lr", "a number"]),
        ("evaluation.bank=1", ["evaluation.bank", "true or false"]),
        ("evaluation.bank=yess", ["evaluation.bank", "true or false"]),
        ("model.source=[a]", ["model.source", "text"]),
        ("rollout.matches=-3", ["rollout.matches", "-3", "at least 1"]),
        ("rollout.matches=0", ["rollout.matches", "at least 1"]),
        ("rae.decay=1.5", ["rae.decay", "1.5", "between 0 and 1"]),
        ("learner.epochs=5", ["learner.epochs", "between 1 and 4"]),
        ("seed=-1", ["seed", "at least 0"]),
        (f"seed={1 << 63}", ["seed", "below 2**63"]),
        ("seed=1 seed=2", ["'seed' is given twice", "seed=2"]),
        ("seed=010", ["'010' is read as 8"]),
        ("seed=1:30", ["'1:30' is read as 90"]),
        ("learner.lr=1:30.5", ["'1:30.5' is read as 90.5"]),
        ("rollout.matches=1000000000000", ["rollout.matches", "at most 1,000,000"]),
        ("learner.normalizer=1000000000000", ["learner.normalizer", "at most 10,000,000"]),
        ("rae.baseline=roles", ["rae.baseline", "'roles'", "role, game, none"]),
        ("learner.lr=.nan", ["learner.lr", "nan", "finite"]),
        ("learner.lr=.inf", ["learner.lr", "inf", "finite"]),
        ("learner.lr=nan", ["learner.lr", "finite"]),
        ("learner.lr=1e999", ["learner.lr", "finite"]),
        (f"learner.lr=1{'0' * 400}", ["learner.lr", "finite"]),
        ("games=kuhn_poker", ["games", "must be a list"]),
        ("games=[]", ["'games' is empty"]),
        ("games=[{weight: 2}]", ["games[0]", "'name'"]),
        ("games=[3]", ["games[0]"]),
        ("games=[{name: kuhn_poker, wieght: 2}]", ["games[0].wieght", "Did you mean 'games[0].weight'?"]),
        ("games=[{name: kuhn_poker, weight: -1}]", ["games[0].weight", "at least 0"]),
        ("games=[{name: kuhn_poker, weight: 0}]", ["weight", "positive"]),
        ("games=[{name: kuhn_poker, params: {hands: [1]}}]", ["games[0].params.hands"]),
        ("games=[{name: kuhn_poker, params: {hands: .nan}}]", ["games[0].params.hands", "finite"]),
        ("games=[{name: kuhn_poker, params: 3}]", ["games[0].params", "mapping"]),
        ("evaluation.opponents=random", ["evaluation.opponents", "for example ['random']"]),
        ("evaluation.opponents=[[random]]", ["evaluation.opponents[0]", "text"]),
        ("opponents.self_play=0 opponents.pool=0 opponents.random=0 opponents.optimal=0", ["opponents"]),
        ("rollout.max_new_tokens=512 model.context_tokens=512", ["rollout.max_new_tokens", "model.context_tokens"]),
        ("learner.lr", ["'learner.lr'", "section.setting=value"]),
        ("=3", ["'=3'", "section.setting=value"]),
        ("learner.lr={", ["learner.lr={", "not valid YAML"]),
        ("seed=2001-13-45", ["seed=2001-13-45", "not valid YAML"]),
        ("seed=!!int", ["not valid YAML"]),
        ("seed=!!python/name:os.system", ["not valid YAML"]),
        ("learner.lr=1 learner={beta1: 0.5}", ["learner", "replace"]),
        ("learner=1 learner.lr=1", ["learner.lr", "below 'learner'"]),
    ],
)
def test_a_wrong_override_is_named_with_its_value_and_the_way_out(overrides: str, parts: list[str]) -> None:
    with pytest.raises(ConfigError) as error:
        tiny(overrides)
    for part in parts:
        assert part in str(error.value)
    assert len(str(error.value)) < 700
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("learner: [", "not valid YAML"),
        ("learner:\n\tlr: 1", "not valid YAML"),
        ("- a\n- b", "must be a mapping of sections, found list"),
        ("just words", "found str"),
        ("seed: 1\nseed: 2", "'seed' is given twice"),
        ("seed: 010", "'010' is read as 8"),
        ("learner: {lr: 1, lr: 2}", "'lr' is given twice"),
        ("learner: &a [*a]", "'learner' is a section"),
        ("{" * 3000, "not valid YAML"),
        ("1: 2", "unknown setting '1'"),
        ("? [a]\n: b", "not valid YAML"),
        ("when: 2001-13-45", "not valid YAML"),
        ("seed: !!binary x", "not valid YAML"),
        ("a: 1\n---\nb: 2", "not valid YAML"),
    ],
)
def test_a_wrong_yaml_file_is_named_with_what_is_wrong(text: str, part: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        tiny(yaml_text=text, folder=tmp_path)
    assert part in str(error.value)
    assert len(str(error.value)) < 1000


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.yaml", tmp_path):
        with pytest.raises(ConfigError, match="cannot read config"):
            resolve(preset="tiny", yaml_path=path)
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="cannot read config"):
        resolve(preset="tiny", yaml_path=tmp_path / "binary.yaml")


def test_overrides_beat_yaml_and_yaml_beats_the_preset(tmp_path: Path) -> None:
    text = "learner: {lr: 0.25, beta1: 0.5}\nseed: 7"
    config = tiny("learner.lr=0.125", text, tmp_path)
    assert (config.learner.lr, config.learner.beta1, config.seed) == (0.125, 0.5, 7)
    assert config.learner.epochs == tiny().learner.epochs


def test_an_empty_file_changes_nothing(tmp_path: Path) -> None:
    assert tiny(yaml_text="", folder=tmp_path) == tiny(yaml_text="# only a comment\n", folder=tmp_path) == tiny()


def test_overrides_split_at_blanks_and_commas_outside_brackets_and_quotes() -> None:
    config = tiny("learner.lr=1e-6,seed=3\n games=[kuhn_poker, {name: nim, weight: 2}] model.source='hf:a b'")
    assert (config.learner.lr, config.seed, config.model.source) == (1e-6, 3, "hf:a b")
    assert [(g.name, g.weight) for g in config.games] == [("kuhn_poker", 1.0), ("nim", 2.0)]


@pytest.mark.parametrize("number", [(1 << 53) + 1, (1 << 63) - 1])
def test_large_integers_survive_every_way_of_writing_them(number: int) -> None:
    config = tiny(f"seed={number} games=[{{name: nim, params: {{start: {number}}}}}]")
    for again in (config, from_text(to_json(config)), from_text(dump_yaml(config))):
        assert again.seed == number
        assert again.games[0].params["start"] == number


def test_whole_numbers_become_floats_where_a_float_is_asked_for() -> None:
    assert repr(tiny("learner.lr=1").learner.lr) == "1.0"
    assert config_hash(tiny("learner.lr=1")) == config_hash(tiny("learner.lr=1.0"))


def test_the_hash_ignores_iterations_and_what_stays_on_the_disk_and_nothing_else() -> None:
    base = config_hash(tiny())
    assert config_hash(tiny("iterations=99 retention.enabled=false retention.keep_shards=1")) == base
    others = [config_hash(c) for c in every_change(tiny()) if c.retention == tiny().retention]
    assert len(others) > 80
    assert base not in others
    assert len(set(others)) == len(others)


def every_change(config: RunConfig) -> list[RunConfig]:
    """Return configurations that differ from the first in one setting each, whether or not that makes sense."""
    found = []
    for section in dataclasses.fields(config):
        value = getattr(config, section.name)
        if not dataclasses.is_dataclass(value):
            continue
        for f in dataclasses.fields(value):
            old = getattr(value, f.name)
            new = {bool: not old, str: f"{old}x", int: 3, float: 0.123}.get(type(old))
            changed = object.__new__(type(value))
            for g in dataclasses.fields(value):
                object.__setattr__(changed, g.name, getattr(value, g.name))
            object.__setattr__(changed, f.name, new + old if type(old) in (int, float) else new)
            if new is None:
                continue
            with contextlib.suppress(ConfigError):  # settings that only go together with others
                found.append(dataclasses.replace(config, **{section.name: changed}))
    return found


def test_every_setting_is_documented_and_described_with_its_default() -> None:
    rows = describe()
    names = [name for name, _, _ in rows]
    assert len(names) == len(set(names)) > 90
    for name, default, doc in rows:
        assert len(doc) > 4, f"'{name}' has no documentation"
        assert yaml.safe_load(default) is not None or default == "null"
    for name in ("seed", "learner.lr", "games", "evaluation.opponents", "rewards.terms", "gates.on_collapse"):
        assert name in names


def test_every_section_has_a_docstring_and_every_default_its_own_bounds() -> None:
    assert update(RunConfig(), configs.to_dict(RunConfig())) == RunConfig()
    for kind in typing.get_type_hints(RunConfig).values():
        if dataclasses.is_dataclass(kind):
            assert (kind.__doc__ or "").endswith("."), kind
            assert "(" not in (kind.__doc__ or "").split(" ")[0], f"{kind} has only the generated docstring"


def test_a_damaged_text_is_a_configuration_error() -> None:
    for text in ("{", "[1]", "{learner: 3}", '{"iterations": "x"}'):
        with pytest.raises(ConfigError):
            from_text(text)


NAMES = [name for name, _, _ in describe()]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6) | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


def only_config_errors(preset: str, overrides: str, path: Path | None = None) -> None:
    try:
        config = resolve(preset=preset, yaml_path=path, overrides=overrides)
    except ConfigError as error:
        assert len(str(error)) < 3000
    else:
        assert from_text(to_json(config)) == config


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60))
def test_any_text_as_overrides_resolves_or_is_a_config_error(text: str) -> None:
    only_config_errors("tiny", text)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(NAMES) | st.text(max_size=8), st.text("0123456789.e-+{}[]:,'\"&*!nai x"))))
def test_any_values_for_real_settings_resolve_or_are_a_config_error(parts: list[tuple[str, str]]) -> None:
    only_config_errors("smoke", " ".join(f"{name}={value}" for name, value in parts))


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from([f.name for f in dataclasses.fields(RunConfig)]), VALUES, max_size=3))
def test_any_mapping_as_yaml_resolves_or_is_a_config_error(
    tmp_path_factory: pytest.TempPathFactory, content: dict[str, object]
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    only_config_errors("tiny", "", path)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=40) | st.text("ab:{}[]!&*?|>-#%@`'\" \n\t0.,", max_size=40).map(str.encode))
def test_any_bytes_as_yaml_resolve_or_are_a_config_error(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.yaml"
    path.write_bytes(content)
    only_config_errors("tiny", "", path)


def test_more_shards_than_matches_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"rollout.shards=9 is more than rollout.matches=8"):
        resolve(preset="tiny", overrides="rollout.matches=8 rollout.shards=9")


def test_the_preset_itself_cannot_be_overridden() -> None:
    with pytest.raises(ConfigError, match="use --preset smoke"):
        resolve(preset="tiny", overrides="preset=smoke")
