r"""The embedded bank: 600 short questions with one exact answer each, made by our own generators and never changed.

Twenty-four kinds of question (family and level) with 25 items each, from repeating a number to base conversion and
program traces, so that a 0.2M model and a 135M one both score somewhere between floor and ceiling. Level 1 is what the
cold start of a tiny model can learn, and all it is taught. Questions are drawn by their operands: a hash of the
operands puts two fifths of them on the evaluated side and the rest on the training side, so that no evaluated question,
nor one with its operands swapped, can ever be trained on.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from spiral_lib import answers
from spiral_lib.errors import DataQualityError
from spiral_lib.seeds import seed_for

SHA256 = "4568a24a8e150651205e4d03498c27812d581d890726dae6097a6dead9e8c518"
PER_KIND = 25
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, kw_only=True, slots=True)
class Item:
    """One question. ``answer`` is an integer or one word; ``reasoning`` is one sentence that leads to it."""

    id: str
    family: str
    level: int
    question: str
    answer: str
    reasoning: str


Drawn = tuple[str, str, str, str]
"""Operands (order removed where it does not matter), question, answer, reasoning."""


class _Draws:
    """Integers keyed by what they are for: the same on every platform and Python version."""

    def __init__(self, *parts: int | str) -> None:
        self._parts = parts
        self._count = 0

    def int(self, low: int, high: int) -> int:
        """Return an integer from low to high, both included."""
        self._count += 1
        return low + seed_for(*self._parts, self._count) % (high - low + 1)

    def pick(self, options: Sequence[str]) -> str:
        """Return one of the options."""
        return options[self.int(0, len(options) - 1)]


def _unordered(a: int, b: int) -> str:
    return f"{min(a, b)},{max(a, b)}"


def _larger(d: _Draws, low: int, high: int) -> Drawn:
    a, b = d.int(low, high), d.int(low, high)
    if a == b:
        b = a + 1 if a < high else a - 1
    top, bottom = max(a, b), min(a, b)
    return _unordered(a, b), f"Larger of {a} and {b}?", str(top), f"{top} is more than {bottom}."


def _truth(d: _Draws) -> Drawn:
    a, b, sign = d.int(0, 9), d.int(0, 9), d.pick("<>")
    holds = a < b if sign == "<" else a > b
    relation = "less than" if a < b else "more than" if a > b else "equal to"
    return _unordered(a, b), f"True or false: {a} {sign} {b}?", str(holds).lower(), f"{a} is {relation} {b}."


def _sequence(d: _Draws, low: int, high: int, sign: int) -> Drawn:
    start, step = d.int(low, high), sign * d.int(1, 5 if sign > 0 else 7)
    shown = [start + step * i for i in range(3)]
    verb = "adds" if step > 0 else "takes away"
    question = f"Next number: {', '.join(map(str, shown))}, ?"
    return f"{start},{step}", question, str(shown[2] + step), f"Each step {verb} {abs(step)}."


def _letter(d: _Draws) -> Drawn:
    step, length = d.int(1, 3), d.int(2, 3)
    start = d.int(0, 25 - step * length)
    shown = [_LETTERS[start + step * i] for i in range(length)]
    answer = _LETTERS[start + step * length]
    return f"{start},{step}", f"Next letter: {', '.join(shown)}, ?", answer, f"{answer} comes {step} after {shown[-1]}."


def _parity(d: _Draws) -> Drawn:
    a = d.int(0, 199)
    word = "even" if a % 2 == 0 else "odd"
    return str(a), f"Odd or even: {a}?", word, f"The last digit {a % 10} is {word}."


def _parity_of_sum(d: _Draws) -> Drawn:
    a, b = d.int(1, 19), d.int(1, 19)
    word = "even" if (a + b) % 2 == 0 else "odd"
    return _unordered(a, b), f"Odd or even: {a} + {b}?", word, f"The sum is {a + b}."


def _copy(d: _Draws) -> Drawn:
    a = d.int(10, 399)
    return str(a), f"Repeat {a}.", str(a), f"It is {a}."


def _after(d: _Draws) -> Drawn:
    a = d.int(0, 98)
    return str(a), f"Number after {a}?", str(a + 1), f"I add 1 to {a}."


def _last(d: _Draws) -> Drawn:
    shown = [d.int(0, 9) for _ in range(3)]
    listed = " ".join(map(str, shown))
    return listed, f"Last of {listed}?", str(shown[2]), f"The list ends with {shown[2]}."


def _contains(d: _Draws) -> Drawn:
    shown = [d.int(0, 9) for _ in range(3)]
    # One in three by design and a quarter of the others by chance: about half of the answers are yes.
    wanted = shown[d.int(0, 2)] if d.int(0, 2) == 0 else d.int(0, 9)
    listed = " ".join(map(str, shown))
    word = "yes" if wanted in shown else "no"
    return listed, f"Is {wanted} in {listed}?", word, f"I look for {wanted}."


def _pick(d: _Draws) -> Drawn:
    shown = [d.int(0, 9) for _ in range(3)]
    place = d.int(0, 2)
    name = ("first", "second", "last")[place]
    listed = " ".join(map(str, shown))
    return listed, f"The {name} of {listed}?", str(shown[place]), f"The {name} one is {shown[place]}."


def _count(d: _Draws) -> Drawn:
    word = "".join(d.pick("abc") for _ in range(d.int(4, 6)))
    letter = d.pick("abc")
    n = word.count(letter)
    return word, f"How many {letter} in {word}?", str(n), f"I see {letter} {n} times."


def _add(d: _Draws, low: int, high: int) -> Drawn:
    a, b = d.int(low, high), d.int(low, high)
    return _unordered(a, b), f"{a} + {b} = ?", str(a + b), f"{a} plus {b} is {a + b}."


def _subtract(d: _Draws) -> Drawn:
    a, b = d.int(10, 99), d.int(1, 49)
    return f"{a},{b}", f"{a} - {b} = ?", str(a - b), f"{a} minus {b} is {a - b}."


def _multiply(d: _Draws) -> Drawn:
    a, b = d.int(1, 12), d.int(1, 12)
    return _unordered(a, b), f"{a} * {b} = ?", str(a * b), f"{a} times {b} is {a * b}."


def _remainder(d: _Draws) -> Drawn:
    a, b = d.int(10, 60), d.int(3, 9)
    return f"{a},{b}", f"Remainder of {a} divided by {b}?", str(a % b), f"{b} times {a // b} is {a - a % b}."


def _gcd(d: _Draws) -> Drawn:
    factor, a, b = d.int(2, 9), d.int(1, 9), d.int(1, 9)
    a, b = a * factor, b * factor
    g = math.gcd(a, b)
    return _unordered(a, b), f"Greatest common divisor of {a} and {b}?", str(g), f"{g} divides both."


def _equation(d: _Draws) -> Drawn:
    a, x, b = d.int(2, 9), d.int(1, 12), d.int(1, 20)
    total = a * x + b
    return f"{a},{x},{b}", f"{a}x + {b} = {total}. x = ?", str(x), f"{a}x is {total - b}."


def _binary(d: _Draws) -> Drawn:
    a = d.int(4, 127)
    return str(a), f"Write {a} in binary.", f"{a:b}", f"{a} is {' + '.join(_powers(a))}."


def _powers(a: int) -> Iterator[str]:
    return (str(1 << i) for i in reversed(range(a.bit_length())) if a >> i & 1)


_SAYINGS: Mapping[str, Callable[[bool, bool], bool]] = {
    "{other} lies": lambda own, other: not other,
    "we both tell the truth": lambda own, other: own and other,
    "we both lie": lambda own, other: not own and not other,
    "exactly one of us lies": lambda own, other: own != other,
    "we are of the same kind": lambda own, other: own == other,
    "at least one of us lies": lambda own, other: not (own and other),
}
_NAMES = ("Ann", "Bob", "Cleo", "Dan", "Eve", "Finn", "Gus", "Hal")


def _puzzle(d: _Draws) -> Drawn:
    """Two speakers who always lie or always tell the truth; drawn again until exactly one assignment fits."""
    sayings = list(_SAYINGS)
    while True:
        one, two = d.pick(_NAMES), d.pick(_NAMES)
        says_one, says_two = d.pick(sayings), d.pick(sayings)
        worlds = [(a, b) for a in (True, False) for b in (True, False)]
        fits = [(a, b) for a, b in worlds if a == _SAYINGS[says_one](a, b) and b == _SAYINGS[says_two](b, a)]
        if one != two and len(fits) == 1:
            break
    word = "truth" if fits[0][0] else "lie"
    lines = f"{one} says: {says_one.format(other=two)}. {two} says: {says_two.format(other=one)}."
    reasoning = f"{two} {'tells the truth' if fits[0][1] else 'lies'}."
    return f"{says_one},{says_two}", f"{lines} Does {one} tell the truth or lie?", word, reasoning


def _trace(d: _Draws) -> Drawn:
    start = x = d.int(1, 9)
    lines = [f"x = {x}"]
    for _ in range(3):
        step = d.int(2, 5)
        name = d.pick("+-*")
        lines.append(f"x = x {name} {step}")
        x = x + step if name == "+" else x - step if name == "-" else x * step
    program = "; ".join(lines)
    return program, f"{program}. What is x?", str(x), f"x starts at {start} and ends at {x}."


_KINDS: Mapping[tuple[str, int], Callable[[_Draws], Drawn]] = {
    ("copy", 1): _copy,
    ("last", 1): _last,
    ("pick", 1): _pick,
    ("contains", 1): _contains,
    ("count", 1): _count,
    ("larger", 1): lambda d: _larger(d, 0, 9),
    ("truth", 1): _truth,
    ("parity", 1): _parity,
    ("larger", 2): lambda d: _larger(d, 10, 99),
    ("parity", 2): _parity_of_sum,
    ("after", 2): _after,
    ("letter", 2): _letter,
    ("sequence", 2): lambda d: _sequence(d, 0, 20, 1),
    ("add", 2): lambda d: _add(d, 0, 9),
    ("multiply", 2): _multiply,
    ("sequence", 3): lambda d: _sequence(d, 22, 60, -1),
    ("add", 3): lambda d: _add(d, 10, 99),
    ("subtract", 3): _subtract,
    ("remainder", 3): _remainder,
    ("gcd", 3): _gcd,
    ("equation", 3): _equation,
    ("binary", 3): _binary,
    ("puzzle", 3): _puzzle,
    ("trace", 3): _trace,
}


def items() -> tuple[Item, ...]:
    """Return the evaluated items in their fixed order. Raises DataQualityError if they are not the published ones."""
    return _items()


@functools.cache
def _items() -> tuple[Item, ...]:
    found = tuple(item for kind in _KINDS for item in _draw(kind, PER_KIND, held_out=True, seed="bank"))
    digest = sha256(found)
    if digest != SHA256:
        raise DataQualityError(
            f"the embedded bank has sha256 {digest}, not {SHA256}; scores would not be comparable. "
            "Restore spiral_lib/bank_items.py"
        )
    return found


def training_items(seed: int, n: int) -> tuple[Item, ...]:
    """Return n items for the cold start, the kinds of level 1 in turn; their operands are never those of the bank.

    Items may repeat where a kind has few operands.
    """
    taught = [kind for kind in _KINDS if kind[1] == 1]
    per_kind = -(-n // len(taught))
    drawn = [_draw(kind, per_kind, held_out=False, seed=seed) for kind in taught]
    return tuple(item for row in zip(*drawn, strict=True) for item in row)[:n]


def training_item(seed: int) -> Item:
    """Return the training item of a seed: of any kind, each as likely, with operands that are not evaluated."""
    kinds = list(_KINDS)
    return _draw(kinds[seed_for("bank kind", seed) % len(kinds)], 1, held_out=False, seed=seed)[0]


def sha256(found: Sequence[Item]) -> str:
    """Return the hash of what is asked and expected, item by item in order."""
    lines = (f"{i.id}\t{i.family}\t{i.level}\t{i.question}\t{i.answer}\n" for i in found)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def user_text(item: Item) -> str:
    r"""Return the user message: the question, and how to answer (as in play, in a box)."""
    return f"{item.question} Reply \\boxed{{answer}}."


def reply_text(item: Item) -> str:
    r"""Return the reply that the cold start teaches: one sentence and the answer in a box."""
    return f"{item.reasoning} \\boxed{{{item.answer}}}"


def is_correct(item: Item, reply: str) -> bool:
    """Return whether the reply's boxed answer, undressed, is exactly the item's."""
    content = answers.extract(reply)
    return content is not None and is_answer(item, answers.unwrap(content))


def is_answer(item: Item, content: str) -> bool:
    """Return whether the undressed content of a box is exactly the item's answer, whatever the case of its letters."""
    return content.casefold() == item.answer.casefold()


def is_held_out(family: str, operands: str) -> bool:
    """Return whether a question with these operands may be evaluated (and so never be trained on)."""
    return seed_for("bank side", family, operands) % 5 < 2


def _draw(kind: tuple[str, int], n: int, *, held_out: bool, seed: int | str) -> list[Item]:
    """Return n items of one kind from one side; evaluated items are distinct."""
    family, level = kind
    found: list[Item] = []
    seen: set[str] = set()
    attempt = 0
    while len(found) < n:
        attempt += 1
        operands, question, answer, reasoning = _KINDS[kind](_Draws("bank item", seed, family, level, attempt))
        if is_held_out(family, operands) != held_out or (held_out and question in seen):
            if attempt > 200 * n + 2000:
                raise DataQualityError(f"bank kind {family}-{level} has fewer than {n} distinct questions")
            continue
        seen.add(question)
        name = f"{family}-{level}-{len(found):02d}"
        found.append(
            Item(id=name, family=family, level=level, question=question, answer=answer, reasoning=reasoning)
        )
    return found


def limited(limit: int) -> tuple[Item, ...]:
    """Return ``limit`` items spread evenly over the bank, all of them for 0."""
    everything = items()
    if not 0 < limit < len(everything):
        return everything
    return tuple(everything[i * len(everything) // limit] for i in range(limit))
