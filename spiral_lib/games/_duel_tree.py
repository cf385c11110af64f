"""Trees of the duel language: re-printing, canonical digest, changed constants, conditions that pin a value."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

MAX_VALUE: Final = 10**12
"""Largest absolute value that any part of an expression may take anywhere on the grid."""
MAX_EXPONENT: Final = 4

COMPARISONS: Final[dict[str, Callable[[Array, Array], Array]]] = {
    "==": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}
_MIRRORED: Final = {">": "<", ">=": "<="}
PRECEDENCE: Final[dict[str, int]] = {
    "or": 1, "and": 2, "not": 3, "compare": 4, "+": 5, "-": 5, "*": 6, "//": 6, "%": 6, "neg": 7, "**": 8,
}  # fmt: skip
_ATOM: Final = 9
_CONDITIONS: Final = frozenset(("or", "and", "not", "compare"))


class Node(NamedTuple):
    """A part of an expression; a named tuple, since trees are made by the thousand and it is made fastest.

    ``op`` is ``int``, ``var`` or a key of PRECEDENCE. ``and`` and ``or`` have two arguments or more, ``compare`` has
    one argument more than ``signs``; ``value`` belongs to ``int``, ``name`` to ``var``. An open number is an ``int``
    with a name, its place such as ``{0}``, and its position as value. A leaf has depth 1.
    """

    op: str
    args: tuple[Node, ...] = ()
    value: int = 0
    name: str = ""
    signs: tuple[str, ...] = ()

    @property
    def type(self) -> str:
        """``bool`` or ``int``."""
        return "bool" if self.op in _CONDITIONS else "int"

    @property
    def depth(self) -> int:
        depth, level = 0, [self]
        while level:
            depth, level = depth + 1, [arg for node in level for arg in node.args]
        return depth

    def walk(self) -> list[Node]:
        """Return this node and all nodes below it, level by level."""
        found = [self]
        for node in found:
            found.extend(node.args)
        return found


def text(node: Node) -> str:
    """Return the node as source text: fixed blanks, only the brackets that are needed, equal tree when read again."""
    op, args = node.op, node.args
    if op == "int":
        return node.name or str(node.value)
    if op == "var":
        return node.name
    if op in ("or", "and"):
        return f" {op} ".join(_inside(a, PRECEDENCE[op] + 1) for a in args)
    if op == "not":
        return "not " + _inside(args[0], PRECEDENCE["not"])
    if op == "compare":
        operands = [_inside(a, PRECEDENCE["+"]) for a in args]
        return operands[0] + "".join(f" {s} {o}" for s, o in zip(node.signs, operands[1:], strict=True))
    if op == "neg":
        return "-" + _inside(args[0], PRECEDENCE["neg"])
    if op == "**":
        return f"{_inside(args[0], _ATOM)}**{_inside(args[1], PRECEDENCE['neg'])}"
    sign = f" {op} " if op in "+-" else op
    return _inside(args[0], PRECEDENCE[op]) + sign + _inside(args[1], PRECEDENCE[op] + 1)


def _inside(node: Node, level: int) -> str:
    return text(node) if PRECEDENCE.get(node.op, _ATOM) >= level else f"({text(node)})"


def digest(node: Node) -> str:
    """Return 16 hexadecimal digits, equal for trees that differ only in the order of commutative parts.

    Sums, products, conjunctions and disjunctions are flattened and sorted; ``a - b`` counts as ``a + -b``, ``a > b`` as
    ``b < a``, a chain as the conjunction of its pairs. Constants are kept as written.
    """
    return hashlib.blake2b(_key(node).encode(), digest_size=8).hexdigest()


def _key(node: Node) -> str:
    op, args = node.op, node.args
    if op in ("int", "var"):
        return text(node)
    if op == "compare" and len(args) == 2:
        left, sign, right = _key(args[0]), node.signs[0], _key(args[1])
        if sign in _MIRRORED:
            left, sign, right = right, _MIRRORED[sign], left
        elif sign in ("==", "!="):
            left, right = sorted((left, right))
        return f"({left}{sign}{right})"
    if op in ("and", "or", "compare"):
        parts = {_key(p) for p in _flat(node, "and" if op == "compare" else op)}
        return f"({'and' if op == 'compare' else op} {' '.join(sorted(parts))})"
    if op in ("+", "-", "*"):
        kind = "+" if op == "-" else op
        return f"({kind} {' '.join(sorted(_key(p) for p in _flat(node, kind)))})"
    return f"({op} {' '.join(_key(a) for a in args)})"


def _flat(node: Node, kind: str) -> Iterator[Node]:
    """Yield the operands of nested operations of one commutative kind."""
    if kind == "and" and node.op == "compare" and len(node.args) > 2:
        for left, sign, right in zip(node.args, node.signs, node.args[1:], strict=False):
            yield Node(op="compare", args=(left, right), signs=(sign,))
    elif node.op == kind:
        for arg in node.args:
            yield from _flat(arg, kind)
    elif kind == "+" and node.op == "-":
        yield from _flat(node.args[0], kind)
        yield Node(op="neg", args=(node.args[1],))
    else:
        yield node


@functools.lru_cache(maxsize=64)
def open_number(place: int) -> Node:
    """Return the leaf that stands for the number at a place, counted from the left."""
    return Node(op="int", value=place, name=f"{{{place}}}")


def filled(node: Node, numbers: Sequence[int]) -> Node:
    """Return a tree with its open numbers filled in."""
    if node.op == "int":
        return Node(op="int", value=numbers[node.value])
    if not node.args:
        return node
    return Node(op=node.op, args=tuple([filled(a, numbers) for a in node.args]), signs=node.signs)


def neighbours(node: Node) -> Iterator[Node]:
    """Yield the trees that differ from this one by 1 in exactly one constant."""
    if node.op == "int":
        for value in (node.value - 1, node.value + 1):
            yield Node(op="int", value=value)
    for i, arg in enumerate(node.args):
        for changed in neighbours(arg):
            yield Node(op=node.op, args=(*node.args[:i], changed, *node.args[i + 1 :]), signs=node.signs)


def pins(node: Node, numbers: Sequence[int] = (), *, negated: bool = False) -> bool:
    """Return whether the condition only writes down a value: a conjunct like ``x == 5``, ``5 == x`` or ``x - 5 == 0``.

    Both sides are folded to ``a*x + b`` first, so ``1*x == 5`` and ``3*x - 2*x == 5`` pin x as well, but ``3*x == 15``
    does not. ``not`` is looked through. ``numbers`` are those of a tree where they are open.
    """
    if node.op == "not":
        return pins(node.args[0], numbers, negated=not negated)
    if node.op in ("and", "or"):
        holds = (pins(a, numbers, negated=negated) for a in node.args)
        return any(holds) if (node.op == "and") != negated else all(holds)
    pairs = zip(node.args, node.signs, node.args[1:], strict=False)
    wanted = "!=" if negated else "=="
    bare = (sign == wanted and _is_bare(left, right, numbers) for left, sign, right in pairs)
    return all(bare) if negated else any(bare)


def _is_bare(left: Node, right: Node, numbers: Sequence[int]) -> bool:
    lines = _line(left, numbers), _line(right, numbers)
    if lines[0] is None or lines[1] is None:
        return False
    return abs(lines[0][0] - lines[1][0]) == 1


def _line(node: Node, numbers: Sequence[int]) -> tuple[int, int] | None:
    """Return (a, b) where the node is ``a*x + b`` for the one variable, else None."""
    if node.op == "int":
        return (0, numbers[node.value] if node.name else node.value)
    if node.op == "var":
        return (1, 0)
    known = []
    for arg in node.args:
        part = _line(arg, numbers)
        if part is None:
            return None
        known.append(part)
    if node.op == "neg":
        return (-known[0][0], -known[0][1])
    (a, b), (c, d) = known
    if node.op in "+-":
        sign = 1 if node.op == "+" else -1
        return (a + sign * c, b + sign * d)
    if node.op == "*" and 0 in (a, c):
        return (a * d + b * c, b * d)
    if a == c == 0:
        return _constant(node.op, b, d)
    return (a, b) if (node.op, c, d) in (("//", 0, 1), ("**", 0, 1)) else None


def _constant(op: str, left: int, right: int) -> tuple[int, int] | None:
    if op in ("//", "%") and right != 0:
        return (0, left // right if op == "//" else left % right)
    return (0, left**right) if op == "**" and 0 <= right <= MAX_EXPONENT else None
