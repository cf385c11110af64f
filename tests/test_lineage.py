import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from spiral_lib import durable, lineage, presets
from spiral_lib.errors import LineageError
from spiral_lib.ledger import Ledger
from spiral_lib.lineage import StepRecord

CONFIG = presets.get("smoke")


def ran(run: Path, step: str, order: int, inputs: dict[str, str], output: str, **changes: object) -> StepRecord:
    """Run a step whose output is its name and its inputs' text."""
    out = run / output

    def body() -> None:
        text = "".join((run / path).read_text() for path in inputs.values())
        durable.write_text(out, f"{step}({text})")

    arguments = {"values": {}, "config": CONFIG, "body": body} | changes
    return lineage.run_step(
        step,
        run=run,
        order=order,
        inputs={name: run / path for name, path in inputs.items()},
        outputs={"out": out},
        **arguments,
    )


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    ran(tmp_path, "start", 0, {}, "a.txt")
    ran(tmp_path, "play", 1, {"from": "a.txt"}, "b.txt")
    ran(tmp_path, "learn", 1, {"from": "b.txt"}, "c.txt")
    return tmp_path


def forbidden() -> None:
    raise AssertionError("the body ran again")


def test_a_whole_run_has_no_problems(chain: Path) -> None:
    assert lineage.audit(chain) == []


def test_a_finished_step_is_not_run_again(chain: Path) -> None:
    before = lineage.read_all(chain)
    again = ran(chain, "play", 1, {"from": "a.txt"}, "b.txt", body=forbidden)
    assert again in before
    assert lineage.read_all(chain) == before


def spoil_output(run: Path) -> None:
    (run / "b.txt").write_text("x")


def remove_output(run: Path) -> None:
    (run / "b.txt").unlink()


def change_input(run: Path) -> None:
    (run / "a.txt").write_text("x")


def remove_record(run: Path) -> None:
    (run / "lineage" / "0001-play.json").unlink()


def damage_record(run: Path) -> None:
    file = run / "lineage" / "0001-play.json"
    file.write_text(file.read_text()[:-20])


@pytest.mark.parametrize("change", [spoil_output, remove_output, change_input, remove_record, damage_record])
def test_a_step_runs_again_when_disk_and_record_differ(chain: Path, change: Callable[[Path], None]) -> None:
    change(chain)
    record = ran(chain, "play", 1, {"from": "a.txt"}, "b.txt")
    assert (chain / "b.txt").read_text() == f"play({(chain / 'a.txt').read_text()})"
    assert record.outputs["out"].sha256 == durable.digest_path(chain / "b.txt")
    assert record in lineage.read_all(chain)


@pytest.mark.parametrize(
    "changes",
    [
        {"values": {"step": 2}},
        {"config": dataclasses.replace(CONFIG, seed=1)},
        {"sources": ("from",)},
    ],
)
def test_a_step_runs_again_for_other_values_or_configuration(chain: Path, changes: dict[str, object]) -> None:
    with pytest.raises(AssertionError, match="ran again"):
        ran(chain, "play", 1, {"from": "a.txt"}, "b.txt", body=forbidden, **changes)


def test_a_step_runs_again_after_the_code_changed(chain: Path) -> None:
    record = next(r for r in lineage.read_all(chain) if r.step == "play")
    lineage.write(chain, dataclasses.replace(record, code_version="0" * 16))
    with pytest.raises(AssertionError, match="ran again"):
        ran(chain, "play", 1, {"from": "a.txt"}, "b.txt", body=forbidden)


def test_an_extended_run_keeps_its_finished_steps(chain: Path) -> None:
    longer = dataclasses.replace(CONFIG, iterations=99)
    ran(chain, "play", 1, {"from": "a.txt"}, "b.txt", body=forbidden, config=longer)


def test_values_are_kept_exactly(tmp_path: Path) -> None:
    values = {"seed": 2**53 + 1, "rate": 0.1, "flag": True, "names": ("a", "b")}
    ran(tmp_path, "start", 0, {}, "a.txt", values=values)
    assert lineage.read_all(tmp_path)[0].values == values | {"names": ["a", "b"]}
    ran(tmp_path, "start", 0, {}, "a.txt", values=values, body=forbidden)


def test_a_record_says_under_what_conditions_a_step_ran(chain: Path) -> None:
    record = lineage.read_all(chain)[0]
    assert {"python", "torch", "transformers", "pyarrow"} <= set(record.packages)
    assert (record.seed, record.engine, record.dtype) == (0, "hf", "float32")
    assert record.device
    assert record.threads >= 1
    assert record.seconds >= 0
    assert record.start.endswith("+00:00")
    assert StepRecord.from_json(record.to_json()) == record


def test_a_missing_input_is_named(tmp_path: Path) -> None:
    with pytest.raises(LineageError, match=r"'from' is missing.*gone\.txt"):
        ran(tmp_path, "play", 1, {"from": "gone.txt"}, "b.txt")


def test_a_step_that_does_not_write_its_output_is_not_recorded(tmp_path: Path) -> None:
    with pytest.raises(LineageError, match="did not write its output 'out'"):
        ran(tmp_path, "start", 0, {}, "a.txt", body=lambda: None)
    assert lineage.read_all(tmp_path) == []


def test_a_step_that_fails_is_not_recorded(tmp_path: Path) -> None:
    def body() -> None:
        durable.write_text(tmp_path / "a.txt", "half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        ran(tmp_path, "start", 0, {}, "a.txt", body=body)
    ran(tmp_path, "start", 0, {}, "a.txt")
    assert (tmp_path / "a.txt").read_text() == "start()"


def test_a_step_may_not_overwrite_its_input(chain: Path) -> None:
    with pytest.raises(ValueError, match="would overwrite its input"):
        ran(chain, "decide", 1, {"from": "a.txt"}, "a.txt")


@pytest.mark.parametrize("name", ["", "a/b", "../a", "a b"])
def test_a_step_name_must_fit_in_a_file_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="file name"):
        ran(tmp_path, name, 0, {}, "a.txt")


@pytest.mark.parametrize("path", ["a.txt", "b.txt", "c.txt"])
def test_audit_names_the_step_and_path_of_changed_bytes(chain: Path, path: str) -> None:
    (chain / path).write_text("forged")
    problems = lineage.audit(chain)
    assert [p.path for p in problems] == [path]
    assert "hashes to" in problems[0].reason


def test_audit_finds_a_missing_output(chain: Path) -> None:
    (chain / "b.txt").unlink()
    assert [str(p) for p in lineage.audit(chain)] == ["play: b.txt: is missing"]


def test_audit_finds_a_file_inside_a_folder(tmp_path: Path) -> None:
    def body() -> None:
        with durable.new_folder(tmp_path / "folder") as folder:
            (folder / "x").write_text("1")

    lineage.run_step(
        "start", run=tmp_path, order=0, config=CONFIG, inputs={}, values={}, outputs={"f": tmp_path / "folder"},
        body=body,
    )
    assert lineage.audit(tmp_path) == []
    (tmp_path / "folder" / "y").write_text("added")
    assert [p.path for p in lineage.audit(tmp_path)] == ["folder"]


def test_audit_finds_bytes_and_record_forged_together(chain: Path) -> None:
    (chain / "b.txt").write_text("forged")
    record = next(r for r in lineage.read_all(chain) if r.step == "play")
    forged = dataclasses.replace(record.outputs["out"], sha256=durable.digest_path(chain / "b.txt"))
    lineage.write(chain, dataclasses.replace(record, outputs={"out": forged}))
    assert [(p.step, p.path) for p in lineage.audit(chain)] == [("learn", "b.txt")]


def test_audit_finds_an_input_from_nowhere_unless_it_is_declared(tmp_path: Path) -> None:
    (tmp_path / "given.txt").write_text("1")
    ran(tmp_path, "play", 1, {"from": "given.txt"}, "b.txt")
    assert [p.path for p in lineage.audit(tmp_path)] == ["given.txt"]
    ran(tmp_path, "play", 1, {"from": "given.txt"}, "b.txt", sources=("from",))
    assert lineage.audit(tmp_path) == []
    (tmp_path / "given.txt").write_text("2")
    assert [p.path for p in lineage.audit(tmp_path)] == ["given.txt"]


def test_audit_finds_an_input_made_only_later(tmp_path: Path) -> None:
    ran(tmp_path, "late", 2, {}, "z.txt")
    ran(tmp_path, "early", 1, {"from": "z.txt"}, "b.txt")
    assert [p.step for p in lineage.audit(tmp_path)] == ["early"]


def test_audit_names_a_damaged_record(chain: Path) -> None:
    damage_record(chain)
    assert "0001-play" in {p.step for p in lineage.audit(chain)}
    with pytest.raises(LineageError, match=r"0001-play\.json"):
        lineage.read_all(chain)


@pytest.mark.parametrize("field", ["path", "sha256"])
@pytest.mark.parametrize("value", [5, None, ["b.txt"], {}])
@pytest.mark.parametrize("side", ["inputs", "outputs"])
def test_a_record_with_another_type_in_it_is_damaged(chain: Path, field: str, value: object, side: str) -> None:
    file = lineage.record_path(chain, 1, "learn")
    content = json.loads(file.read_text())
    next(iter(content[side].values()))[field] = value
    file.write_text(json.dumps(content))
    assert "0001-learn" in {p.step for p in lineage.audit(chain)}


@pytest.mark.parametrize("change", [{"order": "1"}, {"order": None}, {"step": 4}, {"sources": [1]}])
def test_a_record_with_another_order_or_name_is_damaged(chain: Path, change: dict[str, object]) -> None:
    file = lineage.record_path(chain, 1, "learn")
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    assert "0001-learn" in {p.step for p in lineage.audit(chain)}


@pytest.mark.parametrize("kind", ["absolute", "upwards"])
def test_an_output_outside_the_run_is_a_problem_and_is_not_read(tmp_path: Path, kind: str) -> None:
    run, outside = tmp_path / "run", tmp_path / "outside.txt"
    ran(run, "start", 0, {}, "a.txt")
    outside.write_text((run / "a.txt").read_text())
    file = lineage.record_path(run, 0, "start")
    content = json.loads(file.read_text())
    content["outputs"]["out"]["path"] = str(outside) if kind == "absolute" else "../outside.txt"
    file.write_text(json.dumps(content))
    # Its hash is right, and still it does not count.
    assert [p.reason for p in lineage.audit(run)] == ["lies outside the run folder"]


def test_an_unreadable_name_is_a_problem(chain: Path) -> None:
    file = lineage.record_path(chain, 1, "learn")
    content = json.loads(file.read_text())
    content["outputs"]["out"]["path"] = "c" * 5000
    file.write_text(json.dumps(content))
    assert [p.step for p in lineage.audit(chain)] == ["learn"]


def test_deeply_nested_json_is_damage(chain: Path) -> None:
    lineage.record_path(chain, 1, "learn").write_text("[" * 100_000)
    assert [p.step for p in lineage.audit(chain)] == ["0001-learn"]
    assert [r.step for r in lineage.read_sound(chain)] == ["start", "play"]
    with pytest.raises(LineageError, match="no ledger"):
        Ledger.from_json("[" * 100_000)


def test_audit_of_nothing_is_a_problem(tmp_path: Path) -> None:
    assert len(lineage.audit(tmp_path)) == 1


def test_a_quarantined_output_is_hashed_where_it_lies(chain: Path) -> None:
    (chain / "quarantine").mkdir()
    (chain / "b.txt").rename(chain / "quarantine" / "b.txt")
    assert [p.reason for p in lineage.audit(chain)] == ["is missing"]
    (chain / "quarantine" / "b.txt.json").write_text(json.dumps({"path": "b.txt"}))
    assert lineage.audit(chain) == []
    (chain / "quarantine" / "b.txt").write_text("forged")
    assert len(lineage.audit(chain)) == 1


KILLED = """
import sys, time
from pathlib import Path
from spiral_lib import durable, lineage, presets
run = Path(sys.argv[1])
def body():
    with durable.new_folder(run / "model") as folder:
        for i in range(200):
            (folder / f"{i:03d}").write_text(str(i) * 2000)
            time.sleep(0.001)
while True:
    print("go", flush=True)
    (run / "lineage" / "0000-save.json").unlink(missing_ok=True)
    lineage.run_step("save", run=run, order=0, config=presets.get("smoke"), inputs={}, values={},
                     outputs={"model": run / "model"}, body=body)
"""


@pytest.mark.parametrize("wait_s", [0.02, 0.15, 0.4, 0.9])
def test_a_killed_step_leaves_nothing_that_is_trusted_though_half_written(tmp_path: Path, wait_s: float) -> None:
    child = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "go\n"
    time.sleep(wait_s)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    child.stdout.close()

    def body() -> None:
        with durable.new_folder(tmp_path / "model") as folder:
            for i in range(200):
                (folder / f"{i:03d}").write_text(str(i) * 2000)

    lineage.run_step(
        "save", run=tmp_path, order=0, config=CONFIG, inputs={}, values={}, outputs={"model": tmp_path / "model"},
        body=body,
    )
    assert len(durable.list_files(tmp_path / "model")) == 200
    assert lineage.audit(tmp_path) == []


def test_leftovers_of_a_killed_process_are_removed_by_the_next_write(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from spiral_lib import durable\n"
        "with durable.new_folder(Path(sys.argv[1])) as f:\n"
        "    (f / 'x').write_text('1'); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "model")], check=False)
    assert [p.name for p in tmp_path.iterdir()] != []
    with durable.new_folder(tmp_path / "model") as folder:
        (folder / "y").write_text("2")
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def test_an_unchanged_file_is_hashed_once_and_a_changed_one_again(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("one")
    first = durable.sha256_file(path)
    path.write_text("two")  # the same size, within one tick of the clock
    assert durable.sha256_file(path) != first
    os.utime(path, (1, 1))
    second = durable.sha256_file(path)
    path.write_text("six")
    os.utime(path, (1, 1))
    assert durable.sha256_file(path) == second  # time and size say unchanged: not read again
    os.utime(path, (2, 2))
    assert durable.sha256_file(path) != second
