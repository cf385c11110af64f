"""Voting on moves: what is played, what is recorded, and that it plays better where a vote can."""

from __future__ import annotations

from collections import Counter

import pytest

from spiral_lib import games, policies, rollout
from spiral_lib.config import PromptConfig
from spiral_lib.engines.scripted import ScriptedEngine
from spiral_lib.errors import ConfigError
from spiral_lib.policies.search import SearchPolicy
from spiral_lib.seeds import seed_for, uniform
from spiral_lib.types import EndReason, MatchSpec, Move, PolicyRef, View

VIEW = games.make("kuhn_poker", seed=1).view(0)


class Says:
    """Answers the candidates of one seed in turn; the text tells which candidate it was."""

    ref = "checkpoint:x"
    digest = "weights"
    engine = "scripted"
    temperature = 0.5

    def __init__(self, *moves: Move) -> None:
        self._by_seed = {seed_for(9, "candidate", i): move for i, move in enumerate(moves)}

    async def act(self, view: View, *, seed: int) -> Move:
        return self._by_seed[seed]


def says(*actions: str) -> Says:
    return Says(*(Move(action=a, text=f"{i}", reason=None if a else "no_box") for i, a in enumerate(actions)))


def voted(policy: Says, candidates: int) -> Move:
    waiting = SearchPolicy(policy=policy, candidates=candidates).act(VIEW, seed=9)
    with pytest.raises(StopIteration) as ended:
        waiting.send(None)  # type: ignore[attr-defined]
    move: Move = ended.value.value
    return move


@pytest.mark.parametrize(
    ("actions", "played", "by"),
    [
        (("[bet]", "[check]", "[check]"), "[check]", "1"),
        (("[bet]", "[check]", "[check]", "[bet]"), "[bet]", "0"),
        (("", "", "[bet]"), "[bet]", "2"),
        (("", "", ""), "", "0"),
    ],
)
def test_most_replies_decide_then_the_earliest(actions: tuple[str, ...], played: str, by: str) -> None:
    move = voted(says(*actions), len(actions))
    assert (move.action, move.text, move.completion) == (played, by, None)


def test_one_failed_reply_fails_the_move() -> None:
    move = voted(Says(Move(action="[bet]", text=""), Move(action="", text="", failed=True)), 2)
    assert move.failed


def test_a_vote_is_marked_and_keeps_the_digest() -> None:
    policy = SearchPolicy(policy=says("[bet]"), candidates=5)
    assert (policy.ref, policy.engine, policy.digest) == ("checkpoint:x", "scripted+vote5", "weights")
    with pytest.raises(ConfigError):
        SearchPolicy(policy=says(), candidates=0)


class Unsure:
    """Plays the best move of Nim-like choice with probability 0.6, keyed by the seed."""

    ref = "self"
    digest = "x"
    engine = "scripted"
    temperature = 1.0

    async def act(self, view: View, *, seed: int) -> Move:
        action = "[check]" if uniform(seed) < 0.6 else "[bet]"
        return Move(action=action, text="")


def test_a_vote_of_fifteen_finds_the_likelier_move_more_often_than_one_reply() -> None:
    def share(candidates: int) -> float:
        policy = SearchPolicy(policy=Unsure(), candidates=candidates)
        found: Counter[str] = Counter()
        for seed in range(400):
            with pytest.raises(StopIteration) as ended:
                policy.act(VIEW, seed=seed).send(None)  # type: ignore[attr-defined]
            found[ended.value.value.action] += 1
        return found["[check]"] / 400

    assert 0.5 < share(1) < 0.7
    assert share(15) > 0.72


def test_a_voting_model_plays_matches_and_its_turns_cannot_be_trained_on() -> None:
    from spiral_lib.engines.scripted import encode_bytes

    class Renderer:
        config = PromptConfig()

        def encode(self, view: View) -> tuple[tuple[int, ...], int]:
            return encode_bytes(view.observation), 0

    engine = ScriptedEngine(lambda ids, seed: "\\boxed{[check]}" if seed % 3 else "\\boxed{[bet]}")
    one = policies.make(PolicyRef.parse("self"), engine=engine, renderer=Renderer())  # type: ignore[arg-type]
    many = policies.make(
        PolicyRef.parse("checkpoint:x"), engine=engine, renderer=Renderer(), candidates=9  # type: ignore[arg-type]
    )
    table = {"self": one, "checkpoint:x": many}
    specs = [
        MatchSpec(
            id=str(n), game="kuhn_poker", seed=n, policies=("self", "checkpoint:x"), trainable=(True, True)
        )
        for n in range(8)
    ]
    episodes = list(rollout.play_matches(specs, table, concurrency=4))
    turns = [t for e in episodes for t in e.turns]
    assert {t.engine for t in turns if t.policy == "checkpoint:x"} == {"scripted+vote9"}
    assert not any(t.trainable for t in turns if t.policy == "checkpoint:x")
    assert all(t.trainable for t in turns if t.policy == "self")
    assert {e.end_reason for e in episodes} <= {EndReason.FINISHED, EndReason.ILLEGAL_ACTION}
