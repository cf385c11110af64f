"""The verifier-reliability gate passes sound games and names what is wrong with faulty ones."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from typing import Any

import pytest

from examples import add_a_game
from spiral_lib import game_check, games
from spiral_lib.errors import ConfigError, IllegalAction
from spiral_lib.game_check import GameCheck
from spiral_lib.types import KnownCase, Returns, View

SPEC = add_a_game.SPEC
KNOWN_CASES = (KnownCase(actions=("[1]",) * 3, returns=(-1.0, 1.0), params=(("stones", 3),)),)


class Sound(add_a_game.GAME):
    """The example, as a class to break."""


class NotZeroSum(Sound):
    def returns(self) -> Returns:
        return (1.0, 1.0)


class OutOfRange(Sound):
    def returns(self) -> Returns:
        first, second = super().returns()
        return (3 * first, 3 * second)


class GlobalChance(Sound):
    def __init__(self, *, seed: int, stones: int = 0) -> None:
        super().__init__(seed=seed, stones=stones or random.randint(5, 21))


class LookingMatters(Sound):
    def view(self, player: int) -> View:
        seen = super().view(player)
        self._left = max(1, self._left - 1)
        return seen


class TakesAnything(Sound):
    def apply(self, action: str) -> None:
        self._left = max(0, self._left - 1)
        self._player = 1 - self._player


class CrashesOnNonsense(Sound):
    def apply(self, action: str) -> None:
        super().apply(f"[{int(action[1:-1])}]")


class ChangesWhenItRefuses(Sound):
    def apply(self, action: str) -> None:
        try:
            super().apply(action)
        except IllegalAction:
            self._player = 1 - self._player
            raise


class RefusesItsOwnOffers(Sound):
    def apply(self, action: str) -> None:
        if action == "[2]":
            raise IllegalAction("two is not allowed after all")
        super().apply(action)


class NeverEnds(Sound):
    def apply(self, action: str) -> None:
        super().apply(action)
        self._left = 9


class CoarseKeys(Sound):
    def view(self, player: int) -> View:
        return replace(super().view(player), info_state="always the same")


class WrongRole(Sound):
    def view(self, player: int) -> View:
        return replace(super().view(player), role="first")


class WrongJudge(Sound):
    def returns(self) -> Returns:
        first, second = super().returns()
        return (second, first)


class Slow(Sound):
    def apply(self, action: str) -> None:
        time.sleep(0.06)
        super().apply(action)


class Decided(Sound):
    def returns(self) -> Returns:
        return (1.0, -1.0)


def check(game: type[Any], matches: int = 12) -> GameCheck:
    return game_check.check(f"{__name__}:{game.__name__}", matches=matches)


def broken(found: GameCheck) -> set[str]:
    return {rule.name for rule in found.rules if rule.broken}


@pytest.mark.parametrize("name", games.names())
def test_every_game_of_the_package_passes(name: str) -> None:
    # Few matches: optimal play of some games has to search.
    found = game_check.check(name, matches=6)
    assert found.ok, [rule for rule in found.rules if rule.broken]
    assert {f.play for f in found.figures} >= {"random", "hostile"}
    by_play = {f.play: f for f in found.figures}
    assert by_play["random"].invalid == 0 and by_play["random"].void == 0


def test_a_sound_game_of_ones_own_passes_and_its_known_cases_count() -> None:
    found = check(Sound, matches=30)
    assert found.ok and (found.judged.cases, found.judged.agreed) == (1, 1)
    assert all(rule.looked_at > 0 for rule in found.rules) and len(found.rules) >= 9
    assert found.warnings == ()


@pytest.mark.parametrize(
    ("game", "rule"),
    [
        (NotZeroSum, "returns are in [-1, 1] and sum to exactly 0"),
        (OutOfRange, "returns are in [-1, 1] and sum to exactly 0"),
        (GlobalChance, "equal seeds and actions give equal matches"),
        (LookingMatters, "looking changes nothing"),
        (TakesAnything, "hostile actions raise IllegalAction"),
        (CrashesOnNonsense, "hostile actions raise IllegalAction"),
        (ChangesWhenItRefuses, "a refused action changes nothing"),
        (RefusesItsOwnOffers, "every offered action is accepted"),
        (NeverEnds, "random play ends within max_turns"),
        (CoarseKeys, "an information state fixes the legal actions"),
        (WrongRole, "views name their role and share one text of the rules"),
        (WrongJudge, "known cases end as stated"),
    ],
)
def test_a_fault_breaks_the_rule_that_names_it(game: type[Any], rule: str) -> None:
    found = check(game)
    assert not found.ok and rule in broken(found)
    [breach] = [r for r in found.rules if r.name == rule]
    assert breach.examples and 0 < breach.broken <= breach.looked_at


def test_a_fault_does_not_break_unrelated_rules() -> None:
    assert broken(check(CoarseKeys)) == {"an information state fixes the legal actions"}
    assert broken(check(WrongJudge)) == {"known cases end as stated"}


def test_what_is_no_fault_but_odd_is_a_warning() -> None:
    decided, slow = check(Decided), check(Slow, matches=1)
    assert any("ends the same way" in w for w in decided.warnings)
    assert any("the seat decides random play" in w for w in decided.warnings)
    assert any(" ms to apply" in w for w in slow.warnings) and slow.slowest_apply_s >= 0.06


def test_figures_are_known_values_for_nim() -> None:
    found = game_check.check("nim", matches=40)
    by_play = {f.play: f for f in found.figures}
    # Nim 3-4-5 is a win for the first player, and optimal play never misses it.
    assert by_play["optimal"].first_seat == 1.0 and by_play["optimal"].entropy == 0.0
    assert by_play["optimal"].matches == 10 and by_play["random"].matches == 40
    assert 0.5 < by_play["random"].entropy <= 1.0 and by_play["random"].draws == 0
    assert 0 < by_play["hostile"].invalid <= 1.0


def test_the_same_seed_checks_the_same_matches() -> None:
    once, again = (game_check.check("kuhn_poker", matches=10, seed=3) for _ in range(2))
    assert once.figures == again.figures and once.rules == again.rules
    assert game_check.check("kuhn_poker", matches=10, seed=4).figures != once.figures


def test_progress_counts_up_to_all_matches() -> None:
    seen: list[tuple[int, int]] = []
    game_check.check("kuhn_poker", matches=8, on_progress=lambda done, total: seen.append((done, total)))
    assert [done for done, _ in seen] == list(range(1, 27)) and {total for _, total in seen} == {26}


def test_an_unknown_game_or_parameter_is_the_users_mistake() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'kuhn_poker'"):
        game_check.check("kuhn_pokr")
    with pytest.raises(ConfigError, match="unknown parameter 'pile'"):
        game_check.check("nim", params={"pile": "3"})
