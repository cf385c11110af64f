"""A person at the terminal."""

from __future__ import annotations

import sys
from typing import TextIO

from spiral_lib.config import PromptConfig
from spiral_lib.errors import SpiralError
from spiral_lib.prompts import extract_action, response_text
from spiral_lib.types import Extraction, Move, View


class HumanPolicy:
    """Shows the observation and the legal actions, and asks until the answer can be read."""

    ref = "human"
    digest = "human"
    engine = "scripted"
    temperature = 1.0

    def __init__(self, *, prompt: PromptConfig, source: TextIO | None = None, screen: TextIO | None = None) -> None:
        self._prompt = prompt
        self._source = source
        self._screen = screen
        self._seen_rules: set[str] = set()

    async def act(self, view: View, *, seed: int) -> Move:
        """Return the move typed, with or without brackets or a box. Raises SpiralError when the input ends."""
        del seed
        self._show(view)
        while True:
            line = self._ask()
            found = _read(line, view)
            if found.action is not None:
                return Move(action=found.action, text=response_text("", found.action, self._prompt))
            self._say(f"That is not a legal action ({found.reason}). {_choices(view)}")

    def _show(self, view: View) -> None:
        if view.game not in self._seen_rules:
            self._seen_rules.add(view.game)
            self._say(f"\n{view.rules.strip()}\n")
        self._say(f"\n{view.game}: you are {view.role}, seat {view.player}\n{view.observation}\n{_choices(view)}")

    def _say(self, text: str) -> None:
        from rich.console import Console

        # No markup: brackets in game text are actions, not colours.
        Console(file=self._screen or sys.stdout).print(text, markup=False, highlight=False)

    def _ask(self) -> str:
        self._say("Your move:")
        line = (self._source or sys.stdin).readline()
        if not line:
            raise SpiralError("the input ended before the match did; play again and answer every question")
        return line


def _choices(view: View) -> str:
    if view.legal_actions is not None:
        return f"Legal: {' '.join(view.legal_actions)}"
    # The samples are for scripted play: among them may be the answer that the person has to find.
    return f"Form: {view.action_format}"


def _read(line: str, view: View) -> Extraction:
    if not line.strip():
        return Extraction(status="invalid", action=None, reason="empty")
    text = line if "\\boxed" in line else f"\\boxed{{{line}}}"
    return extract_action(text, view.legal_actions)


POLICY = HumanPolicy
