"""From a view to a request, and from a completion to a move."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import tiny_checkpoints as tiny

from spiral_lib import games, policies
from spiral_lib.config import PromptConfig
from spiral_lib.engines.scripted import ScriptedEngine
from spiral_lib.prompts import Renderer
from spiral_lib.types import Completion, Move, PolicyRef, Request

RENDERER = Renderer(tiny.tokenizer(), PromptConfig())


def act(reply: str | Sequence[int], *, game: str = "kuhn_poker", limit: int = 40) -> tuple[Request, Move]:
    """Return the request a policy makes for a game's first view and its move once ``reply`` has come."""
    state = games.make(game, seed=1)
    player = state.current_player
    assert player is not None
    engine = ScriptedEngine(lambda ids, seed: reply)
    policy = policies.make(PolicyRef.parse("pool:abc"), engine=engine, renderer=RENDERER, temperature=0.7,
                           max_new_tokens=limit)  # fmt: skip
    waiting = policy.act(state.view(player), seed=5)
    asked_engine, request = waiting.send(None)  # type: ignore[attr-defined]
    assert asked_engine is engine
    engine.submit(request)
    done: list[tuple[int, Completion]] = []
    while not done:
        done = engine.step()
    with pytest.raises(StopIteration) as ended:
        waiting.send(done[0][1])  # type: ignore[attr-defined]
    move = ended.value.value
    assert isinstance(move, Move)
    return request, move


def test_the_request_is_the_rendered_view_with_the_turns_seed() -> None:
    request, _ = act("x")
    view = games.make("kuhn_poker", seed=1).view(0)
    assert (request.prompt_ids, request.header_len) == RENDERER.encode(view)
    assert (request.seed, request.temperature, request.max_new_tokens) == (5, 0.7, 40)


def test_the_move_is_read_from_the_last_box_and_keeps_the_completion() -> None:
    _, move = act(r"\boxed{[fold]} no, \boxed{[bet]}")
    assert (move.action, move.reason, move.finish_reason, move.failed) == ("[bet]", None, "stop", False)
    assert move.completion is not None and move.completion.text == move.text


@pytest.mark.parametrize(
    ("reply", "limit", "reason", "finish_reason"),
    [
        ("no idea", 40, "no_box", "stop"),
        (r"\boxed{[fold]}", 40, "illegal_action", "stop"),
        (r"\boxed{[bet]}", 9, "unclosed_box", "length"),
    ],
)
def test_a_response_without_a_legal_move_says_why(reply: str, limit: int, reason: str, finish_reason: str) -> None:
    _, move = act(reply, limit=limit)
    assert (move.action, move.reason, move.finish_reason, move.failed) == ("", reason, finish_reason, False)


def test_a_completion_that_failed_is_a_failed_move() -> None:
    engine = ScriptedEngine(lambda ids, seed: "")
    policy = policies.make(PolicyRef.parse("api:model"), engine=engine, renderer=RENDERER)
    waiting = policy.act(games.make("kuhn_poker", seed=1).view(0), seed=5)
    waiting.send(None)  # type: ignore[attr-defined]
    failed = Completion(prompt_ids=(1,), response_ids=(), logprobs=(), text="", finish_reason="error")
    with pytest.raises(StopIteration) as ended:
        waiting.send(failed)  # type: ignore[attr-defined]
    assert ended.value.value.failed and ended.value.value.action == ""


def test_the_policys_digest_follows_its_engine() -> None:
    engine = ScriptedEngine(lambda ids, seed: "")
    policy = policies.make(PolicyRef.parse("self"), engine=engine, renderer=RENDERER)
    engine.digest = "after a swap"
    assert (policy.ref, policy.engine, policy.digest) == ("self", "scripted", "after a swap")
