"""The docs say what is true: commands parse, settings exist, links lead somewhere, reference pages are current."""

from __future__ import annotations

import ast
import io
import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml

from spiral_lib import cli, config, presets, reference

ROOT = Path(__file__).parents[1]
_ROOT_PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "examples" / "audit_a_run.md"]
PAGES = sorted([*_ROOT_PAGES, *(ROOT / "docs").glob("*.md")])
NOT_RUN_HERE = {
    r"spiral (train|compare) ": "test_cli, test_route_runs, test_driver, test_examples with own games",
    r"spiral (eval api:|lineage .*--send|push (?!.*--stage))": "sends something; test_benchmarks_on_engines, test_hub",
    r"spiral eval .*--suite paper": "test_cli prints the paper's rows, on few matches",
    r"spiral track ": "test_trackers, in offline mode",
    r"spiral report .*--verdicts": "test_match_audit makes such a file",
    r"spiral registry (diff|promote) ": "test_registry; they need two versions, and the id of one",
}
"""Commands of the docs that other tests run, and which."""
_PROGRAMS = ("spiral", "pyflyte", "make", "pip", "python", "tensorboard", "pre-commit", "mkdocs")


def _commands(page: Path) -> Iterator[tuple[str, bool]]:
    """Yield every command of a page and whether it is whole: lines of bash blocks are, code in running text need not.

    Running text may name a command without its arguments.
    """
    text = page.read_text()
    for block in re.findall(r"```(?:bash|sh|console)\n(.*?)```", text, re.DOTALL):
        joined = block.replace("\\\n", " ")
        lines = (line.strip() for line in joined.splitlines())
        yield from ((line, True) for line in lines if line and not line.startswith("#"))
    fenced = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    indented = re.findall(rf"^ {{4}}((?:{'|'.join(_PROGRAMS)}) .*)$", fenced.replace("\\\n", " "), re.MULTILINE)
    yield from ((line, True) for line in indented)
    for code in re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
        if re.match(rf"({'|'.join(_PROGRAMS)}) [a-z-]", code) and " ... " not in f"{code} ":
            yield code, False


ALL = sorted({(page.relative_to(ROOT).as_posix(), *command) for page in PAGES for command in _commands(page)})


def _parse_spiral(words: list[str], whole: bool) -> None:
    """Let click parse a command without running it; folders that must exist are made."""
    command: click.Command = cli.commands
    context = click.Context(command, info_name="spiral")
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(context, words[0])
        assert found is not None, f"no command '{words[0]}'"
        command, words = found, words[1:]
    for word in words:
        if word.startswith(("runs/", "data")):
            Path(word).mkdir(parents=True, exist_ok=True)
    if "--help" in words or "-h" in words:
        return
    try:
        command.make_context(command.name or "", list(words), parent=context)
    except (click.MissingParameter, click.exceptions.NoArgsIsHelpError):
        assert not whole, "an argument is missing"


def _check_settings(words: list[str]) -> None:
    """Resolve the preset and the settings that a command names, as the command itself would."""
    options = {"--set": "overrides", "--overrides": "overrides", "--preset": "preset"}
    given: dict[str, list[str]] = {"overrides": [], "preset": []}
    for name, value in itertools.pairwise(words):
        if name in options:
            given[options[name]].append(value)
    preset = given["preset"][0] if given["preset"] else "tiny"
    if preset.isupper():
        return  # a placeholder
    assert preset in presets.names()
    overrides = " ".join(o for o in given["overrides"] if "<" not in o)
    config.resolve(preset=preset, overrides=overrides)


def _check_pyflyte(words: list[str], whole: bool) -> None:
    arguments = [w for w in words[1:] if w != "--remote"]
    if len(arguments) < 2 and not whole:
        return
    file, name = ROOT / arguments[0], arguments[1]
    functions = {f.name: f for f in ast.parse(file.read_text()).body if isinstance(f, ast.FunctionDef)}
    assert name in functions, f"{file.name} has no workflow {name}"
    known = {a.arg for a in functions[name].args.args}
    options = {w[2:].replace("-", "_") for w in arguments[2:] if w.startswith("--")} - {"help"}
    assert options <= known, f"{options - known} are no inputs of {name}: {known}"


def _check_make(words: list[str]) -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    wanted = {w for w in words if "=" not in w and not w.startswith("-")}
    assert wanted <= targets, f"no target {wanted - targets}"
    # What a target runs is what the gate or another test runs; here make itself has to take the line.
    done = subprocess.run(["make", "--dry-run", *words], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def _check_pip(words: list[str]) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for word in words:
        if found := re.fullmatch(r"(?:spiral-pipeline|\.)\[([a-z0-9,]+)\]", word):
            assert set(found[1].split(",")) <= set(extras)


def _check_python(words: list[str]) -> None:
    if words[:1] == ["-m"]:
        here = os.environ | {"PYTHONPATH": str(ROOT)}
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, env=here)
        assert done.returncode == 0, done.stderr
    elif words[:1] == ["-c"]:
        compile(words[1], "docs", "exec")
    else:
        assert (ROOT / words[0]).is_file(), f"{words[0]} does not exist"


def _programs(line: str) -> Iterator[list[str]]:
    """Yield the words of every program of a shell line, redirections and comments left out."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;>")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in [*lexer, "&&"]:
        if word in ("|", "&&", ";", ">", ">>", "&"):
            if words:
                yield [words[0].removeprefix(".venv/bin/"), *words[1:]]
            words = []
        else:
            words.append(word)


@pytest.mark.parametrize(("page", "line", "whole"), ALL, ids=[f"{page}: {line[:60]}" for page, line, _ in ALL])
def test_a_command_in_the_docs_is_one_that_exists(
    page: str, line: str, whole: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for program, *words in _programs(line):
        if program == "spiral":
            _parse_spiral(words, whole)
        if program == "pyflyte" and words[:1] == ["run"]:
            _check_pyflyte(words, whole)
        if program in ("spiral", "pyflyte"):
            _check_settings(words)
        checks = {"make": _check_make, "pip": _check_pip, "python": _check_python}
        if program in checks:
            checks[program](words)


def _to_run(page: Path) -> list[str]:
    """Return the page's commands that run here, in its order; a store stands for a folder of that name."""
    whole = [line.replace("s3://<bucket>", "bucket") for line, is_whole in _commands(page) if is_whole]
    spiral = [line for line in whole if line.startswith("spiral ") and "<" not in line]
    return [line for line in spiral if not any(re.match(pattern, line) for pattern in NOT_RUN_HERE)]


@pytest.mark.parametrize("page", [p for p in PAGES if _to_run(p)], ids=lambda page: page.name)
def test_the_commands_of_a_page_run_in_its_order(
    page: Path, micro_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if page.name == "audit_a_run.md":
        pytest.skip("test_examples runs it with the run that it trains")
    for place, name in set(re.findall(r"(s3://<bucket>/)?runs/([a-z][\w-]*)", page.read_text())):
        shutil.copytree(micro_run, tmp_path / ("bucket/runs" if place else "runs") / name)
    (tmp_path / "my.yaml").write_text("seed: 3\n")
    monkeypatch.chdir(tmp_path)
    for line in _to_run(page):
        monkeypatch.setattr(sys, "stdin", io.StringIO("[check]\n[bet]\n[call]\n[fold]\n" * 20))
        words = next(_programs(line))
        assert cli.run(words[1:]) == cli.OK, f"{line}: {capsys.readouterr().err}"


@pytest.mark.parametrize("name", sorted(reference.PAGES))
def test_a_reference_page_is_what_the_code_says(name: str) -> None:
    committed = (ROOT / "docs" / name).read_text()
    assert committed == reference.PAGES[name](), "run: python -m spiral_lib.reference docs"


def test_every_setting_and_every_column_is_explained() -> None:
    assert [name for name, _, doc in config.describe() if not doc] == []
    from spiral_lib import trajectories

    assert [f.name for f in trajectories.SCHEMA if not (f.metadata or {}).get(b"doc")] == []


@pytest.mark.parametrize("page", PAGES, ids=[p.name for p in PAGES])
def test_links_and_pictures_lead_to_files(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL))
    missing = [t for t in targets if "://" not in t and not (page.parent / t).exists()]
    assert missing == []


def test_the_site_shows_every_page_once() -> None:
    content = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    listed = re.findall(r"[\w-]+\.md", str(content["nav"]))
    there = {p.name for p in (ROOT / "docs").glob("*.md")}
    assert len(listed) == len(set(listed))
    assert there == set(listed)


def test_settings_named_in_running_text_exist() -> None:
    known = {name for name, _, _ in config.describe()}
    sections = {name.partition(".")[0] for name in known if "." in name}
    wrong = []
    for page in PAGES:
        if page.name == "architecture.md":  # there the same form names modules
            continue
        for code in re.findall(r"`([a-z_]+\.[a-z_0-9]+)(?:=[^`]*)?`", page.read_text()):
            is_file = code.endswith((".py", ".json", ".yaml", ".html", ".md", ".jsonl"))
            if code.partition(".")[0] in sections and not is_file and code not in known:
                wrong.append((page.name, code))
    assert wrong == []
