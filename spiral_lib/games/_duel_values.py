"""Exact values of expressions over a finite grid: a shape becomes nested functions once, numbers are filled in later.

A part's size is looked at only where some numbers could make it too large.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from spiral_lib.errors import IllegalAction
from spiral_lib.games._duel_parser import MAX_INT
from spiral_lib.games._duel_tree import COMPARISONS, MAX_EXPONENT, MAX_VALUE, Node

Universe = tuple[tuple[str, int, int], ...]
"""Variables with their inclusive ranges."""

Compute = Callable[[Sequence[Any]], Any]
"""From the values of all variables at every point, then all numbers, to a value at every point, or to one number."""

Part = tuple[Compute, int, int]
"""How a part of an expression is computed, and bounds that hold whatever the numbers are."""

_LOWEST, _HIGHEST = -1, MAX_INT + 1  # numbers of an expression, some of them changed by 1


def compiled(root: Node, universe: Universe) -> Compute:
    """Return how the values of a tree are computed whose numbers are open.

    Nothing is skipped, so ``and`` does not guard a division. The function raises IllegalAction (overflow, zero_divisor,
    bad_exponent) where any point is outside the language.
    """
    leaves: dict[str, Part] = {}
    for place, (name, low, high) in enumerate(universe):
        leaves[name] = (operator.itemgetter(place), low, high)
    return _part(root, leaves)[0]


def _part(node: Node, leaves: dict[str, Part]) -> Part:
    if node.op == "int":
        return operator.itemgetter(len(leaves) + node.value), _LOWEST, _HIGHEST
    if node.op == "var":
        return leaves[node.name]
    args = [_part(arg, leaves) for arg in node.args]
    if node.op in _ARITHMETIC:
        return _ARITHMETIC[node.op](*args)
    return _condition(node, [compute for compute, _, _ in args]), 0, 1


def _condition(node: Node, args: list[Compute]) -> Compute:
    if node.op == "not":
        return lambda given: ~args[0](given)
    if len(args) == 2:
        join = COMPARISONS[node.signs[0]] if node.signs else _JOINS[node.op]
        return _both(join, *args)
    if node.signs:
        return lambda given: _chain(node.signs, [arg(given) for arg in args])
    return lambda given: functools.reduce(_JOINS[node.op], [arg(given) for arg in args])


def _chain(signs: Sequence[str], values: Sequence[Any]) -> Any:
    pairs = [COMPARISONS[sign](a, b) for a, sign, b in zip(values, signs, values[1:], strict=False)]
    return functools.reduce(np.logical_and, pairs)


def _both(join: Callable[[Any, Any], Any], left: Compute, right: Compute) -> Compute:
    return lambda given: join(left(given), right(given))


def _bounded(compute: Compute, low: int, high: int) -> Part:
    """Return a part whose size is looked at only where the bounds allow too large values."""
    if low >= -MAX_VALUE and high <= MAX_VALUE:
        return compute, low, high
    return (lambda given: _small(compute(given))), max(low, -MAX_VALUE), min(high, MAX_VALUE)


def _small(value: Any) -> Any:
    if np.count_nonzero(np.abs(value) > MAX_VALUE):
        raise IllegalAction(f"a value is larger than {MAX_VALUE}", reason="overflow")
    return value


def _add(a: Part, b: Part) -> Part:
    return _bounded(_both(operator.add, a[0], b[0]), a[1] + b[1], a[2] + b[2])


def _subtract(a: Part, b: Part) -> Part:
    return _bounded(_both(operator.sub, a[0], b[0]), a[1] - b[2], a[2] - b[1])


def _negate(a: Part) -> Part:
    compute, low, high = a
    return (lambda given: -compute(given)), -high, -low


def _multiply(a: Part, b: Part) -> Part:
    ends = (a[1] * b[1], a[1] * b[2], a[2] * b[1], a[2] * b[2])
    low, high = min(ends), max(ends)
    if low >= -MAX_VALUE and high <= MAX_VALUE:
        return _both(operator.mul, a[0], b[0]), low, high
    return _both(_product, a[0], b[0]), max(low, -MAX_VALUE), min(high, MAX_VALUE)


def _product(a: Any, b: Any) -> Any:
    # In float64 this product is exact up to 2**53, and beyond that it stays far above the limit: int64 cannot wrap.
    _small(np.multiply(a, b, dtype=np.float64))
    return a * b


def _divisor(part: Part) -> Compute:
    compute, low, high = part
    return (lambda given: _nonzero(compute(given))) if low <= 0 <= high else compute


def _nonzero(value: Any) -> Any:
    if not (value.all() if isinstance(value, np.ndarray) else value):
        raise IllegalAction("division by zero somewhere in the range", reason="zero_divisor")
    return value


def _divide(a: Part, b: Part) -> Part:
    most = max(abs(a[1]), abs(a[2]))
    return _both(operator.floordiv, a[0], _divisor(b)), -most, most


def _remainder(a: Part, b: Part) -> Part:
    return _both(operator.mod, a[0], _divisor(b)), min(0, b[1] + 1), max(0, b[2] - 1)


def _power(base: Part, exponent: Part) -> Part:
    most = max(abs(base[1]), abs(base[2]), 1)
    bound = min(most**MAX_EXPONENT, MAX_VALUE)
    return _both(functools.partial(_raised, most), base[0], exponent[0]), -bound, bound


def _raised(most: int, base: Any, steps: Any) -> Any:
    """Return a power of a base that is never larger than ``most``."""
    if not isinstance(steps, np.ndarray):
        _exponent(0 <= steps <= MAX_EXPONENT)
        product = operator.mul if most**steps <= MAX_VALUE else _product
        return functools.reduce(product, (base,) * steps) if steps else 1
    _exponent(steps.min() >= 0 and steps.max() <= MAX_EXPONENT)
    return functools.reduce(_product, [np.where(steps >= step, base, 1) for step in range(1, MAX_EXPONENT + 1)])


def _exponent(is_allowed: bool) -> None:
    if not is_allowed:
        raise IllegalAction(f"an exponent is not within 0 to {MAX_EXPONENT}", reason="bad_exponent")


_JOINS: Final[dict[str, Callable[[Any, Any], Any]]] = {"and": np.logical_and, "or": np.logical_or}
_ARITHMETIC: Final[dict[str, Callable[..., Part]]] = {
    "+": _add, "-": _subtract, "neg": _negate, "*": _multiply, "//": _divide, "%": _remainder, "**": _power,
}  # fmt: skip
