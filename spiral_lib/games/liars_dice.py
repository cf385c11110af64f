"""Liar's Dice: bid on how many dice of all players show a face, or call the last bid.

A round follows OpenSpiel's ``liars_dice`` (bidding rule reset-face, highest face wild) in rules, action order and
keys. With ``elimination`` rounds go on until a player has lost all dice; OpenSpiel has no such match.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
import math
from collections.abc import Sequence
from typing import Final

from spiral_lib import seeds
from spiral_lib.errors import ConfigError, IllegalAction
from spiral_lib.games import make_view, no_seat, whole
from spiral_lib.types import GameSpec, KnownCase, Returns, View, zero_sum

Bid = tuple[int, int]  # quantity, face: tuples compare as bids do

Dice = tuple[tuple[int, ...], tuple[int, ...]]  # of both players, each sorted

_CALL: Final = "[call]"
_ONE: Final = float(1 << 53)
_MAX_VIEWS: Final = 10_000

SPEC: Final = GameSpec(
    name="liars_dice",
    title="Liar's Dice",
    roles=("player 0", "player 1"),
    max_turns=25,
    rules=(
        "Each player rolls dice that only this player sees; player 0 bids first. A bid names a quantity and a face: it "
        "claims that the dice of both players together show that face at least so many times. The highest face is "
        "wild: it counts as every face. In turn, a player either raises the bid (a higher quantity with any face, or "
        "the same quantity with a higher face) or calls. After a call all dice are shown: if the last bid is true, the "
        "player who called loses the round, otherwise the player who made the bid loses it. A match is one round, or, "
        "if so stated, the loser of a round gives up one die and bids first in the next round, until a player who has "
        "no dice left loses the match."
    ),
    action_format="[bid quantity face], for example [bid 1 3], or [call]",
    has_private_information=True,
    openspiel="liars_dice(numdice=2,dice_sides=6)",
)
KNOWN_CASES: Final = (  # with seed 0 the dice are 1 2 and 1 6, and 6 is wild
    KnownCase(actions=("[bid 3 1]", "[call]"), returns=(1.0, -1.0)),
    KnownCase(actions=("[bid 4 1]", "[call]"), returns=(-1.0, 1.0)),
    KnownCase(actions=("[bid 1 3]", "[call]"), returns=(1.0, -1.0)),
    KnownCase(actions=("[bid 1 1]", "[bid 2 3]", "[call]"), returns=(1.0, -1.0)),
    KnownCase(actions=("[call]",), returns=(-1.0, 1.0), refused="illegal_action"),
    KnownCase(actions=("[bid 2 3]", "[bid 2 2]"), returns=(1.0, -1.0), refused="illegal_action"),
    KnownCase(actions=("[bid 5 1]",), returns=(-1.0, 1.0), refused="illegal_action"),
)


class GAME:
    """One match with ``dice`` dice of ``sides`` faces for each player."""

    def __init__(self, *, seed: int, dice: int = 2, sides: int = 6, elimination: bool = False) -> None:
        self._seed_of = seeds.series(seed, SPEC.name)
        self._sides = whole("sides of liars_dice", sides, low=2, high=9)
        self._num_dice = (whole("dice of liars_dice", dice, low=1, high=6),) * 2
        if not isinstance(elimination, bool):
            raise ConfigError(f"elimination of liars_dice is {elimination!r}; it must be true or false")
        self._elimination = elimination
        self.spec = _spec(dice, sides, elimination)
        self._draws = 0
        self._starter = 0
        self._num_rounds = 0
        self._past_key = ""  # of the rounds that are over, known to both; and the same in words for each player
        self._past_lines = ("", "")
        self._loser: int | None = None
        self._start_round(self._roll())

    def dealt(self, dice: Dice, bids: Sequence[Bid]) -> GAME:
        """Return a first round of the same match with these dice and bids."""
        other = copy.copy(self)
        other._start_round(dice)
        for quantity, face in bids:
            other._bid((quantity, face), f"[bid {quantity} {face}]", f" {quantity}-{face}")
        return other

    @property
    def current_player(self) -> int | None:
        """Seat to move, or None when the match is over."""
        return None if self._loser is not None else (self._starter + self._num_bids) % 2

    def view(self, player: int) -> View:
        """Return own dice, the number of the other's dice, the bids, and all dice of the rounds that are over."""
        if player not in (0, 1):
            raise no_seat(SPEC, player)
        return make_view(
            SPEC,
            player,
            observation=self._observation(player),
            legal_actions=self._legal_actions() if player == self.current_player else (),
            info_state=self._key(player),
        )

    def apply(self, action: str) -> None:
        """Bid or call for the player to move. Raises IllegalAction for anything but a canonical legal action."""
        player = self.current_player
        if player is None:
            raise IllegalAction("the match is over")
        if action == _CALL and self._num_bids:
            self._show_dice(caller=player)
            return
        bid, key = _bids(self._total, self._sides).get(action, ((0, 0), ""))
        if bid <= self._last_bid:
            raise IllegalAction(f"{action[:20]!r} is neither a higher possible bid nor a call of a bid")
        self._bid(bid, action, key)

    def returns(self) -> Returns:
        """Return -1 for the loser of the match and +1 for the other."""
        if self._loser is None:
            raise ValueError("the match is not over")
        return zero_sum(2.0 * self._loser - 1.0)

    def _start_round(self, dice: Dice) -> None:
        self._dice = dice
        self._total = len(dice[0]) + len(dice[1])
        self._shown = (" ".join(map(str, dice[0])), " ".join(map(str, dice[1])))
        self._heads: tuple[str, ...] = ()  # of the round's observations, made when first read
        self._num_bids, self._last_bid = 0, (0, 0)
        self._last_action = ""
        self._bid_key = ""
        self._bid_words = ("", "")

    def _roll(self) -> Dice:
        first, second = self._num_dice
        start, self._draws = self._draws, self._draws + first + second
        seed_of, sides = self._seed_of, self._sides
        faces = [1 + int((seed_of(number) >> 10) / _ONE * sides) for number in range(start, self._draws)]
        return tuple(sorted(faces[:first])), tuple(sorted(faces[first:]))

    def _bid(self, bid: Bid, action: str, key: str) -> None:
        comma = ", " if self._num_bids else ""
        words = self._bid_words
        mover = (self._starter + self._num_bids) % 2
        who = ("opponent", "you") if mover else ("you", "opponent")
        self._bid_words = (f"{words[0]}{comma}{who[0]} {action}", f"{words[1]}{comma}{who[1]} {action}")
        self._bid_key += key
        self._num_bids, self._last_bid, self._last_action = self._num_bids + 1, bid, action

    def _show_dice(self, *, caller: int) -> None:
        quantity, face = self._last_bid
        shown = self._dice[0] + self._dice[1]
        is_true = shown.count(face) + (shown.count(self._sides) if face != self._sides else 0) >= quantity
        loser = caller if is_true else 1 - caller
        first, second = (shown.replace(" ", "") for shown in self._shown)
        key = f"{first} {second}{self._bid_key} Liar"
        self._past_key += f"; {key}" if self._num_rounds else key
        self._past_lines = (
            f"{self._past_lines[0]}\n{self._round_line(0, caller, loser)}",
            f"{self._past_lines[1]}\n{self._round_line(1, caller, loser)}",
        )
        self._num_rounds += 1
        self._num_dice = (self._num_dice[0] - (loser == 0), self._num_dice[1] - (loser == 1))
        if not self._elimination or self._num_dice[loser] == 0:
            self._loser = loser
            return
        self._starter = loser
        self._start_round(self._roll())

    def _round_line(self, player: int, caller: int, loser: int) -> str:
        mine, theirs = self._shown[player], self._shown[1 - player]
        return (
            f"Round over: {_who(player, caller)} called {self._last_action}; dice: you {mine}, opponent {theirs}; "
            f"{_who(player, loser)} lost the round."
        )

    def _legal_actions(self) -> tuple[str, ...]:
        return _bids_after(self._last_bid, self._total, self._sides)

    def _observation(self, player: int) -> str:
        if self._loser is not None:
            return f"{self._match_head(player)}The match is over."
        self._heads = self._heads or (self._round_head(0), self._round_head(1))
        return f"{self._heads[player]}{self._bid_words[player] or 'none'}."

    def _match_head(self, player: int) -> str:
        match = "until a player has no dice left" if self._elimination else "one round"
        return f"Match: {match}.{self._past_lines[player]}\n"

    def _round_head(self, player: int) -> str:
        """Return what an observation says in this round before the bids."""
        other = self._num_dice[1 - player]
        return (
            f"{self._match_head(player)}Faces: 1 to {self._sides}; {self._sides} is wild.\n"
            f"Your dice: {self._shown[player]}. "
            f"The opponent has {other} {'die' if other == 1 else 'dice'}.\n"
            "Bids: "
        )

    def _key(self, player: int) -> str:
        """Return OpenSpiel's key of the round, after the rounds that are over as OpenSpiel writes whole states."""
        if self._loser is not None:
            return self._past_key
        own = self._shown[player].replace(" ", "")
        return f"{self._past_key}{'; ' if self._num_rounds else ''}{own}{self._bid_key}"


def views(*, dice: int = 2, sides: int = 6) -> dict[str, View]:
    """Return the information states of one round, each with the view of the player to move: 192 with 1 die of 3 faces.

    Raises ConfigError where they are too many to list.
    """
    bids = [(quantity, face) for quantity in range(1, 2 * dice + 1) for face in range(1, sides + 1)]
    number = math.comb(sides + dice - 1, dice) * 2 ** len(bids)
    if number > _MAX_VIEWS:
        raise ConfigError(
            f"liars_dice with dice={dice} and sides={sides} has {number} information states, too many for exact "
            "evaluation; play {name: liars_dice, params: {dice: 1, sides: 3}}, or take it out of "
            "evaluation.exploitability_games"
        )
    found: dict[str, View] = {}
    game = GAME(seed=0, dice=dice, sides=sides)
    for hand in itertools.combinations_with_replacement(range(1, sides + 1), dice):
        for size in range(len(bids) + 1):
            for history in itertools.combinations(bids, size):
                view = game.dealt((hand, hand), history).view(size % 2)
                found[view.info_state] = view
    return dict(sorted(found.items()))


@functools.cache
def _spec(dice: int, sides: int, elimination: bool) -> GameSpec:
    """Return the spec for these parameters: a round has at most every bid and one call."""
    if not elimination:
        openspiel = f"liars_dice(numdice={dice},dice_sides={sides})"
        return dataclasses.replace(SPEC, max_turns=2 * dice * sides + 1, openspiel=openspiel)
    turns = sum(total * sides + 1 for total in range(2, 2 * dice + 1))
    return dataclasses.replace(SPEC, max_turns=turns, openspiel=None)


@functools.cache
def _bids(total: int, sides: int) -> dict[str, tuple[Bid, str]]:
    """Return every possible bid with ``total`` dice on the table, by action, with what keys append for it."""
    bids = itertools.product(range(1, total + 1), range(1, sides + 1))
    return {f"[bid {quantity} {face}]": ((quantity, face), f" {quantity}-{face}") for quantity, face in bids}


@functools.lru_cache(maxsize=4096)
def _bids_after(last: Bid, total: int, sides: int) -> tuple[str, ...]:
    """Return every bid above the last one, with ``total`` dice on the table, and the call of it if there is one."""
    bids = [action for action, (bid, _) in _bids(total, sides).items() if bid > last]
    return (*bids, _CALL) if last > (0, 0) else tuple(bids)


def _who(player: int, seat: int) -> str:
    return "you" if seat % 2 == player else "opponent"
