"""Signals of games and the bank of known problems: replayed from episodes, frozen for an iteration, in the lineage."""

from __future__ import annotations

import dataclasses
import json
import random
from pathlib import Path

import pytest

from spiral_lib import duel_bank, games, lineage, pipeline, policies, rollout, steps, trajectories
from spiral_lib.config import Named, RunConfig, resolve
from spiral_lib.errors import ConfigError
from spiral_lib.ledger import Ledger
from spiral_lib.types import EndReason, Episode, MatchSpec, PolicyRef, Turn

DUELS = ("equation_duel", "counterexample_duel", "code_duel")
MICRO = (
    "cold_start.steps=0 cold_start.gate_matches=2 cold_start.min_legal=0 cold_start.min_gap=0 cold_start.examples=60 "
    "rollout.matches=8 rollout.shards=2 rollout.steps_per_iteration=1 rollout.max_new_tokens=16 "
    "rollout.max_invalid_share=1 model.context_tokens=96 opponents.self_play=0 opponents.pool=0 opponents.random=1 "
    "evaluation.every=1000 evaluation.matches=2 evaluation.bank=false evaluation.exploitability_games=[] "
    "evaluation.opponents=[] prompt.style=compact iterations=2 "
)


def episodes(game: str, count: int, **params: str) -> list[Episode]:
    specs = [
        MatchSpec(
            id=f"{i:03d}", game=game, seed=i, policies=("random", "random"), trainable=(False, False),
            params=tuple(params.items()),
        )
        for i in range(count)
    ]  # fmt: skip
    played = rollout.play_matches(specs, {"random": policies.make(PolicyRef.parse("random"))}, concurrency=count)
    return sorted(played, key=lambda e: e.id)


def duel(*actions: str, legal_end: bool = True, seed: int = 0, end: EndReason = EndReason.FINISHED) -> Episode:
    """Return an equation duel of these actions; the last one may be an illegal one."""
    roles = ("proposer", "solver")
    game = games.make("equation_duel", seed=seed, level="free")
    turns = []
    for i, action in enumerate(actions):
        player = game.current_player
        legal = legal_end or i < len(actions) - 1
        if legal:
            game.apply(action)
        turns.append(
            Turn(
                index=i, player=player, role=roles[player], seed=0, policy="random", policy_digest="",
                engine="scripted", temperature=1.0, trainable=False, info_state="", observation="", text=action,
                action=action, legal=legal, invalid_reason=None if legal else "bad_format", finish_reason="stop",
            )
        )  # fmt: skip
    return Episode(
        id="0", game="equation_duel", seed=seed, policies=("random", "random"), turns=tuple(turns),
        returns=(0.0, 0.0), end_reason=end, params=(("level", "free"),),
    )  # fmt: skip


def seed_of(topic: str) -> int:
    return next(s for s in range(200) if topic in games.make("equation_duel", seed=s, level="free").view(0).observation)


@pytest.fixture(scope="module")
def linear() -> int:
    return seed_of("Topic: linear")


def test_metrics_are_means_over_what_each_signal_is_about(linear: int) -> None:
    played = [
        duel("[Pose: 3*x - 5 == 7 | 4]", "[Answer: 4]", seed=linear),
        duel("[Pose: 7 == 3*x - 5 | 4]", "[Ask]", "[Hint: x > 0]", "[Answer: 5]", seed=linear),
        duel("[Pose: 2*x == 8 | 5]", seed=linear),
        duel("[Pose: nonsense]", legal_end=False, seed=linear),
        duel("[Pose: 2*x == 8 | 5]", seed=linear, end=EndReason.OPPONENT_ERROR),
    ]
    found = {n.removeprefix("game/equation_duel/"): v for n, v in duel_bank.metrics(played).items()}
    assert found["matches"] == 4 and found["problems"] == 3
    assert found["asks"] == found["hints"] == 0.25
    assert found["commitment_error_rate"] == pytest.approx(1 / 3) and found["sound_share"] == pytest.approx(2 / 3)
    assert found["solved"] == 0.5 and found["known_share"] == 0.0
    assert found["distinct_share"] == 0.5  # the two sound problems differ in the order of sides only
    assert found["proposer_invalid_rate"] == pytest.approx(1 / 5) and found["solver_invalid_rate"] == 0.0
    assert found["problem_length"] == pytest.approx((12 + 12 + 8) / 3)


@pytest.mark.parametrize("game", [*DUELS, "secret_duel"])
def test_replayed_signals_are_those_of_the_match_itself(game: str) -> None:
    for seed in range(20):
        match, rng, actions = games.make(game, seed=seed), random.Random(seed), []
        while (player := match.current_player) is not None:
            view = match.view(player)
            actions.append((player, rng.choice(view.legal_actions or view.sample_actions)))
            match.apply(actions[-1][1])
        again = duel_bank.replay(played_as(game, seed, actions))
        assert again is not None and again.signals == match.signals()
        assert again.digest == getattr(match, "problem_digest", None)


def played_as(game: str, seed: int, actions: list[tuple[int, str]]) -> Episode:
    one = duel("[Pose: nonsense]", legal_end=False).turns[0]
    turns = [dataclasses.replace(one, player=p, action=a, legal=True) for p, a in actions]
    return Episode(
        id="0", game=game, seed=seed, policies=("random", "random"), turns=tuple(turns), returns=(0.0, 0.0),
        end_reason=EndReason.FINISHED,
    )  # fmt: skip


def test_games_without_signals_add_nothing() -> None:
    assert duel_bank.metrics(episodes("kuhn_poker", 4)) == {}
    plain = RunConfig(games=(Named(name="kuhn_poker"), Named(name="equation_duel")))
    assert not duel_bank.is_carried(plain) and duel_bank.filled(plain, Ledger()) == plain
    assert duel_bank.posed(plain, episodes("equation_duel", 4)) == {}


@pytest.mark.parametrize("game", DUELS)
def test_a_problem_posed_before_is_worth_half(game: str) -> None:
    config = RunConfig(games=(Named(name=game, params={"bank": "carried"}),))
    first = episodes(game, 30, bank="carried")
    digests = duel_bank.posed(config, first)[game]
    assert len(digests) == len(set(digests)) >= 5
    ledger = Ledger(known_problems=duel_bank.merged({}, {game: digests}))
    bank = dict(duel_bank.filled(config, Ledger.from_json(ledger.to_json())).games[0].params)["bank"]
    second = [duel_bank.replay(e) for e in episodes(game, 30, bank=str(bank))]
    sound = [r for r in second if r is not None and r.digest]
    assert sound and all(r.signals["duplicate"] == 1.0 for r in sound)
    assert all(abs(r.episode.returns[0]) <= 0.5 for r in sound if r.episode.end_reason is EndReason.FINISHED)
    assert duel_bank.metrics([r.episode for r in sound])[f"game/{game}/known_share"] == 1.0


def test_the_bank_keeps_each_digest_once_and_drops_the_oldest() -> None:
    known = {"a": ("1", "2")}
    assert duel_bank.merged(known, {"a": ["2", "3"], "b": ["9"]}) == {"a": ("1", "2", "3"), "b": ("9",)}
    many = duel_bank.merged(known, {"a": [f"n{i}" for i in range(duel_bank.CAPACITY)]})
    assert len(many["a"]) == duel_bank.CAPACITY and many["a"][0] == "n0"


def test_a_ledger_without_known_problems_is_written_as_before() -> None:
    assert "known_problems" not in Ledger().to_json()
    full = Ledger(known_problems={"equation_duel": ("0123456789abcdef",)})
    assert Ledger.from_json(full.to_json()) == full


def test_a_bank_that_is_no_list_of_digests_is_refused() -> None:
    with pytest.raises(ConfigError, match="bank"):
        games.make("equation_duel", seed=0, bank="carry")
    assert games.make("equation_duel", seed=0, bank="carried").view(0) == games.make("equation_duel", seed=0).view(0)


def test_a_run_carries_its_problems_frozen_for_all_shards_and_recorded(tmp_path: Path) -> None:
    config = resolve(preset="smoke", overrides=MICRO + "games=[{name: equation_duel, params: {bank: carried}}]")
    state = pipeline.train(config, tmp_path / "run")
    run = tmp_path / "run"
    ledgers = [Ledger.from_json((run / "ledgers" / f"{i:04d}.json").read_text()) for i in range(3)]
    assert not ledgers[0].known_problems and ledgers[1].known_problems["equation_duel"]
    for iteration in (1, 2):
        known = ",".join(ledgers[iteration - 1].known_problems.get("equation_duel", ()))
        paths = [steps.shard_path(run, iteration, shard) for shard in (0, 1)]
        assert {dict(e.params)["bank"] for e in trajectories.read_episodes(paths)} == {known}
    lines = [json.loads(line)["metrics"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert lines[1]["game/equation_duel/matches"] == 8.0 and "game/equation_duel/distinct_share" in lines[1]
    records = [r for r in lineage.read_all(run) if r.step.startswith("play-")]
    assert len(records) == 4 and all("ledger" in r.inputs for r in records)
    assert lineage.audit(run) == [] and state.iteration == 2
