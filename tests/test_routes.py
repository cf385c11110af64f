"""What each route plays: bank questions that are never evaluated, an expert's matches, or self-play unchanged."""

from __future__ import annotations

import re
from collections import Counter

import pytest
import tiny_checkpoints

from spiral_lib import bank_items, games, preflight, rollout, routes
from spiral_lib.config import PromptConfig, config_hash, hash_of, resolve, to_dict
from spiral_lib.errors import ConfigError, IllegalAction
from spiral_lib.prompts import Renderer, extract_action, user_text

STEPS = range(1, 13)


def planned(preset: str, overrides: str, steps: range = STEPS) -> list[rollout.MatchSpec]:
    config = resolve(preset=preset, overrides=overrides)
    return [spec for step in steps for spec in routes.plan(config, step=step, pool=("a", "b"))]


def asked(spec: rollout.MatchSpec) -> tuple[int, str]:
    """Return the seat that answers a planned question, and the question."""
    game = games.make(spec.game, seed=spec.seed)
    player = game.current_player
    assert player is not None
    return player, game.view(player).info_state


def test_the_default_route_plays_and_hashes_as_a_configuration_without_routes() -> None:
    config = resolve(preset="tiny")
    assert config_hash(config) == hash_of({k: v for k, v in to_dict(config).items() if k != "route"})
    plan = rollout.plan_matches(config, step=3, pool=("a",))
    assert routes.plan(config, step=3, pool=("a",)) == plan
    assert len({config_hash(resolve(preset="tiny", overrides=f"route={r}")) for r in ("self_play", "rlvr", "sft")}) == 3


def test_an_unknown_route_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="self_play, rlvr, sft"):
        resolve(preset="tiny", overrides="route=dpo")


def test_no_trained_question_is_in_the_evaluated_bank_nor_with_its_operands_swapped() -> None:
    evaluated = {item.question for item in bank_items.items()}
    commutative = {"larger", "truth", "add", "multiply", "gcd", "parity"}

    def operands(item: bank_items.Item) -> tuple[str, tuple[str, ...]]:
        return item.family, tuple(sorted(re.findall(r"\d+", item.question)))

    known = {operands(item) for item in bank_items.items() if item.family in commutative}
    for seed in (0, 5):
        specs = planned("tiny", f"route=rlvr seed={seed}")
        trained = [bank_items.training_item(spec.seed) for spec in specs]
        assert {item.question for item in trained} == {asked(spec)[1] for spec in specs}
        assert len(trained) == 128 * len(STEPS)
        assert not evaluated & {item.question for item in trained}
        assert not known & {operands(item) for item in trained}
        assert {(i.family, i.level) for i in trained} == {(i.family, i.level) for i in bank_items.items()}


def test_bank_questions_are_for_the_learner_alone_in_either_seat() -> None:
    specs = planned("tiny", "route=rlvr")
    assert {spec.game for spec in specs} == {"bank"}
    assert {(spec.policies, spec.trainable) for spec in specs} == {(("self", "self"), (True, True))}
    seats = Counter(asked(spec)[0] for spec in specs)
    assert 0.45 < seats[0] / len(specs) < 0.55


def test_every_kind_of_question_is_a_role_with_a_baseline_of_its_own() -> None:
    kinds = set()
    for seed in range(600):
        game = games.make("bank", seed=seed)
        assert game.current_player is not None
        kinds.add(game.view(game.current_player).role)
    assert kinds == {f"{item.family} {item.level}" for item in bank_items.items()}


def test_a_question_is_asked_word_for_word_as_in_the_evaluation() -> None:
    renderer = Renderer(tiny_checkpoints.tokenizer(), PromptConfig())
    for seed in range(50):
        game = games.make("bank", seed=seed)
        assert game.current_player is not None
        view, text = game.view(game.current_player), bank_items.user_text(bank_items.training_item(seed))
        assert {user_text(view, PromptConfig(style=style)) for style in ("full", "compact")} == {text}
        assert renderer.encode(view)[0] == renderer.encode_text(text)


@pytest.mark.parametrize(
    "reply",
    [
        *(r"\boxed{@}", r"I think. \boxed{\text{@}}", r"\boxed{@} or \boxed{0}", r"\boxed{[@]}", r"\boxed{ @ }"),
        *(r"\boxed{}", r"\boxed{1 @}", "@", r"<think>\boxed{@}", r"\boxed{$@$}", r"\boxed{@", r"\boxed{@.}"),
    ],
)
def test_the_verdict_is_that_of_the_evaluation(reply: str) -> None:
    for seed in range(40):
        item, game = bank_items.training_item(seed), games.make("bank", seed=seed)
        player, text = game.current_player, reply.replace("@", bank_items.training_item(seed).answer.upper())
        assert player is not None
        found = extract_action(text, game.view(player).legal_actions)
        if found.action is None:
            assert not bank_items.is_correct(item, text)
            continue
        game.apply(found.action)
        assert game.current_player is None
        assert sum(game.returns()) == 0.0
        assert game.returns()[player] == (1.0 if bank_items.is_correct(item, text) else -1.0), text


def test_a_question_is_answered_once_and_in_brackets() -> None:
    game = games.make("bank", seed=1)
    with pytest.raises(IllegalAction):
        game.apply("42")
    assert game.current_player is not None
    game.apply("[42]")
    with pytest.raises(IllegalAction):
        game.apply("[42]")


def test_the_bank_is_made_by_name_and_not_listed_among_games() -> None:
    assert "bank" not in games.names()
    assert games.spec("bank").max_turns == 1


def test_on_route_sft_the_expert_takes_both_seats_of_self_plays_matches() -> None:
    plain = planned("tiny", "opponents.pool=0")
    expert = planned("tiny", "route=sft")
    assert {(spec.policies, spec.trainable) for spec in expert} == {(("optimal", "optimal"), (False, False))}
    assert [(s.id, s.game, s.seed) for s in expert] == [(s.id, s.game, s.seed) for s in plain]


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        ("route=sft games=[simple_negotiation,kuhn_poker]", "no expert plays simple_negotiation"),
        ("route=rlvr learner.role_schedule=['player 0']", "route=rlvr plays no game"),
    ],
)
def test_a_route_with_nothing_to_train_on_is_refused_before_anything_runs(overrides: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        preflight.check(resolve(preset="tiny", overrides=overrides))
