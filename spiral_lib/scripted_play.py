"""Scripted replies for the cold start: format, legal play and short reasoning that depends on what the player sees.

The beginner is deliberately poor but state-dependent: a cold start from uniform play alone never learns to look at the
card and self-play then sticks at "always bet" (measured, exploitability 0.33).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from spiral_lib.types import View

CARDS = "JQK"
LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))
GENERAL = (
    "I look at the state.",
    "I compare my moves.",
    "Every move has a risk.",
    "I pick one move.",
    "The rules decide.",
)


def reply(view: View, rng: random.Random, *, skilled_share: float) -> tuple[str, str]:
    """Return (reasoning, action).

    The action is the beginner's with probability ``skilled_share``, else a uniform legal one.
    """
    legal = view.legal_actions if view.legal_actions is not None else view.sample_actions
    heuristic = _BEGINNERS.get(view.game)
    action = heuristic(view, legal) if heuristic and rng.random() < skilled_share else None
    if action is None:
        action = legal[rng.randrange(len(legal))]
    return reasoning(view, rng), action


def reasoning(view: View, rng: random.Random) -> str:
    """Return the words before a move: none in one reply of ten, else one to four sentences on what the player sees."""
    if rng.random() < 0.1:
        return ""
    talk = _TALK.get(view.game)
    sentences = list(talk(view)) if talk else list(GENERAL)
    count = min(1 + rng.randrange(4), len(sentences))
    chosen = sorted(rng.sample(range(len(sentences)), count))
    return " ".join(sentences[i] for i in chosen)


def _kuhn_card(view: View) -> str:
    """Return the letter of the card in the current hand: the digit that opens the key's last hand."""
    last_hand = view.info_state.rsplit("/", 1)[-1]
    return CARDS[int(last_hand[0])]


def _kuhn_beginner(view: View, legal: Sequence[str]) -> str | None:
    """Bets the king, checks the queen, does anything with the jack, and calls with the king only."""
    card = _kuhn_card(view)
    if "[call]" in legal:
        return "[call]" if card == "K" else "[fold]"
    return {"J": None, "Q": "[check]", "K": "[bet]"}[card]


def _kuhn_talk(view: View) -> Sequence[str]:
    card = _kuhn_card(view)
    rank = {"J": "It is the lowest card.", "Q": "It is the middle card.", "K": "It is the highest card."}[card]
    facing = "[call]" in (view.legal_actions or ())
    choice = (
        ("I must call or fold.", "A call costs one chip.")
        if facing
        else ("I may check or bet.", "A bet costs one chip.")
    )
    return (f"I hold {card}.", rank, *choice, f"With {card} I choose.")


def _board(view: View) -> str:
    """Return the nine cells of a TicTacToe key, ``.`` where empty."""
    return view.info_state[:9]


def _cells(board: str) -> list[int]:
    return [i for i, c in enumerate(board) if c not in "xoXO"]


def _completing(board: str, mark: str) -> int | None:
    """Return the cell that completes a line of ``mark``, if there is one."""
    for line in LINES:
        marks = [board[i].lower() for i in line]
        if marks.count(mark) == 2:
            rest = next(i for i in line if board[i].lower() != mark)
            if board[rest].lower() not in "xo":
                return rest
    return None


def _tic_tac_toe_beginner(view: View, legal: Sequence[str]) -> str | None:
    """Takes the centre, else completes an own line; never looks at the other's threats."""
    del legal
    board = _board(view)
    mine = "x" if view.player == 0 else "o"
    cell = 4 if 4 in _cells(board) else _completing(board, mine)
    return None if cell is None else f"[{cell}]"


def _tic_tac_toe_talk(view: View) -> Sequence[str]:
    free = _cells(_board(view))
    taken = 9 - len(free)
    return (
        f"Cells {' '.join(map(str, free))} are free.",
        f"{taken} cells are taken.",
        "Three in a line win.",
        "The centre is strong." if 4 in free else "The centre is taken.",
    )


_BEGINNERS: dict[str, Callable[[View, Sequence[str]], str | None]] = {
    "kuhn_poker": _kuhn_beginner,
    "tic_tac_toe": _tic_tac_toe_beginner,
}
_TALK: dict[str, Callable[[View], Sequence[str]]] = {"kuhn_poker": _kuhn_talk, "tic_tac_toe": _tic_tac_toe_talk}
