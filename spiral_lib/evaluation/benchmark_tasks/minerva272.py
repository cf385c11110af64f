"""Minerva: 272 university science problems with numeric or symbolic answers (Lewkowycz et al. 2022).

This is the set of the paper's tables, not lm-eval's ``minerva_math``, which is MATH with another prompt.
"""

from __future__ import annotations

from typing import Any

from spiral_lib.config import EvaluationConfig
from spiral_lib.evaluation.benchmark_tasks._graded import math_task
from spiral_lib.evaluation.benchmark_tasks._items import Source, load, read_math

SOURCE = Source(
    name="minerva272",
    file="minerva.jsonl",
    repo="zwhe99/simplerl-minerva-math",
    subset="",
    split="test",
    num_items=272,
    sha256="135282ae6dfda8d1a794c062e8474d3efede0601e87ee88686e5a2c04fb015dc",
    read=read_math,
)


def task(settings: EvaluationConfig) -> dict[str, Any]:
    """Return the benchmark as an lm-eval task."""
    return math_task("minerva272", load(SOURCE, settings), settings)
