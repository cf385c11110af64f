"""YAML files and command-line overrides as plain mappings, strictly: nothing a user wrote is dropped silently."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from spiral_lib.errors import ConfigError


def parse_overrides(text: str) -> dict[str, Any]:
    """Return the nested mapping of ``"learner.lr=1e-6 rollout.shards=8"``; values are YAML.

    Raises ConfigError for a part of another form, and where one part would undo another one silently.
    """
    found: dict[str, Any] = {}
    for part in split(text):
        name, equals, value = part.partition("=")
        if not equals or not name:
            raise ConfigError(
                f"override '{part}' is not of the form section.setting=value, for example learner.lr=1e-6"
            )
        if name in found:
            raise ConfigError(f"override '{name}' is given twice, the second time as '{part}'; keep one of them")
        found[name] = _load_yaml(value, f"the value of override '{part}'")
    return _nested(found)


def split(text: str) -> list[str]:
    """Return the single overrides of a text: split at blanks and commas outside brackets and quotes."""
    parts, depth, quote, start = [], 0, "", 0
    for i, c in enumerate(text):
        if quote:
            quote = "" if c == quote else quote
        elif c in "\"'":
            quote = c
        elif c in "[{(":
            depth += 1
        elif c in "]})":
            depth -= 1
        elif (c.isspace() or c == ",") and depth <= 0:
            parts.append(text[start:i])
            start = i + 1
    return [p for p in [*parts, text[start:]] if p]


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for name, value in flat.items():
        node = tree
        *parents, last = name.split(".")
        for parent in parents:
            node = node.setdefault(parent, {})
            if not isinstance(node, dict):
                raise ConfigError(f"override '{name}' goes below '{parent}', which is given a value as well")
        if isinstance(node.get(last), dict):
            raise ConfigError(f"override '{name}' would replace what other overrides set below it; give one of them")
        node[last] = value
    return tree


def read(path: Path) -> Mapping[str, Any]:
    """Return a file's mapping. Raises ConfigError where it cannot be read or is not one."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read config '{path}': {_one_line(error)}") from error
    return parse(text, f"config '{path}'")


def parse(text: str, what: str) -> Mapping[str, Any]:
    """Return the mapping in a text, empty for an empty one; ``what`` names it in the message of a ConfigError."""
    content = _load_yaml(text, what)
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(f"{what} must be a mapping of sections, found {type(content).__name__}")
    return content


class _Loader(yaml.SafeLoader):
    """YAML without three silent rules: the last of two equal keys wins, 010 is 8, and 1:30 is 90."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"'{key}' is given twice", node.start_mark)
        return super().construct_mapping(node, deep)

    def construct_number(self, node: Any) -> Any:
        written = node.value.lstrip("+-")
        if ":" in written or re.fullmatch(r"0[0-9_]+", written):
            reason = f"'{node.value}' is read as {self._read(node)}; write that number, or quotes around it for a text"
            raise yaml.constructor.ConstructorError(None, None, reason, node.start_mark)
        return self._read(node)

    def _read(self, node: Any) -> Any:
        is_whole = node.tag.endswith(":int")
        return self.construct_yaml_int(node) if is_whole else self.construct_yaml_float(node)


for _tag in ("int", "float"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_tag}", _Loader.construct_number)



def _load_yaml(text: str, what: str) -> Any:
    try:
        return yaml.load(text, _Loader)
    # Besides its own errors, PyYAML lets those of Python's constructors through (a date of month 13, "!!int x").
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, RecursionError) as error:
        raise ConfigError(f"{what} is not valid YAML: {_one_line(error)}") from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
