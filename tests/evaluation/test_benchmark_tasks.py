"""The published benchmarks: data that are checked, gold answers that score all, avg@k, pass@k and maj@k."""

from __future__ import annotations

import dataclasses
import json
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from spiral_lib import answers
from spiral_lib.config import EvaluationConfig, PromptConfig
from spiral_lib.engines.scripted import ScriptedEngine, decode_bytes, encode_bytes
from spiral_lib.errors import ConfigError, DataQualityError
from spiral_lib.evaluation import benchmarks
from spiral_lib.evaluation.benchmark_tasks import (
    _graded,
    _items,
    aime24,
    aime25,
    amc23,
    gpqa_diamond,
    gsm8k,
    math500,
    minerva272,
    mmlu_pro,
    olympiadbench,
)
from spiral_lib.evaluation.lm_eval_model import TOO_LONG

BENCHMARKS = Path(__file__).resolve().parents[3] / "shared" / "benchmarks"
TASKS: dict[str, Any] = {
    m.SOURCE.name: m
    for m in (
        aime24, aime25, amc23, math500, minerva272, olympiadbench, gsm8k, gpqa_diamond, mmlu_pro,
    )
}  # fmt: skip
CHOICES = ("gpqa_diamond", "mmlu_pro")
# Items of our own in the columns of the data sets that are not beside the repository.
GSM8K_ROWS = [
    {"question": "A box has 12 eggs. How many are in 100 boxes?", "answer": "<<12*100=1200>>1200\n#### 1,200"},
    {"question": "Ann had 3 coins and lost 5 to Bo. How many has she now?", "answer": "3 - 5 = -2\n#### -2"},
    {"question": "What do two halves make?", "answer": "1/2 + 1/2 = 1\n#### 1"},
]
GPQA_ROWS = [
    {
        "Record ID": f"r{i}", "Question": f"Which number is {i} plus one?", "High-level domain": "Physics",
        "Correct Answer": f"{i + 1}\n", **{f"Incorrect Answer {k}": str(i + 1 + k) for k in (1, 2, 3)},
    }
    for i in range(6)
]  # fmt: skip
MMLU_PRO_ROWS = [
    {
        "question_id": 70 + i, "question": f"Which is number {i} of the alphabet, counted from 0?",
        "options": list("ABCDEFGHIJ"[: 10 - i]), "answer": "ABCDEFGHIJ"[i], "answer_index": i, "cot_content": "",
        "category": "computer science", "src": "own",
    }
    for i in range(5)
]  # fmt: skip
OWN = [
    {"id": "a", "problem": "What is 3 + 4?", "answer": 7.0},
    {"id": "b", "problem": "Half of one, as a fraction?", "answer": "\\frac{1}{2}"},
    {"id": "c", "problem": "The roots of x^2 = 4?", "answer": ["-2", "2"]},
    {"id": "d", "problem": "Twelve times twelve?", "solution": "It is \\boxed{144}."},
]


class TextRenderer:
    """The user's text is the prompt, one token a byte."""

    config = PromptConfig()

    def encode_text(self, user_text: str) -> tuple[int, ...]:
        return encode_bytes(user_text)


@pytest.fixture(scope="module", autouse=True)
def _child_ends_with_the_module() -> Iterator[None]:
    yield
    answers.close()


def source(folder: Path, rows: list[dict[str, Any]], **changes: Any) -> _items.Source:
    (folder / "own.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    found = [_items.read_math(row, i) for i, row in enumerate(rows)]
    made = _items.Source(
        name="own",
        file="own.jsonl",
        repo="nobody/own",
        subset="",
        split="test",
        num_items=len(rows),
        sha256=_items.digest(found),
        read=_items.read_math,
    )
    return dataclasses.replace(made, **changes)


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., benchmarks.BenchmarkResult]:
    """Run a benchmark of our own items, written as a user would: a module of one's own by its dotted path."""
    pytest.importorskip("lm_eval", reason="needs the extra 'eval' (lm-eval)")
    module = type(sys)("own_benchmark")
    made = source(tmp_path, OWN)
    module.task = lambda s: _graded.math_task("own", _items.load(made, s), s)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "own_benchmark", module)

    def run(reply: Any, *, context_tokens: int = 4096, seed: int = 0, **settings: Any) -> benchmarks.BenchmarkResult:
        return benchmarks.run(
            "own_benchmark:task",
            ScriptedEngine(reply, slots=64),
            TextRenderer(),  # type: ignore[arg-type]
            EvaluationConfig(data_dir=str(tmp_path), **settings),
            context_tokens=context_tokens,
            seed=seed,
        )

    return run


def gold_of(prompt: tuple[int, ...]) -> str:
    row = next(r for r in OWN if decode_bytes(prompt).startswith(str(r["problem"])))
    return f"So \\boxed{{{_items.read_math(row, 0).gold}}}"


def test_gold_answers_score_all_and_empty_ones_none(own: Callable[..., benchmarks.BenchmarkResult]) -> None:
    right = benchmarks.metrics(own(lambda prompt, seed: gold_of(prompt)))
    empty = benchmarks.metrics(own(lambda prompt, seed: ""))
    boxed = benchmarks.metrics(own(lambda prompt, seed: "\\boxed{}"))
    assert right["eval/own/accuracy"] == 1.0 and right["eval/own/extraction_failure_rate"] == 0.0
    assert empty["eval/own/accuracy"] == 0.0 and empty["eval/own/extraction_failure_rate"] == 1.0
    assert boxed["eval/own/accuracy"] == 0.0 and boxed["eval/own/extraction_failure_rate"] == 0.0
    assert right["eval/own/accuracy_n"] == 4.0
    assert right["eval/own/accuracy_low"] < 0.6  # four items prove little


def test_several_replies_an_item_give_average_pass_and_majority(
    own: Callable[..., benchmarks.BenchmarkResult],
) -> None:
    seen: dict[str, int] = {}

    def reply(prompt: tuple[int, ...], seed: int) -> str:
        text = decode_bytes(prompt)
        turn = seen[text] = seen.get(text, 0) + 1
        if text.startswith("What is 3"):  # 7 is written in two ways and wins over 8 only if they are one answer
            return ("\\boxed{8}", "\\boxed{7}", "\\boxed{8}", "\\boxed{7.0}", "\\boxed{14/2}")[turn - 1]
        if text.startswith("Half"):
            return ("\\boxed{1/2}", "\\boxed{2}", "\\boxed{2}", "no box", "\\boxed{0.5}")[turn - 1]
        return "\\boxed{144}" if turn == 1 and text.startswith("Twelve") else "I do not know"

    result = own(reply, benchmark_replies=5, benchmark_temperature=0.7)
    metrics = benchmarks.metrics(result)
    assert [sum(g.correct for g in item.replies) for item in result.items] == [3, 2, 0, 1]
    assert metrics["eval/own/accuracy"] == pytest.approx(6 / 20)
    assert metrics["eval/own/pass_at_5"] == 0.75
    assert [item.majority for item in result.items] == [True, True, False, True]
    assert metrics["eval/own/majority_at_5"] == 0.75
    assert metrics["eval/own/extraction_failure_rate"] == pytest.approx(10 / 20)
    assert metrics["eval/own/accuracy_n"] == 4.0
    assert metrics["eval/own/replies_per_item"] == 5.0


def test_every_reply_has_a_seed_of_its_own_that_a_rerun_repeats(own: Callable[..., benchmarks.BenchmarkResult]) -> None:
    def seeds(**options: Any) -> list[int]:
        found = own(lambda prompt, seed: str(seed), benchmark_replies=3, benchmark_temperature=0.7, **options)
        assert [g.reply.text for g in found.graded] == [str(g.reply.seed) for g in found.graded]
        return [g.reply.seed for g in found.graded]

    assert seeds() == seeds()
    assert len(set(seeds())) == 12
    assert set(seeds(seed=1)).isdisjoint(seeds())


def test_several_greedy_replies_are_refused() -> None:
    with pytest.raises(ConfigError, match="benchmark_temperature"):
        EvaluationConfig(benchmark_replies=4)


def test_a_prompt_that_fills_the_window_is_not_asked_and_counts_as_wrong(
    own: Callable[..., benchmarks.BenchmarkResult],
) -> None:
    lengths = sorted(len(encode_bytes(_graded.math_prompt(_items.read_math(r, 0)))) for r in OWN)
    result = own(lambda prompt, seed: gold_of(prompt), context_tokens=lengths[1])
    metrics = benchmarks.metrics(result)
    assert metrics["eval/own/too_long_n"] == 3.0
    assert metrics["eval/own/clamped_n"] == 4.0
    assert metrics["eval/own/accuracy_n"] == 4.0
    assert not any(g.correct for g in result.graded if g.reply.finish_reason == TOO_LONG)
    assert all(g.reply.prompt_tokens + g.reply.max_new_tokens <= lengths[1] for g in result.graded
               if g.reply.finish_reason != TOO_LONG)  # fmt: skip


def test_records_keep_every_reply_with_one_schema_even_without_rows(
    own: Callable[..., benchmarks.BenchmarkResult], tmp_path: Path
) -> None:
    result = own(lambda prompt, seed: gold_of(prompt), benchmark_replies=2, benchmark_temperature=1.0)
    table = pq.read_table(benchmarks.write_records(tmp_path / "a" / "own.parquet", result))
    empty = pq.read_table(
        benchmarks.write_records(tmp_path / "b.parquet", benchmarks.BenchmarkResult(name="own", items=()))
    )
    rows = table.to_pylist()
    assert [(r["item"], r["index"]) for r in rows] == [(i, k) for i in "abcd" for k in (0, 1)]
    assert all(r["correct"] and r["text"].endswith("}") and r["sha256"] == result.sha256 for r in rows)
    assert rows[0]["seed"] == result.items[0].replies[0].reply.seed
    assert table.schema.equals(empty.schema)


def test_a_limit_takes_items_spread_over_the_whole(own: Callable[..., benchmarks.BenchmarkResult]) -> None:
    assert [i.id for i in own(lambda prompt, seed: "", benchmark_limit=2).items] == ["a", "c"]


@pytest.mark.parametrize("change", [{"num_items": 5}, {"sha256": "0" * 64}])
def test_other_items_than_the_published_are_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    with pytest.raises(DataQualityError, match="not the published 'own'"):
        _items.load(source(tmp_path, OWN, **change), EvaluationConfig(data_dir=str(tmp_path)))


def test_the_digest_is_of_the_content_and_not_of_the_file(tmp_path: Path) -> None:
    made = source(tmp_path, OWN)
    rows = [{"answer": 7, "problem": " What is 3 + 4? ", "extra": None}, *OWN[:0:-1]]
    (tmp_path / "own.jsonl").write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    assert _items.load(made, EvaluationConfig(data_dir=str(tmp_path))).sha256 == made.sha256


@pytest.mark.parametrize("name", sorted(TASKS))
@pytest.mark.parametrize("offline", [None, "1"])
def test_missing_data_are_named_within_seconds_and_never_waited_for(
    name: str, offline: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, started = TASKS[name].SOURCE, time.monotonic()
    with pytest.raises(ConfigError, match=source.file.replace(".", r"\.")):
        benchmarks.task(name, EvaluationConfig(data_dir=str(tmp_path)))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    if offline is not None:
        monkeypatch.setenv("HF_HUB_OFFLINE", offline)
    for variable in ("HF_HOME", "HF_HUB_CACHE", "HF_DATASETS_CACHE"):
        monkeypatch.setenv(variable, str(tmp_path / "hub"))
    with pytest.raises(ConfigError, match=rf"{source.repo}.*not reachable.*{source.file}.*evaluation\.data_dir"):
        benchmarks.task(name, EvaluationConfig())
    assert time.monotonic() - started < 20


@pytest.mark.slow
def test_a_hub_that_takes_the_call_and_never_answers_is_given_up_within_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
        for variable in ("HF_HOME", "HF_HUB_CACHE", "HF_DATASETS_CACHE"):
            monkeypatch.setenv(variable, str(tmp_path / "hub"))
        started = time.monotonic()
        with pytest.raises(ConfigError, match=r"HuggingFaceH4/MATH-500.*not reachable"):
            benchmarks.task("math500", EvaluationConfig())
    assert time.monotonic() - started < 20


def test_rows_come_from_the_hub_where_no_folder_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("datasets", reason="needs the extra 'eval' (lm-eval)")
    # A folder stands in for the hub's repository: the same call reads both.
    (tmp_path / "repository").mkdir()
    made = source(tmp_path, OWN[:1], repo=str(tmp_path / "repository"), file="elsewhere.jsonl")
    (tmp_path / "repository" / "test.jsonl").write_text(json.dumps(OWN[0]), encoding="utf-8")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    assert [p.gold for p in _items.load(made, EvaluationConfig()).problems] == ["7"]
    with pytest.raises(DataQualityError, match="not the published"):
        _items.load(dataclasses.replace(made, sha256="0" * 64), EvaluationConfig())


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "aime24.jsonl").write_text("{", encoding="utf-8")
    with pytest.raises(DataQualityError, match=r"aime24\.jsonl"):
        benchmarks.task("aime24", EvaluationConfig(data_dir=str(tmp_path)))


def check_gold_and_empty(name: str, folder: Path, num_items: int) -> None:
    """Every item's first reply is its gold answer, its second is empty: all of the first are right, no other is."""
    pytest.importorskip("lm_eval", reason="needs the extra 'eval' (lm-eval)")
    settings = EvaluationConfig(data_dir=str(folder), benchmark_replies=2, benchmark_temperature=1.0)
    problems = _items.load(TASKS[name].SOURCE, settings).problems
    prompt = _graded.choice_prompt if name in CHOICES else _graded.math_prompt
    gold = {prompt(p): f"Thus \\boxed{{{p.gold}}}." for p in problems}
    engine = ScriptedEngine(lambda prompt, seed: gold.pop(decode_bytes(prompt), ""), slots=2000)
    renderer: Any = TextRenderer()
    result = benchmarks.run(name, engine, renderer, settings, context_tokens=1 << 16, seed=0)
    assert len(result.items) == num_items
    assert [item.id for item in result.items if not item.replies[0].correct] == []
    assert not any(item.replies[1].correct or item.replies[1].extracted for item in result.items)
    assert benchmarks.metrics(result)[f"eval/{name}/extraction_failure_rate"] == 0.5


@pytest.mark.parametrize("name", sorted(TASKS))
def test_on_the_real_items_gold_scores_all_and_nothing_scores_none(name: str) -> None:
    source = TASKS[name].SOURCE
    if not (BENCHMARKS / source.file).is_file():
        pytest.skip(f"{source.file} is not beside the repository")
    check_gold_and_empty(name, BENCHMARKS, source.num_items)


@pytest.mark.parametrize(
    ("name", "rows"), [("gsm8k", GSM8K_ROWS), ("gpqa_diamond", GPQA_ROWS), ("mmlu_pro", MMLU_PRO_ROWS)]
)
def test_on_items_in_the_published_columns_gold_scores_all_and_nothing_scores_none(
    name: str, rows: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = TASKS[name]
    (tmp_path / module.SOURCE.file).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    with pytest.raises(DataQualityError, match=f"{len(rows)} items"):
        benchmarks.task(name, EvaluationConfig(data_dir=str(tmp_path)))
    monkeypatch.setattr(module, "SOURCE", dataclasses.replace(module.SOURCE, num_items=len(rows)))
    check_gold_and_empty(name, tmp_path, len(rows))


def test_gsm8k_reads_the_number_after_the_mark() -> None:
    row = {"question": "How many?", "answer": "First 2,000.\n#### 12,345"}
    assert gsm8k.read(row, 0).gold == "12345"
    with pytest.raises(ValueError, match="row 3"):
        gsm8k.read({"question": "?", "answer": "####"}, 3)


def test_gpqa_choices_are_shuffled_the_same_way_every_time_and_the_letter_is_the_right_one() -> None:
    letters = []
    for i in range(40):
        row = {"Question": f"q{i}", "Correct Answer": "yes", **{f"Incorrect Answer {k}": f"no {k}" for k in (1, 2, 3)}}
        first, second = gpqa_diamond.read(row, i), gpqa_diamond.read(row, i)
        assert first == second
        assert first.choices["ABCD".index(first.gold)] == "yes"
        letters.append(first.gold)
    assert set(letters) == set("ABCD")


def test_a_choice_prompt_shows_all_options_and_the_letter_counts() -> None:
    row = {"question": "Which?", "options": ["one", "two", "three"], "answer": "C", "category": "computer science"}
    problem = mmlu_pro.read(row, 0)
    assert problem.family == "computer_science"
    assert "A. one\nB. two\nC. three" in _graded.choice_prompt(problem)
    with pytest.raises(ValueError, match="none of 3"):
        mmlu_pro.read({**row, "answer": "D"}, 0)


@pytest.mark.parametrize(
    ("box", "expected"),
    [
        ("B", "B"), ("b", "B"), ("(C)", "C"), ("D. 42", "D"), ("\\text{A}", "A"), ("A) yes", "A"), ("J", "J"),
        ("Because", None), ("", None), ("42", None), ("A1", None), ("É", None),
    ],
)  # fmt: skip
def test_a_box_names_a_letter_or_nothing(box: str, expected: str | None) -> None:
    assert _graded.letter(box) == expected


def test_a_choice_benchmark_scores_letters_through_lm_eval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("lm_eval", reason="needs the extra 'eval' (lm-eval)")
    rows = [{"question": f"q{i}", "options": ["x", "y"], "answer": "AB"[i % 2]} for i in range(4)]
    problems = tuple(mmlu_pro.read(row, i) for i, row in enumerate(rows))
    module = type(sys)("own_choices")
    items = _items.Items(problems=problems, sha256="")
    module.task = lambda s: _graded.choice_task("choices", items, s)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "own_choices", module)
    renderer: Any = TextRenderer()
    result = benchmarks.run(
        "own_choices:task",
        ScriptedEngine(lambda prompt, seed: "\\boxed{(a)}"),
        renderer,
        EvaluationConfig(),
        context_tokens=4096,
        seed=0,
    )
    assert result.correct == (True, False, True, False)
