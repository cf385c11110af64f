"""The scripted engine keeps the engine contract, so tests built on it mean something."""

from __future__ import annotations

import pytest

from spiral_lib import engines
from spiral_lib.engines.scripted import ScriptedEngine
from spiral_lib.errors import ConfigError
from spiral_lib.types import Completion, Request


def request(number: int, *, prompt: int = 2, limit: int = 20, seed: int = 0) -> Request:
    return Request(id=number, prompt_ids=(1,) * prompt, header_len=0, seed=seed, temperature=1.0, max_new_tokens=limit)


def finish(engine: ScriptedEngine, count: int) -> dict[int, Completion]:
    done: dict[int, Completion] = {}
    while len(done) < count:
        done |= dict(engine.step())
    return done


def test_a_reply_is_a_function_of_prompt_and_seed_and_ends_with_the_stop_id() -> None:
    engine = ScriptedEngine(lambda ids, seed: f"{len(ids)}/{seed}")
    for number in range(3):
        engine.submit(request(number, prompt=2 + number, seed=9))
    done = finish(engine, 3)
    assert {n: c.text for n, c in done.items()} == {0: "2/9", 1: "3/9", 2: "4/9"}
    for completion in done.values():
        assert completion.response_ids[-1] == 256 and completion.finish_reason == "stop"
        assert completion.logprobs == (0.0,) * len(completion.response_ids)


def test_limits_cut_a_reply_off() -> None:
    engine = ScriptedEngine(lambda ids, seed: "abcdef", window=10)
    for made in [request(0, limit=3), request(1, prompt=8), request(2, prompt=10), request(3, limit=7)]:
        engine.submit(made)
    done = finish(engine, 4)
    assert [(done[n].text, done[n].finish_reason) for n in range(4)] == [
        ("abc", "length"), ("ab", "context"), ("", "context"), ("abcdef", "stop"),
    ]  # fmt: skip


def test_a_free_slot_is_filled_in_the_next_step() -> None:
    engine = ScriptedEngine(lambda ids, seed: "x" * seed, slots=2)
    for number, length in enumerate([1, 5, 1, 1]):
        engine.submit(request(number, seed=length))
    finish(engine, 4)
    assert engine.num_steps == 6


def test_engine_names_are_module_names() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'hf'"):
        engines.make("hff", None, None)  # type: ignore[arg-type]
