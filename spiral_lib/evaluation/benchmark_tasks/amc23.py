"""AMC 2023: 40 problems with numeric answers."""

from __future__ import annotations

from typing import Any

from spiral_lib.config import EvaluationConfig
from spiral_lib.evaluation.benchmark_tasks._graded import math_task
from spiral_lib.evaluation.benchmark_tasks._items import Source, load, read_math

SOURCE = Source(
    name="amc23",
    file="amc23.jsonl",
    repo="zwhe99/amc23",
    subset="",
    split="test",
    num_items=40,
    sha256="b1e745c0e14cc0b8a6f03046a5880aa6fd3cd9338582f3343c884850a71bb4b3",
    read=read_math,
)


def task(settings: EvaluationConfig) -> dict[str, Any]:
    """Return the benchmark as an lm-eval task."""
    return math_task("amc23", load(SOURCE, settings), settings)
