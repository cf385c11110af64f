"""An expression told in steps, so that a program can be asked for without showing it."""

from __future__ import annotations

from typing import Final

from spiral_lib.games._duel_tree import Node, text

_STEP_NAMES: Final = "pqrstuvw"
_PHRASES: Final = {
    "+": "{0} plus {1}",
    "-": "{0} minus {1}",
    "*": "{0} times {1}",
    "//": "{0} divided by {1}, rounded down",
    "%": "the remainder of {0} divided by {1}",
    "**": "{0} to the power {1}",
    "neg": "the negative of {0}",
}


def in_steps(root: Node) -> str:
    """Return sentences such as ``Let p be 3 times x. The result is p plus 5.``, one for each operation.

    The expression is a number with at most nine operations.
    """
    steps: list[str] = []
    _tell(root, steps)
    *first, last = steps
    lines = [f"Let {name} be {step}." for name, step in zip(_STEP_NAMES, first, strict=False)]
    return " ".join([*lines, f"The result is {last}."])


def _tell(node: Node, steps: list[str]) -> str:
    """Append the steps that compute a node and return how later steps call it."""
    if node.op == "var":
        return node.name
    if node.op == "int":
        return text(node)
    if node.op == "neg" and node.args[0].op == "int":
        return f"-{text(node.args[0])}"
    left, right = node.args[0], node.args[-1]
    if node.op == "+" and right.op == "neg" and right.args[0].op == "int":
        steps.append(_PHRASES["-"].format(_tell(left, steps), text(right.args[0])))
    else:
        steps.append(_PHRASES[node.op].format(*(_tell(a, steps) for a in node.args)))
    return _STEP_NAMES[len(steps) - 1]
