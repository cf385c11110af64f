from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spiral_lib import answers
from spiral_lib._answers_compare import exact
from spiral_lib.answers import check, extract, last_box, unwrap

GOLDEN = Path(__file__).parent / "golden"
BENCHMARKS = Path(__file__).resolve().parents[2] / "shared" / "benchmarks"
HANGING = r"\binom{99999999}{4999999}"


def golden(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (GOLDEN / f"cases_{name}.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module", autouse=True)
def _child_ends_with_the_module() -> Iterator[None]:
    yield
    answers.close()


@pytest.mark.parametrize("case", golden("math_extract"))
def test_golden_texts_give_the_agreed_answer(case: dict[str, Any]) -> None:
    assert extract(case["input"]["text"]) == case["expected"]["answer"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"\boxed{\{2,5\}}", r"\{2,5\}"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed { 7 }", "7"),
        (r"\boxed{7}<|im_end|>\boxed{8}", "7"),
        (r"\boxed{\boxed{7}}", r"\boxed{7}"),
        (r"\boxed{}", ""),
        (r"\boxed7", None),
        (r"\boxed{ \boxed{7}", None),
        (r"\fbox{7}", None),
        (r"<think>\boxed{7}</think>", None),
        (r"<think>\boxed{7}", None),
        (r"\boxed{a\}", None),
        ("", None),
    ],
)
def test_only_the_last_complete_top_level_box_is_the_answer(text: str, expected: str | None) -> None:
    assert extract(text) == expected


@pytest.mark.parametrize(
    "text",
    [r"\boxed{" * 200_000, r"\boxed" * 250_000, r"\boxed{a}" * 150_000, "\\boxed" + " " * 1_400_000, "{" * 1_400_000],
)
def test_a_text_of_over_a_million_characters_is_read_within_a_second(text: str) -> None:
    started = time.process_time()
    last_box(text)
    assert time.process_time() - started < 1


def test_unwrapping_keeps_letter_case_and_drops_one_pair_of_brackets() -> None:
    assert unwrap(r" \textbf{ [[Offer:  1 Wood]] } ") == "[Offer: 1 Wood]"


@given(st.text(alphabet="\\boxedt{}[]$\"'` \u00a0x", max_size=60))
def test_any_text_is_read_without_an_error(text: str) -> None:
    box = last_box(text)
    assert (box.content is None) != (box.reason is None)
    assert unwrap(text) == " ".join(unwrap(text).split())


@pytest.mark.parametrize("case", golden("math_check"))
def test_golden_pairs_get_the_agreed_verdict(case: dict[str, Any]) -> None:
    assert check(case["input"]["gold"], case["input"]["pred"]) is case["expected"]["correct"]


@pytest.mark.parametrize("case", golden("math_pairs"), ids=lambda c: f"{c['gold'][:20]}|{c['answer'][:20]}")
def test_further_pairs_get_the_agreed_verdict(case: dict[str, Any]) -> None:
    assert check(case["gold"], case["answer"]) is case["correct"]


@pytest.mark.parametrize(
    "empty",
    [
        "", r"\text{}", "$$", r"\boxed{}", "{}", r"\,", r"\quad", "~", r"\%", r"\$", "()", "[]", '""', r"\mathrm{}",
        r"\phantom{x}", r"\phantom{\frac{1}{2}}", "-", "=", "?", ".", r"^\circ", r"\left(\right)", r"\hspace{2em}",
        r"\frac{}{}", r"\begin{pmatrix}\end{pmatrix}", r"\dots", r"\pm", "\u200b", r"\boxed{\text{}}",
    ],
)  # fmt: skip
def test_an_answer_without_content_is_wrong_even_where_the_gold_answer_is_the_same(empty: str) -> None:
    assert not check(empty, empty) and not check(empty, "") and not check("", empty) and not check("5", empty)


@pytest.mark.parametrize(
    "symbol",
    [r"\emptyset", r"\infty", r"\pi", "\u03c0", "\u221e", "\u2205", r"\Delta", r"\eta", r"\{\emptyset\}", "D"],
)
def test_a_symbol_may_be_an_answer_by_itself(symbol: str) -> None:
    assert check(symbol, symbol) and check(symbol, f"$ {symbol} $") and not check(symbol, "")


@pytest.mark.parametrize(
    "hedge",
    [
        r"5\approx 6", r"5\approx 6\approx 7", "5_ 6_ 7", "5_6_7", r"5\text{ squared}", r"5\text{ cubed}", "5 squared",
        "5 twice", r"5\text{ factorial}", "5'", "5''", "5 '", "5..", "5...", "5 . .", "5,,", r"5\ldots", r"5\or",
        "x=5..", r"x=5\approx 6", "5 cm..",
    ],
)  # fmt: skip
def test_a_hedged_answer_does_not_count_as_its_first_value(hedge: str) -> None:
    assert not check("5", hedge)


@given(st.fractions(max_denominator=10**6), st.integers(-(10**6), 10**6))
def test_every_spelling_of_a_fraction_is_the_same_number(value: Fraction, whole: int) -> None:
    top, bottom = value.numerator, value.denominator
    for spelling in (f"{top}/{bottom}", f"\\frac{{{top}}}{{{bottom}}}", f"\\dfrac{{{2 * top}}}{{{2 * bottom}}}"):
        assert exact(spelling) == value
    assert exact(f"{whole:,}") == exact(f"{whole}.0") == whole
    assert check(str(whole), f"{whole}") and not check(str(whole), str(whole + 1))


def test_numbers_that_differ_in_the_last_of_many_digits_differ() -> None:
    assert not check("0." + "3" * 60, "0." + "3" * 61)
    assert not check("1" + "0" * 80, "1" + "0" * 79 + "1")
    assert check("0." + "3" * 60, "0." + "3" * 60 + "0")


def test_a_thousand_plain_answers_take_less_than_a_second() -> None:
    started = time.process_time()
    assert all(check(str(n), f"{n}.0") and not check(f"\\frac{{{n}}}{{7}}", f"{n}/8") for n in range(1, 1001))
    assert time.process_time() - started < 1


def test_what_takes_too_long_is_wrong_and_counted_and_the_next_check_works() -> None:
    assert check("x^2-1", "(x-1)(x+1)")
    before = answers.timeouts()
    started = time.perf_counter()
    assert check("5", HANGING) is False
    # A busy machine gives the child its share of computing time first.
    assert time.perf_counter() - started < 3 * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    assert answers.timeouts() == before + 1
    assert check("x^2-1", "(x-1)(x+1)")


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_a_busy_machine_makes_no_right_answer_wrong() -> None:
    assert check("x^2-1", "(x-1)(x+1)")
    pid = answers._CHILD.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)  # as good as a machine with no time for the child
    waker = threading.Timer(2.5, os.kill, (pid, signal.SIGCONT))
    waker.start()
    before = answers.timeouts()
    assert check("x^2-4", "(x-2)(x+2)")
    assert answers.timeouts() == before
    waker.join()


def test_a_wrong_answer_is_no_timeout() -> None:
    before = answers.timeouts()
    assert not check("x^2-1", "(x-1)^2") and not check("5", "9^{9^{9^{9}}}")
    assert answers.timeouts() == before


def test_model_text_is_never_evaluated(tmp_path: Path) -> None:
    target = tmp_path / "made"
    for text in (f"open('{target}','w')", f"__import__('os').mkdir('{target}')", f"exec(\"open('{target}','w')\")"):
        assert check("6", text) is False
    assert not target.exists()


def test_checks_work_from_several_threads() -> None:
    verdicts: list[bool] = []
    pairs = [(r"\sqrt{12}", r"2\sqrt{3}"), ("x+y", "y+x"), ("2i+1", "1+2i")]
    threads = [threading.Thread(target=lambda p=p: verdicts.append(check(*p))) for p in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert verdicts == [True, True, True]


def _check_in_fork(queue: Any) -> None:
    queue.put((check("x+y", "y+x"), check("x+y", "x-y")))
    answers.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_gets_a_child_of_its_own() -> None:
    assert check("x+y", "y+x")
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=_check_in_fork, args=(queue,))
    process.start()
    assert queue.get(timeout=60) == (True, False)
    process.join(60)
    assert check("x+y", "y+x")


def test_checks_go_on_after_close() -> None:
    assert check("x+y", "y+x")
    answers.close()
    answers.close()
    assert check("x+y", "y+x")


def _benchmark_golds(path: Path) -> list[str]:
    golds = []
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        answer = row["answer"] if "answer" in row else extract(row["solution"])
        golds.append(", ".join(answer) if isinstance(answer, list) else str(answer))
    return golds


@pytest.mark.skipif(not BENCHMARKS.is_dir(), reason="the benchmark files are not beside the repository")
@pytest.mark.parametrize("name", ["aime24", "aime25", "amc23", "math500", "minerva", "olympiadbench"])
def test_every_gold_answer_of_a_benchmark_is_right_and_no_answer_is_wrong(name: str) -> None:
    golds = _benchmark_golds(BENCHMARKS / f"{name}.jsonl")
    assert golds
    assert [g for g in golds if not check(g, f"$ {g} $")] == []
    assert not any(check(g, "") for g in golds)
