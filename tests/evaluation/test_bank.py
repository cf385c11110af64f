"""The embedded bank: fixed, right, and never in the training data."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter

import pytest

from spiral_lib import bank_items as bank
from spiral_lib.errors import DataQualityError


def test_the_bank_is_the_published_one() -> None:
    assert len(bank.items()) == 600
    assert bank.sha256(bank.items()) == bank.SHA256


def test_a_changed_item_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bank, "PER_KIND", 24)
    bank._items.cache_clear()
    try:
        with pytest.raises(DataQualityError, match="sha256"):
            bank.items()
    finally:
        bank._items.cache_clear()


def test_every_kind_has_as_many_items_and_no_question_is_asked_twice() -> None:
    counts = Counter((item.family, item.level) for item in bank.items())
    assert set(counts.values()) == {25}
    assert len({item.question for item in bank.items()}) == 600
    assert len({item.id for item in bank.items()}) == 600


def test_answers_are_integers_or_one_lower_case_word() -> None:
    assert all(re.fullmatch(r"-?\d+|[a-z]+", item.answer) for item in bank.items())


def test_no_answer_is_right_for_most_of_a_kind() -> None:
    for kind, group in itertools.groupby(bank.items(), key=lambda item: (item.family, item.level)):
        answers = Counter(item.answer for item in group)
        assert answers.most_common(1)[0][1] <= 17, kind


@pytest.mark.parametrize("seed", [0, 1, 77])
def test_training_items_share_no_question_and_no_operands_with_the_bank(seed: int) -> None:
    evaluated = {item.question for item in bank.items()}
    operands = {(item.family, tuple(sorted(re.findall(r"\d+", item.question)))) for item in bank.items()}
    trained = bank.training_items(seed, 2000)
    assert len(trained) == 2000
    assert not evaluated & {item.question for item in trained}
    commutative = {"larger", "truth", "add", "multiply", "gcd", "parity"}
    assert not operands & {
        (item.family, tuple(sorted(re.findall(r"\d+", item.question))))
        for item in trained
        if item.family in commutative
    }


def test_training_items_are_of_level_one_in_equal_parts_and_depend_on_the_seed() -> None:
    counts = Counter((item.family, item.level) for item in bank.training_items(0, 800))
    assert {level for _, level in counts} == {1}
    assert max(counts.values()) - min(counts.values()) <= 1
    assert bank.training_items(0, 50) == bank.training_items(0, 50) != bank.training_items(1, 50)
    assert bank.training_items(0, 0) == ()


def arithmetic(question: str) -> str | None:
    """Solve what can be solved from the question's text alone, by other code than the generator's."""
    numbers = [int(n) for n in re.findall(r"\d+", question)]
    if match := re.fullmatch(r"(\d+) ([+*-]) (\d+) = \?", question):
        a, sign, b = int(match[1]), match[2], int(match[3])
        return str({"+": a + b, "-": a - b, "*": a * b}[sign])
    if question.startswith("Remainder"):
        return str(numbers[0] - numbers[0] // numbers[1] * numbers[1])
    if question.startswith("Greatest"):
        return str(math.gcd(*numbers))
    if question.startswith("Larger"):
        return str(max(numbers))
    if question.startswith("True or false"):
        return str(numbers[0] < numbers[1] if "<" in question else numbers[0] > numbers[1]).lower()
    if question.startswith("Odd or even"):
        return ("even", "odd")[sum(numbers) % 2]
    if question.startswith("Write"):
        return bin(numbers[0])[2:]
    if question.startswith("Next number"):
        return str(2 * numbers[2] - numbers[1])
    if question.startswith("Number after"):
        return str(numbers[0] + 1)
    if question.endswith("x = ?"):
        return str((numbers[2] - numbers[1]) // numbers[0])
    if question.startswith("Repeat"):
        return str(numbers[0])
    return None


def test_answers_are_right_by_other_code() -> None:
    solved = [(item, arithmetic(item.question)) for item in bank.items()]
    checked = [(item, answer) for item, answer in solved if answer is not None]
    assert len(checked) >= 400
    assert [item.id for item, answer in checked if answer != item.answer] == []


def test_list_and_letter_answers_are_right_by_other_code() -> None:
    for item in bank.items():
        words = item.question.rstrip("?").split()
        if item.family == "last":
            assert item.answer == words[-1]
        elif item.family == "pick":
            assert item.answer == words[-3:][("first", "second", "last").index(words[1])]
        elif item.family == "contains":
            assert item.answer == ("yes" if words[1] in words[-3:] else "no")
        elif item.family == "count":
            assert item.answer == str(words[-1].count(words[2]))
        elif item.family == "letter":
            a, b = (ord(c) for c in re.findall(r"\b([a-z]),", item.question)[-2:])
            assert item.answer == chr(2 * b - a)


def test_traces_are_right_by_other_code() -> None:
    for item in bank.items():
        if item.family == "trace":
            x = 0
            for step in item.question.partition(". What")[0].split("; "):
                *_, sign, number = ["+", *step.split()[2:]] if len(step.split()) == 3 else step.split()
                before = 0 if len(step.split()) == 3 else x
                x = {"+": before + int(number), "-": before - int(number), "*": before * int(number)}[sign]
            assert item.answer == str(x)


def test_each_puzzle_has_one_solution_and_it_is_the_answer() -> None:
    meaning = {
        "we both tell the truth": lambda a, b: a and b,
        "we both lie": lambda a, b: not a and not b,
        "exactly one of us lies": lambda a, b: a is not b,
        "we are of the same kind": lambda a, b: a is b,
        "at least one of us lies": lambda a, b: not (a and b),
    }
    for item in bank.items():
        if item.family != "puzzle":
            continue
        first, second = re.findall(r"(\w+) says: ([^.]+)\.", item.question)
        says_first = meaning.get(first[1], lambda a, b: not b)
        says_second = meaning.get(second[1], lambda a, b: not b)
        worlds = [
            a for a in (True, False) for b in (True, False) if a == says_first(a, b) and b == says_second(b, a)
        ]
        assert worlds == [item.answer == "truth"]


ITEM = bank.Item(id="x", family="add", level=1, question="3 + 4 = ?", answer="7", reasoning="3 plus 4 is 7.")
WORD = bank.Item(id="y", family="truth", level=1, question="?", answer="true", reasoning="")


@pytest.mark.parametrize("reply", [r"\boxed{7}", r"so \boxed{ [7] }", r"\boxed{\text{7}}", r"\boxed{3} no \boxed{$7$}"])
def test_a_boxed_answer_in_any_dressing_is_right(reply: str) -> None:
    assert bank.is_correct(ITEM, reply)


@pytest.mark.parametrize(
    "reply", ["7", "", r"\boxed{07}", r"\boxed{7.0}", r"\boxed{7", r"<think>\boxed{7}", r"\boxed{7} \boxed{8}"]
)
def test_anything_but_the_exact_boxed_answer_is_wrong(reply: str) -> None:
    assert not bank.is_correct(ITEM, reply)


def test_letter_case_of_a_word_does_not_matter() -> None:
    assert bank.is_correct(WORD, r"\boxed{True}")


def test_the_taught_reply_is_right_for_every_item() -> None:
    assert all(bank.is_correct(item, bank.reply_text(item)) for item in bank.items())
    assert all(bank.is_correct(item, bank.reply_text(item)) for item in bank.training_items(5, 300))


def test_a_limited_bank_still_has_every_kind() -> None:
    assert len({(i.family, i.level) for i in bank.limited(48)}) == 24
    assert len(bank.limited(20)) == 20
    assert bank.limited(0) == bank.limited(9999) == bank.items()
