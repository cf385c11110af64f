"""Snake: simultaneous moves, deaths, apples, the limit in rounds, seats that are alike."""

from __future__ import annotations

import copy
import random

import pytest

from spiral_lib import games
from spiral_lib.errors import ConfigError
from spiral_lib.games import snake
from spiral_lib.policies import optimal

Cell = tuple[int, int]
TURNED = {"[up]": "[down]", "[down]": "[up]", "[left]": "[right]", "[right]": "[left]"}


def position(first: list[Cell], second: list[Cell], apples: tuple[Cell, ...] = (), **params: int) -> snake.GAME:
    """Return a match with these bodies, head first, and apples."""
    game = snake.GAME(seed=0, **params)
    game._bodies, game._apples = [list(first), list(second)], list(apples)
    return game


def moved(game: snake.GAME, first: str, second: str) -> snake.GAME:
    game.apply(f"[{first}]")
    game.apply(f"[{second}]")
    return game


@pytest.mark.parametrize(
    ("first", "second", "moves", "returns"),
    [
        ([(0, 0)], [(4, 4)], ("up", "up"), (-1, 1)),  # wall
        ([(0, 0)], [(4, 4)], ("down", "right"), (1, -1)),
        ([(0, 0)], [(4, 4)], ("left", "down"), (0, 0)),  # both at the wall
        ([(2, 1)], [(2, 3)], ("right", "left"), (0, 0)),  # heads meet in one cell
        ([(2, 1)], [(2, 2)], ("right", "left"), (0, 0)),  # heads change places
        ([(2, 1)], [(1, 2), (2, 2), (3, 2)], ("right", "up"), (-1, 1)),  # into the other's body
        ([(1, 1), (1, 2), (2, 2), (2, 1), (3, 1)], [(4, 4)], ("down", "up"), (-1, 1)),  # into the own body
    ],
)
def test_deaths_end_the_match(first: list[Cell], second: list[Cell], moves: tuple[str, str], returns: object) -> None:
    game = moved(position(first, second), *moves)
    assert game.current_player is None and game.returns() == returns


@pytest.mark.parametrize(
    ("first", "second", "moves"),
    [
        ([(2, 1)], [(1, 2), (2, 2)], ("right", "up")),  # where the other's tail leaves
        ([(1, 1), (1, 2), (2, 2), (2, 1)], [(4, 4)], ("down", "up")),  # where the own tail leaves
        ([(2, 1)], [(2, 2)], ("right", "right")),  # following a head
    ],
)
def test_a_cell_that_a_tail_leaves_is_free(first: list[Cell], second: list[Cell], moves: tuple[str, str]) -> None:
    assert moved(position(first, second), *moves).current_player == 0


def test_a_tail_that_stays_because_its_snake_eats_is_deadly() -> None:
    game = moved(position([(2, 1)], [(1, 2), (2, 2)], ((0, 2),)), "right", "up")
    assert game.returns() == (-1, 1)


def test_an_apple_makes_the_snake_longer_and_is_replaced_on_a_free_cell() -> None:
    game = moved(position([(2, 1)], [(4, 4)], ((2, 2), (0, 0))), "right", "up")
    assert game._bodies[0] == [(2, 2), (2, 1)] and game._bodies[1] == [(3, 4)]
    assert "Apples eaten: you 1, opponent 0." in game.view(0).observation
    assert len(game._apples) == 2 and not set(game._apples) & {(2, 2), (2, 1), (3, 4)}


@pytest.mark.parametrize(("eaten", "returns"), [([2, 1], (1, -1)), ([0, 1], (-1, 1)), ([1, 1], (0, 0))])
def test_apples_break_ties_when_both_die_and_when_the_rounds_are_over(eaten: list[int], returns: object) -> None:
    both_die, last_round = position([(0, 0)], [(4, 4)]), position([(2, 1)], [(2, 3)], rounds=1)
    for game in (both_die, last_round):
        game._eaten = list(eaten)
        assert moved(game, "up", "down").returns() == returns
    assert both_die._dead == [True, True] and last_round._dead == [False, False]


def test_survival_counts_more_than_apples() -> None:
    game = position([(0, 0)], [(4, 4)])
    game._eaten = [5, 0]
    assert moved(game, "up", "up").returns() == (-1, 1)


def test_the_limit_counts_rounds_and_not_single_moves() -> None:
    game = position([(1, 1)], [(3, 3)], rounds=20)
    for turn in range(20):
        assert game.current_player == 0
        moved(game, *(("left", "right") if turn % 2 == 0 else ("right", "left")))
    assert game.current_player is None and game.returns() == (0, 0) and game.spec.max_turns == 40


@pytest.mark.parametrize("seed", range(8))
def test_a_pending_choice_is_hidden_from_the_other_player(seed: int) -> None:
    seen = set()
    for action in snake._ACTIONS:
        game = snake.GAME(seed=seed)
        game.apply(action)
        seen.add(game.view(1))
        assert action in game.view(0).observation and game.view(0).legal_actions == ()
    assert len(seen) == 1


def test_a_dead_snake_does_not_move_before_the_other_has_chosen() -> None:
    game = position([(0, 0)], [(4, 4)])
    game.apply("[up]")
    assert game.current_player == 1


@pytest.mark.parametrize("size", [4, 5, 6, 7])
def test_starts_are_point_symmetric_apart_and_differ_between_seeds(size: int) -> None:
    starts = set()
    for seed in range(60):
        game = snake.GAME(seed=seed, size=size)
        (first,), (second,) = game._bodies
        assert second == (size - 1 - first[0], size - 1 - first[1])
        assert abs(first[0] - second[0]) + abs(first[1] - second[1]) >= size - 1
        starts.add(first)
    assert len(starts) >= 6


def test_a_match_turned_by_180_degrees_with_seats_exchanged_has_exchanged_returns() -> None:
    for seed in range(60):
        game, rng = snake.GAME(seed=seed, rounds=8), random.Random(seed)
        other = copy.deepcopy(game)
        game._apples = other._apples = []  # no new apples: their places would have to be turned too
        other._bodies = [[(4 - r, 4 - c) for r, c in body] for body in reversed(game._bodies)]
        while game.current_player is not None:
            first, second = rng.choices(snake._ACTIONS, k=2)
            for action, played in ((first, game), (second, game), (TURNED[second], other), (TURNED[first], other)):
                played.apply(action)
            assert other.current_player == game.current_player
        assert other.returns() == game.returns()[::-1]


def test_random_play_favours_neither_seat() -> None:
    total, count = 0.0, 3000
    for seed in range(count):
        game, rng = snake.GAME(seed=seed), random.Random(seed)
        while game.current_player is not None:
            game.apply(rng.choice(snake._ACTIONS))
        total += game.returns()[0]
    assert abs(total / count) < 4 / count**0.5


def test_a_crowded_board_has_no_room_for_a_new_apple() -> None:
    ring = [(r, c) for r in range(4) for c in (range(4) if r % 2 == 0 else range(3, -1, -1))]
    game = position(ring[2:15][::-1], ring[15:], size=4)
    for _ in range(4):
        game._place_apple()
    assert sorted(game._apples) == [(0, 0), (0, 1)]


@pytest.mark.parametrize("params", [{"size": 3}, {"apples": 0}, {"rounds": 0}, {"size": "5"}])
def test_impossible_parameters_are_refused(params: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="snake"):
        games.make("snake", seed=0, **params)


def test_the_scripted_player_beats_random_play_from_both_seats_and_does_not_die_while_it_has_a_way() -> None:
    totals = [0.0, 0.0]
    for seed in range(60):
        game, rng, seat = games.make("snake", seed=seed), random.Random(seed), seed % 2
        while (player := game.current_player) is not None:
            view = game.view(player)
            chances = optimal.strategy(view)
            assert set(chances) == set(view.legal_actions or ()) and abs(sum(chances.values()) - 1.0) < 1e-9
            best = [action for action, chance in chances.items() if chance > 0.0]
            game.apply(rng.choice(best if player == seat else view.legal_actions or ()))
        totals[seat] += game.returns()[seat]
    assert min(totals) > 0.8 * 30
    assert "snake" in optimal.STRATEGIES and "snake" not in optimal.SOLVED


def test_the_scripted_player_eats_and_avoids_walls_bodies_and_dead_ends() -> None:
    game = position([(0, 0)], [(4, 4)], apples=((0, 1), (4, 0)))
    assert optimal.strategy(game.view(0))["[right]"] == 1.0
    trap = position([(0, 1), (1, 1), (2, 1), (2, 0), (3, 0)], [(4, 4)], apples=((1, 0),))
    assert optimal.strategy(trap.view(0))["[right]"] == 1.0
