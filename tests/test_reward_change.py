"""A run that goes on under other rewards: the bank before and after, and the gate holds the run to it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import micro_runs
import pytest

from spiral_lib import gates, lineage, pipeline, presets, starting
from spiral_lib.config import is_evaluated, resolve, rewards_text
from spiral_lib.errors import ConfigError
from spiral_lib.ledger import Ledger, RewardChange
from spiral_lib.state import read_state
from spiral_lib.types import Decision, Evaluation

CHANGED = "iterations=1 evaluation.every=1000 rewards.forfeit=upstream"


@pytest.fixture(scope="module")
def changed_run(micro_run: Path, micro_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("changed") / "run"
    pipeline.train(micro_runs.config(micro_checkpoint, CHANGED), run, resume_from=micro_run)
    return run


def test_the_bank_is_measured_before_and_right_after_the_change(changed_run: Path, micro_run: Path) -> None:
    before = Evaluation.from_json((changed_run / "evaluations" / "0000.json").read_text())
    after = Evaluation.from_json((changed_run / "evaluations" / "0001.json").read_text())
    assert len(before.bank_correct) == len(after.bank_correct) == 4
    assert before.checkpoint == read_manifest_digest(read_state(micro_run).checkpoint)
    ledger = Ledger.from_json((changed_run / "ledger.json").read_text())
    assert ledger.reward_change is not None
    assert ledger.reward_change.bank_correct == before.bank_correct
    assert '"zero_sum"' in ledger.reward_change.before and '"upstream"' in ledger.reward_change.after == ledger.rewards
    assert [e.iteration for e in ledger.evaluations] == [0, 1] and len(ledger.decisions) == 1
    assert lineage.audit(changed_run) == []


def read_manifest_digest(checkpoint: Path) -> str:
    from spiral_lib import checkpoints

    return checkpoints.read_manifest(checkpoint).id


def test_the_gate_gives_the_paired_test_against_the_time_before(changed_run: Path) -> None:
    ledger = Ledger.from_json((changed_run / "ledgers" / "0000.json").read_text())
    candidate = Evaluation.from_json((changed_run / "evaluations" / "0001.json").read_text())
    config = resolve(preset="smoke")
    (comparison,) = gates.since_reward_change(candidate, ledger, config)
    assert comparison.against == "time before the reward change" and comparison.name == "bank accuracy"


def test_going_on_under_the_same_rewards_needs_no_evaluation_first(
    micro_run: Path, micro_checkpoint: Path, tmp_path: Path
) -> None:
    run = tmp_path / "same"
    config = micro_runs.config(micro_checkpoint, "iterations=0")
    starting.open_run(config, run, resume_from=micro_run)
    state = starting.adopt(config, read_state(micro_run), run)
    assert Ledger.from_json(state.ledger.read_text()).reward_change is None
    assert not (run / "evaluations").exists()
    assert lineage.audit(run) == []


def test_other_rewards_without_the_bank_are_refused_and_nothing_is_written(
    micro_run: Path, micro_checkpoint: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    config = micro_runs.config(micro_checkpoint, f"{CHANGED} evaluation.bank=false")
    with pytest.raises(ConfigError, match=r"evaluation\.bank=true"):
        pipeline.train(config, run, resume_from=micro_run)
    assert not run.exists()


def test_the_first_iteration_after_going_on_is_evaluated_whatever_the_interval() -> None:
    config = resolve(preset="smoke", overrides="evaluation.every=3")
    assert [i for i in range(1, 7) if is_evaluated(config, i, adopted=False)] == [3, 6]
    assert is_evaluated(config, 1, adopted=True)


def evaluation(bank: tuple[bool, ...]) -> Evaluation:
    return Evaluation(metrics={}, bank_correct=bank, match_returns={}, iteration=1, checkpoint="c")


def test_a_bank_lost_since_the_change_is_a_clear_loss_even_where_the_champion_is_no_better() -> None:
    worse, config = evaluation((False,) * 40), presets.smoke()
    before = Ledger(reward_change=RewardChange(before="a", after="b", bank_correct=(True,) * 40))
    arguments = {"candidate": worse, "champion": worse, "cold_start": worse, "training": {}, "config": config}
    lost = gates.decide(ledger=before, **arguments)  # type: ignore[arg-type]
    assert lost.decision is Decision.HOLD
    assert any("clear loss" in r and "before the reward change" in r for r in lost.reasons)
    patient = replace(before, holds=config.gates.patience)
    assert gates.decide(ledger=patient, **arguments).decision is Decision.ROLLBACK  # type: ignore[arg-type]
    kept = gates.decide(ledger=Ledger(), **arguments)  # type: ignore[arg-type]
    assert not any("clear loss" in r for r in kept.reasons)


def test_a_ledger_with_a_reward_change_comes_back_as_it_was() -> None:
    rewards = rewards_text(presets.smoke())
    ledger = Ledger(
        rewards=rewards, reward_change=RewardChange(before=rewards, after="{}", bank_correct=(True, False))
    )
    assert Ledger.from_json(ledger.to_json()) == ledger
    assert {"rewards", "reward_change"} & set(json.loads(Ledger().to_json())) == set()
