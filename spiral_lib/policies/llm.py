"""A language model as a policy."""

from __future__ import annotations

from spiral_lib.engines import generate
from spiral_lib.prompts import Renderer, extract_action
from spiral_lib.types import Engine, Move, PolicyRef, Request, View


class LlmPolicy:
    """Renders the view, lets the engine generate and reads the move from the last box of the response."""

    def __init__(
        self, *, ref: PolicyRef, engine: Engine, renderer: Renderer, temperature: float, max_new_tokens: int
    ) -> None:
        self.ref = str(ref)
        self.engine = engine.name
        self.temperature = temperature
        self._engine = engine
        self._renderer = renderer
        self._max_new_tokens = max_new_tokens
        # Only where it is wanted: the observation of any other run is never cut.
        window: int | None = getattr(engine, "window", None) if renderer.config.keep_lines else None
        self._prompt_limit = None if window is None else window - max_new_tokens

    @property
    def digest(self) -> str:
        """Return the engine's digest: its weights may be swapped between matches."""
        return self._engine.digest

    async def act(self, view: View, *, seed: int) -> Move:
        """Return the move read from one completion sampled with ``seed``; a completion that failed is a failed move."""
        shown = view if self._prompt_limit is None else self._renderer.fitted(view, self._prompt_limit)
        prompt_ids, header_len = self._renderer.encode(shown)
        request = Request(
            id=0,
            prompt_ids=prompt_ids,
            header_len=header_len,
            seed=seed,
            temperature=self.temperature,
            max_new_tokens=self._max_new_tokens,
        )
        completion = await generate(self._engine, request)
        if completion.finish_reason == "error":
            return Move(action="", text="", reason="error", completion=completion, finish_reason="error", failed=True)
        found = extract_action(completion.text, view.legal_actions)
        return Move(
            action=found.action or "",
            text=completion.text,
            reason=found.reason,
            completion=completion,
            finish_reason=completion.finish_reason,
            shown=None if shown is view else shown.observation,
        )


POLICY = LlmPolicy
