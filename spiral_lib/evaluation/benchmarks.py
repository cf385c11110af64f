"""Benchmarks through lm-eval: our engine and prompts behind its model interface, every reply's verdict kept.

A benchmark is a module of ``benchmark_tasks`` (or a dotted path ``my_pkg.my_task:task``) whose ``task(settings)``
returns an lm-eval configuration with verdicts ``correct`` and ``extracted`` per item, each a number or one for every
reply, and the ``answer`` read where there is one. lm-eval's response cache is never used: its key does not contain the
model, so one checkpoint would get another's answers.
"""

from __future__ import annotations

import logging
import os
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from spiral_lib import answers, durable, plugins, stats
from spiral_lib._answers_compare import MAX_CHARS, exact
from spiral_lib.config import EvaluationConfig
from spiral_lib.errors import EngineError
from spiral_lib.evaluation.lm_eval_model import TOO_LONG, Reply, model_class
from spiral_lib.evaluation.replies import Progress
from spiral_lib.prompts import Renderer
from spiral_lib.types import Engine

PACKAGE = "spiral_lib.evaluation.benchmark_tasks"


@dataclass(frozen=True, kw_only=True, slots=True)
class Graded:
    """A reply's verdict. ``answer`` is what was read from it; without a readable one the reply is wrong."""

    correct: bool
    extracted: bool
    answer: str | None
    reply: Reply


@dataclass(frozen=True, kw_only=True, slots=True)
class ItemResult:
    """An item's graded replies, in the order of their seeds; ``family`` is its group, or ""."""

    id: str
    family: str
    gold: str
    replies: tuple[Graded, ...]

    @property
    def majority(self) -> bool:
        """Whether the answer given most often is right; of equally frequent ones the first counts."""
        votes: dict[str, list[Graded]] = defaultdict(list)
        for graded in self.replies:
            if graded.answer:
                votes[_vote(graded.answer)].append(graded)
        return bool(votes) and max(votes.values(), key=len)[0].correct


@dataclass(frozen=True, kw_only=True, slots=True)
class BenchmarkResult:
    """A benchmark's items in their order; ``sha256`` is the digest of all its items, "" where the task gives none."""

    name: str
    items: tuple[ItemResult, ...]
    sha256: str = ""

    @property
    def correct(self) -> tuple[bool, ...]:
        """The verdict on every item's first reply."""
        return tuple(item.replies[0].correct for item in self.items)

    @property
    def extracted(self) -> tuple[bool, ...]:
        """Whether every item's first reply had a readable answer."""
        return tuple(item.replies[0].extracted for item in self.items)

    @property
    def graded(self) -> tuple[Graded, ...]:
        """All replies, item by item."""
        return tuple(graded for item in self.items for graded in item.replies)

    @property
    def clamped(self) -> int:
        """How many replies had fewer tokens than asked for, because the window had no room."""
        return sum(graded.reply.clamped for graded in self.graded)


def task(name: str, settings: EvaluationConfig) -> dict[str, Any]:
    """Return a benchmark's configuration. Its data are read here, so what is missing is known before anything runs.

    Raises ConfigError for an unknown benchmark or missing data, DataQualityError for data that are not the published.
    """
    made: dict[str, Any] = plugins.load(PACKAGE, name, "task")(settings)
    return made


def run(
    name: str,
    engine: Engine,
    renderer: Renderer | None,
    settings: EvaluationConfig,
    *,
    context_tokens: int,
    seed: int,
    on_progress: Progress | None = None,
) -> BenchmarkResult:
    """Return a benchmark's verdicts. Without a renderer the engine is an endpoint, which is asked with texts.

    Raises what ``task`` raises, and EngineError without lm-eval or where an endpoint fails on an item.
    """
    config = task(name, settings)
    lm_eval = _import_lm_eval()
    model = model_class()(engine, renderer, context_tokens=context_tokens, seed=seed, on_progress=on_progress)
    # Not simple_evaluate: it seeds the process's generators and runs git and pip for a report that nobody reads.
    loaded = lm_eval.tasks.TaskManager(include_defaults=False).load([config])
    for made in loaded["tasks"].values():
        made.set_config(key="num_fewshot", value=0)
    outcome = lm_eval.evaluate(
        lm=model, task_dict=loaded, cache_requests=False, bootstrap_iters=0, log_samples=True
    )
    logged = sorted(outcome["samples"][config["task"]], key=lambda row: row["doc_id"])
    return BenchmarkResult(
        name=str(config["task"]),
        items=tuple(_item(row, model.replies) for row in logged),
        sha256=str(config.get("metadata", {}).get("sha256", "")),
    )


def metrics(result: BenchmarkResult) -> dict[str, float]:
    """Return the ``eval/<benchmark>/*`` metrics: accuracy with interval and n, by family, and extraction failures.

    With k replies an item, ``accuracy`` is their average (avg@k), and ``pass_at_k`` and ``majority_at_k`` are given
    beside it. Intervals count every item once, whatever k: replies to one item are no independent evidence.
    """
    n = len(result.items)
    prefix = f"eval/{result.name}"
    if n == 0:
        return {f"{prefix}/accuracy_n": 0.0}
    k = max(len(item.replies) for item in result.items)
    shares = [sum(g.correct for g in item.replies) / len(item.replies) for item in result.items]
    groups: dict[str, list[float]] = defaultdict(list)
    for item, share in zip(result.items, shares, strict=True):
        groups[item.family].append(share)
    graded = result.graded
    found = _share(f"{prefix}/accuracy", shares) | {
        f"{prefix}/extraction_failure_rate": 1.0 - sum(g.extracted for g in graded) / len(graded),
        f"{prefix}/clamped_n": float(result.clamped),
        f"{prefix}/too_long_n": float(sum(g.reply.finish_reason == TOO_LONG for g in graded)),
        f"{prefix}/truncated_rate": sum(g.reply.finish_reason in ("length", "context") for g in graded) / len(graded),
        f"{prefix}/replies_per_item": float(k),
    }
    if k > 1:
        found |= _share(f"{prefix}/pass_at_{k}", [float(share > 0) for share in shares])
        found |= _share(f"{prefix}/majority_at_{k}", [float(item.majority) for item in result.items])
    return found | {f"{prefix}/{f}/accuracy": sum(c) / len(c) for f, c in sorted(groups.items()) if f}


def write_records(path: Path, result: BenchmarkResult) -> Path:
    """Write one row per reply as Parquet: what was asked, how, what came back and how it was judged."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [
        {
            "benchmark": result.name,
            "sha256": result.sha256,
            "item": item.id,
            "family": item.family,
            "gold": item.gold,
            "index": index,
            "answer": graded.answer,
            "extracted": graded.extracted,
            "correct": graded.correct,
            **asdict(graded.reply),
        }
        for item in result.items
        for index, graded in enumerate(item.replies)
    ]
    # An explicit schema: a column of nulls or no rows at all must not change the types.
    integers = ("index", "seed", "prompt_tokens", "response_tokens", "max_new_tokens")
    types = {**dict.fromkeys(integers, pa.int64()), **dict.fromkeys(("extracted", "correct", "clamped"), pa.bool_())}
    names = (
        "benchmark", "sha256", "item", "family", "gold", "index", "answer", "extracted", "correct", "prompt", "text",
        "seed", "temperature", "prompt_tokens", "response_tokens", "max_new_tokens", "clamped", "finish_reason",
    )  # fmt: skip
    schema = pa.schema([(n, pa.float64() if n == "temperature" else types.get(n, pa.string())) for n in names])
    path.parent.mkdir(parents=True, exist_ok=True)
    with durable.new_file(path) as temporary:
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), temporary, compression="zstd")
    return path


def _share(name: str, shares: Sequence[float]) -> dict[str, float]:
    low, high = stats.wilson(sum(shares), len(shares))
    value = sum(shares) / len(shares)
    return {name: value, f"{name}_low": low, f"{name}_high": high, f"{name}_n": float(len(shares))}


def _item(row: Mapping[str, Any], replies: Mapping[str, deque[Reply]]) -> ItemResult:
    """Return one of lm-eval's logged items with its replies, which stand in the order in which they were asked for."""
    doc = row["doc"]
    correct, extracted = _listed(row["correct"]), _listed(row["extracted"])
    given = row.get("answer", [None] * len(correct))
    waiting = replies[row["arguments"][0][0]]
    graded = tuple(
        Graded(correct=bool(c), extracted=bool(e), answer=a, reply=waiting.popleft())
        for c, e, a in zip(correct, extracted, given, strict=True)
    )
    return ItemResult(
        id=str(doc.get("id", row["doc_id"])),
        family=str(doc.get("family", "")),
        gold=str(row["target"]),
        replies=graded,
    )


def _listed(verdict: Any) -> list[Any]:
    return list(verdict) if isinstance(verdict, list | tuple) else [verdict]


def _vote(answer: str) -> str:
    """Return what equal answers share: the exact value of a number, else the undressed text."""
    text = answers.unwrap(answer).casefold()
    value = exact(text) if len(text) <= MAX_CHARS else None
    return text if value is None else str(value)


def _without_bar(items: Iterable[Any], **_: Any) -> Iterable[Any]:
    return items


def _import_lm_eval() -> Any:
    # Read when the hub client is first imported: no import may wait for a network. Put back at once, since whoever
    # fetches benchmark data from the hub decides for himself.
    before = {name: os.environ.get(name) for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")}
    os.environ.update({name: value or "1" for name, value in before.items()})
    try:
        import lm_eval
        import lm_eval.api.task
        import lm_eval.tasks

        lm_eval.api.task.tqdm = _without_bar  # building prompts takes milliseconds; our own progress says the rest
    except ImportError as error:
        raise EngineError(
            "benchmarks run through lm-eval, which is not installed; "
            "install the extra: pip install 'spiral-pipeline[eval]', or set evaluation.bank=false"
        ) from error
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
    # Its warnings are about defaults of task files that are not ours.
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    return lm_eval
