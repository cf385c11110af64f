"""AIME 2025: 30 problems, answers 0 to 999."""

from __future__ import annotations

from typing import Any

from spiral_lib.config import EvaluationConfig
from spiral_lib.evaluation.benchmark_tasks._graded import math_task
from spiral_lib.evaluation.benchmark_tasks._items import Source, load, read_math

SOURCE = Source(
    name="aime25",
    file="aime25.jsonl",
    repo="math-ai/aime25",
    subset="",
    split="test",
    num_items=30,
    sha256="6c706653b19c9095596e77203be41f22fe23821e6c5c60065bda8f8181afa1cf",
    read=read_math,
)


def task(settings: EvaluationConfig) -> dict[str, Any]:
    """Return the benchmark as an lm-eval task."""
    return math_task("aime25", load(SOURCE, settings), settings)
