"""Games: rules and what players see, nothing about models. One module is one game, and its name is the registry."""

from __future__ import annotations

import copy
import difflib
import functools
import importlib
import inspect
from collections.abc import Iterable
from typing import Any, Final

from spiral_lib import plugins
from spiral_lib.errors import ConfigError
from spiral_lib.games._views import make_view as make_view
from spiral_lib.games._views import no_seat as no_seat
from spiral_lib.types import Game, GameSpec, View

_PACKAGE: Final = "spiral_lib.games"
_ON_PURPOSE: Final = frozenset({"bank", "textarena"})
"""Not listed, but made when asked for by name: questions of route rlvr, and the adapter of a library."""
_NO_GAMES: Final = _ON_PURPOSE | {"duel_dsl"}


def names() -> list[str]:
    """Return the names of all games, sorted."""
    return [name for name in plugins.names(_PACKAGE) if name not in _NO_GAMES]


def make(name: str, *, seed: int, **params: Any) -> Game:
    """Return a fresh match of a game: a module name, ``textarena:<EnvId>`` or a dotted path (``my_pkg.my_game:GAME``).

    Equal name, seed and parameters give equal matches. Raises ConfigError for an unknown game or parameter.
    """
    name, implied = _adapted(name)
    params = {**params, **implied}
    game = _load(name)
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise ConfigError(f"seed of {name} is {seed!r}; it must be an integer")
    known = _parameters(name)
    for param in params:
        if known is not None and param not in known:
            near = difflib.get_close_matches(param, known, n=1)
            hint = f"Did you mean '{near[0]}'?" if near else f"Known: {', '.join(known) or 'none'}"
            raise ConfigError(f"unknown parameter '{param}' of {name}. {hint}")
    made: Game = game(seed=seed, **params)
    return made


def kind(name: str) -> Any:
    """Return a game's class without making a match. Raises ConfigError for an unknown game."""
    return _load(_adapted(name)[0])


def spec(name: str) -> GameSpec:
    """Return what is constant about a game, for its default parameters (``make(...).spec`` holds for any)."""
    name, implied = _adapted(name)
    module = importlib.import_module(_load(name).__module__)
    if implied:
        made: GameSpec = module.spec_of(**implied)
        return made
    found = getattr(module, "SPEC", None)
    if not isinstance(found, GameSpec):
        raise ConfigError(f"'{name}' does not define SPEC, a GameSpec (looked in {module.__name__})")
    return found


def views(name: str, **params: Any) -> dict[str, View]:
    """Return every decision state's ``info_state`` to its view. Raises ConfigError for a game that cannot list them."""
    listing = plugins.load(_PACKAGE, _adapted(name)[0], "views")
    known = inspect.signature(listing).parameters
    found: dict[str, View] = listing(**{key: value for key, value in params.items() if key in known})
    return found


def decision_views(starts: Iterable[Game]) -> dict[str, View]:
    """Return the view of the player to move in every state that play can reach, by ``info_state`` in sorted order.

    For the ``views`` of a game whose states a shallow copy separates and whose actions are listed.
    """
    found: dict[str, View] = {}
    waiting = list(starts)
    while waiting:
        game = waiting.pop()
        if game.current_player is None:
            continue
        view = game.view(game.current_player)
        found[view.info_state] = view
        for action in view.legal_actions or ():
            following = copy.copy(game)
            following.apply(action)
            waiting.append(following)
    return dict(sorted(found.items()))


def whole(name: str, value: Any, *, low: int, high: int) -> int:
    """Return a parameter that must be an integer in a range. Raises ConfigError otherwise."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ConfigError(f"{name} is {value!r}; it must be an integer from {low} to {high}")
    return value


def choice(name: str, value: Any, *, known: tuple[str, ...]) -> str:
    """Return a parameter that must be one of a few words. Raises ConfigError otherwise."""
    if value not in known:
        raise ConfigError(f"{name} is {value!r}; it must be one of {', '.join(known)}")
    return str(value)


def _adapted(name: str) -> tuple[str, dict[str, str]]:
    """Return the module of a game and the parameters that its name implies.

    ``textarena:`` always means the adapter: the library of that name holds no games of ours to load by dotted path.
    """
    if not isinstance(name, str):
        raise ConfigError(f"the name of a game is a text such as 'kuhn_poker', not {name!r:.40}")
    module, colon, env = name.partition(":")
    return ("textarena", {"env": env}) if module == "textarena" and colon else (name, {})


@functools.cache
def _load(name: str) -> Any:
    plain = not (":" in name or "." in name)
    if plain and name not in (known := names()) and name not in _ON_PURPOSE:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"Did you mean '{near[0]}'? " if near else ""
        raise ConfigError(f"unknown game '{name}'. {hint}Known: {', '.join(known)}; or give package.module:GAME")
    found = plugins.load(_PACKAGE, name, "GAME")
    if not (inspect.isclass(found) and all(hasattr(found, m) for m in ("current_player", "view", "apply", "returns"))):
        raise ConfigError(f"'{name}' is no game: a game is a class with current_player, view, apply and returns")
    return found


@functools.cache
def _parameters(name: str) -> tuple[str, ...] | None:
    """Return the names of a game's parameters, or None where it takes any."""
    found = inspect.signature(_load(name)).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in found):
        return None
    return tuple(p.name for p in found if p.name != "seed")
