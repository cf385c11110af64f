"""How games make views: quickly, and with the moves for scripted play only where somebody asks for them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Final, cast

from spiral_lib.errors import ConfigError
from spiral_lib.types import GameSpec, View

Samples = tuple[str, ...] | Callable[[], tuple[str, ...]]

_HELD: Final[Any] = View.__dict__["sample_actions"]


class _LateView(View):
    """A view whose ``sample_actions`` may be held as the function that makes them."""

    __slots__ = ()
    __qualname__ = "View"  # printed like one

    @property
    def sample_actions(self) -> tuple[str, ...]:
        held = _HELD.__get__(self)
        if callable(held):
            held = held()
            _HELD.__set__(self, held)
        return cast("tuple[str, ...]", held)

    @sample_actions.setter
    def sample_actions(self, actions: tuple[str, ...]) -> None:
        _HELD.__set__(self, actions)


# Setting the fields of a frozen record one by one is half of what a view costs, so views are filled in while they still
# are of an open class with the same fields, given by position.
_OpenView: Final[Any] = dataclasses.make_dataclass(
    "_OpenView",
    [(f.name, f.type) for f in dataclasses.fields(View)],
    slots=True,
)


def make_view(
    spec: GameSpec,
    player: int,
    *,
    observation: str,
    legal_actions: tuple[str, ...] | None,
    info_state: str,
    sample_actions: Samples = (),
) -> View:
    """Return a player's view of a match.

    ``sample_actions`` may be a function of the state as it is now; it is called at most once, when they are first read.
    """
    view = _OpenView(
        spec.name,
        spec.roles[player],
        player,
        spec.rules,
        spec.action_format,
        observation,
        legal_actions,
        info_state,
        sample_actions,
        False,
    )
    view.__class__ = View if sample_actions == () else _LateView
    return cast("View", view)


def no_seat(spec: GameSpec, player: object) -> ConfigError:
    """Return what a game's ``view`` raises for a player who is not one of its two."""
    return ConfigError(f"{spec.name} has seats 0 and 1; there is no player {player!r}")
