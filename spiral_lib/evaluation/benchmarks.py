"""Benchmarks through lm-eval: our engine and prompts behind its model interface, per-item verdicts kept.

A benchmark is a module of ``benchmark_tasks`` (or a dotted path ``my_pkg.my_task:task``) whose ``task(settings)``
returns an lm-eval configuration with verdicts ``correct`` and ``extracted`` per item. lm-eval's response cache is never
used: its key does not contain the model, so one checkpoint would get another's answers.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spiral_lib import plugins, stats
from spiral_lib.config import EvaluationConfig
from spiral_lib.errors import EngineError
from spiral_lib.evaluation.replies import Progress, sample_replies
from spiral_lib.prompts import Renderer
from spiral_lib.seeds import seed_for
from spiral_lib.types import Engine, Request

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance

_PACKAGE = "spiral_lib.evaluation.benchmark_tasks"


@dataclass(frozen=True, kw_only=True, slots=True)
class BenchmarkResult:
    """Verdicts in the benchmark's item order. ``extracted`` is False where a reply had no readable answer (so wrong).

    ``families`` are the items' groups, "" where it has none; ``clamped`` counts requests whose token limit was lowered
    to what the model's window leaves after the prompt.
    """

    name: str
    correct: tuple[bool, ...]
    extracted: tuple[bool, ...]
    families: tuple[str, ...]
    clamped: int


def run(
    name: str,
    engine: Engine,
    renderer: Renderer,
    settings: EvaluationConfig,
    *,
    context_tokens: int,
    seed: int,
    on_progress: Progress | None = None,
) -> BenchmarkResult:
    """Return a benchmark's verdicts. Raises EngineError without lm-eval, ConfigError for an unknown benchmark."""
    task = plugins.load(_PACKAGE, name, "task")(settings)
    lm_eval = _import_lm_eval()
    model = _model_class()(engine, renderer, context_tokens=context_tokens, seed=seed, on_progress=on_progress)
    outcome = lm_eval.simple_evaluate(
        model=model,
        tasks=[task],
        task_manager=lm_eval.tasks.TaskManager(include_defaults=False),
        num_fewshot=0,
        bootstrap_iters=0,
        use_cache=None,
        cache_requests=False,
        log_samples=True,
    )
    samples = sorted(outcome["samples"][task["task"]], key=lambda sample: sample["doc_id"])
    return BenchmarkResult(
        name=str(task["task"]),
        correct=tuple(bool(s["correct"]) for s in samples),
        extracted=tuple(bool(s["extracted"]) for s in samples),
        families=tuple(str(s["doc"].get("family", "")) for s in samples),
        clamped=model.clamped,
    )


def metrics(result: BenchmarkResult) -> dict[str, float]:
    """Return the ``eval/<benchmark>/*`` metrics: accuracy with interval and n, by family, and extraction failures."""
    n = len(result.correct)
    prefix = f"eval/{result.name}"
    if n == 0:
        return {f"{prefix}/accuracy_n": 0.0}
    low, high = stats.wilson(sum(result.correct), n)
    groups: dict[str, list[bool]] = defaultdict(list)
    for family, correct in zip(result.families, result.correct, strict=True):
        groups[family].append(correct)
    by_family = {f"{prefix}/{f}/accuracy": sum(c) / len(c) for f, c in sorted(groups.items()) if f}
    return {
        f"{prefix}/accuracy": sum(result.correct) / n,
        f"{prefix}/accuracy_low": low,
        f"{prefix}/accuracy_high": high,
        f"{prefix}/accuracy_n": float(n),
        f"{prefix}/extraction_failure_rate": 1.0 - sum(result.extracted) / n,
        f"{prefix}/clamped_n": float(result.clamped),
        **by_family,
    }


def _import_lm_eval() -> Any:
    # Read when the hub client is first imported: the bank is inside this package and must not wait for a network.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("HF_DATASETS_OFFLINE", "1")
    try:
        import lm_eval
        import lm_eval.tasks
    except ImportError as error:
        raise EngineError(
            "benchmarks run through lm-eval, which is not installed; "
            "install the extra: pip install 'spiral-pipeline[eval]', or set evaluation.bank=false"
        ) from error
    # Its warnings are about defaults of task files that are not ours.
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    return lm_eval


def _model_class() -> type[Any]:
    """Return the adapter class; it is made here because its base class takes seconds to import."""
    from lm_eval.api.model import LM

    class EngineModel(LM):  # type: ignore[misc]
        """An engine as an lm-eval model; only generation, each request one user message through the chat template."""

        def __init__(
            self, engine: Engine, renderer: Renderer, *, context_tokens: int, seed: int, on_progress: Progress | None
        ) -> None:
            super().__init__()
            self.clamped = 0
            self._engine, self._renderer = engine, renderer
            self._context_tokens, self._seed, self._on_progress = context_tokens, seed, on_progress

        def generate_until(self, requests: Sequence[Instance], disable_tqdm: bool = False) -> list[str]:
            """Return the replies, cut at the first stop text of the request.

            The k-th request for one prompt has a seed of its own, so that repeats differ and re-runs do not.
            """
            del disable_tqdm
            occurrences: Counter[str] = Counter()
            prepared = []
            for i, (context, options) in enumerate(request.args for request in requests):
                occurrences[context] += 1
                prepared.append(self._request(i, context, options, occurrences[context]))
            replies = sample_replies(self._engine, prepared, self._on_progress)
            return [_cut(r.text, request.args[1]) for r, request in zip(replies, requests, strict=True)]

        def _request(self, number: int, context: str, options: Mapping[str, Any], occurrence: int) -> Request:
            prompt_ids = self._renderer.encode_text(context)
            wanted = int(options.get("max_gen_toks", 256))
            room = max(1, self._context_tokens - len(prompt_ids))
            self.clamped += wanted > room
            key = hashlib.sha256(context.encode()).hexdigest()
            return Request(
                id=number,
                prompt_ids=prompt_ids,
                header_len=0,
                seed=seed_for(self._seed, "benchmark", key, occurrence),
                # A temperature of 0 is greedy in every engine.
                temperature=float(options.get("temperature", 1.0)) if options.get("do_sample") else 0.0,
                max_new_tokens=min(wanted, room),
            )

        def loglikelihood(self, requests: Sequence[Instance]) -> list[tuple[float, bool]]:
            """Refuse: every benchmark here is generative."""
            raise EngineError("this benchmark asks for log-likelihoods; only generate_until tasks are supported")

        def loglikelihood_rolling(self, requests: Sequence[Instance]) -> list[float]:
            """Refuse: every benchmark here is generative."""
            raise EngineError("this benchmark asks for perplexities; only generate_until tasks are supported")

    return EngineModel


def _cut(text: str, options: Mapping[str, Any]) -> str:
    until = options.get("until") or []
    for stop in [until] if isinstance(until, str) else until:
        text = text.partition(stop)[0] if stop else text
    return text
