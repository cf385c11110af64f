"""Comparison of two written answers: exact numbers and the shape of lists, tuples, sets and intervals.

What is left (radicals, polynomials, matrices, equations) goes to ``symbolic``, in pieces small enough to be safe.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TypeVar

from spiral_lib._answers_text import clean, depth_of, is_empty, is_harmless, number, split_top, split_unit, to_latex

MAX_CHARS = 256
MAX_NESTING = 16
Symbolic = Callable[[str, str], bool]
Interval = tuple[str, str, str, str, str]  # variable or "", opening bracket, low end, high end, closing bracket

T = TypeVar("T")

_CHOICE = re.compile(r"\(?([A-Z])\)?\.?")
_BASE = re.compile(r"\(?([0-9A-Za-z]+)\)?_\{?([0-9]{1,2})\}?")
_NAME = re.compile(
    r"(?:[A-Za-z]+|\\[a-z]+)(?:_\{?\w+\}?)?'?(?:\([a-z](?:,[a-z])*\))?|\([A-Za-z](?:, ?[A-Za-z])*\)"
)
_VARIABLE = re.compile(r"[A-Za-z]|\\[a-z]+")
_WORDS = re.compile(r"[A-Za-z][A-Za-z .'-]*")
_SHORT_WORDS = frozenset({"yes", "no", "odd", "even", "true", "none", "all", "red", "east", "west"})
_RELATION = re.compile(r"(\\leq?(?![a-z])|\\geq?(?![a-z])|\\lt(?![a-z])|\\gt(?![a-z])|<|>)")
_EQUALS = re.compile(r"(?<![<>!])=")
_CLOSING = {"(": ")", "[": "]"}


def equal(gold: str, answer: str, symbolic: Symbolic) -> bool:
    """Return whether both texts name the same mathematical object; ``symbolic`` decides on plain expressions."""
    gold, answer = " ".join(gold.split()), " ".join(answer.split())
    if is_empty(gold) or is_empty(answer):
        return False
    if gold == answer:
        return True
    if max(len(gold), len(answer)) > MAX_CHARS or max(depth_of(gold), depth_of(answer)) > MAX_NESTING:
        return False
    gold, answer = clean(gold), clean(answer)
    return bool(gold) and bool(answer) and _Comparison(symbolic).same(gold, answer)


class _Comparison:
    """One comparison of cleaned texts; the rules are tried in order until one decides (True or False, not None)."""

    def __init__(self, symbolic: Symbolic) -> None:
        self._symbolic = functools.cache(symbolic)  # the members of long lists meet again and again

    def same(self, gold: str, answer: str) -> bool:
        gold, answer = gold.strip(), answer.strip()
        if not gold or not answer:
            return False
        # "100,200" may be a number or a list; written alike it is right in both readings.
        if gold == answer or gold.replace(", ", ",") == answer.replace(", ", ","):
            return True
        rules = (_choices, _bases, _words, self._numbers, self._units, self._plus_minus, self._ranges,
                 self._lists, self._brackets, self._equations)  # fmt: skip
        for rule in rules:
            verdict = rule(gold, answer)
            if verdict is not None:
                return verdict
        if not is_harmless(gold) or not is_harmless(answer):
            return False
        return self._symbolic(to_latex(gold), to_latex(answer))

    def _numbers(self, gold: str, answer: str) -> bool | None:
        first, second = number(gold), number(answer)
        return None if first is None or second is None else first == second

    def _units(self, gold: str, answer: str) -> bool | None:
        (gold_core, gold_unit), (answer_core, answer_unit) = split_unit(gold), split_unit(answer)
        if not gold_unit and not answer_unit:
            return None
        if gold_unit and answer_unit and gold_unit != answer_unit:
            return False
        return self.same(gold_core, answer_core)

    def _plus_minus(self, gold: str, answer: str) -> bool | None:
        if r"\pm" not in gold + answer:
            return None
        return self._unordered(_both_signs(gold), _both_signs(answer))

    def _ranges(self, gold: str, answer: str) -> bool | None:
        first, second = _intervals(gold), _intervals(answer)
        if first is None or second is None:
            return None
        return len(first) == len(second) and _matched(first, second, self._same_interval)

    def _same_interval(self, first: Interval, second: Interval) -> bool:
        if first[0] and second[0] and first[0] != second[0]:
            return False
        return (
            (first[1], first[4]) == (second[1], second[4])
            and self.same(first[2], second[2])
            and self.same(first[3], second[3])
        )

    def _lists(self, gold: str, answer: str) -> bool | None:
        """Bare lists and sets have no order; only a gold list accepts a list."""
        gold_set, answer_set = _set_members(gold), _set_members(answer)
        wanted = [gold] if number(gold) is not None else gold_set or _list_members(gold)
        several = gold_set is not None or len(wanted) > 1
        given = answer_set or (_list_members(answer) if several or number(answer) is None else [answer])
        if not several:
            return False if len(given) > 1 or answer_set is not None else None
        if gold_set is not None and answer_set is not None:
            return all(any(self.same(g, a) for a in given) for g in wanted) and all(
                any(self.same(g, a) for g in wanted) for a in given
            )
        return self._unordered(wanted, given)

    def _unordered(self, wanted: Sequence[str], given: Sequence[str]) -> bool:
        return len(wanted) == len(given) and _matched(wanted, given, self.same)

    def _brackets(self, gold: str, answer: str) -> bool | None:
        first, second = _bracketed(gold), _bracketed(answer)
        if first is None and second is None:
            return None
        if first is None or second is None:
            return self._single_in_brackets(gold, answer, first, second)
        if (first[0], first[2]) != (second[0], second[2]) or len(first[1]) != len(second[1]):
            return False
        return all(self.same(g, a) for g, a in zip(first[1], second[1], strict=True))

    def _single_in_brackets(
        self, gold: str, answer: str, first: _Bracketed | None, second: _Bracketed | None
    ) -> bool | None:
        """``(5)`` is 5; a tuple is no number and no expression."""
        found = first or second
        assert found is not None
        if len(found[1]) > 1:
            # "x=(1,2)" names its tuple.
            return self._equations(gold, answer)
        if found[0] != "(":
            return False
        return self.same(found[1][0] if first else gold, found[1][0] if second else answer)

    def _equations(self, gold: str, answer: str) -> bool | None:
        left, right = _EQUALS.split(gold), _EQUALS.split(answer)
        if len(left) == len(right) == 1:
            return None
        if len(left) > 1 and len(right) > 1:
            return self._two_equations(left, right)
        if len(right) > 1:
            values = right[1:] if _NAME.fullmatch(right[0].strip()) else right
            return all(self.same(gold, value) for value in values)
        return len(left) == 2 and _NAME.fullmatch(left[0].strip()) is not None and self.same(left[1], answer)

    def _two_equations(self, left: Sequence[str], right: Sequence[str]) -> bool:
        if len(left) != 2 or len(right) != 2:
            return False
        if left[0].strip() == right[0].strip():
            return self.same(left[1], right[1])
        sides = (*left, *right)
        if not all(side.strip() and is_harmless(side) for side in sides):
            return False
        first, second = (f"{to_latex(a)}={to_latex(b)}" for a, b in (left, right))
        return self._symbolic(first, second)


def _choices(gold: str, answer: str) -> bool | None:
    first, second = _CHOICE.fullmatch(gold), _CHOICE.fullmatch(answer)
    if first is None:
        return None
    return second is not None and first[1] == second[1]


def _bases(gold: str, answer: str) -> bool | None:
    """Numerals with a base agree when base and value do; a missing base is another number."""
    first, second = _numeral(gold), _numeral(answer)
    return None if first is None and second is None else first == second


def _numeral(text: str) -> tuple[int, int] | None:
    match = _BASE.fullmatch(text.replace(" ", ""))
    if match is None or not 2 <= int(match[2]) <= 36:
        return None
    try:
        return int(match[1], int(match[2])), int(match[2])
    except ValueError:
        return None


def _words(gold: str, answer: str) -> bool | None:
    if not _WORDS.fullmatch(gold) or (len(gold) < 4 and gold.casefold() not in _SHORT_WORDS):
        return None
    return gold.removesuffix(".").casefold() == answer.removesuffix(".").casefold()


def _both_signs(text: str) -> list[str]:
    members = _set_members(text) or _list_members(text)
    out = []
    for member in members:
        if r"\pm" in member:
            out.append(member.replace(r"\pm", "+").replace(r"\mp", "-").strip().removeprefix("+"))
            out.append(member.replace(r"\pm", "-").replace(r"\mp", "+").strip())
        else:
            out.append(member)
    return out


def _list_members(text: str) -> list[str]:
    return [part.strip() for part in split_top(text, r"[,;]|(?<![\\A-Za-z])(?:or|and)(?![A-Za-z])") if part.strip()]


def _set_members(text: str) -> list[str] | None:
    if not (text.startswith(r"\{") and text.endswith(r"\}")) or len(split_top(text, r"\\cup|,")) > 1:
        return None
    return [part.strip() for part in split_top(text[2:-2], r"[,;]")]


_Bracketed = tuple[str, list[str], str]


def _bracketed(text: str) -> _Bracketed | None:
    """Return bracket, members and bracket where one pair of brackets covers the text."""
    if len(text) < 3 or text[0] not in "([" or text[-1] not in ")]":
        return None
    depth = 0
    for index, char in enumerate(text):
        depth += (char in "([") - (char in ")]")
        if depth == 0 and index < len(text) - 1:
            return None
    return text[0], [part.strip() for part in split_top(text[1:-1], r"[,;]")], text[-1]


def _intervals(text: str) -> list[Interval] | None:
    """Return the intervals that the text names by brackets or inequalities, or None if it names none."""
    text = text.replace(r"\mathbb{R}", r"(-\infty,\infty)")
    variable = ""
    member = re.fullmatch(r"([A-Za-z])\s*\\in\s*(.+)", text)
    if member:
        variable, text = member[1], member[2]
    found = []
    for piece in split_top(text, r"\\cup|(?<![\\A-Za-z])or(?![A-Za-z])"):
        interval = _inequality(piece.strip()) if _RELATION.search(piece) else _range(piece.strip(), variable)
        if interval is None:
            return None
        found.append(interval)
    return found


def _range(text: str, variable: str) -> Interval | None:
    found = _bracketed(text)
    if found is None or len(found[1]) != 2 or not all(found[1]):
        return None
    return variable, found[0], found[1][0], found[1][1], found[2]


def _inequality(text: str) -> Interval | None:
    parts = _RELATION.split(text)
    terms, relations = [p.strip() for p in parts[::2]], parts[1::2]
    if not all(terms):
        return None
    falling = [r == ">" or r.startswith(r"\g") for r in relations]
    if any(f != falling[0] for f in falling):
        return None
    strict = [r in ("<", ">", r"\lt", r"\gt") for r in relations]
    if falling[0]:
        terms, strict = terms[::-1], strict[::-1]
    brackets = [("(", ")") if s else ("[", "]") for s in strict]
    if len(terms) == 3 and _VARIABLE.fullmatch(terms[1]):
        return terms[1], brackets[0][0], terms[0], terms[2], brackets[1][1]
    if len(terms) != 2:
        return None
    if _VARIABLE.fullmatch(terms[0]) and number(terms[0]) is None:
        return terms[0], "(", r"-\infty", terms[1], brackets[0][1]
    if _VARIABLE.fullmatch(terms[1]):
        return terms[1], brackets[0][0], terms[0], r"\infty", ")"
    return None


def _matched(wanted: Sequence[T], given: Sequence[T], same: Callable[[T, T], bool]) -> bool:
    """Return whether every wanted item has a given one of its own (equality is transitive, so greedy is enough)."""
    rest = list(given)
    for item in wanted:
        index = next((i for i, other in enumerate(rest) if same(item, other)), None)
        if index is None:
            return False
        del rest[index]
    return True


def exact(value: str) -> Fraction | None:
    """Return a written number exactly, or None where it is no plain number."""
    return number(clean(value))
