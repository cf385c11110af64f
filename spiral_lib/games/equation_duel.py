"""Equation duel: the proposer sets a condition with one solution and commits to it, the solver has to find it.

The solution is found by trying all 401 numbers, so nobody's word is needed. A proposer earns only with a sound problem
of known solution that the solver fails.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import Final

import numpy as np

from spiral_lib import games, seeds
from spiral_lib.errors import IllegalAction
from spiral_lib.games import _duel_base as base
from spiral_lib.games import _duel_tree as tree
from spiral_lib.games import duel_dsl
from spiral_lib.games._duel_cards import EQUATION_CARDS, Card
from spiral_lib.types import GameSpec, KnownCase

UNIVERSE: Final = {"x": (-200, 200)}
MAX_ASKS: Final = 2
MAX_HINT_CHARS: Final = 40

_LANGUAGE: Final = (
    "Conditions use whole numbers 0 to 999, x, + - * // % **, == != < <= > >=, and, or, not and round brackets; "
    "// rounds down, % is the remainder, never negative for a positive divisor."
)
_POSE: Final = {
    "template": (
        "The proposer fills the slots of a template with whole numbers from -999 to 999 and adds the solution: "
        "[Pose: a=3 b=-5 c=7 | 4]."
    ),
    "free": "The proposer writes a condition on the given topic and adds the solution: [Pose: 3*x - 5 == 7 | 4].",
}
_RULES: Final = (
    "Two players, a proposer and a solver. x is a whole number from -200 to 200.\n"
    "{pose} Exactly one x may satisfy the condition and the proposer must name it, else the proposer loses at once. "
    "The solver sees the condition, not the solution. A condition that just writes the solution down, such as x == 4, "
    "is not allowed.\n"
    "The solver answers once, [Answer: 4], or first asks for a hint, [Ask], at most twice. "
    "The proposer replies with a true condition of at most 40 characters that rules out some numbers, [Hint: x > 0], "
    "or with [Pass]. A false hint, or one that rules out nothing new, loses at once.\n"
    "A right answer wins 1.0 points for the solver, 0.1 less for each ask; a wrong one wins 1.0 for the proposer. "
    "What one player wins the other loses. A problem that is already known is worth 0.5 instead of 1.0.\n" + _LANGUAGE
)
_FORMAT: Final = {
    "template": "[Pose: a=... b=... | solution], [Answer: number], [Ask], [Hint: condition] or [Pass]",
    "free": "[Pose: condition | solution], [Answer: number], [Ask], [Hint: condition] or [Pass]",
}

_SIGNALS: Final = (
    "asks", "hints", "passes", "bad_hint", "problem_length", "duplicate", "sound_problem", "bad_commitment", "solved",
)  # fmt: skip

SPEC: Final = GameSpec(
    name="equation_duel",
    title="Equation Duel",
    roles=("proposer", "solver"),
    max_turns=2 + 2 * MAX_ASKS,
    rules=_RULES.format(pose=_POSE["template"]),
    action_format=_FORMAT["template"],
    has_private_information=True,
)


@lru_cache(maxsize=len(base.LEVELS))
def _spec(level: str) -> GameSpec:
    return replace(SPEC, rules=_RULES.format(pose=_POSE[level]), action_format=_FORMAT[level])

_FREE: Final = (("level", "free"),)
_SOUND: Final = "[Pose: 3*x - 5 == 7 | 4]"
_PLAYED: Final = (  # with seed 10 the topic is linear, with 1 quadratic, with 5 two conditions
    (10, (_SOUND, "[Answer: 4]"), (-1.0, 1.0)),
    (10, (_SOUND, "[Answer: -4]"), (1.0, -1.0)),
    (10, (_SOUND, "[Ask]", "[Hint: x > 0]", "[Answer: 4]"), (-0.9, 0.9)),
    (10, (_SOUND, "[Ask]", "[Pass]", "[Ask]", "[Pass]", "[Answer: 4]"), (-0.8, 0.8)),
    (10, (_SOUND, "[Ask]", "[Hint: x < 0]"), (-1.0, 1.0)),  # the hint is false
    (10, (_SOUND, "[Ask]", "[Hint: x < 300]"), (-1.0, 1.0)),  # the hint rules out nothing
    (10, ("[Pose: 3*x - 5 == 7 | 5]",), (-1.0, 1.0)),  # the solution is 4
    (10, ("[Pose: 2*x == 7 | 3]",), (-1.0, 1.0)),  # there is no solution
    (1, ("[Pose: x*x - 5*x + 6 == 0 | 2]",), (-1.0, 1.0)),  # 3 is one too
    (1, ("[Pose: x*x - 5*x + 6 == 0 and x > 2 | 3]", "[Answer: 2]"), (1.0, -1.0)),
    (5, ("[Pose: 2*x > 398 and x < 300 | 200]", "[Answer: 200]"), (-1.0, 1.0)),  # at the border
)
_REFUSED: Final = (
    (("[Pose: 1*x == 4 | 4]",), "bare_equality"),
    (("[Pose: x > 3 | 4]",), "off_topic"),
    (("[Pose: x*x**9**9 == 1 | 1]",), "bad_exponent"),
    (("[Pose: 3*x == 1000 | 4]",), "bad_number"),
    (("[Pose: 3*x == 12 | 4] [Ask]",), "several_actions"),
    ((_SOUND, "[Answer: 4.0]"), "bad_integer"),
    ((_SOUND, "[Answer: +4]"), "bad_integer"),
    ((_SOUND, "[Ask]", "[Hint: x == 4]"), "bare_equality"),
)
KNOWN_CASES: Final = (
    *(KnownCase(seed=seed, params=_FREE, actions=actions, returns=returns) for seed, actions, returns in _PLAYED),
    *(
        KnownCase(
            seed=10,
            params=_FREE,
            actions=actions,
            returns=(-1.0, 1.0) if len(actions) % 2 else (1.0, -1.0),
            refused=reason,
        )
        for actions, reason in _REFUSED
    ),
    KnownCase(  # a known problem is worth half
        seed=10, params=(*_FREE, ("bank", "ce52bb819d9de6a5")), actions=(_SOUND, "[Answer: 4]"), returns=(-0.5, 0.5)
    ),
)


class GAME(base.Duel):
    """One match. ``level`` is ``template`` or ``free``; ``bank`` holds known problems' digests, separated by commas."""

    def __init__(self, *, seed: int, level: str = "template", bank: str = "") -> None:
        self._level = games.choice("level", level, known=base.LEVELS)
        super().__init__(_spec(level), seed=seed, signals=_SIGNALS)
        self._bank = base.read_bank(bank)
        self._card = EQUATION_CARDS[self._rng("card").randrange(len(EQUATION_CARDS))]
        self._problem: duel_dsl.Expression | None = None
        self._committed: int | None = None
        self._stake = base.FULL_STAKE
        self._remaining: tree.Array | None = None  # where all hints so far hold
        self._asks = 0
        self._asked = False

    @property
    def problem_digest(self) -> str | None:
        """Digest of the posed problem, for the bank of the next iteration; None when the problem was not sound."""
        return self._problem.digest if self._problem is not None and self._signals["sound_problem"] else None

    def _moves(self) -> Mapping[str, base.Handler]:
        if self._problem is None:
            return {"pose": self._pose}
        if self._asked:
            return {"hint": self._hint, "pass": self._pass}
        if self._asks < MAX_ASKS:
            return {"answer": self._answer, "ask": self._ask}
        return {"answer": self._answer}

    def _pose(self, content: str) -> None:
        problem, committed, solutions = _read_pose(content, self._level, self._card)
        self._problem, self._committed = problem, committed
        self._stake = base.stake(lambda: problem.digest, self._bank)
        self._signals["problem_length"] = float(len(str(problem)))
        self._signals["duplicate"] = float(self._stake == base.KNOWN_STAKE)
        self._signals["bad_commitment"] = float(committed not in solutions)
        if solutions != (committed,):
            self._end(-base.FULL_STAKE, "The problem was not sound: the proposer loses.")
            return
        self._signals["sound_problem"] = 1.0
        self._record.append(f"Problem: {problem}")
        self._to_move = 1

    def _ask(self, content: str) -> None:
        base.no_content(content)
        self._asks += 1
        self._signals["asks"] += 1.0
        self._asked, self._to_move = True, 0

    def _hint(self, content: str) -> None:
        assert self._problem is not None
        hint = _condition(content.lower(), MAX_HINT_CHARS)
        before = self._problem.values | True if self._remaining is None else self._remaining
        remaining = before & hint.values
        self._signals["hints"] += 1.0
        self._record.append(f"Hint: {hint}")
        is_true = not np.count_nonzero(self._problem.values & ~hint.values)
        if not is_true or np.count_nonzero(remaining) == np.count_nonzero(before):
            self._signals["bad_hint"] = 1.0
            self._end(-self._stake, "The hint was false or ruled out nothing: the proposer loses.")
            return
        self._remaining = remaining
        self._asked, self._to_move = False, 1

    def _pass(self, content: str) -> None:
        base.no_content(content)
        self._signals["passes"] += 1.0
        self._record.append("The proposer gave no hint.")
        self._asked, self._to_move = False, 1

    def _answer(self, content: str) -> None:
        answer = base.integer(content)
        self._record.append(f"Answer: {answer}")
        if answer == self._committed:
            self._signals["solved"] = 1.0
            self._end(self._asks - self._stake, "The answer is right: the solver wins.")
        else:
            self._end(self._stake, "The answer is wrong: the proposer wins.")

    def _observation(self, player: int) -> str:
        lines = [self._card.describe(self._level)] if player == 0 else []
        if self._problem is not None and player == 0:
            lines.append(f"Your solution: x = {self._committed}")
        lines += self._record
        if self._problem is not None:
            lines.append(f"At stake: {self._stake / 10} points. Asks: {self._asks} of {MAX_ASKS}.")
        if self._to_move is None:
            return "\n".join([*lines, self._outcome])
        waiting = "Your move now: " + self._prompt() if player == self._to_move else "The other player is to move."
        return "\n".join([*lines, waiting])

    def _prompt(self) -> str:
        """Return the forms the player to move may use now."""
        if self._problem is None:
            slots = base.example(self._card.slots, " ") if self._level == "template" else "condition"
            return f"[Pose: {slots} | solution]"
        if self._asked:
            return "[Hint: condition] or [Pass]"
        return "[Answer: number] or [Ask]" if self._asks < MAX_ASKS else "[Answer: number]"

    def _info_state(self, player: int) -> str:
        private = f"{self._card.topic}|{self._committed}|" if player == 0 else ""
        return f"{private}{self._stake}|{self._asks}|{int(self._asked)}|{';'.join(self._record)}|{self._outcome}"

    def _samples(self) -> Callable[[], tuple[str, ...]]:
        make_rng = self._samples_rng()
        if self._problem is None:
            return partial(_chosen_poses, make_rng, self._card, self._level)
        solution = self._committed or 0
        if self._asked:
            return partial(_sample_hints, make_rng, solution)
        return partial(_sample_answers, make_rng, solution, may_ask=self._asks < MAX_ASKS)


@lru_cache(maxsize=4096)
def _read_pose(content: str, level: str, card: Card) -> tuple[duel_dsl.Expression, int, tuple[int, ...]]:
    """Return a problem on a card's topic, the solution that the proposer names, and all solutions."""
    written, claimed = base.commitment(content)
    committed = base.integer(claimed)
    if level == "template":
        written = base.fill(card.template, written, card.slots)
    problem = _condition(written, duel_dsl.MAX_CHARS)
    card.check(problem)
    return problem, committed, _solutions(problem)


def _chosen_poses(make_rng: Callable[[], random.Random], card: Card, level: str) -> tuple[str, ...]:
    return _sample_poses(card, level, make_rng().randrange(base.NUM_SAMPLE_SETS))


def _sample_hints(make_rng: Callable[[], random.Random], n: int) -> tuple[str, ...]:
    """Return hints about the solution n, true and false ones, and the pass."""
    near = make_rng().randint(1, 30)
    hints = (f"x < {n + near}", f"x > {n - near}", f"x % 2 == {n % 2}", f"x > {n + near}", "x*x >= 0")
    return (*(f"[Hint: {hint}]" for hint in hints), "[Pass]")


def _sample_answers(make_rng: Callable[[], random.Random], n: int, *, may_ask: bool) -> tuple[str, ...]:
    """Return the right answer n, wrong ones, and the question where it may be asked."""
    answers = (f"[Answer: {x}]" for x in dict.fromkeys((n, n + 1, -n - 1, make_rng().randint(-200, 200))))
    return (*answers, "[Ask]") if may_ask else tuple(answers)


@lru_cache(maxsize=4096)
def _sample_poses(card: Card, level: str, number: int) -> tuple[str, ...]:
    """Return poses on a card's topic: four as the topic means them, one wrong commitment, one odd problem.

    Making one tries all numbers, so there is a fixed stock of such sets and matches draw from it.
    """
    rng, poses = seeds.generator(SPEC.name, card.topic, "samples", number), []
    for kind in ("right", "right", "right", "right", "wrong", "odd"):
        slots = card.draw(rng, rng.randint(-25, 25))
        if kind == "odd":
            slots["b"] += 1
        condition = card.template.format(**slots)
        solutions = _solutions(duel_dsl.parse(condition, UNIVERSE))
        claimed = (solutions[0] if solutions else 0) + (kind == "wrong")
        poses.append(f"[Pose: {base.slot_text(slots) if level == 'template' else condition} | {claimed}]")
    return tuple(poses)


def _solutions(condition: duel_dsl.Expression) -> tuple[int, ...]:
    first, _ = UNIVERSE["x"]
    return tuple([place + first for place in condition.values.nonzero()[0].tolist()])


def _condition(text: str, max_chars: int) -> duel_dsl.Expression:
    """Return a condition that does not just write down a value."""
    condition = duel_dsl.parse(text, UNIVERSE, max_chars=max_chars)
    if condition.type != "bool":
        raise IllegalAction("a condition is needed, such as x > 3", reason="bad_type")
    if tree.pins(condition.shape.root, condition.numbers):
        raise IllegalAction("writing the value down, as in x == 3, is not allowed", reason="bare_equality")
    return condition
