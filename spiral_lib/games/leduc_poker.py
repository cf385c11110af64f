"""Leduc poker for two, with OpenSpiel's rules, action order and information-state texts.

Six cards: J, Q and K twice. Ante 1; a raise is 2 chips in round 1 and 4 in round 2, at most two raises a round;
between the rounds one card is laid open. Returns are chips won divided by 13, the most that can be won. Views name a
card by its rank; the key also tells the two cards of a rank apart, as OpenSpiel's does.
"""

from __future__ import annotations

import itertools
from typing import Final, Self

from spiral_lib.errors import IllegalAction
from spiral_lib.games import decision_views, make_view, no_seat
from spiral_lib.seeds import seed_for
from spiral_lib.types import GameSpec, KnownCase, Returns, View, zero_sum

_NAME: Final = "leduc_poker"
MAX_CHIPS: Final = 13
"""The largest win: ante 1, two raises of 2 and two of 4."""

SPEC: Final = GameSpec(
    name=_NAME,
    title="Leduc poker",
    roles=("player 0", "player 1"),
    max_turns=8,
    rules=(
        "Six cards: two J, two Q, two K. Each player puts 1 chip in the pot and gets one hidden card. There are two "
        "rounds of betting, player 0 acts first in both; after round 1 one public card is laid open. "
        "Call: match the opponent's chips (free if they are level). Raise: match them and add 2 chips in round 1, 4 in "
        "round 2; at most two raises a round. Fold: give up the pot. At the end a pair with the public card wins, else "
        "the higher card (K over Q over J); equal cards split the pot. Win as many chips as you can."
    ),
    action_format="[fold], [call] or [raise]",
    has_private_information=True,
    openspiel="leduc_poker",
)

_RANKS: Final = "JJQQKK"
_FOLD, _CALL, _RAISE = range(3)
_ACTIONS: Final = ("[fold]", "[call]", "[raise]")
_VERBS: Final = ("fold", "call", "raise")
_STACK: Final = 100  # OpenSpiel's starting money, which its keys show
# Deals are numbered: private cards of players 0 and 1, public card.
_DEALS: Final = tuple(itertools.permutations(range(6), 3))
KNOWN_CASES: Final = (  # with seed 0 player 0 holds J, player 1 K, and Q is laid open
    KnownCase(actions=("[call]",) * 4, returns=zero_sum(-1 / MAX_CHIPS)),
    KnownCase(actions=("[raise]", "[fold]"), returns=zero_sum(1 / MAX_CHIPS)),
    KnownCase(actions=("[raise]", "[call]", "[raise]", "[fold]"), returns=zero_sum(3 / MAX_CHIPS)),
    KnownCase(actions=("[raise]", "[raise]", "[call]", "[raise]", "[raise]", "[call]"), returns=(-1.0, 1.0)),
    KnownCase(actions=("[fold]",), returns=(-1.0, 1.0), refused="illegal_action"),
)


class GAME:
    """One hand. All three cards are drawn at the start, from the seed alone."""

    spec = SPEC

    def __init__(self, *, seed: int) -> None:
        self._cards = _DEALS[seed_for(seed, _NAME, 0) % len(_DEALS)]
        self._player: int | None = 0
        self._moves: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
        self._round = 0
        self._stakes = (1, 1)
        self._net = 0.0  # chips that player 0 has won

    @classmethod
    def dealt(cls, cards: tuple[int, int, int]) -> Self:
        """Return a match with chosen cards (0 to 5, rank is half of it) of player 0, player 1 and the table."""
        game = cls(seed=0)
        game._cards = cards
        return game

    @property
    def current_player(self) -> int | None:
        """Seat to move, or None when the match is over."""
        return self._player

    def view(self, player: int) -> View:
        """Return what a player sees: the own card, the open one, the moves and the chips."""
        if player not in (0, 1):
            raise no_seat(SPEC, player)
        return make_view(
            SPEC,
            player,
            observation=self._observation(player),
            legal_actions=tuple(_ACTIONS[a] for a in self._legal()) if player == self._player else (),
            info_state=self._info_state(player),
        )

    def apply(self, action: str) -> None:
        """Play a move of the player to act."""
        player = self._player
        if player is None:
            raise IllegalAction("the match is over")
        legal = self._legal()
        if action not in _ACTIONS or (move := _ACTIONS.index(action)) not in legal:
            raise IllegalAction(f"{action[:20]!r} is not one of {' '.join(_ACTIONS[a] for a in legal)}")
        before = self._moves[self._round]
        made = (*before, move)
        self._moves = (made, ()) if self._round == 0 else (self._moves[0], made)
        if move == _FOLD:
            self._end(winner=1 - player)
            return
        level = max(self._stakes) + (2 * (self._round + 1) if move == _RAISE else 0)
        self._stakes = (self._stakes[0], level) if player else (level, self._stakes[1])
        if move == _RAISE or not before:
            self._player = 1 - player
        elif self._round == 0:
            self._round, self._player = 1, 0
        else:
            self._end(winner=self._showdown())

    def returns(self) -> Returns:
        """Return chips won / 13. Raises ValueError while the match is on."""
        if self._player is not None:
            raise ValueError("the match is not over")
        return zero_sum(self._net / MAX_CHIPS)

    def _legal(self) -> tuple[int, ...]:
        can_raise = self._moves[self._round].count(_RAISE) < 2
        can_fold = self._stakes[0] != self._stakes[1]
        return (_FOLD,) * can_fold + (_CALL,) + (_RAISE,) * can_raise

    def _showdown(self) -> int | None:
        """Return the seat with the better hand, or None."""
        first, second, public = (card // 2 for card in self._cards)
        strengths = (first + 3 * (first == public), second + 3 * (second == public))
        return None if strengths[0] == strengths[1] else int(strengths[1] > strengths[0])

    def _end(self, winner: int | None) -> None:
        self._player = None
        if winner is not None:
            self._net = float(-self._stakes[0] if winner else self._stakes[1])

    def _observation(self, player: int) -> str:
        mine, theirs = self._stakes[player], self._stakes[1 - player]
        public = _RANKS[self._cards[2]] if self._round else "none yet"
        parts = [f"Your card: {_RANKS[self._cards[player]]}. Public card: {public}."]
        parts += [f"Round {i + 1}: {_told(self._moves[i], player)}." for i in range(self._round + 1)]
        parts.append(f"Chips in the pot: you {mine}, opponent {theirs}.")
        if self._player is None:
            parts.append("The match is over.")
        return " ".join(parts)

    def _info_state(self, player: int) -> str:
        money = f"{_STACK - self._stakes[0]} {_STACK - self._stakes[1]}"
        public = f"[Public: {self._cards[2]}]" if self._round else ""
        rounds = "".join(f"[Round{i + 1}: {' '.join(map(str, moves))}]" for i, moves in enumerate(self._moves))
        to_move = -1 if self._player is None else self._player
        return (
            f"[Observer: {player}][Private: {self._cards[player]}][Round {self._round + 1}][Player: {to_move}]"
            f"[Pot: {sum(self._stakes)}][Money: {money}]{public}{rounds}"
        )


def views() -> dict[str, View]:
    """Return the 936 information states, each with the view of the player to move."""
    return decision_views(GAME.dealt((a, b, c)) for a, b, c in _DEALS)


def _told(moves: tuple[int, ...], player: int) -> str:
    names = ("opponent", "you") if player else ("you", "opponent")
    return ", ".join(f"{names[i % 2]} {_VERBS[move]}" for i, move in enumerate(moves)) or "no moves yet"
