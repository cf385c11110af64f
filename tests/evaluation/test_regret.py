"""Regret per move: known values, zero for the solvers, and episodes that show what a move gave away."""

from __future__ import annotations

import pytest

from spiral_lib import policies
from spiral_lib.config import Named, PromptConfig
from spiral_lib.evaluation import matches, minimax, regret
from spiral_lib.games import kuhn_poker
from spiral_lib.policies import optimal
from spiral_lib.types import EndReason, Episode, PolicyRef, Turn


def turn(info_state: str, action: str, *, policy: str = "self", legal: bool = True) -> Turn:
    return Turn(
        index=0, player=0, role="player 0", seed=0, policy=policy, policy_digest="", engine="scripted",
        temperature=1.0, trainable=False, info_state=info_state, observation="", text="",
        action=action if legal else "", legal=legal, invalid_reason=None if legal else "no_box", finish_reason="stop",
    )  # fmt: skip


def episode(game: str, *turns: Turn, **params: int | str) -> Episode:
    return Episode(
        id="e", game=game, seed=0, policies=("self", "random"), turns=turns, returns=(1.0, -1.0),
        end_reason=EndReason.FINISHED, params=tuple(params.items()),
    )  # fmt: skip


def test_the_equilibrium_never_regrets_a_kuhn_action_it_takes() -> None:
    for state, view in kuhn_poker.views().items():
        values = regret.kuhn_poker(state)
        best = max(values.values())
        assert set(values) == set(view.legal_actions or ())
        for action, chance in optimal.strategy(view).items():
            if chance > 0:
                assert values[action] == pytest.approx(best, abs=1e-12)


def test_known_kuhn_values() -> None:
    assert regret.kuhn_poker("2b") == pytest.approx({"[fold]": -1.0, "[call]": 2.0})
    assert regret.kuhn_poker("0b") == pytest.approx({"[fold]": -1.0, "[call]": -2.0})
    # A queen that bets first is called by the king alone: half of the time it loses 2, half of the time it wins 1.
    assert regret.kuhn_poker("1")["[bet]"] == pytest.approx(-0.5)
    # The value of the game to the first player is -1/18, cards equally likely.
    assert sum(max(regret.kuhn_poker(card).values()) for card in "012") / 3 == pytest.approx(-1 / 18)


def test_minimax_agreement_and_zero_regret_are_the_same_thing() -> None:
    for board in minimax.decision_states(matter=False)[::7]:
        view = minimax.view_of(board)
        values = regret.tic_tac_toe(view.info_state)
        assert set(values) == set(view.legal_actions or ())
        best = {int(a[1:-1]) for a, v in values.items() if v == max(values.values())}
        assert best == minimax.keeping(board)


def test_a_match_shows_what_each_move_gave_away() -> None:
    # X can win at 2; O to move must block at 2.
    played = episode(
        "tic_tac_toe", turn("xx.oo.... x", "[8]"), turn("xx.o....o x", "[2]"), turn("xx.o....o x", "", legal=False)
    )
    assert regret.match_regrets(played) == [2.0, 0.0, 2.0]
    poker = episode("kuhn_poker", turn("2b", "[fold]"), turn("0b", "[fold]"), turn("0b", "", legal=False))
    assert regret.match_regrets(poker) == pytest.approx([1.5, 0.0, 0.5])
    assert regret.match_regrets(episode("kuhn_poker", turn("0pp1/2b", "[fold]"), hands=2)) == pytest.approx([0.75])


def test_only_the_named_policys_moves_count_and_unsolved_games_are_left_out() -> None:
    assert regret.match_regrets(episode("kuhn_poker", turn("2b", "[fold]", policy="random"))) == []
    assert regret.match_regrets(episode("snake", turn("x", "[up]"))) == []
    assert regret.match_regrets(episode("kuhn_poker", turn("2b", "[fold]"), hands=3, reward="winner")) == []
    assert regret.metrics([episode("snake", turn("x", "[up]"))]) == {}


def test_metrics_count_every_move_and_take_a_match_as_one_observation() -> None:
    good, bad = turn("2b", "[call]"), turn("2b", "[fold]")
    found = regret.metrics([episode("kuhn_poker", good, good, good), episode("kuhn_poker", bad)])
    assert found["eval/kuhn_poker/regret"] == pytest.approx(1.5 / 4)
    assert found["eval/kuhn_poker/regret_n"] == 4.0
    assert found["eval/kuhn_poker/regret_positive_share"] == 0.25
    # By hand: residuals 0 - 3 * 0.375 and 1.5 - 0.375, so the error is sqrt(2 * 2 * 1.125 ** 2) / 4.
    assert found["eval/kuhn_poker/regret_high"] == pytest.approx(0.375 + 1.959964 * 0.5625, abs=1e-5)
    assert found["eval/kuhn_poker/regret_low"] == 0.0


@pytest.mark.parametrize(
    "game",
    [
        Named(name="kuhn_poker"),
        Named(name="tic_tac_toe"),
        Named(name="nim"),
        Named(name="nim", params={"piles": "1 2 4", "misere": True}),
        Named(name="pig_dice", params={"target": 20}),
        Named(name="liars_dice", params={"dice": 1, "sides": 3}),
        pytest.param(Named(name="leduc_poker"), marks=pytest.mark.slow),
    ],
    ids=lambda game: game.name,
)
def test_solved_play_has_no_regret_and_random_play_has_much(game: Named) -> None:
    if game.name in ("liars_dice", "leduc_poker"):
        pytest.importorskip("pyspiel", reason="needs the extra 'exact' (open_spiel)")
    opponent = "checkpoint:other"
    specs = matches.plan(game, opponent, opponent_ref=opponent, matches=40, seed=0)
    found = {}
    for name in ("optimal", "random"):
        policy = policies.make(PolicyRef.parse(name), prompt=PromptConfig())
        played = matches.play(specs, {"self": policy, opponent: policy}, concurrency=8)
        found[name] = regret.metrics(played, policy=name)
    prefix = f"eval/{game.name}/regret"
    assert found["optimal"][prefix] <= regret.slack(game.name) / 2
    assert found["optimal"][f"{prefix}_positive_share"] == 0.0
    assert found["random"][prefix] > 0.03 and found["random"][f"{prefix}_positive_share"] > 0.1
