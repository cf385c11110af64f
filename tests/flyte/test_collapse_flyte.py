"""A collapse on Flyte: the same alarms, rollback and state as in the plain driver; a halt stops it."""

from __future__ import annotations

from pathlib import Path

import micro_runs
import pytest
from micro_runs import checkpoint_ids
from test_driver import train

from spiral_lib import pipeline
from spiral_lib.errors import SpiralError
from spiral_lib.ledger import Ledger
from spiral_lib.types import Decision

COLLAPSE = (
    "rollout.engine=tests.collapse_engine:ENGINE rollout.max_invalid_share=0.95 opponents.pool=0 evaluation.every=1000 "
    "evaluation.bank=false evaluation.exploitability_games=[] iterations=3"
)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["rollback", "halt"])
def test_a_collapse_on_flyte_ends_as_in_the_plain_driver(
    micro_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    monkeypatch.setenv("COLLAPSE", "all_invalid")
    more = f"{COLLAPSE} gates.on_collapse={policy}"
    plain, run = tmp_path / "plain", tmp_path / "run"
    if policy == "halt":
        with pytest.raises(SpiralError, match="halted the run at iteration 2"):
            pipeline.train(micro_runs.config(micro_checkpoint, more), plain)
    else:
        pipeline.train(micro_runs.config(micro_checkpoint, more), plain)
    overrides = micro_runs.overrides(micro_checkpoint, more)
    done = train("--preset", "smoke", "--overrides", overrides, "--out", str(run), home=tmp_path)
    assert (done.code == 0) is (policy == "rollback"), done.text
    assert ("halted the run at iteration 2" in " ".join(done.text.split())) is (policy == "halt")
    assert (run / "ledger.json").read_text() == (plain / "ledger.json").read_text()
    assert checkpoint_ids(run) == checkpoint_ids(plain)
    ledger = Ledger.from_json((run / "ledger.json").read_text())
    first = Decision.ROLLBACK if policy == "rollback" else Decision.HOLD
    assert (ledger.decisions[0].iteration, ledger.decisions[0].decision) == (2, first)
    assert ledger.lr_scale == (0.5 if policy == "rollback" else 1.0)
