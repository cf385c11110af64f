"""A model behind an endpoint as a policy: fixed play that never trains."""

from __future__ import annotations

from spiral_lib.config import PromptConfig
from spiral_lib.engines import generate
from spiral_lib.prompts import extract_action, user_text
from spiral_lib.types import Engine, Move, PolicyRef, Request, View


class ApiPolicy:
    """Sends the view as one user message and reads the move from the last box of the reply.

    A request that fails for good is a failed move, which voids the match: it is neither won nor lost.
    """

    def __init__(
        self, *, ref: PolicyRef, engine: Engine, prompt: PromptConfig, temperature: float, max_new_tokens: int
    ) -> None:
        self.ref = str(ref)
        self.engine = engine.name
        self.temperature = temperature
        self._engine = engine
        self._prompt = prompt
        self._max_new_tokens = max_new_tokens

    @property
    def digest(self) -> str:
        """Return host and model name; what weights are behind them cannot be known."""
        return self._engine.digest

    async def act(self, view: View, *, seed: int) -> Move:
        """Return the move read from one reply; ``seed`` is passed on, to be kept or not by the endpoint."""
        request = Request(
            id=0,
            prompt_ids=(),
            header_len=0,
            seed=seed,
            temperature=self.temperature,
            max_new_tokens=self._max_new_tokens,
            text=user_text(view, self._prompt),
        )
        completion = await generate(self._engine, request)
        if completion.finish_reason == "error":
            reason = f"error:{completion.text}" if completion.text else "error"
            return Move(action="", text="", reason=reason, finish_reason="error", failed=True)
        found = extract_action(completion.text, view.legal_actions)
        return Move(
            action=found.action or "",
            text=completion.text,
            reason=found.reason,
            finish_reason=completion.finish_reason,
        )


POLICY = ApiPolicy
