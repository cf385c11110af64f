"""A Flyte run that goes on under other rewards: the bank before and after, and the plain driver's decision."""

from __future__ import annotations

from pathlib import Path

import micro_runs
import pytest
from test_driver import train

from spiral_lib import gates, lineage, pipeline
from spiral_lib.ledger import Ledger
from spiral_lib.types import Evaluation

pytest.importorskip("flytekit")
CHANGED = "iterations=1 evaluation.every=1000 rewards.forfeit=upstream"


def ledger_of(run: Path, name: str = "ledger.json") -> Ledger:
    return Ledger.from_json((run / name).read_text())


@pytest.mark.slow
def test_other_rewards_measure_the_bank_before_and_after_and_the_gate_compares_them(
    micro_run: Path, micro_checkpoint: Path, tmp_path: Path
) -> None:
    run, plain = tmp_path / "run", tmp_path / "plain"
    overrides = micro_runs.overrides(micro_checkpoint, CHANGED)
    arguments = ("--preset", "smoke", "--overrides", overrides, "--resume_from", str(micro_run), "--out", str(run))
    done = train(*arguments, home=tmp_path, timeout=500)
    assert done.code == 0, done.text
    before = Evaluation.from_json((run / "evaluations" / "0000.json").read_text())
    after = Evaluation.from_json((run / "evaluations" / "0001.json").read_text())
    assert len(before.bank_correct) == len(after.bank_correct) == 4
    adopted = ledger_of(run, "ledgers/0000.json")
    assert adopted.reward_change is not None and adopted.reward_change.bank_correct == before.bank_correct
    assert '"zero_sum"' in adopted.reward_change.before and '"upstream"' in adopted.reward_change.after
    config = micro_runs.config(micro_checkpoint, CHANGED)
    (compared,) = gates.since_reward_change(after, adopted, config)
    assert (compared.name, compared.against) == ("bank accuracy", "time before the reward change")
    assert lineage.audit(run) == []
    pipeline.train(config, plain, resume_from=micro_run)
    assert ledger_of(run).decisions == ledger_of(plain).decisions and len(ledger_of(run).decisions) == 1
    for name in ("evaluations/0000.json", "evaluations/0001.json", "ledger.json"):
        assert (run / name).read_text() == (plain / name).read_text(), name


@pytest.mark.slow
def test_other_rewards_without_the_bank_are_refused(micro_run: Path, micro_checkpoint: Path, tmp_path: Path) -> None:
    overrides = micro_runs.overrides(micro_checkpoint, f"{CHANGED} evaluation.bank=false")
    run = tmp_path / "run"
    arguments = ("--preset", "smoke", "--overrides", overrides, "--resume_from", str(micro_run), "--out", str(run))
    refused = train(*arguments, home=tmp_path, timeout=500)
    assert refused.code not in (0, None) and "evaluation.bank=true" in refused.text
    assert "Traceback" not in refused.text and not (run / "evaluations").exists()
