"""The killable process that compares expressions: one JSON request a line in, one JSON verdict a line out.

Run as a script, apart from the package. Expressions are read by math-verify's LaTeX parser only; nothing is ever passed
to Python's or sympy's own text evaluation.
"""

from __future__ import annotations

import json
import logging
import resource
import sys
from typing import Any

_MEMORY_BYTES = 2 << 30
# Digits to which two closed forms must agree where sympy cannot decide: far beyond any coincidence of short answers.
_DIGITS = 60


def main() -> None:
    """Answer requests until the input ends."""
    import math_verify  # noqa: F401 - loaded before the first request, whose deadline it must not eat

    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    logging.disable(logging.CRITICAL)
    out = sys.stdout
    sys.stdout = sys.stderr
    print("ready", file=out, flush=True)
    for line in sys.stdin:
        gold, answer = json.loads(line)
        try:
            verdict = compare(gold, answer)
        except MemoryError:
            return  # a process this full is replaced, and the answer counts as given up
        except Exception:  # whatever a parser or sympy trips over, the answer is not shown to be right
            verdict = False
        print(json.dumps(verdict), file=out, flush=True)


def compare(gold: str, answer: str) -> bool:
    """Return whether two LaTeX expressions, matrices or equations are equal."""
    first, second = _parse(gold), _parse(answer)
    if first is None or second is None:
        return False
    first, second = _plain_symbols(first), _plain_symbols(second)
    return _same(first, second)


def _parse(latex: str) -> Any:
    """Return the expression of a LaTeX text, letter case kept, or None."""
    from latex2sympy2_extended import NormalizationConfig, latex2sympy
    from latex2sympy2_extended.latex2sympy2 import ConversionConfig

    # The parser inside math_verify.parse, called directly: parse searches prose for an answer and lowers letters.
    return latex2sympy(
        latex,
        is_real=True,
        normalization_config=NormalizationConfig(malformed_operators=True, boxed="none"),
        conversion_config=ConversionConfig(interpret_as_mixed_fractions=False, lowercase_symbols=False),
    )


def _plain_symbols(value: Any) -> Any:
    """Give equal names equal assumptions, and read i as the imaginary unit."""
    import sympy

    names = {s: sympy.I if s.name == "i" else sympy.Symbol(s.name, real=True) for s in value.free_symbols}
    return value.xreplace(names)


def _same(first: Any, second: Any) -> bool:
    import sympy

    if isinstance(first, sympy.MatrixBase) or isinstance(second, sympy.MatrixBase):
        return (
            isinstance(first, sympy.MatrixBase)
            and isinstance(second, sympy.MatrixBase)
            and first.shape == second.shape
            and all(_zero(a - b) for a, b in zip(first, second, strict=True))
        )
    if isinstance(first, sympy.Eq) and isinstance(second, sympy.Eq):
        return _same_equation(first, second)
    if isinstance(first, sympy.Expr) and isinstance(second, sympy.Expr):
        return _zero(first - second)
    from math_verify import verify

    return type(first) is type(second) and bool(verify(first, second, float_rounding=15, timeout_seconds=None))


def _same_equation(first: Any, second: Any) -> bool:
    """Return whether the sides' differences are the same up to a constant factor other than 0."""
    import sympy

    left, right = sympy.expand(first.lhs - first.rhs), sympy.expand(second.lhs - second.rhs)
    if left == 0 or right == 0:
        return bool(left == right)
    factor = sympy.simplify(left / right)
    return bool(not factor.free_symbols and factor.is_finite and factor != 0)


def _zero(difference: Any) -> bool:
    import sympy

    if difference.has(sympy.nan, sympy.zoo):
        return False
    difference = sympy.nsimplify(difference, rational=True) if difference.has(sympy.Float) else difference
    if difference == 0:
        return True
    if difference.is_Rational:
        return False
    if not difference.free_symbols:
        return _zero_number(difference)
    return bool(sympy.expand(difference) == 0 or sympy.simplify(difference) == 0)


def _zero_number(difference: Any) -> bool:
    import sympy

    size = abs(sympy.N(difference, 30))
    if size.is_number and size > sympy.Float(10) ** -20:
        return False
    if sympy.simplify(difference) == 0:
        return True
    return bool(abs(sympy.N(difference, _DIGITS, maxn=4 * _DIGITS)) < sympy.Float(10) ** -(_DIGITS - 5))


if __name__ == "__main__":
    main()
