"""MATH-500: 500 competition problems of the MATH test set (Hendrycks et al. 2021; Lightman et al. 2023)."""

from __future__ import annotations

from typing import Any

from spiral_lib.config import EvaluationConfig
from spiral_lib.evaluation.benchmark_tasks._graded import math_task
from spiral_lib.evaluation.benchmark_tasks._items import Source, load, read_math

SOURCE = Source(
    name="math500",
    file="math500.jsonl",
    repo="HuggingFaceH4/MATH-500",
    subset="",
    split="test",
    num_items=500,
    sha256="51b16a7fa25a6494436a60c09de15ba4b86b2e848bbd653aa422eb6a9f7b6cb2",
    read=read_math,
)


def task(settings: EvaluationConfig) -> dict[str, Any]:
    """Return the benchmark as an lm-eval task."""
    return math_task("math500", load(SOURCE, settings), settings)
