"""Search in play: several replies are sampled for a move and the most frequent move is played."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from spiral_lib.errors import ConfigError
from spiral_lib.seeds import seed_for
from spiral_lib.types import Move, Policy, View


class SearchPolicy:
    """Plays the move that most of ``candidates`` replies of a policy agree on; the earliest reply wins a tie.

    The replies are independent samples of the same view, so this is self-consistency, not look-ahead: policies see
    views and cannot try moves out. The move carries no token ids, because a vote is no sample of the policy and
    must not be learned from.
    """

    def __init__(self, *, policy: Policy, candidates: int) -> None:
        if candidates < 1:
            raise ConfigError(f"candidates={candidates}; a vote needs at least one reply")
        self.ref = policy.ref
        self.engine = f"{policy.engine}+vote{candidates}"
        self.temperature = policy.temperature
        self._policy = policy
        self._candidates = candidates

    @property
    def digest(self) -> str:
        """Return the digest of the policy that is asked."""
        return self._policy.digest

    async def act(self, view: View, *, seed: int) -> Move:
        """Return the elected reply; a reply without a move counts only where no reply has one."""
        moves = [
            await self._policy.act(view, seed=seed_for(seed, "candidate", index)) for index in range(self._candidates)
        ]
        if failed := next((move for move in moves if move.failed), None):
            return failed
        votes = Counter(move.action for move in moves if move.action)
        # Counter keeps the order of first appearance, and max takes the first of equals.
        elected = max(votes, key=votes.__getitem__) if votes else moves[0].action
        return replace(next(move for move in moves if move.action == elected), completion=None)


POLICY = SearchPolicy
