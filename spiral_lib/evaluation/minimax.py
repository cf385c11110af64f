"""Minimax agreement on tic-tac-toe: how often a move keeps the game's value, where it is possible to lose it."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from spiral_lib import games, stats
from spiral_lib.evaluation.replies import Progress, sample_replies
from spiral_lib.prompts import Renderer, extract_action
from spiral_lib.seeds import seed_for
from spiral_lib.types import Engine, Request, View

GAME = "tic_tac_toe"
Board = tuple[int, ...]
"""Nine cells, 1 for X, -1 for O and 0 for free."""

_LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))


def measure(
    engine: Engine,
    renderer: Renderer,
    *,
    states: int,
    seed: int,
    temperature: float,
    max_new_tokens: int,
    on_progress: Progress | None = None,
) -> dict[str, float]:
    """Return the share of sampled positions on which the model's move keeps the minimax value, with its interval.

    Positions are those where some legal move does not keep it; uniform legal play scores 0.405 there. A reply without
    a legal move does not agree, so that nothing is dropped; ``minimax_legal_share`` says how many there were.
    """
    chosen = sample_states(states, seed)
    views = [view_of(board) for board in chosen]
    requests = []
    for i, view in enumerate(views):
        prompt_ids, header_len = renderer.encode(view)
        requests.append(
            Request(
                id=i,
                prompt_ids=prompt_ids,
                header_len=header_len,
                seed=seed_for(seed, "minimax", view.info_state),
                temperature=temperature,
                max_new_tokens=max_new_tokens,
            )
        )
    replies = sample_replies(engine, requests, on_progress)
    moves = [extract_action(r.text, v.legal_actions).action for r, v in zip(replies, views, strict=True)]
    return agreement(chosen, moves)


def agreement(boards: Sequence[Board], moves: Sequence[str | None]) -> dict[str, float]:
    """Return the agreement metrics for moves such as ``[4]`` (None: no legal move was given)."""
    n = len(boards)
    good = sum(m is not None and int(m[1:-1]) in keeping(b) for b, m in zip(boards, moves, strict=True))
    low, high = stats.wilson(good, n)
    prefix = f"eval/{GAME}/minimax_agreement"
    return {
        prefix: good / n,
        f"{prefix}_low": low,
        f"{prefix}_high": high,
        f"{prefix}_n": float(n),
        f"eval/{GAME}/minimax_legal_share": sum(m is not None for m in moves) / n,
    }


def sample_states(n: int, seed: int) -> list[Board]:
    """Return up to n positions where the choice matters, the same for every checkpoint."""
    return sorted(decision_states(matter=True), key=lambda board: seed_for(seed, "minimax state", str(board)))[:n]


@functools.cache
def decision_states(*, matter: bool) -> tuple[Board, ...]:
    """Return all reachable positions that are not over, or only those where not all legal moves keep the value."""
    found = [b for b in _reachable() if _winner(b) == 0 and 0 in b]
    return tuple(b for b in found if not matter or len(keeping(b)) < b.count(0))


def keeping(board: Board) -> frozenset[int]:
    """Return the free cells that keep the minimax value for the side to move."""
    return frozenset(c for c in range(9) if board[c] == 0 and move_value(board, c) == value(board))


def move_value(board: Board, cell: int) -> int:
    """Return the result, for the side that marks a free cell now, when both go on perfectly."""
    return -value(_after(board, cell))


@functools.cache
def value(board: Board) -> int:
    """Return 1, 0 or -1: the result for the side to move under perfect play by both."""
    if _winner(board) != 0:
        return -1
    return max((-value(_after(board, c)) for c in range(9) if board[c] == 0), default=0)


def view_of(board: Board) -> View:
    """Return what the player to move sees; the marks are placed in cell order, X and O in turn."""
    game = games.make(GAME, seed=0)
    crosses = [c for c in range(9) if board[c] == 1]
    noughts = [c for c in range(9) if board[c] == -1]
    for i in range(len(crosses) + len(noughts)):
        game.apply(f"[{(noughts if i % 2 else crosses)[i // 2]}]")
    player = game.current_player
    assert player is not None
    return game.view(player)


def _side(board: Board) -> int:
    return 1 if sum(board) == 0 else -1


def _after(board: Board, cell: int) -> Board:
    return (*board[:cell], _side(board), *board[cell + 1 :])


def _winner(board: Board) -> int:
    return next((board[a] for a, b, c in _LINES if board[a] == board[b] == board[c] != 0), 0)


@functools.cache
def _reachable() -> tuple[Board, ...]:
    """Return every position that play can reach, breadth first: 5478 of them."""
    found: dict[Board, None] = {(0,) * 9: None}
    waiting = list(found)
    for board in waiting:
        if _winner(board) == 0:
            for following in (_after(board, c) for c in range(9) if board[c] == 0):
                if following not in found:
                    found[following] = None
                    waiting.append(following)
    return tuple(found)
