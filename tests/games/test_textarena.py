"""TextArena's environments through the adapter: played to the end, apart from this process, refused where unusable."""

from __future__ import annotations

import copy
import importlib.metadata
import random
import sys
import types
from collections.abc import Iterator

import pytest

from spiral_lib import games, policies, rollout
from spiral_lib.errors import ConfigError, EngineError, IllegalAction
from spiral_lib.games import _textarena_process, textarena
from spiral_lib.types import EndReason, Game, MatchSpec, PolicyRef
from spiral_lib.untrusted import SPECIAL_TOKENS

try:
    INSTALLED = importlib.metadata.version("textarena") == _textarena_process.VERSION
except importlib.metadata.PackageNotFoundError:
    INSTALLED = False
needs_textarena = pytest.mark.skipif(not INSTALLED, reason=f"TextArena {_textarena_process.VERSION} is not installed")

PLAYED = (
    "ConnectFour-v0", "GameOfPureStrategy-v0", "HighSociety-v0", "IndianPoker-v0", "IteratedMatchingPennies-v0",
    "IteratedPrisonersDilemma-v0", "IteratedRockPaperScissors-v0", "KuhnPoker-v0", "LiarsDice-v0-small",
    "MemoryGame-v0", "SimpleBlindAuction-v0", "SimpleNegotiation-v0", "SimpleTak-v0", "TicTacToe-v0",
    "TruthAndDeception-v0", "WildTicTacToe-v0",
)  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def _stopped_at_the_end() -> Iterator[None]:
    yield
    _textarena_process.close()


def turn(game: Game, rng: random.Random) -> str:
    """Play the first of the shuffled samples that the environment takes, and return it."""
    player = game.current_player
    assert player is not None
    tries = list(game.view(player).sample_actions)
    rng.shuffle(tries)
    for action in tries:
        try:
            game.apply(action)
        except IllegalAction:
            continue
        return action
    raise AssertionError(f"no move of {tries} was taken")


def play(name: str, seed: int) -> tuple[list[tuple[str, str]], tuple[float, float]]:
    """Return (what the mover saw, move) of every turn, and the returns."""
    game, rng, turns = games.make(f"textarena:{name}", seed=seed), random.Random(seed), []
    while (player := game.current_player) is not None:
        shown = game.view(player).observation
        turns.append((shown, turn(game, rng)))
    return turns, game.returns()


@needs_textarena
@pytest.mark.parametrize("name", PLAYED)
def test_random_text_play_reaches_the_environments_own_end_and_is_zero_sum(name: str) -> None:
    turns, (first, second) = play(name, seed=2)
    assert len(turns) >= 3 and all(shown for shown, _ in turns)
    assert first + second == 0.0 and -1.0 <= first <= 1.0


@needs_textarena
@pytest.mark.parametrize(
    ("name", "restart"), [("KuhnPoker-v0", True), ("LiarsDice-v0-small", False), ("TruthAndDeception-v0", False)]
)
def test_interleaved_and_restarted_matches_are_the_same_and_global_random_is_left_alone(name, restart) -> None:
    before = random.getstate()
    alone = [play(name, seed=seed) for seed in (1, 2)]
    pair = [games.make(f"textarena:{name}", seed=seed) for seed in (1, 2)]
    rngs, seen = [random.Random(1), random.Random(2)], [[], []]
    rounds = 0
    while any(game.current_player is not None for game in pair):
        for game, rng, turns in zip(pair, rngs, seen, strict=True):
            if (player := game.current_player) is not None:
                turns.append((game.view(player).observation, turn(game, rng)))
        rounds += 1
        if restart and rounds == 3:
            _textarena_process.close()  # the next move starts a process that knows nothing
    assert list(zip(seen, (game.returns() for game in pair), strict=True)) == alone
    assert random.getstate() == before and "textarena" not in sys.modules


@needs_textarena
def test_an_invalid_move_raises_and_changes_nothing() -> None:
    game = games.make("textarena:TicTacToe-v0", seed=0)
    game.apply("[4]")
    before = (game.current_player, game.view(0), game.view(1))
    for bad in ("[4]", "[9]", "nothing", "", "[]", "[0]\n[1]", "[５]", f"[{'x' * 2000}]"):
        with pytest.raises(IllegalAction) as caught:
            game.apply(bad)
        assert caught.value.reason
    assert (game.current_player, game.view(0), game.view(1)) == before
    other = copy.deepcopy(game)
    game.apply("[0]")
    assert other.current_player == 1 and game.current_player == 0
    other.apply("[1]")
    assert other.view(0) != game.view(0)


@needs_textarena
def test_returns_are_those_of_the_environment() -> None:
    game = games.make("textarena:TicTacToe-v0", seed=0)
    for move in ("[0]", "[3]", "[1]", "[4]"):
        assert game.current_player == (0 if move in ("[0]", "[1]") else 1)
        game.apply(move)
    with pytest.raises(ValueError, match="not over"):
        game.returns()
    game.apply("[2]")
    assert game.current_player is None and game.returns() == (1.0, -1.0)
    with pytest.raises(IllegalAction):
        game.apply("[5]")


@needs_textarena
def test_a_match_runs_through_play_match_and_counts_its_end() -> None:
    specs = [
        MatchSpec(
            id=f"{i}", game="textarena:IteratedPrisonersDilemma-v0", seed=i, policies=("random", "random"),
            trainable=(False, False), params=(("max_turns", limit),),
        )
        for i, limit in enumerate((200, 6))
    ]  # fmt: skip
    table = {"random": policies.make(PolicyRef.parse("random"))}
    ends = {e.id: (e.end_reason, len(e.turns)) for e in rollout.play_matches(specs, table, concurrency=2)}
    assert ends["1"] == (EndReason.MAX_TURNS, 6)
    assert ends["0"][0] in (EndReason.FINISHED, EndReason.ILLEGAL_ACTION)


@needs_textarena
def test_views_name_the_environment_and_list_no_legal_actions() -> None:
    game = games.make("textarena:TicTacToe-v0", seed=0)
    view = game.view(0)
    assert view.game == game.spec.name == "textarena:TicTacToe-v0" == games.spec("textarena:TicTacToe-v0").name
    assert view.legal_actions is None and view.sample_actions and "\n" not in view.info_state
    assert game.view(1).legal_actions == () and not game.view(1).sample_actions


@needs_textarena
@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("TicTacTo-v0", ConfigError, "Did you mean TicTacToe-v0"),
        ("Wordle", ConfigError, "no environment"),
        ("Sudoku-v0", ConfigError, "two players"),
        ("Codenames-v0", (ConfigError, EngineError), "two players|cannot be loaded"),
        ("Debate-v0", EngineError, "cannot be loaded"),
    ],
)
def test_environments_that_cannot_be_played_are_refused_with_the_reason(name, error, words) -> None:
    with pytest.raises(error, match=words):
        games.make(f"textarena:{name}", seed=0)


@needs_textarena
def test_the_adapter_needs_an_environment_and_knows_its_parameters() -> None:
    with pytest.raises(ConfigError, match="textarena:TicTacToe-v0"):
        games.make("textarena", seed=0)
    with pytest.raises(ConfigError, match="max_turns"):
        games.make("textarena:TicTacToe-v0", seed=0, max_turn=5)
    with pytest.raises(ConfigError, match="max_turns"):
        games.make("textarena:TicTacToe-v0", seed=0, max_turns=0)


@pytest.mark.parametrize("found", [None, "0.6.4"])
def test_a_missing_or_other_release_is_refused_with_the_extra(found, monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if found is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return found

    monkeypatch.setattr(importlib.metadata, "version", version)
    with pytest.raises(EngineError, match=r"spiral-pipeline\[textarena\]"):
        games.make("textarena:TicTacToe-v0", seed=0)


def test_the_prefix_always_means_the_adapter_and_other_dotted_paths_go_on_working(monkeypatch) -> None:
    from spiral_lib.games import kuhn_poker

    monkeypatch.setitem(sys.modules, "textarena", types.SimpleNamespace(GAME=kuhn_poker.GAME, __name__="textarena"))
    assert games.spec("textarena:GAME").name == "textarena:GAME"
    monkeypatch.setitem(sys.modules, "textarena_games", kuhn_poker)
    assert games.make("textarena_games:GAME", seed=0).spec.name == "kuhn_poker"
    assert games.make("spiral_lib.games.kuhn_poker:GAME", seed=0).spec.name == "kuhn_poker"


def test_cleaned_text_keeps_boards_and_no_control_token() -> None:
    board = " 0 | 1 | 2 \n---+---+---\n[4] X [Accept]"
    assert textarena.clean(board) == " 0 | 1 | 2\n---+---+---\n[4] X [Accept]"
    hidden = "".join(f"a{token}\u202eb\u200b\x07{token}" for token in SPECIAL_TOKENS)
    cleaned = textarena.clean(hidden + "<|im_\u200bstart|>＜|im_end|＞")
    assert not [token for token in SPECIAL_TOKENS if token in cleaned]
    assert textarena.clean(cleaned.replace("< ", "<")) == cleaned
    assert not set("\u202e\u200b\x07") & set(cleaned)


def test_long_text_keeps_its_rules_and_its_latest_moves() -> None:
    text = "rules " + "x" * 20_000 + " last"
    cleaned = textarena.clean(text)
    assert len(cleaned) < 8_100 and cleaned.startswith("rules ") and cleaned.endswith(" last") and "(cut)" in cleaned
