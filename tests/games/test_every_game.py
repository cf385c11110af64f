"""Properties that hold for every game in ``games.names()``; a new game file is covered by being there."""

from __future__ import annotations

import copy
import importlib
import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spiral_lib import game_check, games
from spiral_lib.errors import ConfigError, IllegalAction
from spiral_lib.games import tic_tac_toe
from spiral_lib.types import Game, GameSpec, View

sys.path.insert(0, str(Path(__file__).parent))
import record_golden

NAMES = games.names()
MODULES = {name: importlib.import_module(f"spiral_lib.games.{name}") for name in NAMES}
LISTED = [name for name in NAMES if hasattr(MODULES[name], "views")]
SMALL: dict[str, dict[str, int]] = {"liars_dice": {"dice": 1, "sides": 3}}
"""Parameters under which a game's information states are few enough to list."""
SEEDS = (*range(12), 2**53 + 1, 2**62)
JUNK = ("", "[", "[]", "[no such action]", "[Accept][Deny]", "\x00", f"[{10**22}]", "[fold] [call]", "[" * 3000)


def choices(view: View) -> tuple[str, ...]:
    return view.legal_actions if view.legal_actions is not None else view.sample_actions


def play(game: Game, rng: random.Random) -> list[tuple[View, View, str]]:
    """Play random moves to the end; return both views and the move of every turn."""
    turns = []
    while (player := game.current_player) is not None:
        views = (game.view(0), game.view(1))
        turns.append((*views, rng.choice(choices(views[player]))))
        game.apply(turns[-1][2])
    return turns


def state(game: Game) -> Any:
    return (game.current_player, game.view(0), game.view(1))


@pytest.mark.parametrize("name", NAMES)
def test_random_play_ends_in_time_with_returns_that_cancel(name: str) -> None:
    for seed in SEEDS:
        game = games.make(name, seed=seed)
        turns = play(game, random.Random(seed))
        first, second = game.returns()
        assert 1 <= len(turns) <= game.spec.max_turns
        assert first + second == 0 and -1 <= first <= 1
        assert isinstance(first, float) and isinstance(second, float)


@pytest.mark.parametrize("name", NAMES)
def test_equal_seeds_give_equal_matches_however_the_global_generator_stands(name: str) -> None:
    for seed in SEEDS[:6]:
        random.seed(1)
        once = play(games.make(name, seed=seed), random.Random(5))
        random.seed(2)
        assert play(games.make(name, seed=seed), random.Random(5)) == once


@pytest.mark.parametrize("name", NAMES)
def test_the_global_generators_are_left_alone(name: str) -> None:
    numpy = pytest.importorskip("numpy")
    before, before_numpy = random.getstate(), numpy.random.get_state()[1].tolist()
    play(games.make(name, seed=3), random.Random(3))
    assert random.getstate() == before and numpy.random.get_state()[1].tolist() == before_numpy


@pytest.mark.parametrize("name", NAMES)
def test_interleaved_matches_do_not_disturb_each_other(name: str) -> None:
    alone = [play(games.make(name, seed=seed), random.Random(seed)) for seed in (1, 2)]
    pair = [games.make(name, seed=seed) for seed in (1, 2)]
    rngs, played = [random.Random(1), random.Random(2)], [[], []]
    while any(game.current_player is not None for game in pair):
        for game, rng, turns in zip(pair, rngs, played, strict=True):
            player = game.current_player
            if player is not None:
                views = (game.view(0), game.view(1))
                turns.append((*views, rng.choice(choices(views[player]))))
                game.apply(turns[-1][2])
    assert played == alone


@pytest.mark.parametrize("name", NAMES)
def test_looking_changes_nothing(name: str) -> None:
    watched, unwatched, rng = games.make(name, seed=4), games.make(name, seed=4), random.Random(4)
    while (player := watched.current_player) is not None:
        first = state(watched)
        for _ in range(3):
            assert state(watched) == first
        action = rng.choice(choices(watched.view(player)))
        watched.apply(action)
        unwatched.apply(action)
    assert state(watched) == state(unwatched) and watched.returns() == unwatched.returns()


@pytest.mark.parametrize("name", NAMES)
def test_an_illegal_action_raises_and_changes_nothing(name: str) -> None:
    game, rng = games.make(name, seed=5), random.Random(5)
    while (player := game.current_player) is not None:
        before = state(game)
        for junk in JUNK:
            with pytest.raises(IllegalAction) as caught:
                game.apply(junk)
            assert caught.value.reason and len(str(caught.value)) < 300
            assert state(game) == before
        game.apply(rng.choice(choices(game.view(player))))
    before, returns = state(game), game.returns()
    for action in (*JUNK, "[0]", "[check]", "[Say: hello]"):
        with pytest.raises(IllegalAction):
            game.apply(action)
    assert state(game) == before and game.returns() == returns


@pytest.mark.parametrize("name", NAMES)
def test_every_offered_action_is_legal_and_copies_are_independent(name: str) -> None:
    game, rng = games.make(name, seed=6), random.Random(6)
    while (player := game.current_player) is not None:
        offered, before = choices(game.view(player)), state(game)
        assert offered and len(set(offered)) == len(offered)
        assert all(a.startswith("[") and a.endswith("]") and a.isascii() for a in offered)
        for action in offered:
            copy.deepcopy(game).apply(action)
        assert state(game) == before
        game.apply(rng.choice(offered))


@pytest.mark.parametrize("name", NAMES)
def test_views_belong_to_their_player_and_are_plain_short_text(name: str) -> None:
    game = games.make(name, seed=7)
    spec = game.spec
    for *views, _ in play(game, random.Random(7)):
        for player, view in enumerate(views):
            assert (view.game, view.player, view.role) == (spec.name, player, spec.roles[player])
            assert (view.rules, view.action_format) == (spec.rules, spec.action_format)
            text = view.observation
            assert text.isascii() and text.replace("\n", "").isprintable() and len(text.split()) <= 120
            assert view.info_state and "\n" not in view.info_state
    for player in (0, 1):
        assert not game.view(player).legal_actions and not game.view(player).sample_actions


@pytest.mark.parametrize("name", NAMES)
def test_equal_information_states_have_equal_observations_and_actions(name: str) -> None:
    seen: dict[tuple[int, str], tuple[object, ...]] = {}
    for seed in range(60):
        game, rng = games.make(name, seed=seed % 5), random.Random(seed)
        while (player := game.current_player) is not None:
            view = game.view(player)
            shown = (view.observation, view.legal_actions)
            assert seen.setdefault((player, view.info_state), shown) == shown
            game.apply(rng.choice(choices(view)))


@pytest.mark.parametrize("name", LISTED)
def test_views_are_the_information_states_met_in_play(name: str) -> None:
    params = SMALL.get(name, {})
    listed = games.views(name, **params)
    for seed in range(30):
        game, rng = games.make(name, seed=seed, **params), random.Random(seed)
        while (player := game.current_player) is not None:
            view = game.view(player)
            assert listed[view.info_state] == view
            game.apply(rng.choice(view.legal_actions or ()))


@pytest.mark.parametrize("name", NAMES)
def test_the_match_is_the_golden_one(name: str) -> None:
    path = record_golden.FOLDER / f"{name}.jsonl"
    how = f"if the change is meant: python tests/games/record_golden.py {name}"
    assert path.exists(), how
    assert record_golden.lines(name) == path.read_text(encoding="utf-8").splitlines(), how


@pytest.mark.parametrize("name", NAMES)
def test_the_spec_describes_the_game(name: str) -> None:
    spec = games.spec(name)
    assert isinstance(spec, GameSpec) and spec.name == name and spec == games.make(name, seed=0).spec
    assert spec.roles[0] != spec.roles[1] and spec.title and spec.rules and spec.action_format


@pytest.mark.parametrize("name", NAMES)
def test_unknown_parameters_and_seeds_that_are_no_integers_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        games.make(name, seed=0, no_such_parameter=1)
    for seed in (1.0, "1", True, None):
        with pytest.raises(ConfigError, match="seed"):
            games.make(name, seed=seed)


@pytest.mark.parametrize("name", NAMES)
def test_a_view_of_no_seat_is_refused(name: str) -> None:
    game = games.make(name, seed=1)
    for player in (-1, 2, None, "0", 0.5):
        with pytest.raises(ConfigError, match=name):
            game.view(player)
    assert (game.view(0).player, game.view(1).player) == (0, 1)


@pytest.mark.parametrize("name", NAMES)
def test_the_known_cases_end_as_stated(name: str) -> None:
    cases = MODULES[name].KNOWN_CASES
    assert cases
    for case in cases:
        assert game_check.case_breach(name, case) is None


def test_a_known_case_that_does_not_hold_is_named() -> None:
    case = tic_tac_toe.KNOWN_CASES[0]
    assert "not (0.0, 0.0)" in str(game_check.case_breach("tic_tac_toe", replace(case, returns=(0.0, 0.0))))
    early = replace(case, actions=("[0]", "[0]", "[1]"), refused="illegal_action")
    assert "not a free cell" in str(game_check.case_breach("tic_tac_toe", early))
    refused = tic_tac_toe.KNOWN_CASES[-1]
    assert "refused for illegal_action" in str(
        game_check.case_breach("tic_tac_toe", replace(refused, refused="non_ascii"))
    )
    assert "[4]" in str(game_check.case_breach("tic_tac_toe", replace(refused, refused=None)))


@pytest.mark.parametrize("name", [None, 5, ["kuhn_poker"], b"kuhn_poker"])
def test_a_name_that_is_no_text_is_refused(name: object) -> None:
    for ask in (games.spec, games.kind, games.views, lambda name: games.make(name, seed=0)):
        with pytest.raises(ConfigError, match="name of a game"):
            ask(name)


def test_an_unknown_game_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'kuhn_poker'"):
        games.make("kuhn_pocker", seed=0)
    for name in ("duel_dsl", "_duel_base", "", "../kuhn_poker"):
        with pytest.raises(ConfigError):
            games.make(name, seed=0)


def test_a_dotted_path_names_a_game_too() -> None:
    game = games.make("spiral_lib.games.kuhn_poker:GAME", seed=1, hands=2)
    assert play(game, random.Random(0)) == play(games.make("kuhn_poker", seed=1, hands=2), random.Random(0))
    assert games.spec("spiral_lib.games.kuhn_poker:GAME") == games.spec("kuhn_poker")


def test_names_are_sorted_and_leave_out_grammars_adapters_and_private_modules() -> None:
    assert sorted(NAMES) == NAMES
    assert {"tic_tac_toe", "kuhn_poker", "leduc_poker", "simple_negotiation"} <= set(NAMES)
    assert not {"duel_dsl", "textarena"} & set(NAMES) and not any(name.startswith("_") for name in NAMES)


@pytest.mark.parametrize("name", ["os:system", "builtins:dict", "builtins:print"])
def test_what_is_no_game_is_refused_and_never_called(name: str) -> None:
    with pytest.raises(ConfigError, match="is no game"):
        games.make(name, seed=1)
