"""GSM8K: 1319 school word problems with whole answers (Cobbe et al. 2021), zero-shot with a boxed answer.

lm-eval's own ``gsm8k`` shows examples and takes the last number of a reply; here, as everywhere, only a box counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spiral_lib.config import EvaluationConfig
from spiral_lib.evaluation.benchmark_tasks._graded import math_task
from spiral_lib.evaluation.benchmark_tasks._items import Problem, Source, load, plain_answer


def read(row: Mapping[str, Any], position: int) -> Problem:
    """Return a row; the published answers end in ``#### 1,234``."""
    gold = plain_answer(row["answer"]).rpartition("####")[2].strip().replace(",", "")
    if not gold:
        raise ValueError(f"no answer in row {position}")
    question = row["question"] if "question" in row else row["problem"]
    return Problem(id=str(row.get("id", position)), question=str(question), gold=gold)


# The items could not be had where this was written: only their number is checked, their digest is recorded.
SOURCE = Source(
    name="gsm8k", file="gsm8k.jsonl", repo="openai/gsm8k", subset="main", split="test", num_items=1319, sha256=None,
    read=read,
)  # fmt: skip


def task(settings: EvaluationConfig) -> dict[str, Any]:
    """Return the benchmark as an lm-eval task."""
    return math_task("gsm8k", load(SOURCE, settings), settings)
