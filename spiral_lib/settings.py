"""How a setting is declared, and the sections about what generates tokens and what stays on the disk."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


def setting(
    default: Any,
    doc: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] | None = None,
) -> Any:
    """Return a dataclass field with its documentation, inclusive bounds or allowed values."""
    given: dict[str, Any] = {"default_factory": default} if callable(default) else {"default": default}
    return field(**given, metadata={"doc": doc, "low": low, "high": high, "choices": choices})


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineConfig:
    """How engine vllm uses the machine; what is sampled depends on it in rounding only."""

    tensor_parallel: int = setting(1, "GPUs that share one copy of the weights", low=1)
    gpu_memory: float = setting(0.85, "share of a GPU's memory for weights and cache", low=0.05, high=0.98)
    cpu_cache_gib: int = setting(1, "without a GPU: GiB of key-value cache", low=1)
    prefix_caching: bool = setting(True, "compute what prompts share once; emptied at every change of weights")
    eager: bool = setting(False, "run without compiled graphs, as is always done without a GPU")


@dataclass(frozen=True, kw_only=True, slots=True)
class EndpointConfig:
    """An OpenAI-compatible chat endpoint, for ``api:<model>`` policies; they never train."""

    base_url: str = setting("", "for example http://127.0.0.1:8000/v1")
    key_env: str = setting("OPENAI_API_KEY", "environment variable (or Flyte secret in it) with the key")
    concurrency: int = setting(8, "requests in flight at most", low=1)
    timeout_s: float = setting(120.0, "seconds one attempt may take, reply included", low=0.01)
    retries: int = setting(4, "further attempts after a failure that may pass (429, 5xx, network, broken reply)", low=0)
    backoff_s: float = setting(1.0, "first wait before a further attempt; it doubles, with jitter", low=0.0)
    max_failures: int = setting(20, "failed requests in a row after which no more are sent", low=1)
    max_tokens: int = setting(0, "tokens of prompts and replies that may be spent; 0 is no limit", low=0, high=1 << 62)
    max_cost: float = setting(0.0, "money that may be spent, in the unit of the prices; 0 is no limit", low=0.0)
    price_prompt: float = setting(0.0, "price of a million prompt tokens", low=0.0)
    price_reply: float = setting(0.0, "price of a million reply tokens", low=0.0)
    limit_name: str = setting("max_tokens", "limit's name", choices=("max_tokens", "max_completion_tokens"))
    cassette: str = setting("", "JSON-lines file of replies: what it holds is never asked again")
    replay_only: bool = setting(False, "answer from the cassette alone; a request it lacks stops the run")


@dataclass(frozen=True, kw_only=True, slots=True)
class RetentionConfig:
    """What stays on the disk as a run goes on; what it needs, its pool, champion and cold start stay in any case."""

    enabled: bool = setting(True, "after every iteration delete what the numbers below let go, with its hash kept")
    keep_recent: int = setting(8, "newest checkpoints that stay, each with what replays the step that made it", low=1)
    keep_every: int = setting(0, "every how many-th checkpoint stays besides; 0 is none", low=0)
    keep_shards: int = setting(32, "newest iterations whose turns stay", low=1)
