"""Scripted collapses through the whole loop: matches, trajectories, learner, measures, gate, and what it then does."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import micro_runs
import pytest

from spiral_lib import checkpoints, cli, pipeline
from spiral_lib.config import RunConfig
from spiral_lib.errors import DataQualityError
from spiral_lib.ledger import Ledger
from spiral_lib.state import read_state
from spiral_lib.types import Decision

MORE = (
    "rollout.engine=tests.collapse_engine:ENGINE rollout.matches=64 rollout.max_invalid_share=0.95 opponents.pool=0 "
    "opponents.self_play=1 evaluation.bank=false evaluation.exploitability_games=[] evaluation.matches=40 "
    "gates.on_collapse=rollback"
)
UNSEEN = "evaluation.every=1000"
ALARMS = {
    "length_to_zero": {"short_responses", "empty_reasoning", "invalid_actions", "one_seat_wins"},
    "bare_answers": {"empty_reasoning", "low_variety"},
    "one_token": {"low_variety", "same_reasoning"},
    "one_sentence": {"low_variety", "same_reasoning"},
    "same_reasoning": {"same_reasoning"},
    "one_seat_wins": {"one_seat_wins"},
    "all_invalid": {"invalid_actions", "one_seat_wins"},  # whoever moves first forfeits
}


def config(checkpoint: Path, iterations: int, more: str = UNSEEN) -> RunConfig:
    return micro_runs.config(checkpoint, f"{MORE} {more} iterations={iterations}")


def ledger_of(run: Path) -> Ledger:
    return Ledger.from_json((run / "ledger.json").read_text())


@pytest.fixture(scope="module")
def healthy(micro_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run after one good iteration, of which no later one is evaluated."""
    run = tmp_path_factory.mktemp("collapse") / "healthy"
    pipeline.train(config(micro_checkpoint, 1), run)
    return run


def collapsed(healthy: Path, run: Path, stream: str, config: RunConfig, patch: pytest.MonkeyPatch) -> Ledger:
    """Go on from the healthy run with a policy that collapses, and return the ledger."""
    shutil.copytree(healthy, run)
    patch.setenv("COLLAPSE", stream)
    pipeline.train(config, run)
    return ledger_of(run)


def test_a_healthy_iteration_raises_nothing(healthy: Path, micro_checkpoint: Path) -> None:
    assert ledger_of(healthy).decisions == ()


@pytest.mark.parametrize("stream", ALARMS)
def test_a_collapse_raises_its_alarm_in_the_first_iteration_that_shows_it(
    healthy: Path, micro_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: str
) -> None:
    ledger = collapsed(healthy, tmp_path / "run", stream, config(micro_checkpoint, 2), monkeypatch)
    (found,) = ledger.decisions
    assert found.iteration == 2
    assert set(found.alarms) == ALARMS[stream], found.reasons
    assert found.decision is Decision.ROLLBACK


def test_no_signal_at_all_raises_the_gradient_alarm(
    micro_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Every match is drawn from the second iteration on; baselines would still leave some advantage.
    monkeypatch.setenv("COLLAPSE", "no_gradient")
    games = "games=[{name: tic_tac_toe}] evaluation.matches=2 rollout.matches=4 rollout.max_invalid_share=1"
    pipeline.train(config(micro_checkpoint, 2, f"{UNSEEN} {games} rae.baseline=none"), tmp_path)
    assert "gradient_vanished" in ledger_of(tmp_path).decisions[-1].alarms


def test_a_collapse_of_the_candidate_is_seen_in_its_evaluation(
    micro_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLLAPSE", "same_reasoning")
    pipeline.train(config(micro_checkpoint, 1, ""), tmp_path)
    (found,) = ledger_of(tmp_path).decisions
    assert (found.iteration, found.decision, found.alarms) == (1, Decision.ROLLBACK, ("same_reasoning",))
    assert "in evaluation" in found.reasons[0]


def test_after_a_rollback_training_goes_on_from_the_champion_at_half_the_rate_with_a_note(
    healthy: Path, micro_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    ledger = collapsed(healthy, run, "bare_answers", config(micro_checkpoint, 3), monkeypatch)
    assert [(d.iteration, d.decision) for d in ledger.decisions] == [(2, Decision.ROLLBACK)]
    assert ledger.lr_scale == 0.5
    assert ledger.notes["iteration 2"] == "rolled back to the champion, learning rate times 0.5"
    assert [e.iteration for e in ledger.pool] == [1, 3], "what collapsed is no opponent"
    ids = micro_runs.checkpoint_ids(run)
    assert parent(run, 3) == ids[0], "the champion is still the cold start"
    expected = [micro_runs.config(micro_checkpoint).learner.lr * x for x in (1.0, 59.1 / 60, 0.5 * 58.2 / 60)]
    assert [rate(run, i) for i in (1, 2, 3)] == pytest.approx(expected)
    assert read_state(run).iteration == 3


FEW = f"{MORE} {UNSEEN} rollout.matches=8 evaluation.matches=2 iterations=3"


def test_held_training_goes_on_from_the_candidate_at_the_same_rate(
    micro_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLLAPSE", "all_invalid")
    pipeline.train(micro_runs.config(micro_checkpoint, f"{FEW} gates.on_collapse=hold"), tmp_path)
    ledger = ledger_of(tmp_path)
    assert [d.decision for d in ledger.decisions] == [Decision.HOLD, Decision.HOLD]
    assert (parent(tmp_path, 3), ledger.lr_scale) == (micro_runs.checkpoint_ids(tmp_path)[2], 1.0)


def test_a_halt_ends_the_command_with_its_exit_code(
    micro_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLLAPSE", "all_invalid")
    overrides = micro_runs.overrides(micro_checkpoint, f"{FEW} gates.on_collapse=halt")
    assert cli.run(["train", "--preset", "smoke", "--overrides", overrides, "--out", str(tmp_path / "run")]) == 1
    assert "error: the gate halted the run at iteration 2: invalid_actions" in capfd.readouterr().err
    assert ledger_of(tmp_path / "run").notes == {"halted": 2}
    assert not (tmp_path / "run" / "checkpoints" / "0003").exists()


def test_play_that_was_never_legal_stops_the_run_before_it_learns(
    micro_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # TicTacToe, which this checkpoint never saw.
    games = "games=[{name: tic_tac_toe}] evaluation.matches=2 rollout.matches=4 rollout.max_invalid_share=0"
    with pytest.raises(DataQualityError, match="invalid_share"):
        pipeline.train(config(micro_checkpoint, 1, f"{UNSEEN} {games}"), tmp_path)


def parent(run: Path, iteration: int) -> str | None:
    return checkpoints.read_manifest(run / "checkpoints" / f"{iteration:04d}").parent


def rate(run: Path, iteration: int) -> float:
    """Return the learning rate of an iteration of one step."""
    metrics = json.loads((run / "training" / f"{iteration:04d}.json").read_text())["metrics"]
    return float(metrics["learner/lr"])


@pytest.mark.slow
@pytest.mark.parametrize(("factor", "alarms"), [(1, [(), ()]), (30, [("invalid_actions",), ()])])
def test_a_thirtyfold_rate_is_caught_in_one_iteration_and_halved(
    micro_checkpoint: Path, tmp_path: Path, factor: int, alarms: list[tuple[str, ...]]
) -> None:
    lr = factor * micro_runs.config(micro_checkpoint).learner.lr
    more = f"rollout.engine=hf rollout.matches=48 rollout.steps_per_iteration=5 learner.lr={lr}"
    pipeline.train(config(micro_checkpoint, 2, more), tmp_path)
    ledger = ledger_of(tmp_path)
    assert [d.alarms for d in ledger.decisions] == alarms
    assert ledger.lr_scale == (1.0 if factor == 1 else 0.5)
