"""GPQA diamond: 198 graduate science questions with four choices (Rein et al. 2023). The hub's copy is gated.

Choices are shuffled by a hash of the question, so that their order is the same in every evaluation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spiral_lib.config import EvaluationConfig
from spiral_lib.evaluation.benchmark_tasks._graded import choice_task, shuffled
from spiral_lib.evaluation.benchmark_tasks._items import Problem, Source, load


def read(row: Mapping[str, Any], position: int) -> Problem:
    """Return a row with the published columns."""
    question = str(row["Question"])
    wrong = [str(row[f"Incorrect Answer {i}"]) for i in (1, 2, 3)]
    choices, gold = shuffled(str(row["Correct Answer"]), wrong, key=question)
    return Problem(
        id=str(row.get("Record ID", position)),
        question=question,
        gold=gold,
        choices=choices,
        family=str(row.get("High-level domain", "")),
    )


# The items could not be had where this was written: only their number is checked, their digest is recorded.
SOURCE = Source(
    name="gpqa_diamond", file="gpqa_diamond.jsonl", repo="Idavidrein/gpqa", subset="gpqa_diamond", split="train",
    num_items=198, sha256=None, read=read,
)  # fmt: skip


def task(settings: EvaluationConfig) -> dict[str, Any]:
    """Return the benchmark as an lm-eval task."""
    return choice_task("gpqa_diamond", load(SOURCE, settings), settings)
