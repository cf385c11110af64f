"""Matches end once, are counted once and do not depend on how they are scheduled; matchmaking keeps its shares."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import tiny_checkpoints as tiny
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spiral_lib import checkpoints, games, policies, rollout
from spiral_lib.config import Named, OpponentConfig, PromptConfig, RolloutConfig, RunConfig
from spiral_lib.engines.hf import HfEngine
from spiral_lib.engines.scripted import ScriptedEngine
from spiral_lib.errors import ConfigError, EngineError, IllegalAction
from spiral_lib.policies.llm import LlmPolicy
from spiral_lib.prompts import Renderer
from spiral_lib.seeds import seed_for
from spiral_lib.types import EndReason, Episode, GameSpec, MatchSpec, Move, Policy, PolicyRef, Returns, View

MIXED = (Named(name="kuhn_poker"), Named(name="tic_tac_toe"))
COMPACT = PromptConfig(style="compact")


class Fixed:
    """A policy that answers every view with the same move."""

    ref, digest, engine, temperature = "self", "fixed", "scripted", 1.0

    def __init__(self, move: Move) -> None:
        self.move = move

    async def act(self, view: View, *, seed: int) -> Move:
        return self.move


class Endless:
    """A game that never ends by itself."""

    spec = GameSpec(name="endless", title="", roles=("a", "b"), max_turns=5, rules="", action_format="",
                    has_private_information=False)  # fmt: skip
    current_player = 0

    def __init__(self, *, seed: int) -> None:
        self.seed = seed

    def view(self, player: int) -> View:
        return View(game="endless", role="a", player=player, rules="", action_format="", observation="",
                    legal_actions=("[go]",), info_state="")  # fmt: skip

    def apply(self, action: str) -> None:
        if action != "[go]":
            raise IllegalAction(action)

    def returns(self) -> Returns:
        raise AssertionError("asked for the returns of a match that is not over")


GAME = Endless


def play_one(game: str, first: Policy, second: Policy, *, trainable: tuple[bool, bool] = (True, True)) -> Episode:
    """Play a match of two policies that need no engine."""
    spec = MatchSpec(id="000000-000000", game=game, seed=7, policies=("self", "other"), trainable=trainable)
    [episode] = rollout.play_matches([spec], {"self": first, "other": second}, concurrency=1)
    return episode


def renderer() -> Renderer:
    return Renderer(tiny.tokenizer(), COMPACT)


def legal_player(prompt_renderer: Renderer, blunders: float = 0.05) -> ScriptedEngine:
    """An engine that reads the legal actions off the prompt and boxes one, after a thought of random length."""

    def reply(prompt_ids: tuple[int, ...], seed: int) -> tuple[int, ...]:
        draw = random.Random(seed)
        legal = prompt_renderer.decode(prompt_ids).rpartition("Legal: ")[2].split("<|im_end|>")[0].split()
        action = "[resign]" if draw.random() < blunders else draw.choice(legal)
        words = "well " * draw.randrange(5) + f"\\boxed{{{action}}}"
        return tuple(prompt_renderer._tokenizer.encode(words, add_special_tokens=False))

    stop = prompt_renderer.stop_ids[0]
    return ScriptedEngine(reply, slots=8, stop_id=stop, encode=lambda text: (), decode=prompt_renderer.decode)


def configured(**changes: object) -> RunConfig:
    base = RunConfig(seed=3, prompt=COMPACT, games=MIXED, rollout=RolloutConfig(matches=60, max_new_tokens=40))
    return replace(base, **changes)  # type: ignore[arg-type]


def ordered(episodes: Sequence[Episode]) -> list[Episode]:
    return sorted(episodes, key=lambda e: e.id)


def test_a_finished_match_has_the_games_returns_and_every_turn() -> None:
    chance = policies.make(PolicyRef.parse("random"))
    episode = play_one("tic_tac_toe", chance, chance)
    assert episode.end_reason is EndReason.FINISHED and episode.forfeited_by is None
    assert sum(episode.returns) == 0 and 5 <= len(episode.turns) <= 9
    assert [t.index for t in episode.turns] == list(range(len(episode.turns)))
    assert [t.player for t in episode.turns] == [i % 2 for i in range(len(episode.turns))]
    assert [t.seed for t in episode.turns] == [seed_for(7, "turn", i) for i in range(len(episode.turns))]
    assert all(t.legal and t.invalid_reason is None for t in episode.turns)


@pytest.mark.parametrize(
    ("move", "end", "returns", "reason"),
    [
        (Move(action="[9]", text="x"), EndReason.ILLEGAL_ACTION, (-1.0, 1.0), "illegal_action"),
        (Move(action="", text="x", reason="no_box"), EndReason.ILLEGAL_ACTION, (-1.0, 1.0), "no_box"),
        (Move(action="", text="x", reason="no_box", finish_reason="length"), EndReason.TRUNCATED, (-1.0, 1.0),
         "no_box"),
        (Move(action="", text="", reason="no_box", finish_reason="context"), EndReason.TRUNCATED, (-1.0, 1.0),
         "no_box"),
        (Move(action="", text="x", reason="unclosed_box", finish_reason="length"), EndReason.TRUNCATED, (-1.0, 1.0),
         "unclosed_box"),
        (Move(action="", text="x", reason="illegal_action", finish_reason="length"), EndReason.ILLEGAL_ACTION,
         (-1.0, 1.0), "illegal_action"),
        (Move(action="", text="", reason="error", finish_reason="error", failed=True), EndReason.OPPONENT_ERROR,
         (0.0, 0.0), "error"),
    ],
)  # fmt: skip
def test_a_move_that_cannot_be_played_ends_the_match(
    move: Move, end: EndReason, returns: tuple[float, float], reason: str
) -> None:
    episode = play_one("tic_tac_toe", Fixed(move), policies.make(PolicyRef.parse("random")))
    assert (episode.end_reason, episode.returns) == (end, returns)
    assert episode.forfeited_by == (None if end is EndReason.OPPONENT_ERROR else 0)
    [turn] = episode.turns
    assert (turn.legal, turn.invalid_reason) == (False, reason)


def test_a_truncated_response_with_a_readable_move_plays_on() -> None:
    cut_off = Move(action="[go]", text=r"\boxed{[go]} and", finish_reason="length")
    episode = play_one("test_rollout:GAME", Fixed(cut_off), Fixed(cut_off))
    assert len(episode.turns) == 5


def test_the_second_seats_forfeit_is_the_firsts_win() -> None:
    episode = play_one("tic_tac_toe", policies.make(PolicyRef.parse("random")), Fixed(Move(action="[9]", text="")))
    assert (episode.returns, episode.forfeited_by, len(episode.turns)) == ((1.0, -1.0), 1, 2)


def test_the_turn_limit_ends_a_match_without_a_winner() -> None:
    go = Fixed(Move(action="[go]", text=""))
    episode = play_one("test_rollout:GAME", go, go)
    assert (episode.end_reason, episode.returns, len(episode.turns)) == (EndReason.MAX_TURNS, (0.0, 0.0), 5)


def test_turn_records_carry_tokens_seeds_and_settings() -> None:
    prompt_renderer = renderer()
    engine = legal_player(prompt_renderer)
    model = LlmPolicy(ref=PolicyRef.parse("self"), engine=engine, renderer=prompt_renderer, temperature=0.7,
                      max_new_tokens=40)  # fmt: skip
    episode = play_one("kuhn_poker", model, policies.make(PolicyRef.parse("random")), trainable=(True, False))
    for turn in episode.turns:
        mine = turn.player == 0
        assert turn.trainable == mine
        assert turn.policy == ("self" if mine else "random")
        assert (turn.engine, turn.temperature) == ("scripted", 0.7 if mine else 1.0)
        assert bool(turn.response_ids) == bool(turn.prompt_ids) == mine
        assert len(turn.logprobs) == len(turn.response_ids)
        if mine:
            assert turn.policy_digest == engine.digest
            assert prompt_renderer.decode(turn.prompt_ids).count(turn.observation) == 1


@pytest.fixture(scope="module")
def player(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save_player(tmp_path_factory.mktemp("player"))


def model_policies(folder: Path, slots: int) -> dict[str, Policy]:
    settings_ = replace(tiny.config(slots=slots), prompt=COMPACT)
    prompt_renderer = Renderer(checkpoints.load_tokenizer(folder), COMPACT)
    refs = {ref: PolicyRef.parse(ref) for ref in ("self", "pool:a")}
    made = {
        text: policies.make(ref, engine=HfEngine(folder, settings_), renderer=prompt_renderer, max_new_tokens=24)
        for text, ref in refs.items()
    }
    return made | {"random": policies.make(PolicyRef.parse("random"))}


def transcripts(episodes: Sequence[Episode]) -> list[Episode]:
    """Episodes in order of id without log-probabilities, whose last bits depend on the shape of a batch."""
    return [replace(e, turns=tuple(replace(t, logprobs=()) for t in e.turns)) for e in ordered(episodes)]


def test_a_models_matches_do_not_depend_on_concurrency_or_shards(player: Path) -> None:
    config = configured(opponents=OpponentConfig(self_play=0.5, pool=0.3, random=0.2))
    specs = rollout.plan_matches(config, step=2, pool=["a"])
    expected = transcripts(list(rollout.play_matches(specs, model_policies(player, 64), concurrency=64)))
    assert [e.id for e in expected] == [s.id for s in specs]
    assert max(len(e.turns) for e in expected) > 2
    for concurrency in (1, 7):
        played = rollout.play_matches(specs, model_policies(player, concurrency), concurrency=concurrency)
        assert transcripts(list(played)) == expected
    for num_shards in (2, 5):
        made = model_policies(player, 16)
        shards = [rollout.shard_of(specs, shard, num_shards) for shard in range(num_shards)]
        played_shards = [transcripts(list(rollout.play_matches(s, made, concurrency=16))) for s in shards]
        assert [e for shard in played_shards for e in shard] == expected


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 2**31),
    concurrency=st.integers(1, 80),
    num_shards=st.integers(1, 7),
    matches=st.integers(1, 40),
)
def test_any_schedule_plays_the_same_matches(seed: int, concurrency: int, num_shards: int, matches: int) -> None:
    config = replace(
        configured(opponents=OpponentConfig(self_play=0.6, random=0.4)),
        seed=seed,
        rollout=RolloutConfig(matches=matches, max_new_tokens=40),
    )
    prompt_renderer = renderer()
    specs = rollout.plan_matches(config, step=1, pool=[])

    def play(part: Sequence[MatchSpec], at_once: int) -> list[Episode]:
        model = LlmPolicy(ref=PolicyRef.parse("self"), engine=legal_player(prompt_renderer), renderer=prompt_renderer,
                          temperature=1.0, max_new_tokens=40)  # fmt: skip
        made: dict[str, Policy] = {"self": model, "random": policies.make(PolicyRef.parse("random"))}
        return ordered(list(rollout.play_matches(part, made, concurrency=at_once)))

    expected = play(specs, 1)
    assert [e.id for e in expected] == [s.id for s in specs]
    sharded = [e for k in range(num_shards) for e in play(rollout.shard_of(specs, k, num_shards), concurrency)]
    assert sharded == expected


def test_every_requested_match_is_counted_once_whatever_its_policies_do() -> None:
    """One seat sometimes fails, is cut off, or plays nonsense; the episode count still matches."""

    class Unreliable:
        ref, digest, engine, temperature = "self", "unreliable", "scripted", 1.0

        async def act(self, view: View, *, seed: int) -> Move:
            draw = random.Random(seed)
            good = Move(action=draw.choice(view.legal_actions or ("",)), text="")
            bad = [
                Move(action="", text="", reason="error", failed=True),
                Move(action="", text="", reason="no_box", finish_reason="length"),
                Move(action="[nonsense]", text=""),
            ]
            return draw.choice([good] * 6 + bad)

    config = configured(rollout=RolloutConfig(matches=200))
    specs = rollout.plan_matches(config, step=0, pool=[])
    episodes = list(rollout.play_matches(specs, {"self": Unreliable()}, concurrency=13))
    assert sorted(e.id for e in episodes) == [s.id for s in specs]
    reasons = Counter(e.end_reason for e in episodes)
    assert set(reasons) == set(EndReason) - {EndReason.MAX_TURNS}
    assert sum(reasons.values()) == 200
    for episode in episodes:
        assert sum(episode.returns) == 0
        assert not any(t.trainable for t in episode.turns)  # no turn has tokens


def test_no_more_matches_are_alive_than_allowed_and_places_are_refilled_at_once() -> None:
    engine = ScriptedEngine(lambda ids, seed: "x" * (1 + seed % 7), slots=64)
    alive: set[int] = set()
    peak = 0
    submit, step = engine.submit, engine.step

    def counted_submit(request):  # type: ignore[no-untyped-def]
        nonlocal peak
        alive.add(request.id)
        peak = max(peak, len(alive))
        submit(request)

    def counted_step():  # type: ignore[no-untyped-def]
        done = step()
        alive.difference_update(number for number, _ in done)
        return done

    engine.submit, engine.step = counted_submit, counted_step  # type: ignore[method-assign]
    model = LlmPolicy(ref=PolicyRef.parse("self"), engine=engine, renderer=renderer(), temperature=1.0,
                      max_new_tokens=9)  # fmt: skip
    specs = rollout.plan_matches(configured(), step=0, pool=[])
    episodes = list(rollout.play_matches(specs, {"self": model}, concurrency=6))
    assert len(episodes) == 60 and peak == 6
    # 60 one-turn matches of 2 to 8 tokens in 6 places; waves of 6 would need the longest of each wave.
    tokens = sum(len(t.response_ids) for e in episodes for t in e.turns)
    assert engine.num_steps <= tokens / 6 + 9


def test_an_error_of_the_machine_is_raised_and_leaves_no_match_open() -> None:
    class Broken(ScriptedEngine):
        def step(self):  # type: ignore[no-untyped-def]
            raise EngineError("out of memory")

    model = LlmPolicy(ref=PolicyRef.parse("self"), engine=Broken(lambda ids, seed: ""), renderer=renderer(),
                      temperature=1.0, max_new_tokens=4)  # fmt: skip
    specs = rollout.plan_matches(configured(), step=0, pool=[])
    with pytest.raises(EngineError, match="out of memory"):
        list(rollout.play_matches(specs, {"self": model}, concurrency=4))


def test_a_policy_that_is_not_given_is_named() -> None:
    specs = rollout.plan_matches(configured(opponents=OpponentConfig(self_play=0, random=1)), step=0, pool=[])
    with pytest.raises(ConfigError, match="needs policy 'random'; given are self"):
        list(rollout.play_matches(specs, {"self": Fixed(Move(action="", text=""))}, concurrency=1))


def shares_config(matches: int = 2000) -> RunConfig:
    return configured(
        games=(Named(name="kuhn_poker", weight=3), Named(name="tic_tac_toe"), Named(name="nim", weight=0)),
        opponents=OpponentConfig(self_play=4, pool=3, random=2, optimal=1),
        rollout=RolloutConfig(matches=matches),
    )


def kind_of(spec: MatchSpec) -> str:
    other = next((p for p in spec.policies if p != "self"), "self")
    return other.partition(":")[0]


def within(count: int, total: int, share: float) -> bool:
    return abs(count - total * share) < 4.5 * (total * share * (1 - share)) ** 0.5


def test_shares_of_games_opponents_and_pool_entries_are_as_configured() -> None:
    specs = rollout.plan_matches(shares_config(), step=5, pool=["a", "b", "c"])
    kinds, played = Counter(map(kind_of, specs)), Counter(s.game for s in specs)
    for kind, share in {"self": 0.4, "pool": 0.3, "random": 0.2, "optimal": 0.1}.items():
        assert within(kinds[kind], 2000, share)
    assert within(played["kuhn_poker"], 2000, 0.75) and played["nim"] == 0
    entries = Counter(p for s in specs for p in s.policies if p.startswith("pool:"))
    assert set(entries) == {"pool:a", "pool:b", "pool:c"}
    assert all(within(n, kinds["pool"], 1 / 3) for n in entries.values())
    together = Counter((s.game, kind_of(s)) for s in specs)
    assert within(together["kuhn_poker", "self"], 2000, 0.3)


def test_the_learner_sits_as_often_first_as_second_and_only_it_trains() -> None:
    for step in (5, 6):
        specs = rollout.plan_matches(shares_config(), step=step, pool=["a", "b"])
        for kind in ("pool", "random", "optimal"):
            seats = [s.policies.index("self") for s in specs if kind_of(s) == kind]
            assert abs(seats.count(0) - seats.count(1)) <= 1
            assert seats[0] == step % 2
        for spec in specs:
            assert spec.trainable == tuple(p == "self" for p in spec.policies)


def test_an_empty_pool_falls_back_to_self_play() -> None:
    specs = rollout.plan_matches(shares_config(), step=0, pool=[])
    kinds = Counter(map(kind_of, specs))
    assert kinds["pool"] == 0 and within(kinds["self"], 2000, 0.7)


def test_plans_are_keyed_by_run_seed_step_and_index_alone() -> None:
    config = shares_config(300)
    specs = rollout.plan_matches(config, step=4, pool=["a"])
    assert specs == rollout.plan_matches(config, step=4, pool=["a"])
    assert [s.id for s in specs] == [f"000004-{i:06d}" for i in range(300)] == sorted(s.id for s in specs)
    assert [s.seed for s in specs] == [seed_for(config.seed, "match", 4, i) for i in range(300)]
    assert specs[:100] == rollout.plan_matches(shares_config(100), step=4, pool=["a"])
    other_step = rollout.plan_matches(config, step=5, pool=["a"])
    other_run = rollout.plan_matches(replace(config, seed=9), step=4, pool=["a"])
    for other in (other_step, other_run):
        assert not {s.seed for s in other} & {s.seed for s in specs}


def test_a_games_parameters_reach_the_game() -> None:
    named = Named(name="kuhn_poker", params={"b": 1, "a": "x"})
    [spec] = rollout.plan_matches(configured(games=(named,), rollout=RolloutConfig(matches=1)), step=0, pool=[])
    assert spec.params == (("a", "x"), ("b", 1))
    with pytest.raises(ConfigError):
        list(rollout.play_matches([spec], {"self": Fixed(Move(action="", text=""))}, concurrency=1))


@given(count=st.integers(0, 300), num_shards=st.integers(1, 20))
def test_shards_are_contiguous_even_and_complete(count: int, num_shards: int) -> None:
    specs = [MatchSpec(id=f"{i:06d}", game="g", seed=i, policies=("self", "self"), trainable=(True, True))
             for i in range(count)]  # fmt: skip
    shards = [rollout.shard_of(specs, shard, num_shards) for shard in range(num_shards)]
    assert [s for shard in shards for s in shard] == specs
    assert max(map(len, shards)) - min(map(len, shards)) <= 1


def test_a_shard_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match="shard 2"):
        rollout.shard_of([], 2, 2)


def test_every_game_is_played_to_one_end_by_random_policies() -> None:
    chance = policies.make(PolicyRef.parse("random"))
    specs = [
        MatchSpec(id=f"{number:06d}", game=name, seed=seed_for("rollout test", name), policies=("random", "random"),
                  trainable=(False, False))
        for number, name in enumerate(games.names())
    ]  # fmt: skip
    for episode in rollout.play_matches(specs, {"random": chance}, concurrency=4):
        assert episode.end_reason in (EndReason.FINISHED, EndReason.MAX_TURNS), episode.game
        assert episode.returns[0] + episode.returns[1] == 0
