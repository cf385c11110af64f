"""The reference page of the games says what their modules say."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from spiral_lib import games

MAKER = Path(__file__).parents[2] / "docs" / "make_games.py"


def test_the_page_is_what_the_modules_say() -> None:
    spec = importlib.util.spec_from_file_location("make_games", MAKER)
    assert spec is not None and spec.loader is not None
    maker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(maker)
    text = maker.page()
    assert maker.PAGE.read_text(encoding="utf-8") == text, "run: python docs/make_games.py"
    for name in games.names():
        described = games.spec(name)
        assert f"## {name}\n" in text and described.roles[0] in text and described.roles[1] in text
