"""The expert's replies, and which of them are learned."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny_checkpoints

from spiral_lib import games, quality, rollout, routes, trajectories
from spiral_lib.config import PromptConfig, resolve
from spiral_lib.demonstrations import Expert
from spiral_lib.learner import batch
from spiral_lib.policies import optimal
from spiral_lib.prompts import Renderer, extract_action
from spiral_lib.rae import RoleBaselines
from spiral_lib.types import Episode


def renderer() -> Renderer:
    return Renderer(tiny_checkpoints.tokenizer(), PromptConfig(style="compact"))


def played(game: str, matches: int) -> list[Episode]:
    config = resolve(preset="tiny", overrides=f"route=sft games=[{game}] rollout.matches={matches}")
    plan = routes.plan(config, step=1, pool=())
    return list(rollout.play_matches(plan, {"optimal": Expert(renderer())}, concurrency=8))


def test_a_reply_holds_the_move_it_was_given_for_and_the_ids_that_write_it() -> None:
    maker = renderer()
    for episode in played("kuhn_poker", 40):
        game = games.make("kuhn_poker", seed=episode.seed)
        for turn in episode.turns:
            view = game.view(turn.player)
            assert extract_action(turn.text, view.legal_actions).action == turn.action
            assert turn.prompt_ids == maker.encode(view)[0]
            assert turn.response_ids == maker.encode_reply(turn.text)
            assert turn.logprobs == (0.0,) * len(turn.response_ids)
            assert not turn.trainable
            game.apply(turn.action)


def test_the_expert_plays_the_solved_mixture_with_varied_words() -> None:
    turns = [t for e in played("kuhn_poker", 600) for t in e.turns if t.info_state == "1b"]
    calls = sum(t.action == "[call]" for t in turns) / len(turns)
    assert len(turns) > 40
    assert calls == pytest.approx(1 / 3, abs=0.2)
    assert len({t.text for t in turns}) > 10


def test_turns_of_seats_that_lost_are_left_out_and_draws_stay() -> None:
    config = resolve(preset="tiny", overrides="route=sft")
    episodes = played("kuhn_poker", 60)
    baselines = RoleBaselines(0.95)
    found = batch.build(episodes, baselines, config)
    won = [(e.id, t.index) for e in episodes for t in e.turns if e.returns[t.player] > 0]
    assert [(s.episode, s.turn) for s in found.samples] == sorted(won)
    assert {(s.advantage, s.reward, s.baseline) for s in found.samples} == {(1.0, 1.0, 0.0)}
    assert found.metrics["rollout/trained_turns"] == len(won)
    assert baselines.to_json() == RoleBaselines(0.95).to_json()
    drawn = played("tic_tac_toe", 3)
    assert {e.returns for e in drawn} == {(0.0, 0.0)}, "solved play"
    assert len(batch.build(drawn, baselines, config).samples) == sum(len(e.turns) for e in drawn)


def test_turns_beyond_the_window_are_left_out_and_counted() -> None:
    config = resolve(preset="tiny", overrides="route=sft model.context_tokens=49")
    episodes = played("kuhn_poker", 10)
    found = batch.build(episodes, RoleBaselines(0.95), config)
    assert not found.samples
    assert found.metrics["learner/dropped_empty"] > 0


def test_an_experts_matches_pass_the_quality_gate(tmp_path: Path) -> None:
    config = resolve(preset="tiny", overrides="route=sft rollout.matches=30")
    episodes = sorted(played("kuhn_poker", 30), key=lambda e: e.id)
    path = tmp_path / "shard-00.parquet"
    trajectories.write_shard(path, episodes, run="r", iteration=1, step=1, shard=0, config_hash="c")
    report = quality.check([path], planned=30, config=config, full=False)
    assert report.ok, report.failures
    assert list(trajectories.read_episodes([path])) == episodes


def test_every_game_with_solved_or_strong_play_can_be_demonstrated() -> None:
    config = resolve(preset="tiny", overrides="route=sft model.context_tokens=4096")
    for game in sorted(set(optimal.STRATEGIES) - {"leduc_poker"}):
        assert batch.demonstrations(played(game, 2), config).samples, game
