"""Given values (YAML, overrides) checked against the settings they are for, strictly."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import math
import reprlib
import types as pytypes
import typing
from collections.abc import Mapping
from typing import Any

from spiral_lib.errors import ConfigError

MOST = 10_000_000
"""No whole number may be larger, unless its setting says otherwise: a slip of the finger must not fill a disk."""


def changed(current: Any, changes: Mapping[str, Any], path: str = "") -> Any:
    """Return the settings changed by a nested mapping, every value of the declared type and within its bounds.

    ``path`` is the dotted name of the section with its last dot. Raises ConfigError naming the setting, the value and
    the nearest known name.
    """
    known = {f.name: f for f in dataclasses.fields(current)}
    hints = typing.get_type_hints(type(current))
    values = {}
    for key, value in changes.items():
        name = f"{path}{key}"
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1)
            hint = f"Did you mean '{path}{near[0]}'? " if near else f"Known here: {', '.join(known)}. "
            raise ConfigError(f"unknown setting '{name}'. {hint}See: spiral config --preset tiny")
        here = getattr(current, key)
        if dataclasses.is_dataclass(here):
            if not isinstance(value, Mapping):
                raise ConfigError(f"setting '{name}' is a section; give a mapping, not {_show(value)}")
            values[key] = changed(here, value, f"{name}.")
        else:
            values[key] = _check(known[key], _convert(value, hints[key], name), name)
    return dataclasses.replace(current, **values)


def _check(f: Any, value: Any, name: str) -> Any:
    low, high, choices = f.metadata.get("low"), f.metadata.get("high"), f.metadata.get("choices")
    if high is None and f.type == "int":
        high = MOST
    if choices and value not in choices:
        raise ConfigError(f"setting '{name}' is {_show(value)}; it must be one of {', '.join(choices)}")
    if isinstance(value, int | float) and ((low is not None and value < low) or (high is not None and value > high)):
        if high is None or high > 1_000:
            bounds = f"at least {low:g}" if low is not None and value < low else f"at most {high:,}"
        else:
            bounds = f"between {low:g} and {high:g}"
        raise ConfigError(f"setting '{name}' is {_show(value)}; it must be {bounds}")
    return value


def _convert(value: Any, hint: Any, name: str) -> Any:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        return _convert_tuple(value, args[0], name)
    if origin is dict:
        if not isinstance(value, Mapping) or not all(isinstance(k, str) for k in value):
            raise ConfigError(f"setting '{name}' must be a mapping of names to numbers or text, not {_show(value)}")
        return {k: _convert(v, args[1], f"{name}.{k}") for k, v in value.items()}
    if origin in (typing.Union, pytypes.UnionType):
        if isinstance(value, bool | str):
            return value
        if isinstance(value, int | float):
            return _finite(value, name) if isinstance(value, float) else _whole(value, name)
        raise ConfigError(f"setting '{name}' must be a number, text or true/false, not {_show(value)}")
    return _convert_scalar(value, hint, name)


def _convert_tuple(value: Any, item: Any, name: str) -> tuple[Any, ...]:
    if isinstance(value, str) or not isinstance(value, list | tuple):
        raise ConfigError(f"setting '{name}' must be a list, for example [{_show(value)}], not {_show(value)}")
    if not (isinstance(item, type) and dataclasses.is_dataclass(item)):
        return tuple(_convert(v, item, f"{name}[{i}]") for i, v in enumerate(value))
    out = []
    for i, v in enumerate(value):
        entry = {"name": v} if isinstance(v, str) else v
        if not isinstance(entry, Mapping) or not entry.get("name"):
            raise ConfigError(f"setting '{name}[{i}]' must be a name or a mapping with 'name', not {_show(v)}")
        out.append(changed(item(), entry, f"{name}[{i}]."))
    return tuple(out)


def _convert_scalar(value: Any, hint: Any, name: str) -> Any:
    if hint is float:
        # YAML 1.1 reads 1e-6 as text.
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            with contextlib.suppress(ValueError):
                return _finite(value, name)
    elif hint is int:
        if isinstance(value, int) and not isinstance(value, bool):
            return _whole(value, name)
    elif isinstance(value, hint):
        return value
    elif hint is str and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    kinds = {float: "a number", int: "a whole number", bool: "true or false", str: "text"}
    raise ConfigError(f"setting '{name}' is {_show(value)}; it must be {kinds[hint]}")


def _whole(value: int, name: str) -> int:
    """Return a number that fits the 64-bit columns it ends up in. Raises ConfigError otherwise."""
    if abs(value) >= 1 << 63:
        raise ConfigError(f"setting '{name}' has {value.bit_length()} bits; it must be a whole number below 2**63")
    return value


def _finite(value: str | int | float, name: str) -> float:
    """Return the number as float. Raises ConfigError where it is not finite, ValueError where it is no number."""
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ConfigError(f"setting '{name}' is {_show(value)}; it must be a finite number")
    return number


def _show(value: Any) -> str:
    """Return the value for a message, shortened: a YAML file may hold anything."""
    return reprlib.repr(value)
