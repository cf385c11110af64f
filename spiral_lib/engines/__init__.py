"""Token generators: ``make`` loads one by name, ``generate`` is how a policy asks it for a completion."""

from __future__ import annotations

import types
from collections.abc import Generator
from pathlib import Path
from typing import cast

from spiral_lib import plugins
from spiral_lib.config import RunConfig
from spiral_lib.types import Completion, Engine, Request


def make(name: str, checkpoint: Path, config: RunConfig) -> Engine:
    """Return the engine of that name over a checkpoint's weights; ``ENGINE(checkpoint, config)`` of its module."""
    return cast(Engine, plugins.load(__name__, name, "ENGINE")(checkpoint, config))


def endpoint(model: str, config: RunConfig) -> Engine:
    """Return the engine over the configured endpoint's model. Raises ConfigError where there is no endpoint."""
    from spiral_lib.engines.openai import OpenAiEngine

    return OpenAiEngine(model, config.endpoint)


@types.coroutine
def generate(engine: Engine, request: Request) -> Generator[tuple[Engine, Request], Completion, Completion]:
    """Return the completion of a request.

    Nothing is submitted here: the pair is handed to whoever drives the coroutine (``rollout``), which numbers the
    request (``request.id`` is not used), steps the engine and sends the completion back.
    """
    return (yield engine, request)
