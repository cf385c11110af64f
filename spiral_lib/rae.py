"""Role-conditioned advantage estimation (SPIRAL, section 3.3): a moving baseline for every game and role."""

from __future__ import annotations

import json
import math
from typing import Any

from spiral_lib.errors import ConfigError, LearnerError

_KEYINGS = ("role", "game", "none")


class RoleBaselines:
    """Moving averages of returns, one for each game and role, all starting at 0.

    ``baseline`` chooses the key: ``role`` is the game with the role, ``game`` is the game alone, and ``none`` keeps no
    state at all, so that the advantage is the return itself. Results depend on the order of calls: the learner calls
    once for each player of each match, matches sorted by id, seat 0 first.
    """

    def __init__(self, decay: float, baseline: str = "role") -> None:
        if not 0.0 <= decay <= 1.0:
            raise ConfigError(f"rae.decay is {decay}; it must be between 0 and 1")
        if baseline not in _KEYINGS:
            raise ConfigError(f"rae.baseline is '{baseline}'; it must be one of {', '.join(_KEYINGS)}")
        self.decay = decay
        self.baseline = baseline
        self._values: dict[str, float] = {}

    def advantage(self, game: str, role: str, ret: float) -> float:
        """Return minus the role's baseline, then move the baseline towards the return.

        The baseline is read before it is updated, so an episode never discounts itself. The paper's text has the other
        order, which only scales every advantage by the decay; its released code does as here.
        ``ret`` is the player's return after shaping. Raises LearnerError, the table untouched, where it is no finite
        number: one nan would stay in the average for ever.
        """
        if not math.isfinite(ret):
            raise LearnerError(
                f"the reward of '{role}' in '{game}' is {ret}; a reward must be a finite number, "
                "look at the terms in rewards.terms"
            )
        if self.baseline == "none":
            return ret
        key = self._key(game, role)
        before = self._values.get(key, 0.0)
        self._values[key] = self.decay * before + (1.0 - self.decay) * ret
        return ret - before

    def value(self, game: str, role: str) -> float:
        """Return the current baseline; 0 for a game and role never seen."""
        return self._values.get(self._key(game, role), 0.0)

    def to_json(self) -> str:
        """Return canonical JSON; numbers survive the round trip exactly."""
        content = {"decay": self.decay, "baseline": self.baseline, "values": self._values}
        return json.dumps(content, sort_keys=True, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> RoleBaselines:
        """Return what ``to_json`` wrote. Raises ConfigError where the text is something else."""
        try:
            content: dict[str, Any] = json.loads(text)
            found = cls(float(content["decay"]), str(content["baseline"]))
            found._values = {str(k): _finite(v) for k, v in content["values"].items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(f"these are not saved role baselines ({error}): {text[:80]!r}") from error
        return found

    def _key(self, game: str, role: str) -> str:
        return cell(game, role) if self.baseline == "role" else game


def cell(game: str, role: str) -> str:
    """Return the name of a game and role in one string, ``game/role``; no two pairs share one."""
    return f"{_escaped(game)}/{_escaped(role)}"


def _escaped(name: str) -> str:
    return name.replace("%", "%25").replace("/", "%2F")


def _finite(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"a baseline is {number}")
    return number
