"""The embedded bank as an lm-eval task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spiral_lib import answers
from spiral_lib.bank_items import SHA256, is_correct, limited, user_text
from spiral_lib.config import EvaluationConfig


def task(settings: EvaluationConfig) -> dict[str, Any]:
    """Return the bank as an lm-eval task; a limit takes every k-th item, so that all kinds stay represented."""
    chosen = limited(settings.bank_limit)
    rows = [{"id": i.id, "family": i.family, "prompt": user_text(i), "answer": i.answer} for i in chosen]
    by_id = {item.id: item for item in chosen}

    def dataset(**_: Any) -> dict[str, Any]:
        from datasets import Dataset

        return {"test": Dataset.from_list(rows)}

    def process_results(doc: Mapping[str, Any], results: Sequence[str]) -> dict[str, float]:
        item, reply = by_id[doc["id"]], results[0]
        return {"correct": float(is_correct(item, reply)), "extracted": float(answers.extract(reply) is not None)}

    return {
        "task": "bank",
        "custom_dataset": dataset,
        "test_split": "test",
        "output_type": "generate_until",
        "doc_to_text": "{{prompt}}",
        "doc_to_target": "{{answer}}",
        "process_results": process_results,
        "metric_list": [
            {"metric": name, "aggregation": "mean", "higher_is_better": True} for name in ("correct", "extracted")
        ],
        "generation_kwargs": {"until": [], "max_gen_toks": settings.bank_max_new_tokens, "do_sample": False},
        "metadata": {"version": 1.0, "sha256": SHA256},
    }
