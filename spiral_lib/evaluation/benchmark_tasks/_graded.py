r"""An lm-eval configuration for items whose boxed answer is compared with a gold one."""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from spiral_lib import answers
from spiral_lib.config import EvaluationConfig
from spiral_lib.evaluation.benchmark_tasks._items import Items, Problem
from spiral_lib.seeds import generator

Grade = Callable[[Problem, str], bool]
"""Whether the content of a reply's last box answers the problem."""

VERSION = 1.0
"""Of prompts and grading; raised with every change of scores."""


def math_task(name: str, items: Items, settings: EvaluationConfig) -> dict[str, Any]:
    """Return a benchmark with free answers, compared as exact mathematics."""
    return task(name, items, settings, prompt=math_prompt, grade=lambda p, answer: answers.check(p.gold, answer))


def choice_task(name: str, items: Items, settings: EvaluationConfig) -> dict[str, Any]:
    """Return a benchmark with lettered choices."""
    return task(name, items, settings, prompt=choice_prompt, grade=lambda p, answer: letter(answer) == p.gold)


def task(
    name: str, items: Items, settings: EvaluationConfig, *, prompt: Callable[[Problem], str], grade: Grade
) -> dict[str, Any]:
    """Return the lm-eval configuration: verdicts ``correct``, ``extracted`` and ``answer`` for every reply."""
    chosen = spread(items.problems, settings.benchmark_limit)
    rows = [
        {"position": i, "id": p.id, "family": p.family, "prompt": prompt(p), "gold": p.gold}
        for i, p in enumerate(chosen)
    ]

    def dataset(**_: Any) -> dict[str, Any]:
        from datasets import Dataset

        return {"test": Dataset.from_list(rows)}

    def process_results(doc: Mapping[str, Any], results: Sequence[Sequence[str]]) -> dict[str, Any]:
        problem = chosen[doc["position"]]
        given = [answers.extract(reply) for reply in results[0]]
        # A model often repeats itself, and a comparison can take seconds.
        verdicts = {answer: bool(answer) and grade(problem, answer) for answer in set(given) if answer is not None}
        return {
            "correct": [answer is not None and verdicts[answer] for answer in given],
            "extracted": [answer is not None for answer in given],
            "answer": given,
        }

    return {
        "task": name,
        "custom_dataset": dataset,
        "test_split": "test",
        "output_type": "generate_until",
        "doc_to_text": "{{prompt}}",
        "doc_to_target": "{{gold}}",
        "process_results": process_results,
        "repeats": settings.benchmark_replies,
        "filter_list": [
            {"name": "replies", "filter": [{"function": "take_first_k", "k": settings.benchmark_replies}]}
        ],
        "metric_list": [
            {"metric": "correct", "aggregation": mean_of_means, "higher_is_better": True},
            {"metric": "extracted", "aggregation": mean_of_means, "higher_is_better": True},
            {"metric": "answer", "aggregation": "bypass", "higher_is_better": True},
        ],
        "generation_kwargs": {
            "until": [],
            "max_gen_toks": settings.benchmark_max_new_tokens,
            "do_sample": settings.benchmark_temperature > 0.0,
            "temperature": settings.benchmark_temperature,
        },
        "metadata": {"version": VERSION, "sha256": items.sha256, "num_items": len(items.problems)},
    }


def math_prompt(problem: Problem) -> str:
    """Return the user message of a problem with a free answer."""
    return f"{problem.question.strip()}\n\nThink it through and give your final answer as \\boxed{{answer}}."


def choice_prompt(problem: Problem) -> str:
    """Return the user message of a problem with lettered choices."""
    options = "\n".join(f"{string.ascii_uppercase[i]}. {c.strip()}" for i, c in enumerate(problem.choices))
    asked = "Think it through and give the letter of the right option as \\boxed{letter}."
    return f"{problem.question.strip()}\n\n{options}\n\n{asked}"


def letter(answer: str) -> str | None:
    """Return the option that a box names ("B", "(b)", "B. 42"), or None."""
    text = answers.unwrap(answer).lstrip("(").lstrip()
    is_letter = text[:1].upper() in tuple(string.ascii_uppercase) and not text[1:2].isalnum()
    return text[0].upper() if is_letter else None


def shuffled(right: str, wrong: Sequence[str], *, key: str) -> tuple[tuple[str, ...], str]:
    """Return choices in an order that depends on the key alone, and the letter of the right one."""
    choices = [right, *wrong]
    order = list(range(len(choices)))
    generator("benchmark choices", key).shuffle(order)
    return tuple(choices[i] for i in order), string.ascii_uppercase[order.index(0)]


def spread(problems: Sequence[Problem], limit: int) -> tuple[Problem, ...]:
    """Return ``limit`` items spread evenly, all of them for 0."""
    if not 0 < limit < len(problems):
        return tuple(problems)
    return tuple(problems[i * len(problems) // limit] for i in range(limit))


def mean_of_means(per_item: Sequence[Sequence[bool]]) -> float:
    """Return the mean over items of each item's share."""
    return sum(sum(row) / len(row) for row in per_item) / len(per_item)
