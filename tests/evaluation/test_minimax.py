"""Minimax agreement: the whole game tree has the known sizes and baselines."""

from __future__ import annotations

import pytest

from spiral_lib.config import PromptConfig
from spiral_lib.engines.scripted import ScriptedEngine, decode_bytes, encode_bytes
from spiral_lib.evaluation import minimax
from spiral_lib.policies import optimal
from spiral_lib.types import View


def uniform_agreement(boards: tuple[minimax.Board, ...]) -> float:
    return sum(len(minimax.keeping(b)) / b.count(0) for b in boards) / len(boards)


def test_the_tree_has_the_known_sizes() -> None:
    assert len(minimax._reachable()) == 5478
    assert len(minimax.decision_states(matter=False)) == 4520
    assert len(minimax.decision_states(matter=True)) == 3191


def test_the_game_is_a_draw() -> None:
    assert minimax.value((0,) * 9) == 0


def test_uniform_play_has_the_known_baselines() -> None:
    assert uniform_agreement(minimax.decision_states(matter=False)) == pytest.approx(0.580, abs=5e-4)
    assert uniform_agreement(minimax.decision_states(matter=True)) == pytest.approx(0.405, abs=5e-4)


def test_the_solvers_moves_keep_the_value() -> None:
    for board in minimax.sample_states(60, seed=3):
        strategy = optimal.strategy(minimax.view_of(board))
        assert {int(a[1:-1]) for a, p in strategy.items() if p > 0} <= minimax.keeping(board)


def test_positions_are_the_same_for_the_same_seed_and_differ_between_seeds() -> None:
    assert minimax.sample_states(50, seed=1) == minimax.sample_states(50, seed=1)
    assert minimax.sample_states(50, seed=1) != minimax.sample_states(50, seed=2)
    assert len(set(minimax.sample_states(10_000, seed=1))) == 3191


def test_an_illegal_move_counts_as_not_agreeing() -> None:
    boards = minimax.sample_states(4, seed=0)
    good = [f"[{min(minimax.keeping(b))}]" for b in boards]
    assert minimax.agreement(boards, good)["eval/tic_tac_toe/minimax_agreement"] == 1.0
    found = minimax.agreement(boards, [*good[:2], None, None])
    assert found["eval/tic_tac_toe/minimax_agreement"] == 0.5
    assert found["eval/tic_tac_toe/minimax_legal_share"] == 0.5
    assert found["eval/tic_tac_toe/minimax_agreement_n"] == 4.0


class KeyRenderer:
    config = PromptConfig()

    def encode(self, view: View) -> tuple[tuple[int, ...], int]:
        return encode_bytes(view.info_state), 0


def test_a_model_that_plays_solved_moves_agrees_always_and_one_that_plays_first_cells_does_not() -> None:
    solved = {minimax.view_of(b).info_state: min(minimax.keeping(b)) for b in minimax.decision_states(matter=True)}

    def measure(reply_of: dict[str, int]) -> float:
        engine = ScriptedEngine(lambda prompt, seed: f"So \\boxed{{[{reply_of[decode_bytes(prompt)]}]}}", slots=64)
        found = minimax.measure(
            engine, KeyRenderer(), states=200, seed=0, temperature=1.0, max_new_tokens=40  # type: ignore[arg-type]
        )
        return found["eval/tic_tac_toe/minimax_agreement"]

    assert measure(solved) == 1.0
    assert 0.2 < measure({key: key.index(".") for key in solved}) < 0.7
