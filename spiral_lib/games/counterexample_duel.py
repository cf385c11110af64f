"""Counterexample duel: the prover makes a claim about all x and y and commits to its truth, the refuter decides.

All 441 points are tried, so nobody's word is needed. True claims must be tight and false ones nearly true, else the
prover loses: claims that anybody can judge at a glance earn nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import Final

from spiral_lib import games, seeds
from spiral_lib.errors import IllegalAction
from spiral_lib.games import _duel_base as base
from spiral_lib.games import duel_dsl
from spiral_lib.games._duel_cards import CLAIM_CARDS, Card
from spiral_lib.games._duel_claim import MAX_COUNTERS, MAX_FALSE_SHARE, ClaimDuel, failing_share
from spiral_lib.types import GameSpec, KnownCase

UNIVERSE: Final = {"x": (-10, 10), "y": (-10, 10)}
_BOTH: Final = frozenset(UNIVERSE)

_CLAIM: Final = {
    "template": (
        "The prover fills the slots of a template with whole numbers from -999 to 999 and says if the claim is true: "
        "[Claim: a=2 b=1 c=3 | false]."
    ),
    "free": "The prover writes a condition on the given topic and says if it is true: [Claim: x*x + y*y >= 1 | false].",
}
_RULES: Final = (
    "Two players, a prover and a refuter. x and y are whole numbers from -10 to 10.\n"
    "{claim} A claim is true if it holds for all x and y. It must use both. If what the prover says about it is wrong, "
    "the prover loses at once; so too if a true claim stays true whichever of its constants is changed by 1, or if a "
    "false claim fails for more than 30 % of all pairs. The refuter sees the claim, not what the prover said.\n"
    "The refuter either accepts the claim as true, [Accept], or gives a pair for which it fails, [Counter: x=3, y=-2]. "
    "Three tries that miss lose.\n"
    "Accepting a true claim or hitting a false one wins 1.0 points for the refuter, 0.2 less for each miss; otherwise "
    "the prover wins 1.0. What one player wins the other loses. A claim that is already known is worth 0.5 "
    "instead of 1.0.\n"
    "Conditions use whole numbers 0 to 999, x, y, + - * // % **, == != < <= > >=, and, or, not and round brackets; "
    "// rounds down, % is the remainder, never negative for a positive divisor."
)
_FORMAT: Final = {
    "template": "[Claim: a=... b=... | true], [Claim: a=... b=... | false], [Accept] or [Counter: x=..., y=...]",
    "free": "[Claim: condition | true], [Claim: condition | false], [Accept] or [Counter: x=..., y=...]",
}
_SIGNALS: Final = (
    "misses", "problem_length", "duplicate", "sound_problem", "bad_commitment", "true_claim", "fooled", "solved",
)  # fmt: skip

SPEC: Final = GameSpec(
    name="counterexample_duel",
    title="Counterexample Duel",
    roles=("prover", "refuter"),
    max_turns=1 + MAX_COUNTERS,
    rules=_RULES.format(claim=_CLAIM["template"]),
    action_format=_FORMAT["template"],
    has_private_information=True,
)


@lru_cache(maxsize=len(base.LEVELS))
def _spec(level: str) -> GameSpec:
    return replace(SPEC, rules=_RULES.format(claim=_CLAIM[level]), action_format=_FORMAT[level])

_FREE: Final = (("level", "free"),)
_HIDDEN: Final = "[Claim: x*x + y*y >= 1 | false]"  # fails at x = y = 0 only
_TIGHT: Final = "[Claim: x*x + y*y >= 0 | true]"
_MISS: Final = "[Counter: x=1, y=1]"
_PLAYED: Final = (
    ((_TIGHT, "[Accept]"), (-1.0, 1.0)),
    ((_TIGHT, _MISS, "[Accept]"), (-0.8, 0.8)),
    ((_TIGHT, _MISS, _MISS, _MISS), (1.0, -1.0)),
    ((_HIDDEN, "[Counter: x=0, y=0]"), (-1.0, 1.0)),
    ((_HIDDEN, "[Counter: x=11, y=0]", "[Counter: x=0, y=0]"), (-0.8, 0.8)),
    ((_HIDDEN, "[Accept]"), (1.0, -1.0)),
    (("[Claim: x*x + y*y >= 1 | true]",), (-1.0, 1.0)),  # it is false
    (("[Claim: x*x + y*y >= 99 | false]",), (-1.0, 1.0)),  # false for too many
    (("[Claim: x*x + y*y + 5 >= 0 | true]",), (-1.0, 1.0)),  # not tight
)
_REFUSED: Final = (
    ("[Claim: x*x >= 0 | true]", "unused_variable"),
    ("[Claim: 9**9**9 == x*y | true]", "bad_exponent"),
    ("[Claim: 1_0 == x*y | true]", "bad_character"),
    ('[Claim: __import__("os").getpid() == x*y | true]', "bad_character"),
    ("[Claim: \uff58*y == 1 | true]", "non_ascii"),
    (f"[Claim: {'(' * 150}x{')' * 150} == y | true]", "too_long"),
    ("[Claim: x*y >= 0 | perhaps]", "bad_format"),
)
KNOWN_CASES: Final = (  # with seed 3 the topic is distance
    *(KnownCase(seed=3, params=_FREE, actions=actions, returns=returns) for actions, returns in _PLAYED),
    *(
        KnownCase(seed=3, params=_FREE, actions=(claim,), returns=(-1.0, 1.0), refused=reason)
        for claim, reason in _REFUSED
    ),
    KnownCase(seed=3, params=_FREE, actions=(_HIDDEN, "[Counter: x=0]"), returns=(1.0, -1.0), refused="bad_format"),
)


class GAME(ClaimDuel):
    """One match. ``level`` is ``template`` or ``free``; ``bank`` holds known claims' digests, separated by commas."""

    def __init__(self, *, seed: int, level: str = "template", bank: str = "") -> None:
        self._level = games.choice("level", level, known=base.LEVELS)
        super().__init__(_spec(level), seed=seed, signals=_SIGNALS)
        self._bank = base.read_bank(bank)
        self._card = CLAIM_CARDS[self._rng("card").randrange(len(CLAIM_CARDS))]
        self._committed = ""

    @property
    def problem_digest(self) -> str | None:
        """Digest of the claim, for the bank of the next iteration; None when the claim was not sound."""
        return self._claim.digest if self._claim is not None and self._signals["sound_problem"] else None

    def _moves(self) -> Mapping[str, base.Handler]:
        return {"claim": self._make_claim} if self._claim is None else self._checker_moves()

    def _make_claim(self, content: str) -> None:
        claim, self._committed, share, is_sound = _read_claim(content, self._level, self._card)
        self._start_checking(claim, claim.values, share, lambda: claim.digest, self._bank)
        self._signals["bad_commitment"] = float((self._committed == "true") != self._is_true)
        if not is_sound:
            self._end(-base.FULL_STAKE, "The claim was not sound: the prover loses.")
            return
        self._signals["sound_problem"] = 1.0
        self._record.append(f"Claim for all x and y: {claim}")

    def _point_text(self, point: tuple[int, ...], place: int) -> str:
        del point
        return "the claim holds" if self._holds[place] else "the claim fails"

    def _observation(self, player: int) -> str:
        lines = [self._card.describe(self._level)] if player == 0 else []
        if player == 0 and self._committed:
            lines.append(f"You said: {self._committed}")
        slots = base.example(self._card.slots, " ") if self._level == "template" else "condition"
        ask = f"[Claim: {slots} | true or false]" if self._claim is None else "[Accept] or [Counter: x=..., y=...]"
        return "\n".join([*lines, *self._check_lines(player, ask)])

    def _info_state(self, player: int) -> str:
        private = f"{self._card.topic}|{self._committed}|" if player == 0 else ""
        return f"{private}{self._stake}|{';'.join(self._record)}|{self._outcome}"

    def _samples(self) -> Callable[[], tuple[str, ...]]:
        if self._claim is not None:
            return self._sample_checks(self._claim)
        return partial(_chosen_claims, self._samples_rng(), self._card, self._level)


@lru_cache(maxsize=4096)
def _read_claim(content: str, level: str, card: Card) -> tuple[duel_dsl.Expression, str, float, bool]:
    """Return a claim on a card's topic, what the prover says of its truth, the share of points where it fails, and
    whether it is sound.
    """
    written, committed = base.commitment(content)
    if committed not in ("true", "false"):
        raise IllegalAction("after the bar stands true or false", reason="bad_format")
    if level == "template":
        written = base.fill(card.template, written, card.slots)
    claim = duel_dsl.parse(written, UNIVERSE)
    if claim.type != "bool":
        raise IllegalAction("a condition is needed, such as x*y < 9", reason="bad_type")
    if claim.used != _BOTH:
        raise IllegalAction("the claim must use x and y", reason="unused_variable")
    card.check(claim)
    share = failing_share(claim.values)
    is_true = share == 0.0
    is_sound = (committed == "true") == is_true and (is_tight(claim) if is_true else share <= MAX_FALSE_SHARE)
    return claim, committed, share, is_sound


def _chosen_claims(make_rng: Callable[[], random.Random], card: Card, level: str) -> tuple[str, ...]:
    return _sample_claims(card, level, make_rng().randrange(base.NUM_SAMPLE_SETS))


@lru_cache(maxsize=4096)
def _sample_claims(card: Card, level: str, number: int) -> tuple[str, ...]:
    """Return claims on a card's topic: four as the topic means them, one wrong commitment.

    Making one tries all points, so there is a fixed stock of such sets and matches draw from it.
    """
    rng, found = seeds.generator(SPEC.name, card.topic, "samples", number), []
    for kind in ("right", "right", "right", "right", "wrong"):
        slots = card.draw(rng, rng.randint(-9, 9))
        claim = card.template.format(**slots)
        is_true = bool(duel_dsl.parse(claim, UNIVERSE).values.all()) != (kind == "wrong")
        shown = base.slot_text(slots) if level == "template" else claim
        found.append(f"[Claim: {shown} | {str(is_true).lower()}]")
    return tuple(dict.fromkeys(found))


def is_tight(claim: duel_dsl.Expression) -> bool:
    """Return whether some constant of a true claim, changed by 1, makes it fail somewhere.

    The last constant comes first: it is the bound in most claims.
    """
    return any(
        not _is_true(claim, (*claim.numbers[:place], claim.numbers[place] + step, *claim.numbers[place + 1 :]))
        for place in reversed(range(len(claim.numbers)))
        for step in (-1, 1)
    )


def _is_true(claim: duel_dsl.Expression, numbers: tuple[int, ...]) -> bool:
    """Return whether a claim with these numbers holds everywhere; one that leaves the language counts as true."""
    try:
        return failing_share(claim.shape.values(numbers)) == 0.0
    except IllegalAction:
        return True
