"""Kuhn poker, one hand or several: a bet and a call cost a chip, folded cards stay hidden, chips decide.

One hand is OpenSpiel's kuhn_poker move by move, with its information-state keys (``0pb``: card digit, then p for check
or fold and b for bet or call). Upstream plays five hands in which bets move no chips and the last hand decides; here
every hand counts and the seats swap after each, so an even number of hands favours nobody.
"""

from __future__ import annotations

import functools
from typing import Final, Self

from spiral_lib.errors import IllegalAction
from spiral_lib.games import choice, decision_views, make_view, no_seat, whole
from spiral_lib.seeds import seed_for
from spiral_lib.types import GameSpec, KnownCase, Returns, View, zero_sum

_NAME: Final = "kuhn_poker"
_CARDS: Final = "JQK"
_DEALS: Final = ((0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1))  # cards of the hand's first and second player
# Player to move (0 is the hand's first player) after each history; what is not here is the end of a hand.
_TO_MOVE: Final = {"": 0, "p": 1, "b": 1, "pb": 0}
_ACTIONS: Final = {
    history: ("[fold]", "[call]") if history.endswith("b") else ("[check]", "[bet]") for history in _TO_MOVE
}
_VERBS: Final = {"": ("check", "bet"), "p": ("check", "bet"), "b": ("fold", "call"), "pb": ("fold", "call")}
_POT: Final = {"": 2, "p": 2, "b": 3, "pb": 3}
# Chips that the winner of the hand gains, and for folds who wins; None is a showdown.
_ENDS: Final[dict[str, tuple[int, int | None]]] = {
    "pp": (1, None), "bb": (2, None), "pbb": (2, None), "bp": (1, 0), "pbp": (1, 1),
}  # fmt: skip
_RULES: Final = (
    "Each player puts 1 chip in the pot and gets one of three cards: J, Q or K, of which K is highest and J lowest. "
    "The other card stays hidden. Nobody has bet: check, or bet 1 chip. After a bet: fold and lose the pot, or call by "
    "putting in 1 chip. After two checks or a call the higher card wins the pot. "
)


@functools.cache
def _spec(hands: int, reward: str) -> GameSpec:
    order = "" if hands == 1 else f"The match has {hands} hands and the players take turns at acting first. "
    goal = "Win as many chips as you can." if reward == "chips" else "Have more chips than the opponent at the end."
    return GameSpec(
        name=_NAME,
        title="Kuhn poker",
        roles=("player 0", "player 1"),
        max_turns=3 * hands,
        rules=_RULES + order + goal,
        action_format="[check] or [bet]; after a bet [fold] or [call]",
        has_private_information=True,
        openspiel="kuhn_poker" if hands == 1 and reward == "chips" else None,
    )


SPEC: Final = _spec(1, "chips")
KNOWN_CASES: Final = (  # with seed 0 player 0 holds K and player 1 J
    KnownCase(actions=("[check]", "[check]"), returns=(0.5, -0.5)),
    KnownCase(actions=("[bet]", "[call]"), returns=(1.0, -1.0)),
    KnownCase(actions=("[bet]", "[fold]"), returns=(0.5, -0.5)),
    KnownCase(actions=("[check]", "[bet]", "[fold]"), returns=(-0.5, 0.5)),
    KnownCase(actions=("[check]", "[bet]", "[call]"), returns=(1.0, -1.0)),
    KnownCase(actions=("[call]",), returns=(-1.0, 1.0), refused="illegal_action"),
)


class GAME:
    """One match of ``hands`` hands.

    ``reward`` is ``chips`` (chips won, divided by the 2 * hands that can be won at most) or ``winner`` (1, 0 or -1 for
    more, as many or fewer chips). With one hand and ``winner``, folding never pays: use it with several.
    """

    def __init__(self, *, seed: int, hands: int = 1, reward: str = "chips") -> None:
        self.spec = _spec(
            whole("hands of kuhn_poker", hands, low=1, high=100),
            choice("reward of kuhn_poker", reward, known=("chips", "winner")),
        )
        self._seed, self._hands, self._reward = seed, hands, reward
        self._hand, self._history = 0, ""
        self._net = 0  # chips that player 0 has won
        self._last: tuple[tuple[int, int], str] | None = None  # cards and moves of the hand before
        self._keys = ("", "")  # what each player knows of the hands that are over
        self._cards = self._deal()

    @classmethod
    def dealt(cls, cards: tuple[int, int]) -> Self:
        """Return a match of one hand with chosen cards (0 is J, 2 is K) for players 0 and 1."""
        game = cls(seed=0)
        game._cards = cards
        return game

    @property
    def current_player(self) -> int | None:
        """Seat to move, or None when the match is over."""
        if self._hand == self._hands:
            return None
        return _TO_MOVE[self._history] ^ (self._hand & 1)

    def view(self, player: int) -> View:
        """Return what a player sees: the own card, the moves, and of earlier hands what was shown."""
        if player not in (0, 1):
            raise no_seat(self.spec, player)
        return make_view(
            self.spec,
            player,
            observation=self._observation(player),
            legal_actions=_ACTIONS[self._history] if player == self.current_player else (),
            info_state=self._info_state(player),
        )

    def apply(self, action: str) -> None:
        """Play a move of the player to act; at the end of a hand the next one is dealt."""
        if self._hand == self._hands:
            raise IllegalAction("the match is over")
        legal = _ACTIONS[self._history]
        if action not in legal:
            raise IllegalAction(f"{action[:20]!r} is not one of {' '.join(legal)}")
        history = self._history + "pb"[legal.index(action)]
        if history in _TO_MOVE:
            self._history = history
            return
        self._net += _gain(self._cards, history, self._hand)
        self._last = (self._cards, history)
        self._keys = (self._keys[0] + _past_key(0, *self._last), self._keys[1] + _past_key(1, *self._last))
        self._hand, self._history = self._hand + 1, ""
        if self._hand < self._hands:
            self._cards = self._deal()

    def returns(self) -> Returns:
        """Return the result by the ``reward`` parameter. Raises ValueError while the match is on."""
        if self._hand < self._hands:
            raise ValueError("the match is not over")
        if self._reward == "chips":
            return zero_sum(self._net / (2 * self._hands))
        return zero_sum(float((self._net > 0) - (self._net < 0)))

    def _deal(self) -> tuple[int, int]:
        """Return the hand's cards by seat."""
        first, second = _DEALS[seed_for(self._seed, _NAME, self._hand) % 6]
        return (second, first) if self._hand & 1 else (first, second)

    def _observation(self, player: int) -> str:
        parts = []
        if self._hands > 1:
            net = -self._net if player else self._net
            hand = min(self._hand + 1, self._hands)
            parts.append(f"Hand {hand} of {self._hands}. Chips won so far: you {net}, opponent {-net}.")
        if self._last:
            parts.append(_past_hand(player, (self._hand - 1) & 1, *self._last))
        if self._hand == self._hands:
            return " ".join([*parts, "The match is over."])
        parts.append(_hand(player, self._hand & 1, self._cards[player], self._history))
        return " ".join(parts)

    def _info_state(self, player: int) -> str:
        """Return OpenSpiel's key; before it stands each past hand's, with the other's card or ``?``, and a slash."""
        if self._hand == self._hands:
            return self._keys[player]
        return f"{self._keys[player]}{self._cards[player]}{self._history}"


def views() -> dict[str, View]:
    """Return the 12 information states of one hand, each with the view of the player to move."""
    return decision_views(GAME.dealt(cards) for cards in _DEALS)


def _gain(cards: tuple[int, int], history: str, hand: int) -> int:
    """Return the chips that player 0 wins in a finished hand."""
    chips, folded_to = _ENDS[history]
    winner = (cards[1] > cards[0]) if folded_to is None else folded_to ^ (hand & 1)
    return -chips if winner else chips


def _moves(player: int, hand: int, history: str) -> str:
    names = ("you", "opponent") if player == hand & 1 else ("opponent", "you")
    return ", ".join(f"{names[i % 2]} {_VERBS[history[:i]]['pb'.index(move)]}" for i, move in enumerate(history))


def _past_key(player: int, cards: tuple[int, int], history: str) -> str:
    return f"{cards[player]}{history}{'?' if _ENDS[history][1] is not None else cards[1 - player]}/"


@functools.cache  # only the hand's parity matters, so the texts of a hand are few
def _hand(player: int, hand: int, card: int, history: str) -> str:
    return f"Your card: {_CARDS[card]}. Moves: {_moves(player, hand, history) or 'none'}. Pot: {_POT[history]} chips."


@functools.cache
def _past_hand(player: int, hand: int, cards: tuple[int, int], history: str) -> str:
    gain = _gain(cards, history, hand)
    shown = "hidden" if _ENDS[history][1] is not None else _CARDS[cards[1 - player]]
    won = -gain if player else gain
    moves = _moves(player, hand, history)
    return f"Last hand: your card {_CARDS[cards[player]]}, opponent's {shown}; {moves}; you {won:+d}."
