"""AIME 2024: 30 problems, answers 0 to 999."""

from __future__ import annotations

from typing import Any

from spiral_lib.config import EvaluationConfig
from spiral_lib.evaluation.benchmark_tasks._graded import math_task
from spiral_lib.evaluation.benchmark_tasks._items import Source, load, read_math

SOURCE = Source(
    name="aime24",
    file="aime24.jsonl",
    repo="HuggingFaceH4/aime_2024",
    subset="",
    split="train",
    num_items=30,
    sha256="4d626e2f99e5dd57e261884c919906bdfcf91ed403d02ed718df937d8e8afe43",
    read=read_math,
)


def task(settings: EvaluationConfig) -> dict[str, Any]:
    """Return the benchmark as an lm-eval task."""
    return math_task("aime24", load(SOURCE, settings), settings)
