"""The expert of route sft: solved play, with the words of the cold start's scripted replies, as token ids."""

from __future__ import annotations

from spiral_lib import policies, scripted_play
from spiral_lib.prompts import Renderer, response_text
from spiral_lib.seeds import generator
from spiral_lib.types import Completion, Move, PolicyRef, View


class Expert:
    """Plays as policy ``optimal`` does; each move carries the prompt and the reply that a model is to learn.

    A reply is written and not sampled, so its log-probs are 0.
    """

    ref = "optimal"
    digest = "optimal"
    engine = "scripted"
    temperature = 1.0

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer
        self._optimal = policies.make(PolicyRef.parse(self.ref), renderer=renderer)

    async def act(self, view: View, *, seed: int) -> Move:
        """Return the solved move drawn with ``seed``, and the whole reply."""
        action = (await self._optimal.act(view, seed=seed)).action
        reasoning = scripted_play.reasoning(view, generator(seed, "expert's words"))
        text = response_text(reasoning, action, self._renderer.config)
        ids = self._renderer.encode_reply(text)
        completion = Completion(
            prompt_ids=self._renderer.encode(view)[0],
            response_ids=tuple(ids),
            logprobs=(0.0,) * len(ids),
            text=text,
            finish_reason="stop",
        )
        return Move(action=action, text=text, completion=completion)
