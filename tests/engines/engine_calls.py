"""What tests ask of every engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spiral_lib.types import Completion, Request


def finish(engine: Any, asked: Sequence[Request]) -> dict[int, Completion]:
    """Submit requests and step the engine until all are answered."""
    for request in asked:
        engine.submit(request)
    done: dict[int, Completion] = {}
    while engine.num_live:
        done |= engine.step()
    return done
