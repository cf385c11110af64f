"""The workflow on Flyte's local executor: the same hashes as the plain driver, quick help, clear refusals."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import micro_runs
import pytest
from micro_runs import checkpoint_ids, records, turns_hashes

from spiral_lib import lineage, pipeline, presets

pytest.importorskip("flytekit")

ROOT = Path(__file__).parents[2]
HEAVY = {"torch", "transformers", "vllm", "deepspeed", "pandas", "great_expectations", "lm_eval", "mlflow", "wandb"}
PYFLYTE = Path(sys.executable).with_name("pyflyte")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a command ended, and the packages that it imported."""

    code: int
    text: str
    imported: frozenset[str]


def train(*arguments: str, home: Path, timeout: float = 300) -> Outcome:
    """Run ``pyflyte run workflows/spiral.py train`` with its own cache, and wait."""
    variables = {
        **os.environ,
        "HOME": str(home),
        "TMPDIR": str(home),
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "300",
        "NO_COLOR": "1",
        "PYTHONPROFILEIMPORTTIME": "1",
    }
    command = [str(PYFLYTE), "run", "workflows/spiral.py", "train", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=timeout)
    errors = done.stderr.splitlines(keepends=True)
    imports = [line for line in errors if line.startswith("import time:")]
    return Outcome(
        code=done.returncode,
        text=done.stdout + "".join(line for line in errors if not line.startswith("import time:")),
        imported=frozenset(line.rpartition("|")[2].strip().partition(".")[0] for line in imports),
    )


def test_flyte_and_the_plain_driver_end_at_equal_hashes(
    micro_run: Path, micro_checkpoint: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    overrides = micro_runs.overrides(micro_checkpoint)
    done = train("--preset", "smoke", "--overrides", overrides, "--out", str(run), home=tmp_path)
    assert done.code == 0, done.text
    assert "TrainState(" not in done.text and f"report      {run}/report.html" in done.text
    assert checkpoint_ids(run) == checkpoint_ids(micro_run)
    assert turns_hashes(run) == turns_hashes(micro_run)
    for name in ("metrics.jsonl", "ledger.json", "state.json"):
        assert (run / name).read_text() == (micro_run / name).read_text(), name
    assert lineage.audit(run) == []
    assert str(run / "report.html") in done.text, "the user is told where to look"
    decks = [p.read_text() for p in tmp_path.rglob("deck.html")]
    assert len(decks) == 3, "one an iteration, and one at the end"
    assert all("exploitability" in deck for deck in decks)


def test_mapped_shards_end_at_the_hashes_of_the_plain_driver_and_a_second_run_computes_nothing(
    micro_checkpoint: Path, tmp_path: Path
) -> None:
    more = f"{micro_runs.WITHOUT_EVALUATION} rollout.shards=3"
    plain, run = tmp_path / "plain", tmp_path / "run"
    pipeline.train(micro_runs.config(micro_checkpoint, more), plain)
    arguments = ("--preset", "smoke", "--overrides", micro_runs.overrides(micro_checkpoint, more), "--out", str(run))
    done = train(*arguments, home=tmp_path)
    assert done.code == 0, done.text
    assert len(turns_hashes(run)) == 6
    assert turns_hashes(run) == turns_hashes(plain)
    assert checkpoint_ids(run) == checkpoint_ids(plain)
    before = records(run)
    again = train(*arguments, home=tmp_path)
    assert again.code == 0, again.text
    assert records(run) == before


def test_a_halt_ends_the_command_with_its_reasons(micro_checkpoint: Path, tmp_path: Path) -> None:
    more = "gates.on_collapse=halt gates.max_empty_share=0 gates.min_length_share=1 gates.max_invalid_share=0"
    run = tmp_path / "run"
    overrides = micro_runs.overrides(micro_checkpoint, f"{more} evaluation.bank=false")
    halted = train("--preset", "smoke", "--overrides", overrides, "--out", str(run), home=tmp_path)
    assert halted.code not in (0, None)
    assert "the gate halted the run at iteration 1" in " ".join(halted.text.replace("│", " ").split())
    assert "Traceback" not in halted.text
    assert (run / "report.html").exists()


def test_help_is_quick_and_explains_every_option(tmp_path: Path) -> None:
    shown = train("--help", home=tmp_path)
    assert shown.code == 0
    assert "flytekit" in shown.imported and not shown.imported & HEAVY
    for option, text in {
        "--preset": "configuration to start from",
        "--config": "YAML file",
        "--overrides": "learner.lr",
        "--resume_from": "run folder",
        "--out": "run folder, or the URL of a store",
    }.items():
        lines = [line for line in shown.text.splitlines() if option in line]
        assert any(text in line for line in lines), option
    assert all(name in shown.text for name in presets.names())


LOADED = """
import importlib, json, pkgutil, sys
import workflows.spiral
loaded = sorted(sys.modules)
for module in pkgutil.iter_modules(workflows.__path__):
    importlib.import_module(f"workflows.{module.name}")
files = {str(getattr(m, "__spec__", None) and m.__spec__.origin) for m in list(sys.modules.values())}
print(json.dumps({"by_training": loaded, "files": sorted(files)}))
"""


@pytest.fixture(scope="module")
def loaded() -> dict[str, list[str]]:
    """What is loaded by importing the training workflow in a fresh interpreter, and then the other workflows too."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", LOADED], cwd=ROOT, env=variables, capture_output=True, text=True, check=True
    )
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


def test_importing_the_workflows_loads_every_module_that_a_remote_run_must_ship(loaded: dict[str, list[str]]) -> None:
    library = {p.relative_to(ROOT).with_suffix("") for p in (ROOT / "spiral_lib").rglob("*.py")}
    names = {".".join(p.parts).removesuffix(".__init__") for p in library}
    assert len(names) > 80
    assert names - set(loaded["by_training"]) == set()
    tasks = {str(p) for p in (ROOT / "tasks").rglob("*.py")}
    assert tasks - set(loaded["files"]) == set(), "each task belongs to a workflow"


def test_importing_the_workflow_loads_nothing_heavy(loaded: dict[str, list[str]]) -> None:
    heavy = {"torch", "transformers", "vllm", "deepspeed", "great_expectations", "lm_eval", "pyspiel", "textarena"}
    modules = loaded["by_training"]
    assert heavy & set(modules) == set()
    # flytekit itself registers pandas without executing it.
    assert [m for m in modules if m.startswith("pandas.")] == []


def refusals() -> dict[str, tuple[list[str], str]]:
    """Return arguments that must be refused, and what the message must say."""
    return {
        "unknown preset": (["--preset", "tinny"], "'tinny'"),
        "misspelt key": (["--overrides", "learner.lrr=1"], "Did you mean 'learner.lr'?"),
        "missing checkpoint": (["--overrides", "model.source=checkpoint:/nowhere/at/all"], "/nowhere/at/all"),
        "missing model folder": (["--overrides", "model.source=hf:/nowhere/at/all"], "there is no such folder"),
        "broken YAML": (["--config", "broken.yaml"], "not valid YAML"),
        "binary YAML": (["--config", "binary.yaml"], "cannot read config"),
        "missing YAML": (["--config", "/nowhere/at/all.yaml"], "/nowhere/at/all.yaml"),
        "unknown game": (["--overrides", "games=[kuhn_pocker]"], "unknown game 'kuhn_pocker'"),
        "negative size": (["--overrides", "rollout.matches=-3"], "rollout.matches"),
        "missing run": (["--resume_from", "/nowhere/at/all"], "/nowhere/at/all"),
        "no run folder": (["--resume_from", "."], "no run folder"),
    }


@pytest.mark.parametrize("name", refusals())
def test_bad_input_is_refused_in_one_message_at_once_and_leaves_nothing(name: str, tmp_path: Path) -> None:
    arguments, text = refusals()[name]
    (tmp_path / "broken.yaml").write_text("learner: {lr: 1\nrollout: [")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00seed")
    placed = [str(tmp_path / a) if a.endswith(".yaml") and not a.startswith("/") else a for a in arguments]
    placed = [str(tmp_path) if a == "." else a for a in placed]
    out = tmp_path / "run"
    refused = train(*placed, "--out", str(out), home=tmp_path)
    assert refused.code not in (0, None)
    assert text in " ".join(refused.text.replace("│", " ").split())
    assert "Traceback" not in refused.text
    assert refused.text.count("Error") == 1
    assert not refused.imported & HEAVY
    assert not out.exists()
