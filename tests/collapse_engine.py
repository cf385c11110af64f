"""An engine whose policy collapses after its first update: the model plays, then what it said is replaced.

Which collapse is named by the variable of the environment COLLAPSE; without it the model's own replies stand. The
checkpoint of iteration 0 always plays as it is. Log-probs are the model's for what was said, so that everything after
the engine is real: matches, trajectories, quality gate, learner, measures and gate.
"""

from __future__ import annotations

import dataclasses
import os
import random
from collections.abc import Callable
from pathlib import Path

from spiral_lib import checkpoints
from spiral_lib.config import RunConfig
from spiral_lib.engines.hf import HfEngine
from spiral_lib.prompts import Renderer
from spiral_lib.types import Completion, Request

SENTENCES = (
    *("I look at the state.", "I compare my moves.", "Every move has a risk.", "I pick one move.", "The rules decide."),
    *("A bet costs one chip.", "I may check or bet.", "A call costs one chip.", "I must call or fold."),
)
DRAWN_CELLS = (4, 0, 8, 2, 1, 7, 3, 5, 6)
"""In this order a match of TicTacToe ends in a draw."""

Said = Callable[[str, str, int], str]
"""From the prompt's text, the model's reply and the request's seed to what is said instead."""


def _box(reply: str) -> str:
    _, box, content = reply.rpartition("\\boxed")
    return box + content if box else "\\boxed{[check]}"


def _any_reasoning(prompt: str, reply: str, seed: int) -> str:
    drawn = random.Random(seed)
    return " ".join(drawn.sample(SENTENCES, drawn.randint(1, 4))) + f" {_box(reply)}"


def _first_seat_wins(prompt: str, reply: str, seed: int) -> str:
    return _with_action(reply, "[bet]" if "player 0" in prompt else "[fold]")


def _with_action(reply: str, action: str) -> str:
    return reply.rpartition("\\boxed")[0] + f"\\boxed{{{action}}}"


def _draw(prompt: str, reply: str, seed: int) -> str:
    legal = prompt.rpartition("Legal:")[2]
    return f"I pick one move. \\boxed{{[{next(c for c in DRAWN_CELLS if f'[{c}]' in legal)}]}}"


STREAMS: dict[str, Said] = {
    "length_to_zero": lambda prompt, reply, seed: "",
    "bare_answers": lambda prompt, reply, seed: _box(reply),
    "one_token": lambda prompt, reply, seed: "I" * 14 + f" {_box(reply)}",
    "one_sentence": lambda prompt, reply, seed: f"{SENTENCES[0]} {SENTENCES[0]} {_box(reply)}",
    "same_reasoning": _any_reasoning,
    "one_seat_wins": _first_seat_wins,
    "all_invalid": lambda prompt, reply, seed: _with_action(reply, "[dance]"),
    "no_gradient": _draw,
}


class CollapsingEngine(HfEngine):
    """The local engine, with the replies of a later checkpoint replaced."""

    def __init__(self, checkpoint: Path, config: RunConfig) -> None:
        super().__init__(checkpoint, config)
        begun = checkpoints.read_manifest(checkpoint).iteration > 0
        self._say = STREAMS.get(os.environ.get("COLLAPSE", "")) if begun else None
        self._renderer = Renderer(checkpoints.load_tokenizer(checkpoint), config.prompt)
        self._requests: dict[int, Request] = {}

    def submit(self, request: Request) -> None:
        self._requests[request.id] = request
        super().submit(request)

    def step(self) -> list[tuple[int, Completion]]:
        done = super().step()
        return done if self._say is None else [(number, self._replaced(number, made)) for number, made in done]

    def _replaced(self, number: int, made: Completion) -> Completion:
        assert self._say is not None
        text = self._say(self._renderer.decode(made.prompt_ids), made.text, self._requests.pop(number).seed)
        ids = self._renderer.encode_reply(text)
        (logprobs,) = self.score([(made.prompt_ids, ids)])
        return dataclasses.replace(
            made, response_ids=ids, logprobs=tuple(logprobs), text=text, finish_reason="stop"
        )


ENGINE = CollapsingEngine
