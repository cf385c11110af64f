"""Replies to single prompts, for measures that ask about states rather than play matches."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spiral_lib.errors import EngineError
from spiral_lib.types import Completion, Engine, Request

Progress = Callable[[int, int], None]
"""Called with how many of how many are done."""


def sample_replies(
    engine: Engine, requests: Sequence[Request], on_progress: Progress | None = None
) -> list[Completion]:
    """Return one completion per request, in order; ids must be the positions. Raises EngineError if one failed.

    All are submitted at once and the engine refills its slots; the result depends on each request's seed alone.
    """
    for request in requests:
        engine.submit(request)
    found: dict[int, Completion] = {}
    while len(found) < len(requests):
        for position, completion in engine.step():
            if completion.finish_reason == "error":
                raise EngineError(f"engine '{engine.name}' failed on an evaluation prompt: {completion.text[:200]}")
            found[position] = completion
        if on_progress is not None:
            on_progress(len(found), len(requests))
    return [found[i] for i in range(len(requests))]
