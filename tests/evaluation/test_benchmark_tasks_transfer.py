"""Transfer puzzles: frozen with a digest, scored as the package would at 0.99, without its scorers."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spiral_lib.config import EvaluationConfig, PromptConfig
from spiral_lib.engines.scripted import ScriptedEngine, decode_bytes, encode_bytes
from spiral_lib.errors import ConfigError, DataQualityError, EngineError
from spiral_lib.evaluation import benchmarks
from spiral_lib.evaluation.benchmark_tasks import _graded, transfer
from spiral_lib.evaluation.benchmark_tasks._items import Problem

KNIGHTS = Problem(id="knights_knaves-00", question="?", gold="Amy is a hero, and Bob is an egoist.")


class TextRenderer:
    """The user's text is the prompt, one token a byte."""

    config = PromptConfig()

    def encode_text(self, user_text: str) -> tuple[int, ...]:
        return encode_bytes(user_text)


@pytest.fixture(scope="module")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("reasoning_gym", reason="needs the extra 'transfer' (reasoning-gym)")
    folder = tmp_path_factory.mktemp("transfer")
    command = [sys.executable, "-m", "spiral_lib.evaluation.benchmark_tasks.transfer", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == str(folder / "transfer.parquet"), done.stderr
    return folder


def test_the_documented_command_writes_the_pinned_items(frozen: Path) -> None:
    items = transfer.load(EvaluationConfig(data_dir=str(frozen)))
    assert items.sha256 == transfer.SHA256
    assert len(items.problems) == len(transfer.SETS) * transfer.PER_SET
    assert {p.family for p in items.problems} == {"logic", "spatial", "numbers"}


def test_gold_scores_all_and_empty_none_through_lm_eval(frozen: Path) -> None:
    pytest.importorskip("lm_eval", reason="needs the extra 'eval' (lm-eval)")
    settings = EvaluationConfig(data_dir=str(frozen), benchmark_replies=2, benchmark_temperature=1.0)
    gold: dict[str, list[str]] = {}
    for problem in transfer.load(settings).problems:
        prompt = _graded.math_prompt(problem)
        gold.setdefault(prompt, []).extend([f"\\boxed{{{problem.gold}}}", ""])
    engine = ScriptedEngine(lambda prompt, seed: gold[decode_bytes(prompt)].pop(0), slots=1000)
    renderer: Any = TextRenderer()
    result = benchmarks.run("transfer", engine, renderer, settings, context_tokens=1 << 16, seed=0)
    assert [item.id for item in result.items if not item.replies[0].correct] == []
    assert not any(item.replies[1].correct for item in result.items)
    assert benchmarks.metrics(result)["eval/transfer/logic/accuracy"] == 0.5


def test_verdicts_are_the_packages_at_0_99(frozen: Path) -> None:
    import reasoning_gym

    problems = {p.id: p for p in transfer.load(EvaluationConfig(data_dir=str(frozen))).problems}
    compared = 0
    for name in transfer.SETS:
        puzzles = reasoning_gym.create_dataset(name, seed=transfer.SEED, size=4)
        golds = [str(puzzles[i]["answer"]) for i in range(4)]
        for i in range(4):
            for answer in (*golds, "0", "", f"The answer is {golds[i]}", golds[i] + " or not"):
                expected = puzzles.score_answer(answer, puzzles[i]) >= 0.99
                assert transfer.is_correct(problems[f"{name}-{i:02d}"], answer) == expected, (name, i, answer)
                compared += 1
    assert compared == len(transfer.SETS) * 4 * 8


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("Amy is a hero, and Bob is an egoist.", True),
        ("Bob is an egoist and Amy is a hero", True),
        ("\\text{amy is a hero, and bob is an egoist}", True),
        ("Amy is a hero", False),
        ("Amy is an egoist, and Bob is a hero.", False),
        ("Amy is a hero, Bob is an egoist, Cleo is a hero", False),
        ("", False),
    ],
)
def test_roles_may_come_in_any_order_but_all_of_them(answer: str, expected: bool) -> None:
    assert transfer.is_correct(KNIGHTS, answer) is expected


def test_numbers_are_compared_by_value_but_digits_of_another_base_are_text() -> None:
    number = Problem(id="chain_sum-00", question="?", gold="-4")
    digits = Problem(id="base_conversion-00", question="?", gold="100")
    assert transfer.is_correct(number, "-4.0") and transfer.is_correct(number, "$-4$")
    assert not transfer.is_correct(number, "4")
    assert transfer.is_correct(digits, "100") and not transfer.is_correct(digits, "100.0")


def test_grids_may_be_laid_out_with_any_blanks() -> None:
    grid = Problem(id="rotate_matrix-00", question="?", gold="1 2\n3 4")
    assert transfer.is_correct(grid, "1 2\n 3  4") and not transfer.is_correct(grid, "1 2 4 3")


def test_a_reply_is_never_evaluated_and_takes_linear_time(tmp_path: Path) -> None:
    target = tmp_path / "made"
    number = Problem(id="chain_sum-00", question="?", gold="3")
    started = time.process_time()
    for text in (f"open({str(target)!r},'w')", "9**9**9", "1+" * 200_000 + "1", "a is a " * 100_000, "a" * 500_000):
        assert not transfer.is_correct(number, text) and not transfer.is_correct(KNIGHTS, text)
    assert time.process_time() - started < 2
    assert not target.exists()


def test_without_the_file_the_error_names_the_command(tmp_path: Path) -> None:
    for folder in ("", str(tmp_path)):
        with pytest.raises(ConfigError, match=r"python -m spiral_lib\.evaluation\.benchmark_tasks\.transfer"):
            benchmarks.task("transfer", EvaluationConfig(data_dir=folder))


def test_other_items_are_refused(tmp_path: Path) -> None:
    row = {"id": "gcd-00", "set": "gcd", "question": "?", "answer": "1", "metadata": "{}"}
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / transfer.FILE)
    with pytest.raises(DataQualityError, match="write it again"):
        benchmarks.task("transfer", EvaluationConfig(data_dir=str(tmp_path)))


def test_without_reasoning_gym_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(EngineError, match=r"spiral-pipeline\[transfer\]"):
        transfer.freeze(tmp_path)
