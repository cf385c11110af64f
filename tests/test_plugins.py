"""The module name is the registry, and a dotted path works wherever a name does."""

from __future__ import annotations

from pathlib import Path

import pytest

from spiral_lib import plugins
from spiral_lib.errors import ConfigError


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    folder = tmp_path / "toy_plugins"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "chess.py").write_text("GAME = 'chess'\n")
    (folder / "go.py").write_text("GAME = 'go'\n")
    (folder / "_private.py").write_text("raise RuntimeError('never imported')\n")
    (folder / "broken.py").write_text("import a_package_that_is_not_there\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return "toy_plugins"


def test_names_are_the_public_modules_and_nothing_is_imported_for_them(package: str) -> None:
    assert plugins.names(package) == ["broken", "chess", "go"]


def test_a_name_and_a_dotted_path_load_the_same_thing(package: str) -> None:
    assert plugins.load(package, "chess", "GAME") == "chess"
    assert plugins.load("spiral_lib.games", "toy_plugins.chess:GAME", "GAME") == "chess"
    assert plugins.load("spiral_lib.games", "toy_plugins.chess", "GAME") == "chess"


def test_an_unknown_name_is_refused_with_the_nearest_one(package: str) -> None:
    with pytest.raises(ConfigError, match=r"'ches'.*Did you mean 'chess'\?.*broken, chess, go"):
        plugins.load(package, "ches", "GAME")


@pytest.mark.parametrize("name", ["", ".", ":", "..x", "no.such.module:X", ":GAME", "toy_plugins.chess:MISSING"])
def test_a_wrong_path_is_a_configuration_error(package: str, name: str) -> None:
    with pytest.raises(ConfigError):
        plugins.load("spiral_lib.games", name, "GAME")


def test_a_module_without_the_symbol_is_named(package: str) -> None:
    with pytest.raises(ConfigError, match="'go' does not define ENGINE"):
        plugins.load(package, "go", "ENGINE")


def test_a_missing_dependency_of_a_known_module_is_not_taken_for_a_typing_mistake(package: str) -> None:
    with pytest.raises(ModuleNotFoundError, match="a_package_that_is_not_there"):
        plugins.load(package, "broken", "GAME")
