"""What an endpoint may cost, and what it has cost."""

from __future__ import annotations

from spiral_lib.settings import EndpointConfig

_BYTES_A_TOKEN = 3  # of a prompt, before its tokens are known: rather too many tokens than too few


class Spending:
    """Tokens and money spent, with what is in flight held back at its most: a limit is not overrun in between."""

    def __init__(self, config: EndpointConfig) -> None:
        self.tokens = 0
        self.cost = 0.0
        self._config = config
        self._held_tokens = 0
        self._held_cost = 0.0

    def estimate(self, prompt: str, max_new_tokens: int) -> tuple[int, int]:
        """Return tokens of prompt and reply before they are known."""
        return len(prompt.encode()) // _BYTES_A_TOKEN + 16, max_new_tokens

    def hold(self, usage: tuple[int, int]) -> bool:
        """Hold back what a request may use and return True, or False where that would overrun a limit."""
        c, tokens, cost = self._config, sum(usage), self._cost(usage)
        if c.max_tokens and self.tokens + self._held_tokens + tokens > c.max_tokens:
            return False
        if c.max_cost and self.cost + self._held_cost + cost > c.max_cost:
            return False
        self._held_tokens += tokens
        self._held_cost += cost
        return True

    def settle(self, held: tuple[int, int], used: tuple[int, int]) -> None:
        """Count what a request used in place of what was held back for it."""
        self._held_tokens -= sum(held)
        self._held_cost -= self._cost(held)
        self.add(used)

    def add(self, used: tuple[int, int]) -> None:
        """Count tokens of prompt and reply."""
        self.tokens += sum(used)
        self.cost += self._cost(used)

    def _cost(self, usage: tuple[int, int]) -> float:
        return (usage[0] * self._config.price_prompt + usage[1] * self._config.price_reply) / 1e6
