"""Reading the duel language: an own tokenizer and a parser whose recursion is bounded; nothing is handed to Python."""

from __future__ import annotations

import re
from typing import Final

from spiral_lib.errors import IllegalAction
from spiral_lib.games._duel_tree import COMPARISONS, PRECEDENCE, Node, open_number

MAX_NODES: Final = 40
MAX_DEPTH: Final = 10
MAX_INT: Final = 999

_ALLOWED: Final = re.compile(r"[0-9a-z()+\-*/%<>=! ]*")
WORDS: Final = ("and", "or", "not")
_TOKEN: Final = re.compile(r" *(?:([0-9]+)|([a-z][a-z0-9]*)|(\*\*|//|==|!=|<=|>=|[-+*%<>()]))")
_IS_NUMBER, _IS_WORD = 1, 2
_INFIX: Final = frozenset((*COMPARISONS, "and", "or", "+", "-", "*", "//", "%", "**"))


def read(expr: str, names: frozenset[str]) -> Node:
    """Return the tree of a text, with its numbers open.

    Raises IllegalAction as ``duel_dsl.parse`` does, but for what only lengths and values show.
    """
    root = _Parser(_tokens(expr, names)).whole()
    if len(root.walk()) > MAX_NODES:
        raise IllegalAction(f"at most {MAX_NODES} numbers, variables and operators", reason="too_many_nodes")
    if root.depth > MAX_DEPTH:
        raise IllegalAction(f"at most {MAX_DEPTH} levels are allowed", reason="too_deep")
    return root


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
        kind, end = match.lastindex, match.end()
        token = match[kind or 0]
        if kind == _IS_NUMBER:
            if rest[end : end + 1].isalpha() or int(token[:9]) > MAX_INT or token != str(int(token[:9])):
                raise IllegalAction(f"numbers are 0 to {MAX_INT}, digits only", reason="bad_number")
        elif kind == _IS_WORD and token not in names and token not in WORDS:
            raise IllegalAction(f"'{token[:12]}' is not a variable here", reason="unknown_name")
        tokens.append(token)
        position = end
    return tokens


class _Parser:
    """Precedence climbing with Python's precedences. ``depth`` and open brackets are bounded, so recursion is too."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._position = 0
        self._num_open = 0
        self._num_numbers = 0

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
            self._num_numbers += 1
            return open_number(self._num_numbers - 1)
        if token == "-":
            return _typed(Node(op="neg", args=(self._expression(PRECEDENCE["neg"], depth + 1),)), "int")
        if token == "not" and level <= PRECEDENCE["not"]:
            return _typed(Node(op="not", args=(self._expression(PRECEDENCE["not"], depth + 1),)), "bool")
        if token == "(":
            return self._brackets(depth)
        if not token.isalnum() or token in WORDS:
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
    for arg in node.args:
        if arg.type != wanted:
            kind = "conditions" if wanted == "bool" else "numbers"
            raise IllegalAction(f"'{node.signs[0] if node.signs else node.op}' needs {kind}", reason="bad_type")
    return node


def _syntax(message: str) -> IllegalAction:
    return IllegalAction(message, reason="bad_syntax")
