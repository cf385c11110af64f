"""MMLU-Pro: 12032 questions from 14 subjects with up to ten choices (Wang et al. 2024), zero-shot.

lm-eval's own ``mmlu_pro`` shows five examples; scores are not comparable with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spiral_lib.config import EvaluationConfig
from spiral_lib.evaluation.benchmark_tasks._graded import choice_task
from spiral_lib.evaluation.benchmark_tasks._items import Problem, Source, load


def read(row: Mapping[str, Any], position: int) -> Problem:
    """Return a row with the published columns."""
    choices = tuple(str(option) for option in row["options"])
    gold = str(row["answer"]).strip().upper()
    if len(gold) != 1 or not 0 <= ord(gold) - ord("A") < len(choices):
        raise ValueError(f"answer {gold!r} in row {position} is none of {len(choices)} options")
    return Problem(
        id=str(row.get("question_id", position)),
        question=str(row["question"]),
        gold=gold,
        choices=choices,
        family=str(row.get("category", "")).replace(" ", "_"),
    )


# The items could not be had where this was written: only their number is checked, their digest is recorded.
SOURCE = Source(
    name="mmlu_pro", file="mmlu_pro.jsonl", repo="TIGER-Lab/MMLU-Pro", subset="", split="test", num_items=12032,
    sha256=None, read=read,
)  # fmt: skip


def task(settings: EvaluationConfig) -> dict[str, Any]:
    """Return the benchmark as an lm-eval task."""
    return choice_task("mmlu_pro", load(SOURCE, settings), settings)
