"""Policies: what acts on views. A module defines ``POLICY``; ``make`` builds the one that a reference names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spiral_lib import plugins
from spiral_lib.config import PromptConfig
from spiral_lib.errors import ConfigError
from spiral_lib.types import Engine, Policy, PolicyRef, RefKind

if TYPE_CHECKING:
    from spiral_lib.prompts import Renderer

SCRIPTED = frozenset({RefKind.RANDOM, RefKind.OPTIMAL, RefKind.HUMAN})
"""Kinds that need no engine; each is the module of the same name, all others are ``llm``."""


def make(
    ref: PolicyRef,
    *,
    engine: Engine | None = None,
    renderer: Renderer | None = None,
    temperature: float = 1.0,
    max_new_tokens: int = 48,
    prompt: PromptConfig | None = None,
) -> Policy:
    """Return the policy that a reference names.

    Models need an engine and a renderer. Scripted kinds take only ``prompt`` (the renderer's where it is not given),
    so that their moves are written as a model would write them. Raises ConfigError where something is missing.
    """
    if ref.kind in SCRIPTED:
        style = prompt or (renderer.config if renderer else PromptConfig())
        scripted: Policy = plugins.load(__name__, ref.kind.value, "POLICY")(prompt=style)
        return scripted
    if engine is None or renderer is None:
        raise ConfigError(f"policy '{ref}' is a model and needs an engine and a renderer; random and optimal need none")
    model: Policy = plugins.load(__name__, "llm", "POLICY")(
        ref=ref, engine=engine, renderer=renderer, temperature=temperature, max_new_tokens=max_new_tokens
    )
    return model
