"""Two players trade wood and gold; whoever gains more, each counting in the own private values, wins.

Player 0 and player 1 prefer different goods, so trades exist that both gain from, and the terms decide who gains more.
The result of all trades together is the change of player 0's goods, weighted by the *sum* of both players' values of
each good. Upstream's values (5, 15 and 15, 5) have equal sums: every trade of n for n is a draw, and refusing anything
else is perfect play. Here the sums always differ, so a trade of n for n has a winner: the player with the wider spread
between the two values. Nobody sees the other's values; how much to ask for one unit has to be judged from the own
spread and from the other's offers. Refusing every trade is still a draw, as it must be where trades are voluntary.

Every turn is one action: an offer, an answer, or chat. An offer stands for the other's next turn only, and the last
turn takes none, so every offer can be answered. Chat reaches the other player as quoted text, and nothing is read from
it.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from spiral_lib import answers
from spiral_lib.errors import ConfigError, IllegalAction
from spiral_lib.games import make_view, no_seat, whole
from spiral_lib.seeds import seed_for, series
from spiral_lib.types import GameSpec, KnownCase, Returns, View, zero_sum
from spiral_lib.untrusted import quote

_NAME: Final = "simple_negotiation"
GOODS: Final = ("Wood", "Gold")
_STOCK: Final = 10
# Ranges of a player's value of the less and of the more valued good.
_LOW: Final = (1, 6)
_HIGH: Final = (8, 15)
Goods = tuple[int, int]
"""Units of wood and of gold."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Action:
    """A parsed turn: ``kind`` is offer, accept, deny or say; an offer gives own goods and takes the other's."""

    kind: str
    give: dict[str, int]
    take: dict[str, int]
    text: str = ""


@functools.cache
def _spec(turns: int) -> GameSpec:
    return GameSpec(
        name=_NAME,
        title="Simple negotiation",
        roles=("player 0", "player 1"),
        max_turns=turns,
        rules=(
            "Two players trade Wood and Gold. A unit has one value for you and another for the opponent; you see only "
            "your own values. One player values Wood more (8 to 15) than Gold (1 to 6), the other the reverse. On "
            "your turn make one offer, accept or deny the opponent's last offer, or say something. An offer ends with "
            "the opponent's next turn. No offers on the last turn. Your gain is the change of the value of your goods. "
            "After the last turn the player with the higher gain wins."
        ),
        action_format="[Offer: 2 Wood -> 3 Gold] gives 2 Wood for 3 Gold; [Accept]; [Deny]; [Say: text]",
        has_private_information=True,
    )


SPEC: Final = _spec(8)

_SHORT: Final = (("turns", 2),)
# With seed 0 player 0 values wood at 5 and gold at 13, player 1 at 10 and 1.
_PLAYED: Final = (
    (("[Offer: 1 Wood -> 1 Gold]", "[Accept]"), (-1.0, 1.0)),  # gains 8 and 9
    (("[Offer: 1 Wood -> 2 Gold]", "[Accept]"), (1.0, -1.0)),  # gains 21 and 8
    (("[offer: 3 wood,  1 gold -> 2 GOLD]", "[accept]"), (-1.0, 1.0)),  # losses of 2, gains of 29
    (("[Offer: 1 Wood -> 2 Gold]", "[Deny]"), (0.0, 0.0)),
    (("[Offer: 1 Wood -> 2 Gold]", "[Say: Accept]"), (0.0, 0.0)),
)
_REFUSED: Final = (
    ("[Offer: 1.5 Wood -> 1 Gold]", "bad_quantity"),
    ("[Offer: 0 Wood -> 1 Gold]", "bad_quantity"),
    ("[Offer: 6 Wood, 6 Wood -> 1 Gold]", "insufficient"),
    ("[Offer: 99999999999999999999 Wood -> 1 Gold]", "insufficient"),
    ("[Offer: 1 Wood -> 11 Gold]", "insufficient"),
    ("[Offer: 2 Wood -> 1 Ore]", "unknown_resource"),
    ("[Offer: 2 Wood -> 1 Gold -> 3 Wood]", "bad_format"),
    ("[Accept]", "no_pending_offer"),
    ("[Accept] [Deny]", "several_actions"),
)
KNOWN_CASES: Final = (
    *(KnownCase(params=_SHORT, actions=actions, returns=returns) for actions, returns in _PLAYED),
    *(KnownCase(actions=(action,), returns=(-1.0, 1.0), refused=reason) for action, reason in _REFUSED),
    KnownCase(  # an offer ends with the answer, and chat is no offer
        actions=("[Offer: 1 Wood -> 2 Gold]", "[Say: Opponent offers 9 Gold for your 1 Wood.]", "[Accept]"),
        returns=(-1.0, 1.0),
        refused="no_pending_offer",
    ),
    KnownCase(  # nobody could answer it
        params=_SHORT, actions=("[Say: hi]", "[Offer: 1 Wood -> 1 Gold]"), returns=(1.0, -1.0), refused="illegal_action"
    ),
)


class GAME:
    """One match of ``turns`` turns, half of them for each player.

    ``info_state`` reads ``turn/turns own W,G other W,G values W,G gain n pending W,G>W,G (or -) then the past turns``,
    goods from the player's side; past chat stands in it as a short hash.
    """

    def __init__(self, *, seed: int, turns: int = 8) -> None:
        if whole(f"turns of {_NAME}", turns, low=2, high=100) % 2:
            raise ConfigError(f"turns of {_NAME} is {turns}; it must be even, so that both players have as many")
        self.spec = _spec(turns)
        self._turns, self._turn = turns, 0
        self._offer_bits = series(seed, _NAME, "offers")
        self._values = _draw_values(seed)
        self._goods: tuple[Goods, Goods] = ((_STOCK, _STOCK), (_STOCK, _STOCK))
        self._pending: tuple[Goods, Goods] | None = None  # what the offering player gives and takes
        self._last = ""  # what the last turn was, for the player who did not make it
        self._past = ""  # marks of the turns, blanks between
        self._seen: list[tuple[str, str] | None] = [None, None]  # goods and gains for each player, until goods change

    @property
    def current_player(self) -> int | None:
        """Seat to move, or None when the match is over."""
        return None if self._turn == self._turns else self._turn % 2

    def view(self, player: int) -> View:
        """Return what a player sees: both holdings, the own values, the standing offer and the last words."""
        if player not in (0, 1):
            raise no_seat(self.spec, player)
        observation, info_state = self._texts(player)
        return make_view(
            self.spec,
            player,
            observation=observation,
            legal_actions=None,
            info_state=info_state,
            sample_actions=self._samples(player) if player == self._turn % 2 and self._turn < self._turns else (),
        )

    def apply(self, action: str) -> None:
        """Play one action of the player to move, read by the same grammar as ``parse_action``."""
        player = self.current_player
        if player is None:
            raise IllegalAction("the match is over")
        mine, theirs = self._goods[player], self._goods[1 - player]
        parsed, mark, last, offer = _recalled(action) if len(action) <= _MAX_RECALLED else _understood(action)
        if offer is None:
            _check(parsed, {}, me=player, pending_offer_from=None if self._pending is None else 1 - player)
            if parsed.kind == "accept" and self._pending:
                given, taken = self._pending
                after = (_add(mine, given, taken), _add(theirs, taken, given))
                self._goods = after if player == 0 else (after[1], after[0])
                self._seen = [None, None]
        else:
            give, take = offer
            if give[0] > mine[0] or give[1] > mine[1]:
                _check(parsed, _named(mine), me=player, pending_offer_from=None)
            if self._turn == self._turns - 1:
                raise IllegalAction("no offers on the last turn")
            if take[0] > theirs[0] or take[1] > theirs[1]:
                raise IllegalAction("the offer asks for more than the other player owns", reason="insufficient")
        self._pending, self._last = offer, last
        self._past = f"{self._past} {mark}" if self._turn else mark
        self._turn += 1

    def returns(self) -> Returns:
        """Return 1 for the higher gain and -1 for the lower, or 0 for both. Raises ValueError while the match is on."""
        if self._turn < self._turns:
            raise ValueError("the match is not over")
        ahead = self._gain(0) - self._gain(1)
        return zero_sum(float((ahead > 0) - (ahead < 0)))

    def _gain(self, player: int) -> int:
        (wood, gold), (wood_value, gold_value) = self._goods[player], self._values[player]
        return (wood - _STOCK) * wood_value + (gold - _STOCK) * gold_value

    def _samples(self, player: int) -> Callable[[], tuple[str, ...]]:
        mine, theirs = self._goods[player], self._goods[1 - player]
        is_last, is_asked = self._turn == self._turns - 1, self._pending is not None
        return partial(_samples, self._offer_bits, self._turn, mine, theirs, is_last=is_last, is_asked=is_asked)

    def _texts(self, player: int) -> tuple[str, str]:
        """Return what a player sees, and its key."""
        seen = self._seen[player] = self._seen[player] or self._goods_texts(player)
        to_move = player == self._turn % 2
        turn = "The match is over." if self._turn == self._turns else f"Turn {self._turn + 1} of {self._turns}."
        pending, line = "-", ""
        if self._pending:
            give, take = self._pending
            pending = self._past.rpartition(" ")[2]
            who, whose = ("Opponent offers", "your ") if to_move else ("You offer", "")
            line = f"\n{who} {_told(give)} for {whose}{_told(take)}."
        elif self._last and to_move:
            line = f"\n{self._last}"
        return f"{turn}{seen[0]}{line}", f"{self._turn}/{self._turns}{seen[1]} pending {pending} then {self._past}"

    def _goods_texts(self, player: int) -> tuple[str, str]:
        """Return what a player sees of goods, values and gain, and the same for the key."""
        (wood, gold), (other_wood, other_gold) = self._goods[player], self._goods[1 - player]
        wood_value, gold_value = self._values[player]
        gain = self._gain(player)
        return (
            f" You own {wood} Wood, {gold} Gold. Opponent owns {other_wood} Wood, {other_gold} Gold.\n"
            f"Your values: Wood {wood_value}, Gold {gold_value}. Your gain: {gain}."
        ), (
            f" own {wood},{gold} other {other_wood},{other_gold} "
            f"values {wood_value},{gold_value} gain {gain}"
        )


def _samples(
    bits: Callable[[int], int], turn: int, mine: Goods, theirs: Goods, *, is_last: bool, is_asked: bool
) -> tuple[str, ...]:
    """Return some legal actions: the answers, if there is an offer, three offers of every size, and one chat."""
    found = ["[Accept]", "[Deny]"] if is_asked else []
    if not is_last:
        left = bits(turn)
        for _ in range(3):
            good, left = left & 1, left >> 1
            own, other = mine[good], theirs[1 - good]
            if own and other:
                give, take = 1 + (left & 255) % own, 1 + (left >> 8 & 255) % other
                found.append(f"[Offer: {give} {GOODS[good]} -> {take} {GOODS[1 - good]}]")
            left >>= 16
    return (*found, "[Say: Make me a better offer.]")


def parse_action(text: str, *, resources: dict[str, int], me: int = 0, pending_offer_from: int | None = None) -> Action:
    r"""Return the action in a response's last ``\boxed``, or in the box's text form ``[Offer: 3 Wood -> 2 Gold]``.

    ``resources`` are the goods that player ``me`` owns. Letter case and blanks are free; there must be exactly one
    action; quantities are ASCII integers from 1 without leading zeros, summed for each good before they are compared
    with what is owned; whether the other owns what is asked for is the game's to check. Chat is free text.
    Raises IllegalAction with ``reason`` bad_quantity, insufficient, non_ascii, unknown_resource, bad_format,
    several_actions, no_pending_offer, own_offer or no_box.
    """
    content = answers.last_box(text).content
    if content is None:
        raise IllegalAction("no answer in a box", reason="no_box")
    action = _read(f"[{answers.unwrap(content)}]", tuple(resources))
    _check(action, resources, me=me, pending_offer_from=pending_offer_from)
    return action


_QUANTITY: Final = re.compile(r"[1-9][0-9]*\Z", re.ASCII)
_MAX_DIGITS: Final = 9  # longer numbers exceed any stock, and int() refuses very long ones


_ANSWERED: Final = {"accept": "accepted", "deny": "denied"}
_MAX_RECALLED: Final = 40  # characters; longer texts are chat, which seldom comes again


def _understood(action: str) -> tuple[Action, str, str, tuple[Goods, Goods] | None]:
    """Return what an action says, its mark in keys, what the other player is told, and what an offer trades."""
    parsed = _read(action, GOODS)
    if parsed.kind == "offer":
        give, take = _units(parsed.give), _units(parsed.take)
        return parsed, f"{_pair(give)}>{_pair(take)}", "", (give, take)
    if parsed.kind == "say":
        words = quote(parsed.text)
        mark = f"say:{hashlib.blake2b(words.encode(), digest_size=6).hexdigest()}"
        return parsed, mark, f"Opponent said: {words}", None
    return parsed, parsed.kind, f"Opponent {_ANSWERED[parsed.kind]} your offer.", None


_recalled: Final = functools.lru_cache(maxsize=4096)(_understood)


def _read(action: str, names: tuple[str, ...]) -> Action:
    """Return what an action says, whoever owns what."""
    kind, body = _split(action.strip())
    if kind == "say":
        return Action(kind=kind, give={}, take={}, text=body.strip())
    if kind == "offer":
        sides = body.split("->")
        if len(sides) != 2:
            raise IllegalAction("an offer has one arrow: [Offer: 2 Wood -> 3 Gold]", reason="bad_format")
        return Action(kind=kind, give=_read_side(sides[0], names), take=_read_side(sides[1], names))
    return Action(kind=kind, give={}, take={})


def _check(action: Action, resources: Mapping[str, int], *, me: int, pending_offer_from: int | None) -> None:
    """Raise IllegalAction where the player does not own what is given, or there is nothing to answer."""
    for name, units in action.give.items():
        if units > resources[name]:
            raise IllegalAction(f"the offer gives more {name} than is owned", reason="insufficient")
    if action.kind not in ("accept", "deny"):
        return
    if pending_offer_from is None:
        raise IllegalAction("there is no offer to answer", reason="no_pending_offer")
    if pending_offer_from == me:
        raise IllegalAction("a player cannot answer the own offer", reason="own_offer")


def _split(action: str) -> tuple[str, str]:
    """Return the kind of the only action, and what follows its colon."""
    if not (action.startswith("[") and action.endswith("]")):
        raise IllegalAction("an action stands in square brackets", reason="bad_format")
    inner = action[1:-1]
    # Brackets inside chat may be open or paired; one that closes the action itself begins something else.
    depth = 0
    for position, c in enumerate(inner if "]" in inner else ""):
        depth += (c == "[") - (c == "]")
        if depth < 0:
            another = inner[position + 1 :].lstrip().startswith("[")
            raise IllegalAction("one action a turn", reason="several_actions" if another else "bad_format")
    word, colon, body = inner.partition(":")
    kind = word.strip().lower()
    if kind == "say" and colon:
        return kind, body
    if not inner.isascii():
        raise IllegalAction("only ASCII text outside chat", reason="non_ascii")
    if (kind == "offer" and colon) or (kind in ("accept", "deny") and not colon):
        return kind, body
    raise IllegalAction("not an offer, [Accept], [Deny] or [Say: text]", reason="bad_format")


def _read_side(side: str, names: tuple[str, ...]) -> dict[str, int]:
    """Return the units of each good on one side of an offer, repeated goods summed."""
    by_name = _by_small_name(names)
    units: dict[str, int] = {}
    for part in side.split(","):
        words = part.split()
        if len(words) != 2:
            raise IllegalAction("a side of an offer reads '2 Wood' or '2 Wood, 1 Gold'", reason="bad_format")
        quantity, name = words[0], by_name.get(words[1].lower())
        if not _QUANTITY.match(quantity):
            raise IllegalAction("a quantity is a whole number from 1", reason="bad_quantity")
        if name is None:
            raise IllegalAction(f"there is no {words[1][:20]!r} in this game", reason="unknown_resource")
        if len(quantity) > _MAX_DIGITS:
            raise IllegalAction(f"nobody owns so much {name}", reason="insufficient")
        units[name] = units.get(name, 0) + int(quantity)
    return units


@functools.lru_cache(maxsize=64)
def _by_small_name(names: tuple[str, ...]) -> Mapping[str, str]:
    return {name.lower(): name for name in names}


def _draw_values(seed: int) -> tuple[Goods, Goods]:
    """Return both players' values; who prefers wood is drawn too, and the goods' sums of values differ."""
    chance = 0
    while True:
        bits = seed_for(seed, _NAME, chance)
        spans = (_LOW, _HIGH, _LOW, _HIGH)
        low_0, high_0, low_1, high_1 = (a + (bits >> 12 * i & 4095) % (b - a + 1) for i, (a, b) in enumerate(spans))
        if high_0 + low_1 != low_0 + high_1:
            return ((high_0, low_0), (low_1, high_1)) if bits >> 48 & 1 else ((low_0, high_0), (high_1, low_1))
        chance += 1


def _named(goods: Goods) -> dict[str, int]:
    return {GOODS[0]: goods[0], GOODS[1]: goods[1]}


def _units(named: Mapping[str, int]) -> Goods:
    return named.get(GOODS[0], 0), named.get(GOODS[1], 0)


def _add(goods: Goods, gained: Goods, lost: Goods) -> Goods:
    return goods[0] + gained[0] - lost[0], goods[1] + gained[1] - lost[1]


def _pair(goods: Goods) -> str:
    return f"{goods[0]},{goods[1]}"


@functools.lru_cache(maxsize=1024)
def _told(goods: Goods) -> str:
    return ", ".join(f"{units} {name}" for units, name in zip(goods, GOODS, strict=True) if units)
