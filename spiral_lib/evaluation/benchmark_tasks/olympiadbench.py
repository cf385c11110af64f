"""OlympiadBench: the 675 open-ended, text-only, English mathematics problems (He et al. 2024)."""

from __future__ import annotations

from typing import Any

from spiral_lib.config import EvaluationConfig
from spiral_lib.evaluation.benchmark_tasks._graded import math_task
from spiral_lib.evaluation.benchmark_tasks._items import Source, load, read_math

SOURCE = Source(
    name="olympiadbench",
    file="olympiadbench.jsonl",
    repo="zwhe99/simplerl-OlympiadBench",
    subset="",
    split="test",
    num_items=675,
    sha256="ac7b0851a6e96852db5a87bad9c5494290983a1411074980dbbb16e81397e5e0",
    read=read_math,
)


def task(settings: EvaluationConfig) -> dict[str, Any]:
    """Return the benchmark as an lm-eval task."""
    return math_task("olympiadbench", load(SOURCE, settings), settings)
