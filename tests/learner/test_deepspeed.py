"""The learner on two processes under DeepSpeed: the same weights as alone, at every stage, and one state for all."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import deepspeed_cases as cases
import micro_runs
import pytest
from learner_cases import furthest, same_bits, settings, weights
from safetensors.torch import load_file
from test_learner import checkpoint, played

from spiral_lib import checkpoints, lineage, pipeline
from spiral_lib.errors import LearnerError
from spiral_lib.learner import averaging, backends, launch
from spiral_lib.learner.loop import PolicyUpdate
from spiral_lib.learner.update import Learner
from spiral_lib.rae import RoleBaselines

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        importlib.util.find_spec("deepspeed") is None,
        reason="deepspeed is not installed: pip install --no-build-isolation deepspeed==0.19.8",
    ),
]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of what two processes made of all cases."""
    return launched(tmp_path_factory.mktemp("deepspeed"), processes=2)


def launched(out: Path, *chosen: str, processes: int) -> Path:
    here = Path(__file__).parent
    paths = os.pathsep.join([str(here), str(here.parents[1])])
    environment = os.environ | {"PYTHONPATH": paths, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    command += [str(here / "deepspeed_cases.py"), str(out), *chosen]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return out


def found(results: Path, name: str) -> tuple[dict[str, Any], dict[str, float]]:
    text = (results / name / "metrics.json").read_text()
    return load_file(results / name / "weights.safetensors"), json.loads(text)


@pytest.fixture(scope="module")
def expected() -> tuple[PolicyUpdate, dict[str, float]]:
    """The loop and metrics after three steps alone."""
    return cases.alone()


@pytest.mark.parametrize("name", ["stage_1", "stage_2", "stage_3", "offload"])
def test_three_steps_on_two_processes_equal_three_steps_alone(results: Path, expected: Any, name: str) -> None:
    (loop, metrics), (spread, theirs) = expected, found(results, name)
    assert furthest(weights(loop.model), spread) < 1e-5
    assert theirs.keys() == metrics.keys()
    assert all(theirs[k] == pytest.approx(metrics[k], rel=1e-3, abs=1e-5) for k in metrics)


@pytest.mark.parametrize("name", ["stage_1", "stage_2", "stage_3"])
def test_moments_written_at_any_stage_are_those_of_one_process(
    results: Path, expected: Any, name: str, tmp_path: Path
) -> None:
    expected[0].save_optimizer(tmp_path / "o")
    ours, theirs = (load_file(d / backends.OPTIMIZER_FILE) for d in (tmp_path / "o", results / name / "optimizer"))
    assert ours.keys() == theirs.keys()
    assert furthest(ours, theirs) < 1e-5
    steps = [(d / backends.STEPS_FILE).read_text() for d in (tmp_path / "o", results / name / "optimizer")]
    assert steps[0] == steps[1]


@pytest.mark.parametrize("name", list(cases.RESUMED))
def test_a_state_saved_at_stage_two_resumes_at_another(results: Path, expected: Any, name: str) -> None:
    assert furthest(weights(expected[0].model), found(results, name)[0]) < 2e-6


def test_a_state_saved_by_two_processes_resumes_in_the_torch_backend(results: Path, expected: Any) -> None:
    loop, _ = cases.trained(
        cases.configuration(), backends.make, cases.samples(), range(3, 4), state=results / "half"
    )
    assert furthest(weights(expected[0].model), weights(loop.model)) < 2e-6


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_a_nan_in_one_process_is_dropped_by_all(results: Path, stage: int) -> None:
    loop, metrics = cases.alone("epochs=1", steps=1, rows=cases.spoilt())
    spread, theirs = found(results, f"spoilt_{stage}")
    assert (theirs["learner/skipped"], theirs["learner/optimizer_steps"]) == (1, 1)
    assert (metrics["learner/skipped"], metrics["learner/optimizer_steps"]) == (1, 1)
    assert furthest(weights(loop.model), spread) < 1e-5


def test_a_nan_in_the_only_process_is_dropped(tmp_path: Path) -> None:
    names = [f"spoilt_{stage}" for stage in (1, 2, 3)]
    results = launched(tmp_path, *names, processes=1)
    loop, _ = cases.alone("epochs=1", steps=1, rows=cases.spoilt())
    for name in names:
        one, metrics = found(results, name)
        assert (metrics["learner/skipped"], metrics["learner/optimizer_steps"]) == (1, 1), name
        assert furthest(weights(loop.model), one) < 1e-5, name


def test_bfloat16_weights_have_float32_masters(results: Path) -> None:
    before, after = weights(cases.model()), found(results, "low")[0]
    moved = {n: float((before[n] - after[n]).abs().max()) for n in before}
    # Two steps of two passes over two mini-batches move a weight by about the rate each; bfloat16 would round it away.
    assert all(1e-6 < m < 1.2e-5 for m in moved.values()), moved


def test_a_step_without_a_signal_leaves_weights_and_state(results: Path) -> None:
    spread, metrics = found(results, "nothing")
    assert metrics["learner/no_signal"] == 1.0
    assert same_bits(weights(cases.model()), spread)
    assert json.loads((results / "nothing" / "optimizer" / backends.STEPS_FILE).read_text()) == {"steps": {}}


def test_the_learner_runs_its_step_in_processes_and_saves_an_ordinary_checkpoint(tmp_path: Path) -> None:
    start = checkpoint(tmp_path / "start")
    episodes = played(checkpoints.load_model(start))
    # One first gradient here is as small as AdamW's epsilon, so that its rounding moves a weight by 1 % of the rate.
    text = "max_mismatch=100.0 minibatch=5 lr=1e-4"
    plain = Learner(start, None, settings(text))
    spread = Learner(start, None, settings(f"{text} backend=deepspeed processes=2 zero_stage=3"))
    m1, m2 = (x.step(episodes, RoleBaselines(0.95), step=1) for x in (plain, spread))
    assert m2 == pytest.approx(m1, rel=1e-3, abs=1e-5)
    assert furthest(dict(plain.state_dict()), dict(spread.state_dict())) < 1e-5
    manifest = spread.save(tmp_path / "one", iteration=1)
    assert checkpoints.verify(tmp_path / "one") == manifest
    assert manifest.parent == checkpoints.read_manifest(start).id
    assert same_bits(dict(checkpoints.load_model(tmp_path / "one").state_dict()), dict(spread.state_dict()))
    plain.save_optimizer(tmp_path / "plain")
    spread.save_optimizer(tmp_path / "optimizer")
    moments = [load_file(tmp_path / name / backends.OPTIMIZER_FILE) for name in ("plain", "optimizer")]
    assert furthest(*moments) < 1e-6
    resumed = Learner(tmp_path / "one", None, settings(text), tmp_path / "optimizer")
    assert resumed.step(episodes, RoleBaselines(0.95), step=2)["learner/optimizer_steps"] > 0


def test_a_run_on_two_processes_goes_where_a_run_on_one_does(micro_checkpoint: Path, tmp_path: Path) -> None:
    """Two iterations through the steps, with a moving average that is published while the live weights go on."""
    alone, spread = tmp_path / "alone", tmp_path / "spread"
    more = f"{micro_runs.WITHOUT_EVALUATION} gates.enabled=false learner.lr=1e-4 learner.ema_decay=0.9"
    pipeline.train(micro_runs.config(micro_checkpoint, more), alone)
    text = f"{more} learner.backend=deepspeed learner.processes=2 learner.zero_stage=3"
    pipeline.train(micro_runs.config(micro_checkpoint, text), spread)
    assert lineage.audit(spread) == []
    for i in ("0001", "0002"):
        published = [load_file(run / "checkpoints" / i / "model.safetensors") for run in (alone, spread)]
        live = [averaging.read_live(run / "optimizer" / i) for run in (alone, spread)]
        moments = [load_file(run / "optimizer" / i / backends.OPTIMIZER_FILE) for run in (alone, spread)]
        assert furthest(*published) < 1e-5
        assert live[0] and live[1] and furthest(*live) < 1e-5
        assert furthest(*moments) < 1e-5
        assert furthest(published[1], {n: live[1][n] for n in published[1]}) > 5e-5, "the average lags behind"


def test_an_error_of_the_processes_is_raised_as_it_is(tmp_path: Path) -> None:
    start = checkpoint(tmp_path / "start")
    rows = cases.sampled(checkpoints.load_model(start), 20, temperature=0.5)
    job = launch.RemoteUpdate(start, None, settings("backend=deepspeed processes=2"), None)
    with pytest.raises(LearnerError, match=r"learner\.max_mismatch=0\.02"):
        job.run(rows, step=1)
