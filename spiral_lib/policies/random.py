"""Uniformly random legal play."""

from __future__ import annotations

from collections.abc import Sequence

from spiral_lib import seeds
from spiral_lib.config import PromptConfig
from spiral_lib.errors import SpiralError
from spiral_lib.prompts import response_text
from spiral_lib.types import Move, View


def playable(view: View) -> Sequence[str]:
    """Return the actions that scripted play chooses from: the legal ones, or the samples of a parameterised game."""
    actions = view.sample_actions if view.legal_actions is None else view.legal_actions
    if not actions:
        raise SpiralError(f"game '{view.game}' offers no action to scripted play; its view() must give sample_actions")
    return actions


class RandomPolicy:
    """Draws uniformly, keyed by the turn's seed alone."""

    ref = "random"
    digest = "random"
    engine = "scripted"
    temperature = 1.0

    def __init__(self, *, prompt: PromptConfig) -> None:
        self._prompt = prompt

    async def act(self, view: View, *, seed: int) -> Move:
        """Return a uniformly drawn action."""
        actions = playable(view)
        action = actions[int(seeds.uniform(seed, "random") * len(actions))]
        return Move(action=action, text=response_text("", action, self._prompt))


POLICY = RandomPolicy
