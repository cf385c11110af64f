"""Topic cards: what a poser is asked to write, as slot templates for small models, as required signs for large ones."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from spiral_lib.errors import IllegalAction
from spiral_lib.games._duel_base import shown_template
from spiral_lib.games.duel_dsl import Expression


@dataclass(frozen=True, kw_only=True, slots=True)
class Card:
    """One topic.

    ``template`` has its slots in braces; ``needs`` are groups of operators, one of each group must occur in a free
    problem. ``draw(rng, n)`` returns slots of a typical problem; for equations its solution is mostly ``n``.
    """

    topic: str
    template: str
    slots: tuple[str, ...]
    needs: tuple[tuple[str, ...], ...]
    draw: Callable[[random.Random, int], dict[str, int]]

    def check(self, problem: Expression) -> None:
        """Raise IllegalAction (off_topic) when the problem lacks an operator that the topic asks for."""
        for group in self.needs:
            if not problem.operators.intersection(group):
                raise IllegalAction(f"the topic '{self.topic}' needs {' or '.join(group)}", reason="off_topic")

    def describe(self, level: str) -> str:
        """Return the line that shows the card to the poser."""
        if level == "template":
            return f"Topic: {self.topic}. Template: {shown_template(self.template)}"
        groups = "; ".join(" or ".join(group) for group in self.needs)
        return f"Topic: {self.topic}. It must use: {groups}."


def _linear(rng: random.Random, n: int) -> dict[str, int]:
    a, b = rng.choice((-7, -5, -3, -2, 2, 3, 4, 5, 6, 7, 8, 9)), rng.randint(-20, 20)
    return {"a": a, "b": b, "c": a * n + b}


def _quadratic(rng: random.Random, n: int) -> dict[str, int]:
    other = n - rng.randint(1, 9)
    return {"a": -(n + other), "b": n * other, "c": rng.randint(other, n - 1)}


def _congruence(rng: random.Random, n: int) -> dict[str, int]:
    a = rng.randint(3, 12)
    return {"a": a, "b": n % a, "c": n - rng.randint(1, a), "d": n + rng.randint(1, a)}


def _divisibility(rng: random.Random, n: int) -> dict[str, int]:
    a, b = rng.choice(((2, 3), (2, 5), (3, 4), (3, 5), (4, 6), (4, 5)))
    n -= n % (a * b)  # a multiple of both near n
    return {"a": a, "b": b, "c": n - rng.randint(1, a), "d": n + rng.randint(1, a)}


def _two_conditions(rng: random.Random, n: int) -> dict[str, int]:
    a, c = rng.randint(2, 6), rng.randint(2, 6)
    return {"a": a, "b": a * n - rng.randint(1, a), "c": c, "d": c * n + rng.randint(1, c)}


def _digits(rng: random.Random, n: int) -> dict[str, int]:
    del rng
    return {"a": n // 10 + n % 10, "b": n // 10 - n % 10}


EQUATION_CARDS: Final = (
    Card(
        topic="linear equation",
        template="{a}*x + {b} == {c}",
        slots=("a", "b", "c"),
        needs=(("*",), ("==",)),
        draw=_linear,
    ),
    Card(
        topic="quadratic equation with integer roots",
        template="x*x + {a}*x + {b} == 0 and x > {c}",
        slots=("a", "b", "c"),
        needs=(("*", "**"), ("==",)),
        draw=_quadratic,
    ),
    Card(
        topic="remainder",
        template="x % {a} == {b} and {c} < x < {d}",
        slots=("a", "b", "c", "d"),
        needs=(("%",), ("==", "!=")),
        draw=_congruence,
    ),
    Card(
        topic="divisibility",
        template="x % {a} == 0 and x % {b} == 0 and {c} < x < {d}",
        slots=("a", "b", "c", "d"),
        needs=(("%",), ("and",)),
        draw=_divisibility,
    ),
    Card(
        topic="two conditions",
        template="{a}*x > {b} and {c}*x < {d}",
        slots=("a", "b", "c", "d"),
        needs=(("and",), ("<", "<=", ">", ">=")),
        draw=_two_conditions,
    ),
    Card(
        topic="digits",
        template="x // 10 + x % 10 == {a} and x // 10 - x % 10 == {b}",
        slots=("a", "b"),
        needs=(("//",), ("%",)),
        draw=_digits,
    ),
)


def _distance(rng: random.Random, n: int) -> dict[str, int]:
    return {"a": rng.randint(-9, 9), "b": n, "c": rng.randint(0, 4)}


def _bound(rng: random.Random, n: int) -> dict[str, int]:
    a, b = rng.randint(1, 5), rng.choice((-3, -2, 2, 3))
    return {"a": a, "b": b, "c": 10 * (a + abs(b)) - max(0, n)}


def _squares(rng: random.Random, n: int) -> dict[str, int]:
    del n
    return {"a": rng.choice((-2, -1, 1, 2)), "b": rng.choice((0, 0, 1))}


def _residues(rng: random.Random, n: int) -> dict[str, int]:
    m = rng.choice((4, 5, 7, 8))
    return {"a": m * rng.randint(1, 3) + rng.choice((0, 0, 1)), "b": m, "c": abs(n) % m}


CLAIM_CARDS: Final = (
    Card(
        topic="distance",
        template="(x - {a})**2 + (y - {b})**2 >= {c}",
        slots=("a", "b", "c"),
        needs=(("*", "**"), ("<", "<=", ">", ">=")),
        draw=_distance,
    ),
    Card(
        topic="linear bound",
        template="{a}*x + {b}*y <= {c}",
        slots=("a", "b", "c"),
        needs=(("*",), ("<", "<=", ">", ">=")),
        draw=_bound,
    ),
    Card(
        topic="squares and products",
        template="x*x + y*y >= {a}*x*y + {b}",
        slots=("a", "b"),
        needs=(("*", "**"), ("<", "<=", ">", ">=")),
        draw=_squares,
    ),
    Card(
        topic="remainders",
        template="(x*x + {a}*y) % {b} != {c}",
        slots=("a", "b", "c"),
        needs=(("%",), ("==", "!=")),
        draw=_residues,
    ),
)


# Without a common factor, a program that is off by one in b differs at one input in c: it can hide.
_DIVISORS: Final = {a: [c for c in range(4, 13) if c % a] for a in (2, 3, 5, 7)}


def _scaled(rng: random.Random, n: int) -> dict[str, int]:
    a = rng.choice((2, 3, 5, 7))
    return {"a": a, "b": n, "c": rng.choice(_DIVISORS[a])}


def _squared(rng: random.Random, n: int) -> dict[str, int]:
    return {"a": abs(n), "b": rng.randint(7, 20), "c": rng.randint(-9, 9)}


def _steps(rng: random.Random, n: int) -> dict[str, int]:
    c = rng.randint(4, 9)
    return {"a": n, "b": c * rng.randint(2, 4), "c": c}


PROGRAM_CARDS: Final = (
    Card(
        topic="scale and share out",
        template="({a}*x + {b}) // {c}",
        slots=("a", "b", "c"),
        needs=(("//",),),
        draw=_scaled,
    ),
    Card(
        topic="square and share out",
        template="(x*x + {a}) // {b} + {c}",
        slots=("a", "b", "c"),
        needs=(("//",),),
        draw=_squared,
    ),
    Card(
        topic="steps that repeat",
        template="(x + {a}) % {b} // {c}",
        slots=("a", "b", "c"),
        needs=(("%",),),
        draw=_steps,
    ),
)
