"""Policies: what acts on views. A module defines ``POLICY``; ``make`` builds the one that a reference names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spiral_lib import plugins
from spiral_lib.config import PromptConfig
from spiral_lib.errors import ConfigError
from spiral_lib.types import Engine, Policy, PolicyRef, RefKind

if TYPE_CHECKING:
    from spiral_lib.prompts import Renderer

SCRIPTED = frozenset({RefKind.RANDOM, RefKind.OPTIMAL, RefKind.HUMAN})
"""Kinds that need no engine; each is the module of the same name; an endpoint's is ``api``, all others are ``llm``."""


def make(
    ref: PolicyRef,
    *,
    engine: Engine | None = None,
    renderer: Renderer | None = None,
    temperature: float = 1.0,
    max_new_tokens: int = 48,
    prompt: PromptConfig | None = None,
    candidates: int = 1,
) -> Policy:
    """Return the policy that a reference names.

    Models need an engine and a renderer. Scripted kinds take only ``prompt`` (the renderer's where it is not given),
    so that their moves are written as a model would write them; ``api`` takes it too, and an engine over an endpoint.
    With several ``candidates`` a model votes on its moves. Raises ConfigError where something is missing.
    """
    style = prompt or (renderer.config if renderer else PromptConfig())
    if ref.kind in SCRIPTED:
        scripted: Policy = plugins.load(__name__, ref.kind.value, "POLICY")(prompt=style)
        return scripted
    if engine is None or (renderer is None and ref.kind is not RefKind.API):
        raise ConfigError(f"policy '{ref}' is a model and needs an engine and a renderer; random and optimal need none")
    sampling: dict[str, Any] = {"engine": engine, "temperature": temperature, "max_new_tokens": max_new_tokens}
    model: Policy
    if ref.kind is RefKind.API:
        model = plugins.load(__name__, "api", "POLICY")(ref=ref, prompt=style, **sampling)
    else:
        model = plugins.load(__name__, "llm", "POLICY")(ref=ref, renderer=renderer, **sampling)
    if candidates == 1:
        return model
    voting: Policy = plugins.load(__name__, "search", "POLICY")(policy=model, candidates=candidates)
    return voting
