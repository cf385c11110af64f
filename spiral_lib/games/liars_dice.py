"""Liar's Dice: bid on how many dice of all players show a face, or call the last bid.

A round follows OpenSpiel's ``liars_dice`` (bidding rule reset-face, highest face wild) in rules, action order and
keys. With ``elimination`` rounds go on until a player has lost all dice; OpenSpiel has no such match.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Final

from spiral_lib import seeds
from spiral_lib.errors import ConfigError, IllegalAction
from spiral_lib.games import whole
from spiral_lib.types import GameSpec, Returns, View, zero_sum

Bid = tuple[int, int]  # quantity, face: tuples compare as bids do

Dice = tuple[tuple[int, ...], tuple[int, ...]]  # of both players, each sorted

_CALL: Final = "[call]"
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


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class _Round:
    """A round that is over, hence known to both players."""

    starter: int
    dice: Dice
    bids: tuple[Bid, ...]
    loser: int

    def key(self) -> str:
        return f"{_digits(self.dice[0])} {_digits(self.dice[1])}{_bid_keys(self.bids)} Liar"

    def line(self, player: int) -> str:
        quantity, face = self.bids[-1]
        caller = _who(player, self.starter + len(self.bids))
        mine, theirs = (" ".join(map(str, self.dice[seat])) for seat in (player, 1 - player))
        return (
            f"Round over: {caller} called [bid {quantity} {face}]; dice: you {mine}, opponent {theirs}; "
            f"{_who(player, self.loser)} lost the round."
        )


class GAME:
    """One match with ``dice`` dice of ``sides`` faces for each player."""

    def __init__(self, *, seed: int, dice: int = 2, sides: int = 6, elimination: bool = False) -> None:
        self._seed = seed
        self._sides = whole("sides of liars_dice", sides, low=2, high=9)
        self._num_dice = [whole("dice of liars_dice", dice, low=1, high=6)] * 2
        if not isinstance(elimination, bool):
            raise ConfigError(f"elimination of liars_dice is {elimination!r}; it must be true or false")
        self._elimination = elimination
        self.spec = _spec(dice, sides, elimination)
        self._draws = 0
        self._starter = 0
        self._past: list[_Round] = []
        self._loser: int | None = None
        self._start_round()

    def dealt(self, dice: Dice, bids: Sequence[Bid]) -> GAME:
        """Return a first round of the same match with these dice and bids."""
        other = copy.copy(self)
        other._dice, other._bids = dice, list(bids)
        return other

    @property
    def current_player(self) -> int | None:
        """Seat to move, or None when the match is over."""
        return None if self._loser is not None else (self._starter + len(self._bids)) % 2

    def view(self, player: int) -> View:
        """Return own dice, the number of the other's dice, the bids, and all dice of the rounds that are over."""
        return View(
            game=SPEC.name,
            role=SPEC.roles[player],
            player=player,
            rules=SPEC.rules,
            action_format=SPEC.action_format,
            observation=self._observation(player),
            legal_actions=self._legal_actions() if player == self.current_player else (),
            info_state=self._key(player),
        )

    def apply(self, action: str) -> None:
        """Bid or call for the player to move. Raises IllegalAction for anything but a canonical legal action."""
        player = self.current_player
        if player is None:
            raise IllegalAction("the match is over")
        if action not in self._legal_actions():
            raise IllegalAction(f"{action[:20]!r} is neither a higher possible bid nor a call of a bid")
        if action == _CALL:
            self._show_dice(caller=player)
            return
        _, quantity, face = action[1:-1].split()
        self._bids.append((int(quantity), int(face)))

    def returns(self) -> Returns:
        """Return -1 for the loser of the match and +1 for the other."""
        if self._loser is None:
            raise ValueError("the match is not over")
        return zero_sum(2.0 * self._loser - 1.0)

    def _start_round(self) -> None:
        self._bids: list[Bid] = []
        self._dice: Dice = (self._roll(self._num_dice[0]), self._roll(self._num_dice[1]))

    def _roll(self, number: int) -> tuple[int, ...]:
        faces = []
        for _ in range(number):
            faces.append(1 + int(seeds.uniform(self._seed, SPEC.name, self._draws) * self._sides))
            self._draws += 1
        return tuple(sorted(faces))

    def _show_dice(self, *, caller: int) -> None:
        quantity, face = self._bids[-1]
        shown = self._dice[0] + self._dice[1]
        is_true = shown.count(face) + (shown.count(self._sides) if face != self._sides else 0) >= quantity
        loser = caller if is_true else 1 - caller
        self._past.append(_Round(starter=self._starter, dice=self._dice, bids=tuple(self._bids), loser=loser))
        self._num_dice[loser] -= 1
        if not self._elimination or self._num_dice[loser] == 0:
            self._loser = loser
            return
        self._starter = loser
        self._start_round()

    def _legal_actions(self) -> tuple[str, ...]:
        last = self._bids[-1] if self._bids else (0, 0)
        bids = (
            f"[bid {quantity} {face}]"
            for quantity in range(max(1, last[0]), sum(map(len, self._dice)) + 1)
            for face in range(1, self._sides + 1)
            if (quantity, face) > last
        )
        return (*bids, _CALL) if self._bids else tuple(bids)

    def _observation(self, player: int) -> str:
        lines = ["Match: until a player has no dice left." if self._elimination else "Match: one round."]
        lines += [past.line(player) for past in self._past]
        if self._loser is None:
            other = len(self._dice[1 - player])
            bids = [f"{_who(player, self._starter + n)} [bid {q} {f}]" for n, (q, f) in enumerate(self._bids)]
            lines += [
                f"Faces: 1 to {self._sides}; {self._sides} is wild.",
                f"Your dice: {' '.join(map(str, self._dice[player]))}. "
                f"The opponent has {other} {'die' if other == 1 else 'dice'}.",
                f"Bids: {', '.join(bids) or 'none'}.",
            ]
        else:
            lines.append("The match is over.")
        return "\n".join(lines)

    def _key(self, player: int) -> str:
        """Return OpenSpiel's key of the round, after the rounds that are over as OpenSpiel writes whole states."""
        keys = [past.key() for past in self._past]
        if self._loser is None:
            keys.append(_digits(self._dice[player]) + _bid_keys(self._bids))
        return "; ".join(keys)


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


def _spec(dice: int, sides: int, elimination: bool) -> GameSpec:
    """Return the spec for these parameters: a round has at most every bid and one call."""
    if not elimination:
        openspiel = f"liars_dice(numdice={dice},dice_sides={sides})"
        return dataclasses.replace(SPEC, max_turns=2 * dice * sides + 1, openspiel=openspiel)
    turns = sum(total * sides + 1 for total in range(2, 2 * dice + 1))
    return dataclasses.replace(SPEC, max_turns=turns, openspiel=None)


def _digits(dice: Sequence[int]) -> str:
    return "".join(map(str, dice))


def _bid_keys(bids: Sequence[Bid]) -> str:
    return "".join(f" {quantity}-{face}" for quantity, face in bids)


def _who(player: int, seat: int) -> str:
    return "you" if seat % 2 == player else "opponent"
