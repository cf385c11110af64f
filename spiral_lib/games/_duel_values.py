"""Exact values of expressions over a finite grid, with a check of every part's size only where one can be too large."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from spiral_lib.errors import IllegalAction
from spiral_lib.games._duel_tree import COMPARISONS, MAX_EXPONENT, MAX_VALUE, Node

Part = tuple[Any, int, int]
"""Values at every point (one number where they are all the same), and bounds that hold for all of them."""


Step = tuple[int, int | str, Callable[..., Part] | None]
"""Number of arguments; for none of them an open number's position or a variable's name; else the operation."""


def steps(node: Node) -> tuple[Step, ...]:
    """Return the steps that compute a tree whose numbers are open: arguments first, then what is done with them."""
    if node.op == "int":
        return ((0, node.value, None),)
    if node.op == "var":
        return ((0, node.name, None),)
    operation = _ARITHMETIC.get(node.op) or _condition_of(node)
    found: list[Step] = []
    for arg in node.args:
        found += steps(arg)
    return (*found, (len(node.args), "", operation))


def evaluate(steps: Sequence[Step], grid: Mapping[str, Part], numbers: Sequence[int]) -> Any:
    """Return the value at every grid point, or one number; open numbers are taken from ``numbers``.

    Nothing is skipped, so ``and`` does not guard a division. Raises IllegalAction (overflow, zero_divisor,
    bad_exponent) where any point is outside the language.
    """
    stack: list[Part] = []
    for arity, leaf, operation in steps:
        if operation is not None and arity == 2:
            right = stack.pop()
            stack[-1] = operation(stack[-1], right)
        elif operation is not None:
            part = operation(*stack[-arity:])
            del stack[-arity:]
            stack.append(part)
        elif isinstance(leaf, str):
            stack.append(grid[leaf])
        else:
            number = numbers[leaf]
            stack.append((number, number, number))
    return stack[0][0]


def _condition_of(node: Node) -> Callable[..., Part]:
    if node.op == "compare" and len(node.args) == 2:
        return functools.partial(_compared, COMPARISONS[node.signs[0]])
    return functools.partial(_condition, node.op, node.signs)


def _compared(compare: Callable[[Any, Any], Any], a: Part, b: Part) -> Part:
    return compare(a[0], b[0]), 0, 1


def _condition(op: str, signs: tuple[str, ...], *parts: Part) -> Part:
    values = [part[0] for part in parts]
    if op == "not":
        return ~values[0], 0, 1
    if op == "compare":
        values = [COMPARISONS[sign](a, b) for a, sign, b in zip(values, signs, values[1:], strict=False)]
    return functools.reduce(np.logical_or if op == "or" else np.logical_and, values), 0, 1


def _bounded(value: Any, low: int, high: int) -> Part:
    """Return a part whose size is looked at only where the bounds allow too large values."""
    if low >= -MAX_VALUE and high <= MAX_VALUE:
        return value, low, high
    if np.any(np.abs(value) > MAX_VALUE):
        raise IllegalAction(f"a value is larger than {MAX_VALUE}", reason="overflow")
    return value, max(low, -MAX_VALUE), min(high, MAX_VALUE)


def _add(a: Part, b: Part) -> Part:
    return _bounded(a[0] + b[0], a[1] + b[1], a[2] + b[2])


def _subtract(a: Part, b: Part) -> Part:
    return _bounded(a[0] - b[0], a[1] - b[2], a[2] - b[1])


def _negate(a: Part) -> Part:
    return -a[0], -a[2], -a[1]


def _multiply(a: Part, b: Part) -> Part:
    ends = (a[1] * b[1], a[1] * b[2], a[2] * b[1], a[2] * b[2])
    low, high = min(ends), max(ends)
    if low < -MAX_VALUE or high > MAX_VALUE:
        # In float64 this product is exact up to 2**53, and beyond that it stays far above the limit: int64 cannot wrap.
        _, low, high = _bounded(np.multiply(a[0], b[0], dtype=np.float64), low, high)
    return a[0] * b[0], low, high


def _divisor(part: Part) -> Any:
    if part[1] <= 0 <= part[2] and np.any(part[0] == 0):
        raise IllegalAction("division by zero somewhere in the range", reason="zero_divisor")
    return part[0]


def _divide(a: Part, b: Part) -> Part:
    most = max(abs(a[1]), abs(a[2]))
    return a[0] // _divisor(b), -most, most


def _remainder(a: Part, b: Part) -> Part:
    return a[0] % _divisor(b), min(0, b[1] + 1), max(0, b[2] - 1)


def _power(base: Part, exponent: Part) -> Part:
    steps, low, high = exponent
    if (low < 0 or high > MAX_EXPONENT) and np.any((steps < 0) | (steps > MAX_EXPONENT)):
        raise IllegalAction(f"an exponent is not within 0 to {MAX_EXPONENT}", reason="bad_exponent")
    if not isinstance(steps, np.ndarray):
        return functools.reduce(_multiply, (base,) * steps) if steps else (1, 1, 1)
    result: Part = (1, 1, 1)
    low, high = min(base[1], 1), max(base[2], 1)
    for step in range(1, MAX_EXPONENT + 1):
        result = _multiply(result, (np.where(steps >= step, base[0], 1), low, high))
    return result


_ARITHMETIC: Final[dict[str, Callable[..., Part]]] = {
    "+": _add, "-": _subtract, "neg": _negate, "*": _multiply, "//": _divide, "%": _remainder, "**": _power,
}  # fmt: skip
