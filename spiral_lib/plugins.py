"""The module name is the registry: ``load("spiral_lib.games", "kuhn_poker", "GAME")`` imports that module."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from types import ModuleType
from typing import Any

from spiral_lib.errors import ConfigError


def names(package: str) -> list[str]:
    """Return the public module names of a package, sorted; nothing is imported but the package itself."""
    path = importlib.import_module(package).__path__
    return sorted(m.name for m in pkgutil.iter_modules(path) if not m.name.startswith("_"))


def load(package: str, name: str, symbol: str) -> Any:
    """Return ``symbol`` of the module ``name`` in ``package``, or of a dotted path ``my_pkg.my_game:GAME``.

    Raises ConfigError naming the nearest known name when there is no such module or symbol.
    """
    if ":" in name or "." in name:
        module_name, _, chosen = name.partition(":")
        return _symbol(_import(module_name, name), chosen or symbol, name)
    # names() before the import: a stray file or a dependency's own ImportError must not look like a typing mistake.
    known = names(package)
    if name not in known:
        kind = package.rsplit(".", 1)[-1]
        nearest = difflib.get_close_matches(name, known, n=1)
        hint = f"Did you mean '{nearest[0]}'? " if nearest else ""
        raise ConfigError(
            f"unknown name '{name}' in {kind}. {hint}Known: {', '.join(known)}; or give package.module:NAME"
        )
    return _symbol(importlib.import_module(f"{package}.{name}"), symbol, name)


def _import(module_name: str, name: str) -> ModuleType:
    try:
        return importlib.import_module(module_name)
    except (ModuleNotFoundError, TypeError, ValueError) as error:  # the last two: a relative or empty name
        raise ConfigError(f"cannot import '{name}': {error}. Is its folder on PYTHONPATH?") from error


def _symbol(module: ModuleType, symbol: str, name: str) -> Any:
    try:
        return getattr(module, symbol)
    except AttributeError:
        raise ConfigError(f"'{name}' does not define {symbol} (looked in {module.__name__})") from None
