"""Replies to single prompts, for measures that ask about states rather than play matches."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spiral_lib.errors import EngineError
from spiral_lib.types import Completion, Engine, Request

Progress = Callable[[int, int], None]
"""Called with how many of how many are done."""


def sample_replies(
    engine: Engine,
    requests: Sequence[Request],
    on_progress: Progress | None = None,
    *,
    max_failed_share: float = 0.0,
) -> list[Completion]:
    """Return one completion per request, in order; ids must be the positions.

    All are submitted at once and the engine refills its slots; the result depends on each request's seed alone.
    Raises EngineError where more than ``max_failed_share`` failed (finish_reason ``error``).
    """
    for request in requests:
        engine.submit(request)
    found: dict[int, Completion] = {}
    failed = 0
    while len(found) < len(requests):
        for position, completion in engine.step():
            failed += completion.finish_reason == "error"
            if failed > max_failed_share * len(requests):
                raise EngineError(
                    f"engine '{engine.name}' failed on {failed} of {len(requests)} evaluation prompts, the last time "
                    f"with: {completion.text[:200]}"
                )
            found[position] = completion
        if on_progress is not None:
            on_progress(len(found), len(requests))
    return [found[i] for i in range(len(requests))]
