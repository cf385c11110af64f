"""What a run shows follows from what its steps made: edits and deletions are seen, and an intact run is whole."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import micro_runs
import pytest

from spiral_lib import cli, lineage, pipeline, published, retention
from spiral_lib.retention import Rule

LEAN = f"{micro_runs.WITHOUT_EVALUATION} iterations=1"


@pytest.fixture
def run(micro_run: Path, tmp_path: Path) -> Path:
    """A copy of a run of two iterations."""
    return Path(shutil.copytree(micro_run, tmp_path / "run"))


def paths(run: Path) -> set[str]:
    return {problem.path for problem in published.problems(run)}


def edit(name: str, old: str, new: str) -> Callable[[Path], None]:
    def change(run: Path) -> None:
        text = (run / name).read_text()
        assert old in text
        (run / name).write_text(text.replace(old, new, 1))

    return change


def delete(pattern: str) -> Callable[[Path], None]:
    def change(run: Path) -> None:
        (found,) = run.glob(pattern)
        shutil.rmtree(found) if found.is_dir() else found.unlink()

    return change


def copied(source: str, target: str) -> Callable[[Path], object]:
    return lambda run: shutil.copytree(run / source, run / target)


def damage_snapshot(run: Path) -> None:
    weights = next((run / "pool").glob("0001-*/model.safetensors"))
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.unlink()  # its bytes are those of the checkpoint, too
    weights.write_bytes(content)


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "config edited": (edit("config.yaml", "seed: ", "seed: 1"), "config.yaml"),
    "config lost": (delete("config.yaml"), "config.yaml"),
    "config nested deeply": (lambda run: (run / "config.yaml").write_text("[" * 5000), "config.yaml"),
    "ledger edited": (edit("ledger.json", '"holds": ', '"holds": 1'), "ledger.json"),
    "ledger lost": (delete("ledger.json"), "ledger.json"),
    "ledgers lost": (delete("ledgers"), "ledgers"),
    "metrics edited": (edit("metrics.jsonl", "0.", "0.9"), "metrics.jsonl"),
    "metrics lost": (delete("metrics.jsonl"), "metrics.jsonl"),
    "steps edited": (edit("steps.jsonl", "0.", "0.9"), "steps.jsonl"),
    "steps lost": (delete("steps.jsonl"), "steps.jsonl"),
    "training lost": (delete("training/0001.json"), "training"),
    "state lost": (delete("state.json"), "state.json"),
    "state damaged": (lambda run: (run / "state.json").write_text("[" * 100_000), "state.json"),
    "state of another iteration": (edit("state.json", '"iteration": 2', '"iteration": 1'), "state.json"),
    "state with another ledger": (edit("state.json", "ledgers/0002.json", "ledgers/0001.json"), "state.json"),
    "state with a lost path": (edit("state.json", "optimizer/0002", "optimizer/0007"), "state.json"),
    "state with a number for a path": (edit("state.json", '"ledgers/0002.json"', "5"), "state.json"),
    "snapshot damaged": (damage_snapshot, "pool/0001-"),
    "snapshot lost": (delete("pool/0001-*"), "pool/0001-"),
    "snapshot added": (copied("checkpoints/0001", "pool/0003-x"), "pool/0003-x"),
    "checkpoint added": (copied("checkpoints/0001", "checkpoints/0003"), "checkpoints/0003"),
    "begin lost": (delete("lineage/0000-begin.json"), "lineage/0000-begin.json"),
    "learn lost": (delete("lineage/0002-learn.json"), "lineage/0002-learn.json"),
    "decide lost": (delete("lineage/0002-decide.json"), "lineage/0002-decide.json"),
    "evaluate lost": (delete("lineage/0002-evaluate.json"), "lineage/0002-evaluate.json"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_every_change_of_a_finished_run_is_seen(run: Path, name: str) -> None:
    assert published.problems(run) == []
    change, path = CHANGES[name]
    change(run)
    assert any(found.startswith(path) for found in paths(run)), paths(run)


def test_a_state_with_another_champion_is_seen(run: Path) -> None:
    state = json.loads((run / "state.json").read_text())
    other = next(c for c in ("checkpoints/0000", "checkpoints/0001") if c != state["champion"])
    (run / "state.json").write_text(json.dumps(state | {"champion": other}))
    assert paths(run) == {"state.json"}


def test_an_extended_run_is_whole_and_asking_for_less_changes_nothing(run: Path, micro_checkpoint: Path) -> None:
    pipeline.train(micro_runs.config(micro_checkpoint, "iterations=3"), run)
    assert lineage.audit(run) + published.problems(run) == []
    pipeline.train(micro_runs.config(micro_checkpoint, "iterations=1"), run)
    assert paths(run) == set()


def test_a_run_that_goes_on_from_another_is_whole_at_every_moment(
    micro_run: Path, micro_checkpoint: Path, tmp_path: Path
) -> None:
    run, found = tmp_path / "next", []
    config = micro_runs.config(micro_checkpoint, f"{LEAN} seed=5")
    pipeline.train(config, run, resume_from=micro_run, on_state=lambda s: found.append(published.problems(run)))
    assert found == [[], []]
    (run / "lineage" / "0000-adopt-ledger.json").unlink()
    assert len(published.problems(run)) == 1


def test_several_steps_an_iteration_are_a_whole_run(micro_checkpoint: Path, tmp_path: Path) -> None:
    config = micro_runs.config(micro_checkpoint, f"{LEAN} rollout.steps_per_iteration=2")
    pipeline.train(config, tmp_path / "run")
    assert published.problems(tmp_path / "run") == []
    (tmp_path / "run" / "lineage" / "0001-segment.json").unlink()
    assert "lineage/0001-learn.json" in paths(tmp_path / "run")


def test_what_expired_by_rule_is_no_difference(run: Path, micro_checkpoint: Path) -> None:
    more = "opponents.capacity=1 opponents.keep_recent=1 iterations=3"
    shutil.rmtree(run)
    pipeline.train(micro_runs.config(micro_checkpoint, f"{micro_runs.WITHOUT_EVALUATION} {more}"), run)
    assert retention.expire(run, Rule(keep_recent=1, keep_shards=1)) != []
    assert published.problems(run) == []


def test_the_command_tells_both_lists(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["audit", str(run)]) == 0
    capsys.readouterr()
    (run / "metrics.jsonl").write_text("")
    (run / "evaluations" / "0001.json").write_text("{}")
    assert cli.run(["audit", str(run), "--json"]) == 1
    found = {problem["path"] for problem in json.loads(capsys.readouterr().out)["problems"]}
    assert {"metrics.jsonl", "evaluations/0001.json"} <= found


def test_what_a_run_shows_is_repaired_by_training_again(run: Path, micro_checkpoint: Path) -> None:
    damage_snapshot(run)
    for name in ("metrics.jsonl", "ledger.json", "state.json", "steps.jsonl"):
        (run / name).unlink()
    before = micro_runs.records(run)
    pipeline.train(micro_runs.config(micro_checkpoint), run)
    assert micro_runs.records(run) == before and published.problems(run) == []


@pytest.mark.parametrize(
    "command",
    [
        ("eval", "{0}"),
        ("tournament", "random", "checkpoint:{0}", "--game", "kuhn_poker", "--matches", "2"),
        ("play", "kuhn_poker", "--seats", "random,checkpoint:{0}"),
    ],
    ids=lambda command: command[0],
)
def test_a_checkpoint_that_differs_from_its_manifest_neither_plays_nor_is_measured(
    run: Path, command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = run / "checkpoints" / "0002"
    weights = checkpoint / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert cli.run([part.format(checkpoint) for part in command]) == 2
    assert "'model.safetensors' differs from its manifest" in capsys.readouterr().err
