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
from spiral_lib.games._duel_tree import COMPARISONS, PRECEDENCE, Array, Node

MAX_CHARS: Final = 120
MAX_NODES: Final = 40
MAX_DEPTH: Final = 10
MAX_INT: Final = 999
MAX_POINTS: Final = 250_000

_CACHED: Final = 4096
_CACHED_POINTS: Final = 1024  # larger grids are not kept: an expression holds its value at every point

_ALLOWED: Final = re.compile(r"[0-9a-z()+\-*/%<>=! ]*")
_TOKEN: Final = re.compile(r" *(?:([0-9]+)|([a-z][a-z0-9]*)|(\*\*|//|==|!=|<=|>=|[-+*%<>()]))")
_NAME: Final = re.compile(r"[a-z][a-z0-9]{0,7}")
_WORDS: Final = ("and", "or", "not")
_INFIX: Final = frozenset((*COMPARISONS, "and", "or", "+", "-", "*", "//", "%", "**"))


Universe = tuple[tuple[str, int, int], ...]
"""Variables with their inclusive ranges."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Expression:
    """A parsed expression with its value at every grid point; ``str()`` is the canonical re-print, which parses again.

    ``values`` runs over the grid so that the last variable changes fastest.
    """

    root: Node
    variables: Universe
    values: Array

    @property
    def type(self) -> str:
        """``bool`` for a condition, ``int`` for a number."""
        return self.root.type

    @property
    def digest(self) -> str:
        """16 hexadecimal digits, equal for expressions that differ only in the order of commutative parts."""
        return _digest(self)

    @property
    def used(self) -> frozenset[str]:
        """The variables that occur."""
        return _used(self)

    @property
    def operators(self) -> frozenset[str]:
        """The operator signs that occur (a unary minus is ``neg``)."""
        return _operators(self)

    def __str__(self) -> str:
        return _printed(self)

    def index(self, point: tuple[int, ...]) -> int | None:
        """Return the position of a point in ``values``, or None outside the grid."""
        found = 0
        for value, (_, low, high) in zip(point, self.variables, strict=True):
            if not low <= value <= high:
                return None
            found = found * (high - low + 1) + value - low
        return found

    def point(self, index: int) -> tuple[int, ...]:
        """Return the grid point at a position of ``values``."""
        found = []
        for _, low, high in reversed(self.variables):
            index, offset = divmod(index, high - low + 1)
            found.append(low + offset)
        return tuple(reversed(found))


def parse(expr: str, variables: dict[str, tuple[int, int]], *, max_chars: int = MAX_CHARS) -> Expression:
    """Return the expression, evaluated over the whole grid of the variables' inclusive ranges.

    Raises IllegalAction with a reason: too_long (the text or its re-print), non_ascii, bad_character, bad_number,
    unknown_name, bad_syntax, bad_type, too_deep, too_many_nodes, overflow, zero_divisor, bad_exponent. The last three
    hold if they occur at any point. Raises ConfigError for impossible variables.
    """
    universe = tuple((name, low, high) for name, (low, high) in variables.items())
    grid = _grid(universe)
    if len(expr) > max_chars:
        raise IllegalAction(f"at most {max_chars} characters are allowed", reason="too_long")
    if _num_points(universe) <= _CACHED_POINTS:
        return _parse_cached(expr, universe, max_chars)
    return _parse(expr, universe, grid, max_chars)


@functools.lru_cache(maxsize=_CACHED)
def _parse_cached(expr: str, universe: Universe, max_chars: int) -> Expression:
    return _parse(expr, universe, _grid(universe), max_chars)


def _parse(expr: str, universe: Universe, grid: dict[str, Array], max_chars: int) -> Expression:
    root = _Parser(_tokens(expr, frozenset(grid))).whole()
    if sum(1 for _ in root.walk()) > MAX_NODES:
        raise IllegalAction(f"at most {MAX_NODES} numbers, variables and operators", reason="too_many_nodes")
    if root.depth > MAX_DEPTH:
        raise IllegalAction(f"at most {MAX_DEPTH} levels are allowed", reason="too_deep")
    if len(tree.text(root)) > max_chars:
        raise IllegalAction(f"at most {max_chars} characters are allowed, with normal blanks", reason="too_long")
    values = np.broadcast_to(tree.evaluate(root, grid), (_num_points(universe),))
    return Expression(root=root, variables=universe, values=values)


# By identity: the same text gives the same expression while it is cached.
@functools.lru_cache(maxsize=_CACHED)
def _printed(expression: Expression) -> str:
    return tree.text(expression.root)


@functools.lru_cache(maxsize=_CACHED)
def _digest(expression: Expression) -> str:
    return tree.digest(expression.root)


@functools.lru_cache(maxsize=_CACHED)
def _operators(expression: Expression) -> frozenset[str]:
    nodes = list(expression.root.walk())
    plain = {n.op for n in nodes if n.op in PRECEDENCE and n.op != "compare"}
    return frozenset(plain.union(*(n.signs for n in nodes)))


@functools.lru_cache(maxsize=_CACHED)
def _used(expression: Expression) -> frozenset[str]:
    return frozenset(n.name for n in expression.root.walk() if n.op == "var")


def evaluate_with(root: Node, like: Expression) -> Array:
    """Return the values of another tree over the same grid. Raises IllegalAction as ``parse`` does."""
    return np.broadcast_to(tree.evaluate(root, _grid(like.variables)), like.values.shape)


def _num_points(universe: Universe) -> int:
    product = 1
    for _, low, high in universe:
        product *= high - low + 1
    return product


@functools.lru_cache(maxsize=32)
def _grid(universe: Universe) -> dict[str, Array]:
    for name, low, high in universe:
        if not _NAME.fullmatch(name) or name in _WORDS:
            raise ConfigError(f"'{name}' cannot name a variable; use a small letter such as x")
        if not -tree.MAX_VALUE <= low <= high <= tree.MAX_VALUE:
            raise ConfigError(f"range {low}..{high} of '{name}' is empty or too far out")
    if _num_points(universe) > MAX_POINTS:
        raise ConfigError(f"{_num_points(universe)} points are too many to try; at most {MAX_POINTS}")
    axes = [np.arange(low, high + 1, dtype=np.int64) for _, low, high in universe]
    meshes = np.meshgrid(*axes, indexing="ij") if axes else []
    grid = {name: mesh.ravel() for (name, _, _), mesh in zip(universe, meshes, strict=True)}
    for values in grid.values():
        values.setflags(write=False)
    return grid


def _tokens(expr: str, names: frozenset[str]) -> list[str]:
    """Return the tokens, each checked by itself."""
    if not expr.isascii():
        raise IllegalAction("only plain ASCII characters are allowed", reason="non_ascii")
    if not _ALLOWED.fullmatch(expr):
        raise IllegalAction("only digits, small letters, blanks and ()+-*/%<>=! are allowed", reason="bad_character")
    tokens, position, rest = [], 0, expr.rstrip(" ")
    while position < len(rest):
        match = _TOKEN.match(rest, position)
        if match is None:
            raise IllegalAction(f"cannot read '{rest[position:].strip()[:12]}'", reason="bad_syntax")
        number, word, _ = match.groups()
        following = rest[match.end() : match.end() + 1]
        if number and (following.isalpha() or int(number[:9]) > MAX_INT or number != str(int(number[:9]))):
            raise IllegalAction(f"numbers are 0 to {MAX_INT}, digits only", reason="bad_number")
        if word and word not in names and word not in _WORDS:
            raise IllegalAction(f"'{word[:12]}' is not a variable here", reason="unknown_name")
        tokens.append(match.group().strip(" "))
        position = match.end()
    return tokens


class _Parser:
    """Precedence climbing with Python's precedences. ``depth`` and open brackets are bounded, so recursion is too."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._position = 0
        self._num_open = 0

    def whole(self) -> Node:
        node = self._expression(0, 1)
        if self._peek():
            raise _syntax(f"'{self._peek()}' is not expected here")
        return node

    def _peek(self) -> str:
        return self._tokens[self._position] if self._position < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        self._position += 1
        return token

    def _expression(self, level: int, depth: int) -> Node:
        """Read operators that bind at least as tightly as ``level``."""
        if depth > MAX_DEPTH:
            raise IllegalAction(f"at most {MAX_DEPTH} levels are allowed", reason="too_deep")
        node = self._prefix(level, depth)
        while True:
            sign = self._peek()
            kind = "compare" if sign in COMPARISONS else sign
            if sign not in _INFIX or PRECEDENCE[kind] < level:
                return node
            node = self._chain(node, depth) if kind == "compare" else self._operation(node, depth)

    def _operation(self, left: Node, depth: int) -> Node:
        sign = self._next()
        # The right side of ** may have a minus or another **; all others group from the left.
        right = self._expression(PRECEDENCE["neg"] if sign == "**" else PRECEDENCE[sign] + 1, depth + 1)
        if sign not in ("and", "or"):
            return _typed(Node(op=sign, args=(left, right)), "int")
        args = [part for arg in (left, right) for part in (arg.args if arg.op == sign else (arg,))]
        return _typed(Node(op=sign, args=tuple(args)), "bool")

    def _chain(self, first: Node, depth: int) -> Node:
        operands, signs = [first], []
        while self._peek() in COMPARISONS:
            signs.append(self._next())
            operands.append(self._expression(PRECEDENCE["+"], depth + 1))
        return _typed(Node(op="compare", args=tuple(operands), signs=tuple(signs)), "int")

    def _prefix(self, level: int, depth: int) -> Node:
        token = self._next()
        if token.isdigit():
            return Node(op="int", value=int(token))
        if token == "-":
            return _typed(Node(op="neg", args=(self._expression(PRECEDENCE["neg"], depth + 1),)), "int")
        if token == "not" and level <= PRECEDENCE["not"]:
            return _typed(Node(op="not", args=(self._expression(PRECEDENCE["not"], depth + 1),)), "bool")
        if token == "(":
            return self._brackets(depth)
        if not token.isalnum() or token in _WORDS:
            raise _syntax(f"a number or variable is missing before '{token}'" if token else "the end is missing")
        return Node(op="var", name=token)

    def _brackets(self, depth: int) -> Node:
        self._num_open += 1
        if self._num_open > MAX_DEPTH:
            raise IllegalAction(f"at most {MAX_DEPTH} brackets may be open", reason="too_deep")
        node = self._expression(0, depth)
        if self._next() != ")":
            raise _syntax("a closing bracket is missing")
        self._num_open -= 1
        return node


def _typed(node: Node, wanted: str) -> Node:
    if any(a.type != wanted for a in node.args):
        kind = "conditions" if wanted == "bool" else "numbers"
        raise IllegalAction(f"'{node.signs[0] if node.signs else node.op}' needs {kind}", reason="bad_type")
    return node


def _syntax(message: str) -> IllegalAction:
    return IllegalAction(message, reason="bad_syntax")
