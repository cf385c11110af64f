"""The cold start: what it is taught, that it is the same twice, and that its gate stops a run."""

from __future__ import annotations

from pathlib import Path

import micro_runs
import pytest
from micro_runs import weights_hash

from spiral_lib import checkpoints, cold_start, games
from spiral_lib.config import RunConfig, resolve
from spiral_lib.errors import ColdStartError
from spiral_lib.prompts import extract_action

QUICK = (
    f"{micro_runs.TRAINED} cold_start.steps=3 cold_start.batch=2 cold_start.examples=30 cold_start.gate_matches=2 "
    "rollout.max_new_tokens=8 evaluation.exploitability_games=[]"
)


def quick(more: str = "") -> RunConfig:
    return resolve(preset="smoke", overrides=micro_runs.merged(QUICK, more))


@pytest.mark.parametrize("name", games.names())
def test_every_scripted_reply_is_a_legal_turn_of_its_game(name: str) -> None:
    config = quick(f"games=[{name}] cold_start.examples=40 cold_start.bank_examples=0 evaluation.opponents=[random]")
    examples = cold_start.scripted_examples(config)
    assert len(examples) == 40
    for example in examples:
        assert example.view is not None
        found = extract_action(example.reply, example.view.legal_actions)
        assert found.status == "valid", (example.reply, found.reason)
        assert found.action is not None


def test_examples_follow_the_games_weights_and_bank_items_come_on_top() -> None:
    config = quick("games=[{name: kuhn_poker, weight: 2}, tic_tac_toe] cold_start.bank_examples=5")
    examples = cold_start.scripted_examples(config)
    names = [e.view.game if e.view else "bank" for e in examples]
    assert (names.count("kuhn_poker"), names.count("tic_tac_toe"), names.count("bank")) == (20, 10, 5)
    assert all(e.question and e.reply for e in examples if e.view is None)


def test_examples_depend_on_the_seed_alone() -> None:
    assert cold_start.scripted_examples(quick()) == cold_start.scripted_examples(quick())
    assert cold_start.scripted_examples(quick()) != cold_start.scripted_examples(quick("seed=1"))


def test_a_checkpoint_used_as_it_is_needs_no_examples(micro_checkpoint: Path) -> None:
    assert cold_start.scripted_examples(micro_runs.config(micro_checkpoint)) == []


def test_the_same_configuration_makes_the_same_checkpoint(tmp_path: Path) -> None:
    ids = []
    for name, more in (("a", ""), ("b", ""), ("c", "seed=1")):
        figures = cold_start.make(quick(more), tmp_path / name)
        ids.append(checkpoints.verify(tmp_path / name).id)
        assert figures["cold_start/steps"] == 3
        assert 0.0 <= figures["cold_start/legal_share"] <= 1.0
    assert ids[0] == ids[1] != ids[2]


def test_without_steps_the_weights_stay_and_the_parent_is_named(micro_checkpoint: Path, tmp_path: Path) -> None:
    cold_start.make(micro_runs.config(micro_checkpoint), tmp_path / "out")
    assert weights_hash(tmp_path / "out") == weights_hash(micro_checkpoint)
    assert checkpoints.read_manifest(tmp_path / "out").parent == checkpoints.read_manifest(micro_checkpoint).id


def test_training_teaches_the_format_and_to_look_at_the_card(micro_checkpoint: Path) -> None:
    from spiral_lib.prompts import Renderer

    config = micro_runs.config(micro_checkpoint, "cold_start.gate_matches=30")
    renderer = Renderer(checkpoints.load_tokenizer(micro_checkpoint), config.prompt)
    figures = cold_start.measure(config, micro_checkpoint, renderer)
    assert figures["cold_start/legal_share"] > 0.6
    assert figures["cold_start/gap/kuhn_poker"] > 0.0


def test_a_cold_start_below_its_gate_is_tried_again_and_then_stops_with_all_figures(tmp_path: Path) -> None:
    with pytest.raises(ColdStartError) as error:
        cold_start.make(quick("cold_start.min_legal=1 cold_start.attempts=2"), tmp_path / "out")
    message = str(error.value)
    assert "attempt 1" in message and "attempt 2" in message
    assert "cold_start.min_legal is 100.0 %" in message
    assert "cold_start.steps" in message, "the way out is named"
