"""The command line: what it prints, its exit codes, and one line for every mistake."""

from __future__ import annotations

import io
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import click
import micro_runs
import pyarrow.parquet as pq
import pytest

from spiral_lib import cli, config, plugins, trajectories

COMMANDS = plugins.names("spiral_lib.cli")
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def spiral(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command line in this process; returns exit code, standard output and standard error."""

    def run(*argv: str) -> tuple[int, str, str]:
        code = cli.run(argv)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def in_a_process(*argv: str, **more: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "spiral_lib.cli", *argv]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **more)  # type: ignore[call-overload,no-any-return]


def all_commands() -> list[tuple[str, ...]]:
    """Return every command and subcommand."""
    found: list[tuple[str, ...]] = []
    for name in COMMANDS:
        command = plugins.load("spiral_lib.cli", name, "COMMAND")
        found.append((name,))
        if isinstance(command, click.Group):
            found += [(name, sub) for sub in command.commands]
    return found


def test_help_needs_no_heavy_import() -> None:
    heavy = ["torch", "transformers", "pandas", "pyarrow", "great_expectations", "lm_eval", "flytekit", "numpy"]
    code = (
        "import sys, spiral_lib.cli as c\n"
        "for args in (['--help'], *([n, '--help'] for n in c.plugins.names('spiral_lib.cli'))):\n"
        "    assert c.run(args) == 0\n"
        f"print('heavy:', [m for m in {heavy!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "heavy: []"


@pytest.mark.parametrize("command", all_commands(), ids=" ".join)
def test_every_command_explains_itself_with_an_example(command: tuple[str, ...], spiral: Run) -> None:
    code, out, err = spiral(*command, "--help")
    assert code == 0 and not err
    _, of_group, _ = spiral(command[0], "--help")
    examples = out.partition("xample")[2] + of_group.partition("xample")[2]
    assert f"spiral {' '.join(command)}" in examples


@pytest.mark.parametrize("command", [c for c in all_commands() if c != ("registry",)], ids=" ".join)
def test_every_command_can_answer_in_json(command: tuple[str, ...], spiral: Run) -> None:
    assert "--json" in spiral(*command, "--help")[1]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("spiral tr", ["track", "train"]),
        ("spiral registry p", ["promote", "publish"]),
        ("spiral train --preset ti", ["tiny", "tiny_tic_tac_toe"]),
        ("spiral games show kuhn", ["kuhn_poker"]),
        ("spiral doctor --j", ["--json"]),
    ],
)
def test_tab_completes_commands_options_presets_and_games(words: str, expected: list[str]) -> None:
    asked = {"_SPIRAL_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    script = str(Path(sys.executable).with_name("spiral"))
    done = subprocess.run([script], env={**os.environ, **asked}, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert [line.partition(",")[2] for line in done.stdout.splitlines()] == expected


def test_the_completion_scripts_of_the_help_are_there() -> None:
    script = str(Path(sys.executable).with_name("spiral"))
    for shell in ("bash", "zsh", "fish"):
        asked = {**os.environ, "_SPIRAL_COMPLETE": f"{shell}_source"}
        done = subprocess.run([script], env=asked, capture_output=True, text=True, timeout=120)
        assert "_SPIRAL_COMPLETE" in done.stdout and "spiral" in done.stdout


def test_where_a_run_stands_and_what_it_did_are_told_to_scripts(micro_run: Path, spiral: Run) -> None:
    _, out, _ = spiral("watch", str(micro_run), "--json")
    standing = json.loads(out)
    assert (standing["iteration"], standing["iterations"], standing["alarms"]) == (2, 2, [])
    assert standing["metrics"]["gate/decision"] in (1.0, 0.0, -1.0) and standing["decision"] in ("accept", "hold")
    _, out, _ = spiral("lineage", str(micro_run), "--json")
    assert [r["step"] for r in json.loads(out)][-1] in {"decide", "evaluate", "learn", "play-00"}
    assert len(json.loads(out)) == len(micro_runs.records(micro_run))


def test_the_overall_help_lists_every_command_and_the_exit_codes(spiral: Run) -> None:
    code, out, _ = spiral("--help")
    assert code == 0 and "Exit codes" in out and "130" in out
    assert all(f"\n  {name} " in out for name in COMMANDS)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("trian",), "unknown command 'trian'; did you mean 'train'?"),
        (("config", "--preset", "tinny"), "unknown preset 'tinny'. Did you mean 'tiny'?"),
        (("config", "--set", "learner.lrr=1"), "unknown setting 'learner.lrr'. Did you mean 'learner.lr'?"),
        (("config", "--nope"), "--nope"),
        (("config", "--set", "games=[kuhn_pokr]"), "unknown game 'kuhn_pokr'. Did you mean 'kuhn_poker'?"),
        (("plan", "--set", "games=[kuhn_pokr]"), "unknown game 'kuhn_pokr'. Did you mean 'kuhn_poker'?"),
        (("config", "--set", "rewards.terms=[nothing]"), "nothing"),
        (("config", "--set", "seed=1", "--set", "seed=2"), "override 'seed' is given twice"),
        (("config", "--set", "rollout.matches=1000000000000"), "it must be at most 1,000,000"),
        (("games", "show", "kuhn_pokr"), "unknown game 'kuhn_pokr'. Did you mean 'kuhn_poker'?"),
        (("games", "check", "nim", "--set", "piles"), "not of the form name=value"),
        (("play", "nim", "--vs", "somebody"), "unknown policy 'somebody'"),
        (("play", "nim", "--seats", "random"), "must name two policies"),
        (("eval", "no/such/folder"), "no checkpoint and no run folder"),
        (("audit", "no/such/run"), "no/such/run"),
        (("tournament", "random", "optimal"), "--game"),
        (("tournament", "random", "optimal", "--game", "nim", "--set", "seed=1"), "give --preset NAME as well"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(argv: tuple[str, ...], message: str, spiral: Run) -> None:
    code, out, err = spiral(*argv)
    assert code == 2 and not out
    assert err.startswith("error: ") and err.count("\n") == 1 and message in err


def test_the_exit_code_reaches_the_shell() -> None:
    assert in_a_process("games", "show", "nim").returncode == 0
    failed = in_a_process("games", "show", "nimm")
    assert failed.returncode == 2 and "Traceback" not in failed.stderr


def test_config_prints_yaml_that_reads_back_to_the_same_configuration(spiral: Run) -> None:
    code, out, _ = spiral("config", "--preset", "smoke", "--set", "learner.lr=1e-6 seed=3", "--set", "iterations=4")
    resolved = config.resolve(preset="smoke", overrides="learner.lr=1e-6 seed=3 iterations=4")
    assert code == 0 and config.from_text(out) == resolved


def test_settings_are_explained_with_the_presets_own_values(spiral: Run) -> None:
    code, out, _ = spiral("config", "--preset", "smoke", "--set", "seed=7", "--describe", "--json")
    rows = {row["name"]: row for row in json.loads(out)}
    assert code == 0 and list(rows) == [name for name, _, _ in config.describe()]
    assert (rows["seed"]["value"], rows["seed"]["default"]) == ("7", "0")
    assert json.loads(rows["rollout.matches"]["value"]) == config.resolve(preset="smoke").rollout.matches
    _, table, _ = spiral("config", "--preset", "smoke", "--describe")
    assert "Preset smoke" in table and "learner.epochs" in table


def test_games_are_listed_and_shown(spiral: Run) -> None:
    code, out, _ = spiral("games", "--json")
    listed = {game["name"]: game for game in json.loads(out)}
    assert code == 0 and listed["nim"]["parameters"] == ["piles='3 4 5'", "misere=False"]
    _, table, _ = spiral("games")
    assert all(name in table for name in listed)
    _, shown, _ = spiral("games", "show", "nim", "--set", "piles=1 2", "--set", "misere=true")
    assert "pile 2 has 2" in shown and "loses" in shown and "legal: [1 1] [2 1] [2 2]" in shown


def test_checking_a_game_reports_and_fails_on_a_broken_rule(spiral: Run) -> None:
    code, out, _ = spiral("games", "check", "nim", "--matches", "8", "--json")
    found = json.loads(out)
    assert code == 0 and found["ok"] and {f["play"] for f in found["figures"]} == {"random", "hostile", "optimal"}
    code, out, _ = spiral("games", "check", "test_game_check:NotZeroSum", "--matches", "4")
    assert code == 1 and "BROKEN" in out and "must not be trained on" in out


def test_policies_play_each_other_the_same_way_for_the_same_seed(spiral: Run, tmp_path: Path) -> None:
    argv = ("play", "kuhn_poker", "--seats", "random,optimal", "--matches", "6", "--seed", "4")
    code, once, err = spiral(*argv, "--json", "--save", str(tmp_path / "matches.parquet"))
    assert code == 0 and "--seed 4" in err
    assert spiral(*argv, "--json")[1] == once
    episodes = list(trajectories.read_episodes([tmp_path / "matches.parquet"]))
    assert [list(e.returns) for e in episodes] == [e["returns"] for e in json.loads(once)]
    _, summary, _ = spiral(*argv)
    assert "n 6" in summary and "95 % interval" in summary


def test_a_person_plays_and_the_match_is_saved(
    spiral: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("nonsense\n[1 3]\n" + "[2 1]\n[3 1]\n" * 20))
    saved = tmp_path / "mine.parquet"
    argv = ("--set-game", "piles=3 1 1", "--seat", "0", "--vs", "optimal", "--seed", "0", "--save", str(saved))
    code, out, _ = spiral("play", "nim", *argv)
    assert code == 0 and "not a legal action" in out and "Legal: [1 1]" in out
    assert "you won" in out  # taking the whole pile of three leaves two equal piles
    [episode] = trajectories.read_episodes([saved])
    assert episode.policies == ("human", "optimal") and episode.turns[0].action == "[1 3]"


def test_input_that_ends_ends_the_match_with_a_message(spiral: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    code, _, err = spiral("play", "nim", "--seat", "0")
    assert code == 1 and "the input ended before the match did" in err


def test_a_tournament_prints_and_writes_its_standings(spiral: Run, tmp_path: Path) -> None:
    argv = ("tournament", "random", "optimal", "--game", "nim", "--matches", "8", "--out", str(tmp_path / "t"))
    code, out, _ = spiral(*argv)
    assert code == 0 and "Payoffs, nim" in out and "no rock-paper-scissors cycle" in out
    assert (tmp_path / "t" / "tournament.html").is_file()
    _, out, _ = spiral(*argv, "--json")
    assert [r["policy"] for r in json.loads(out)["ratings"]] == ["optimal", "random"]


def test_the_doctor_looks_at_everything_and_says_what_to_do(spiral: Run, tmp_path: Path) -> None:
    code, out, _ = spiral("doctor", "--json", "--store", str(tmp_path / "not" / "yet"))
    findings = {f["name"]: f for f in json.loads(out)["findings"]}
    assert code == 0
    assert {"python", "torch", "threads", "packages", "vllm", "deepspeed", "store", "Flyte config"} <= set(findings)
    assert all(f["advice"] for f in findings.values() if f["status"] != "ok")
    code, out, _ = spiral("doctor", "--store", str(tmp_path))
    assert code == 0 and "ready" in out


@pytest.mark.parametrize(
    ("name", "text", "status", "found"),
    [
        ("flytekit.config", "[platform]\nurl = dns:///127.0.0.1:1\n", "optional", "nothing answers at 127.0.0.1:1"),
        ("flyte.config", "[platform]\ninsecure = True\n", "optional", "names no endpoint"),
        ("flyte.config", "no section = 1\n", "wrong", "cannot read"),
        ("config.yaml", "admin:\n  endpoint: dns:///127.0.0.1:1\n", "optional", "nothing answers at 127.0.0.1:1"),
        ("config.yaml", "admin: [\n", "wrong", "cannot read"),
    ],
)
def test_the_doctor_reads_flytes_configuration(
    name: str, text: str, status: str, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spiral: Run
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLYTECTL_CONFIG", str(tmp_path / name) if name.endswith(".yaml") else "")
    (tmp_path / name).write_text(text)
    _, out, _ = spiral("doctor", "--json")
    finding = next(f for f in json.loads(out)["findings"] if f["name"] == "Flyte config")
    assert finding["status"] == status and found in finding["found"] and finding["advice"]


def test_the_doctor_tells_a_flyte_that_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spiral: Run
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.chdir(tmp_path)
        monkeypatch.delenv("FLYTECTL_CONFIG", raising=False)
        Path("flyte.config").write_text(f"[platform]\nurl = 127.0.0.1:{server.getsockname()[1]}\n")
        _, out, _ = spiral("doctor", "--json")
    finding = next(f for f in json.loads(out)["findings"] if f["name"] == "Flyte config")
    assert finding["status"] == "ok" and finding["found"].endswith(" answers")


def test_the_doctor_writes_to_the_store_reads_it_back_and_leaves_nothing(tmp_path: Path, spiral: Run) -> None:
    code, out, _ = spiral("doctor", "--json", "--store", f"file://{tmp_path}/bucket")
    store = next(f for f in json.loads(out)["findings"] if f["name"] == "store")
    assert code == 0 and store["status"] == "ok" and "read back" in store["found"]
    assert list((tmp_path / "bucket").iterdir()) == []
    code, out, _ = spiral("doctor", "--json", "--store", "nosuchprotocol://bucket")
    store = next(f for f in json.loads(out)["findings"] if f["name"] == "store")
    assert code == 1 and store["status"] == "wrong" and "credentials" in store["advice"]


def test_publishing_says_what_went_where_in_three_lines(
    micro_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spiral: Run
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, _ = spiral("registry", "publish", str(micro_run), "kuhn", "--alias", "candidate")
    lines = out.splitlines()
    assert code == 0 and len(lines) == 3
    assert lines[0].startswith("published kuhn@") and lines[0].endswith("alias candidate")
    assert lines[1] == f"registry: {tmp_path / 'registry'}"
    command = shlex.split(lines[2].removeprefix("its card: spiral "))
    code, card, _ = spiral(*command)
    assert code == 0 and "metric" in card


def test_watching_a_folder_that_is_no_run_is_refused_at_once(tmp_path: Path, spiral: Run) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    code, _, err = spiral("watch", str(tmp_path))
    assert code == 2 and "is not a run folder: config.yaml is missing" in err


def test_watching_a_damaged_run_says_what_is_damaged(micro_run: Path, tmp_path: Path, spiral: Run) -> None:
    run = Path(shutil.copytree(micro_run, tmp_path / "run"))
    (run / "metrics.jsonl").write_text("{")
    code, _, err = spiral("watch", str(run))
    assert code == 2 and "line 1 of" in err


def test_a_finished_run_is_reported_and_audits_as_whole(micro_run: Path, spiral: Run) -> None:
    code, out, _ = spiral("audit", str(micro_run), "--json")
    assert code == 0 and json.loads(out) == {"ok": True, "problems": []}
    before = (micro_run / "report.html").read_text()
    code, out, _ = spiral("report", str(micro_run))
    assert code == 0 and out.splitlines()[0] == str(micro_run / "report.html")
    assert (micro_run / "report.html").read_text() == before


def test_a_touched_file_is_the_first_broken_link(micro_run: Path, spiral: Run, tmp_path: Path) -> None:
    run = Path(shutil.copytree(micro_run, tmp_path / "run"))
    scores = run / "evaluations" / "0001.json"
    scores.write_text(scores.read_text() + " ")
    code, out, _ = spiral("audit", str(run))
    assert code == 1 and out.startswith("first broken link: evaluate: evaluations/0001.json: hashes to ")


def test_a_number_is_followed_to_the_cold_start(micro_run: Path, spiral: Run) -> None:
    code, out, _ = spiral("audit", str(micro_run), "--why", "eval/kuhn_poker/exploitability", "--json")
    found = json.loads(out)
    last = json.loads((micro_run / "evaluations" / "0002.json").read_text())
    assert code == 0 and found["iteration"] == 2
    assert found["value"] == last["metrics"]["eval/kuhn_poker/exploitability"]
    steps = [(s["order"], s["step"]) for s in found["steps"]]
    assert steps[0] == (2, "evaluate") and {(2, "learn"), (2, "play-00"), (1, "learn"), (0, "cold_start")} <= set(steps)
    code, _, err = spiral("audit", str(micro_run), "--why", "eval/nothing")
    assert code == 2 and "no metric 'eval/nothing'" in err


@pytest.mark.parametrize("step", ["2/play-00", "1/learn", "2/evaluate", "2/decide", "0/begin"])
def test_a_step_replays_to_the_same_bytes_and_leaves_the_run_alone(step: str, micro_run: Path, spiral: Run) -> None:
    before = micro_runs.records(micro_run)
    code, out, err = spiral("audit", str(micro_run), "--replay", step, "--json")
    found = json.loads(out)
    assert code == 0, (found, err)
    assert found["same"] and not found["different"] and not found["changed"]
    assert micro_runs.records(micro_run) == before
    assert not list(micro_run.parent.glob(".replay-*"))


def test_a_checkpoint_is_evaluated_under_its_own_run(micro_run: Path, spiral: Run, tmp_path: Path) -> None:
    code, out, _ = spiral("eval", str(micro_run / "checkpoints" / "0002"), "--json", "--out", str(tmp_path / "e.json"))
    recorded = json.loads((micro_run / "evaluations" / "0002.json").read_text())["metrics"]
    assert code == 0 and json.loads(out)["metrics"] == recorded
    assert json.loads((tmp_path / "e.json").read_text())["metrics"] == recorded


def test_sample_sizes_are_told_without_a_checkpoint(spiral: Run) -> None:
    code, out, _ = spiral("eval", "--power", "0.1")
    assert code == 0 and "388 items per checkpoint" in out and "aime24" in out
    code, out, _ = spiral("eval", "--power", "0.1", "--baseline", "0.1", "--json")
    found = json.loads(out)
    assert code == 0 and {row["unit"] for row in found["sizes"]} >= {"items", "matches"}
    smallest = {row["benchmark"]: row["effect"] for row in found["detectable"]}
    assert smallest["mmlu_pro"] < smallest["math500"] < smallest["aime24"]
    for wrong in (("--power", "0.6"), ("--power", "0.1", "run"), ("--baseline", "0.1", "run"), ()):
        code, out, err = spiral("eval", *wrong)
        assert code == 2 and not out and len(err.strip().splitlines()[-1]) > 20, wrong


def test_the_papers_rows_are_printed_for_a_checkpoint_and_its_replies_kept(
    micro_run: Path, spiral: Run, tmp_path: Path
) -> None:
    small = micro_runs.merged(micro_runs.SMALL, f"evaluation.data_dir={tmp_path} rollout.max_new_tokens=4")
    argv = ("eval", str(micro_run / "checkpoints" / "0002"), "--preset", "smoke", "--set", small)
    code, out, err = spiral(*argv, "--suite", "paper")
    assert code == 0, err
    assert "math500" in out and "not measured" in out and str(tmp_path / "aime24.jsonl") in out
    assert "kuhn_poker vs random" in out and "n=2" in out
    code, out, err = spiral(*argv, "--suite", "bank", "--records", str(tmp_path / "kept"), "--json")
    assert code == 0, err
    rows = json.loads(out)["benchmarks"]
    assert [(row["name"], row["n"]) for row in rows] == [("bank", 4)]
    assert pq.read_table(tmp_path / "kept" / "bank.parquet").num_rows == 4


def test_a_run_is_trained_and_extended_by_the_same_command(
    micro_checkpoint: Path, spiral: Run, tmp_path: Path
) -> None:
    more = micro_runs.WITHOUT_EVALUATION
    argv = ("train", "--preset", "smoke", "--set", micro_runs.overrides(micro_checkpoint, more))
    code, out, err = spiral(*argv, "--set", "iterations=1", "--out", str(tmp_path / "run"), "--json")
    done = json.loads(out)
    assert code == 0 and done["iteration"] == 1 and Path(done["report"]).is_file() and "run folder" in err
    records = micro_runs.records(tmp_path / "run")
    code, out, _ = spiral(*argv, "--set", "iterations=2", "--out", str(tmp_path / "run"))
    after = micro_runs.records(tmp_path / "run")
    assert code == 0 and "champion: iteration" in out
    assert {step: after[step] for step in records} == records and len(after) > len(records)


def test_ctrl_c_says_what_is_kept_and_which_command_goes_on(micro_checkpoint: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    settings = micro_runs.overrides(micro_checkpoint, f"{micro_runs.WITHOUT_EVALUATION} iterations=400")
    command = [sys.executable, "-m", "spiral_lib.cli", "train", "--preset", "smoke", "--set", settings]
    process = subprocess.Popen(
        [*command, "--out", str(run)],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    deadline = time.monotonic() + 240
    while not (run / "ledgers" / "0001.json").is_file() and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130 and "Traceback" not in err
    said = err.splitlines()[-2:]
    assert said[0].startswith("stopped: ") and str(run) in said[0]
    assert said[1].startswith("continue with: spiral train --preset smoke --set ") and str(run) in said[1]


@pytest.mark.parametrize(
    ("argv", "last"),
    [
        (("watch", "RUN"), "stopped watching; the run itself goes on. Again: spiral watch "),
        (("play", "nim", "--seat", "0", "--seed", "1"), "stopped; nothing half-done is left. Again: spiral play nim "),
    ],
)
def test_ctrl_c_ends_every_other_command_with_one_line(
    argv: tuple[str, ...], last: str, micro_run: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(micro_run, run)
    (run / "config.yaml").write_text((run / "config.yaml").read_text().replace("iterations: 2", "iterations: 3"))
    process = subprocess.Popen(
        [sys.executable, "-m", "spiral_lib.cli", *(str(run) if word == "RUN" else word for word in argv)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1", "FORCE_COLOR": "1"},
    )
    assert process.stdout is not None
    assert process.stdout.readline()  # it is at work, not starting up
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in err
    assert err.splitlines()[-1].startswith(last)
