"""Code duel: the generator writes a one-line program for a specification, the verifier approves it or breaks it.

The game owns the truth: it compares program and specification on all 101 inputs. A wrong program may differ on at most
30 % of them, so a generator who wants to fool the verifier has to hide the difference.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import Final

from spiral_lib import games
from spiral_lib.errors import IllegalAction
from spiral_lib.games import _duel_base as base
from spiral_lib.games import _duel_tree as tree
from spiral_lib.games import duel_dsl
from spiral_lib.games._duel_cards import PROGRAM_CARDS, Card
from spiral_lib.games._duel_claim import MAX_COUNTERS, MAX_FALSE_SHARE, ClaimDuel, failing_share
from spiral_lib.games._duel_words import in_steps
from spiral_lib.types import GameSpec, KnownCase

UNIVERSE: Final = {"x": (-50, 50)}
_INPUTS: Final = range(*UNIVERSE["x"])
"""From which the examples are drawn; the last input is never one of them."""
_NUM_EXAMPLES: Final = 3

_PROGRAM: Final = {
    "template": (
        "The generator fills the slots of a template with whole numbers from -999 to 999: [Program: a=3 b=-5 c=4]."
    ),
    "free": "The generator writes an expression: [Program: (3*x - 5) // 4].",
}
_RULES: Final = (
    "Two players, a generator and a verifier. Both see the specification of a program with three examples; its input x "
    "is a whole number from -50 to 50.\n"
    "{program} The program is right if it gives the specified result for every x. A program that is wrong for more "
    "than 30 % of the inputs loses at once.\n"
    "The verifier sees the program and either approves it as right, [Approve], or gives an input for which it is "
    "wrong, [Break: x=7]. Three tries that miss lose.\n"
    "Approving a right program or breaking a wrong one wins 1.0 points for the verifier, 0.2 less for each miss; "
    "otherwise the generator wins 1.0. What one player wins the other loses. A program already known for this "
    "specification is worth 0.5 instead of 1.0.\n"
    "Programs use whole numbers 0 to 999, x, + - * // % ** and round brackets; // and 'rounded down' go to the next "
    "lower whole number, also below zero; % is the remainder, which is never negative for a positive divisor."
)
_FORMAT: Final = {
    "template": "[Program: a=... b=...], [Approve] or [Break: x=...]",
    "free": "[Program: expression], [Approve] or [Break: x=...]",
}
_SIGNALS: Final = ("misses", "problem_length", "duplicate", "sound_problem", "true_claim", "fooled", "solved")

SPEC: Final = GameSpec(
    name="code_duel",
    title="Code Duel",
    roles=("generator", "verifier"),
    max_turns=1 + MAX_COUNTERS,
    rules=_RULES.format(program=_PROGRAM["template"]),
    action_format=_FORMAT["template"],
    has_private_information=False,
)


@lru_cache(maxsize=len(base.LEVELS))
def _spec(level: str) -> GameSpec:
    return replace(SPEC, rules=_RULES.format(program=_PROGRAM[level]), action_format=_FORMAT[level])

_RIGHT: Final = "[Program: a=2 b=-8 c=9]"  # the specification of seed 0
_HIDDEN: Final = "[Program: a=2 b=-7 c=9]"  # differs at x = 8, 17, 26 and so on
KNOWN_CASES: Final = (
    KnownCase(actions=(_RIGHT, "[Approve]"), returns=(-1.0, 1.0)),
    KnownCase(actions=(_RIGHT, "[Break: x=0]", "[Approve]"), returns=(-0.8, 0.8)),
    KnownCase(actions=(_RIGHT, "[Break: x=0]", "[Break: x=8]", "[Break: x=50]"), returns=(1.0, -1.0)),
    KnownCase(actions=(_HIDDEN, "[Break: x=8]"), returns=(-1.0, 1.0)),
    KnownCase(actions=(_HIDDEN, "[Break: x=51]", "[Break: x=17]"), returns=(-0.8, 0.8)),
    KnownCase(actions=(_HIDDEN, "[Approve]"), returns=(1.0, -1.0)),
    KnownCase(actions=("[Program: a=3 b=-8 c=9]",), returns=(-1.0, 1.0)),  # wrong nearly everywhere
    KnownCase(actions=("[Program: a=4 b=-16 c=18]", "[Approve]"), returns=(-1.0, 1.0)),  # the same function
    KnownCase(actions=("[Program: a=2 b=-8 c=0]",), returns=(-1.0, 1.0), refused="zero_divisor"),
    KnownCase(actions=("[Program: a=2 b=-8]",), returns=(-1.0, 1.0), refused="bad_format"),
    KnownCase(actions=("[Program: a=2.0 b=-8 c=9]",), returns=(-1.0, 1.0), refused="bad_integer"),
    KnownCase(actions=(_RIGHT, "[Break: x=08]"), returns=(1.0, -1.0), refused="bad_integer"),
    KnownCase(actions=(_RIGHT, "[Approve] [Break: x=8]"), returns=(1.0, -1.0), refused="several_actions"),
)


class GAME(ClaimDuel):
    """One match. ``level`` is ``template`` or ``free``; ``bank`` holds known programs' digests, separated by commas."""

    accept_word = "approve"
    counter_word = "break"
    claim_word = "program"
    true_word = "right"

    def __init__(self, *, seed: int, level: str = "template", bank: str = "") -> None:
        self._level = games.choice("level", level, known=base.LEVELS)
        super().__init__(_spec(level), seed=seed, signals=_SIGNALS)
        self._bank = base.read_bank(bank)
        rng = self._rng("specification")
        self._card = rng.choice(PROGRAM_CARDS)
        self._slots = self._card.draw(rng, _shift(rng))
        source = self._card.template.format(**self._slots)
        if level == "free":
            source += _second_part(rng, self._card)
        self._wanted, specification = _specified(source)
        inputs: set[int] = set()
        while len(inputs) < _NUM_EXAMPLES:
            inputs.add(rng.choice(_INPUTS))
        result = self._wanted.values.item
        examples = ", ".join([f"{x} gives {result(x - _INPUTS.start)}" for x in sorted(inputs)])
        self._head = f"Specification: {specification}\nExamples: {examples}."

    @property
    def problem_digest(self) -> str | None:
        """Digest of specification and program, for the next iteration's bank; None when the program was not sound."""
        return self._digest(self._claim) if self._claim is not None and self._signals["sound_problem"] else None

    def _digest(self, program: duel_dsl.Expression) -> str:
        return hashlib.blake2b(f"{self._wanted.digest}{program.digest}".encode(), digest_size=8).hexdigest()

    def _moves(self) -> Mapping[str, base.Handler]:
        return {"program": self._submit} if self._claim is None else self._checker_moves()

    def _submit(self, content: str) -> None:
        program = _read_program(content, self._level, self._card)
        holds = program.values == self._wanted.values
        share = failing_share(holds)
        self._start_checking(program, holds, share, lambda: self._digest(program), self._bank)
        if share > MAX_FALSE_SHARE:
            self._end(-base.FULL_STAKE, "The program is wrong for too many inputs: the generator loses.")
            return
        self._signals["sound_problem"] = 1.0
        self._record.append(f"Program: {program}")

    def _point_text(self, point: tuple[int, ...], place: int) -> str:
        assert self._claim is not None
        given, wanted = int(self._claim.values[place]), int(self._wanted.values[place])
        return f"right, both give {given}" if given == wanted else f"wrong, {given} instead of {wanted}"

    def _observation(self, player: int) -> str:
        lines = [self._head]
        template = self._level == "template"
        if player == 0 and template:
            lines.append(f"Template: {base.shown_template(self._card.template)}")
        slots = base.example(self._card.slots, " ") if template else "expression"
        ask = f"[Program: {slots}]" if self._claim is None else "[Approve] or [Break: x=...]"
        return "\n".join([*lines, *self._check_lines(player, ask)])

    def _info_state(self, player: int) -> str:
        del player
        return f"{self._wanted}|{self._stake}|{';'.join(self._record)}|{self._outcome}"

    def _samples(self) -> Callable[[], tuple[str, ...]]:
        if self._claim is not None:
            return self._sample_checks(self._claim)
        if self._level == "free":
            return partial(_free_programs, self._samples_rng(), self._wanted)
        return partial(_programs, self._slots)


@lru_cache(maxsize=8192)
def _read_program(content: str, level: str, card: Card) -> duel_dsl.Expression:
    written = content.lower()
    if level == "template":
        written = base.fill(card.template, written, card.slots)
    program = duel_dsl.parse(written, UNIVERSE)
    if program.type != "int":
        raise IllegalAction("a program gives a number, such as x + 1", reason="bad_type")
    return program


def _free_programs(make_rng: Callable[[], random.Random], wanted: duel_dsl.Expression) -> tuple[str, ...]:
    """Return the right program, three that are off by one in a constant, and a hopeless one."""
    near = make_rng().sample([tree.text(root) for root in tree.neighbours(wanted.root)], 3)
    return tuple(f"[Program: {text}]" for text in (str(wanted), *near, "x"))


def _programs(wanted: Mapping[str, int]) -> tuple[str, ...]:
    """Return the same for slots of a template, off by one in each."""
    right, b = base.slot_text(wanted), wanted["b"]
    near = [right.replace(f"{name}={value}", f"{name}={value + 1}") for name, value in wanted.items()]
    hopeless = right.replace(f"b={b}", f"b={b + 50}")
    return tuple([f"[Program: {slots}]" for slots in (right, *near, hopeless)])


@lru_cache(maxsize=8192)
def _specified(source: str) -> tuple[duel_dsl.Expression, str]:
    """Return the program that is asked for, and the words in which it is."""
    form, numbers = duel_dsl.opened(source)
    shape, told = _specified_form(form)
    return shape.filled(numbers), told.format(*numbers)


@lru_cache(maxsize=256)
def _specified_form(form: str) -> tuple[duel_dsl.Shape, str]:
    """Return the same for all programs that differ in their numbers only, which the words have places for.

    There are some sixty such forms, and they are kept whatever programs the players write.
    """
    shape = duel_dsl.parse(form, UNIVERSE).shape
    return shape, in_steps(shape.root)


def _second_part(rng: random.Random, card: Card) -> str:
    """Return a further term, of another kind than the card's."""
    other = rng.choice([c for c in PROGRAM_CARDS if c is not card])
    term = other.template.format(**other.draw(rng, _shift(rng)))
    return f" {rng.choice('+-')} ({term})"


def _shift(rng: random.Random) -> int:
    return rng.choice((-1, 1)) * rng.randint(1, 20)
