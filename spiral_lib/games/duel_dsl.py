"""The language of duel problems: integer expressions and conditions, judged by trying every point of a finite grid.

Text is read by an own tokenizer and parser and never handed to Python. The first test is on single characters, so that
comments, strings, calls, look-alike letters and other number forms cannot even be written. Everything is bounded:
characters, nodes, depth, grid points and the size of every intermediate value.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Final

import numpy as np

from spiral_lib.errors import ConfigError, IllegalAction
from spiral_lib.games import _duel_tree as tree
from spiral_lib.games._duel_parser import MAX_DEPTH, MAX_INT, MAX_NODES, WORDS, read
from spiral_lib.games._duel_tree import PRECEDENCE, Array, Node
from spiral_lib.games._duel_values import Compute, Universe, compiled

__all__ = ["MAX_CHARS", "MAX_DEPTH", "MAX_INT", "MAX_NODES", "MAX_POINTS", "Expression", "Shape", "parse"]

MAX_CHARS: Final = 120
MAX_POINTS: Final = 250_000

_NUMBER: Final = re.compile(r"(?<![0-9a-z])(0|[1-9][0-9]{0,2})(?![0-9])")
_NAME: Final = re.compile(r"[a-z][a-z0-9]{0,7}")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Shape:
    """What is common to expressions over a grid that differ in their numbers only: in ``root`` these are open."""

    universe: Universe
    root: Node
    compute: Compute
    text: str
    used: frozenset[str]
    operators: frozenset[str]

    def filled(self, numbers: tuple[int, ...], *, max_chars: int = MAX_CHARS) -> Expression:
        """Return the expression with these numbers. Raises IllegalAction as ``parse`` does."""
        text = self.text.format(*numbers)
        if len(text) > max_chars:
            raise IllegalAction(f"at most {max_chars} characters are allowed, with normal blanks", reason="too_long")
        return Expression(shape=self, numbers=numbers, values=self.values(numbers), text=text)

    def values(self, numbers: tuple[int, ...]) -> Array:
        """Return the value at every grid point. Raises IllegalAction as ``parse`` does."""
        grid = _grid(self.universe)
        values = self.compute((*grid.axes, *numbers))
        if not isinstance(values, np.ndarray):
            return np.broadcast_to(values, (grid.num_points,))
        values.setflags(write=False)
        return values


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Expression:
    """A parsed expression with its value at every grid point; ``str()`` is the canonical re-print, which parses again.

    ``numbers`` are those of the text from left to right; ``values`` runs over the grid so that the last variable
    changes fastest.
    """

    shape: Shape
    numbers: tuple[int, ...]
    values: Array
    text: str

    @property
    def variables(self) -> Universe:
        """The variables of the grid, used or not, with their inclusive ranges."""
        return self.shape.universe

    @property
    def root(self) -> Node:
        """The expression as a tree, made anew each time."""
        return tree.filled(self.shape.root, self.numbers)

    @property
    def type(self) -> str:
        """``bool`` for a condition, ``int`` for a number."""
        return self.shape.root.type

    @property
    def digest(self) -> str:
        """16 hexadecimal digits, equal for expressions that differ only in the order of commutative parts."""
        return tree.digest(self.root)

    @property
    def used(self) -> frozenset[str]:
        """The variables that occur."""
        return self.shape.used

    @property
    def operators(self) -> frozenset[str]:
        """The operator signs that occur (a unary minus is ``neg``)."""
        return self.shape.operators

    def __str__(self) -> str:
        return self.text

    def index(self, point: tuple[int, ...]) -> int | None:
        """Return the position of a point in ``values``, or None outside the grid."""
        found = 0
        for value, (_, low, high) in zip(point, self.variables, strict=True):
            if not low <= value <= high:
                return None
            found = found * (high - low + 1) + value - low
        return found


def parse(expr: str, variables: dict[str, tuple[int, int]], *, max_chars: int = MAX_CHARS) -> Expression:
    """Return the expression, evaluated over the whole grid of the variables' inclusive ranges.

    Raises IllegalAction with a reason: too_long (the text or its re-print), non_ascii, bad_character, bad_number,
    unknown_name, bad_syntax, bad_type, too_deep, too_many_nodes, overflow, zero_divisor, bad_exponent. The last three
    hold if they occur at any point. Raises ConfigError for impossible variables and for what is no text.
    """
    if not isinstance(expr, str):
        raise ConfigError(f"an expression is a text, not {expr!r:.40}")
    universe = _universe(variables)
    try:
        _grid(universe)
    except TypeError:
        raise ConfigError(f"variables are {variables!r:.60}; names are texts, ranges pairs of whole numbers") from None
    if len(expr) > max_chars:
        raise IllegalAction(f"at most {max_chars} characters are allowed", reason="too_long")
    form, numbers = opened(expr)
    return (_shape(form, universe) or _read_shape(expr, universe)).filled(numbers, max_chars=max_chars)


def opened(expr: str) -> tuple[str, tuple[int, ...]]:
    """Return an expression with every number replaced by a 1, and the numbers: equal texts have equal shapes.

    Numbers that no expression may have stay as they are.
    """
    parts = _NUMBER.split(expr)
    return "1".join(parts[::2]), tuple(map(int, parts[1::2]))


@functools.lru_cache(maxsize=4096)
def _shape(expr: str, universe: Universe) -> Shape | None:
    """Return the shape of a text, or None where it is illegal."""
    try:
        return _read_shape(expr, universe)
    except IllegalAction:
        return None


def _read_shape(expr: str, universe: Universe) -> Shape:
    """Return the shape of a text. Raises IllegalAction as ``parse`` does, but for what only lengths and values show."""
    root = read(expr, frozenset(name for name, _, _ in universe))
    nodes = root.walk()
    plain = {n.op for n in nodes if n.op in PRECEDENCE and n.op != "compare"}
    return Shape(
        universe=universe,
        root=root,
        compute=compiled(root, universe),
        text=tree.text(root),
        used=frozenset(n.name for n in nodes if n.op == "var"),
        operators=frozenset(plain.union(*(n.signs for n in nodes))),
    )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Grid:
    """All points of a universe: every variable's values over them."""

    axes: tuple[Array, ...]
    num_points: int


def _universe(variables: dict[str, tuple[int, int]]) -> Universe:
    try:
        return tuple([(name, low, high) for name, (low, high) in variables.items()])
    except (AttributeError, TypeError, ValueError):
        form = "{'x': (-10, 10)}"
        raise ConfigError(f"variables are {variables!r:.60}; they must be a dict of pairs such as {form}") from None


def _num_points(universe: Universe) -> int:
    product = 1
    for _, low, high in universe:
        product *= high - low + 1
    return product


@functools.lru_cache(maxsize=32)
def _grid(universe: Universe) -> _Grid:
    for name, low, high in universe:
        if type(low) is not int or type(high) is not int:
            raise ConfigError(f"range {low!r:.20}..{high!r:.20} of '{name}' is not one of whole numbers")
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name in WORDS:
            raise ConfigError(f"'{name}' cannot name a variable; use a small letter such as x")
        if not -tree.MAX_VALUE <= low <= high <= tree.MAX_VALUE:
            raise ConfigError(f"range {low}..{high} of '{name}' is empty or too far out")
    num_points = _num_points(universe)
    if num_points > MAX_POINTS:
        raise ConfigError(f"{num_points} points are too many to try; at most {MAX_POINTS}")
    axes = [np.arange(low, high + 1, dtype=np.int64) for _, low, high in universe]
    meshes = np.meshgrid(*axes, indexing="ij") if axes else []
    points = tuple([mesh.ravel() for mesh in meshes])
    for values in points:
        values.setflags(write=False)
    return _Grid(axes=points, num_points=num_points)
