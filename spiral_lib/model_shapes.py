"""Sizes of models, as far as memory and time depend on them, without loading one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spiral_lib.config import ModelConfig
from spiral_lib.errors import ConfigError

_QWEN3: dict[str, Any] = {"vocab_size": 151936, "num_key_value_heads": 8, "head_dim": 128}
_KNOWN: dict[str, dict[str, Any]] = {
    "SmolLM2-135M": {
        "hidden_size": 576, "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3,
        "intermediate_size": 1536, "vocab_size": 49152, "tie_word_embeddings": True,
    },
    "Qwen3-0.6B": {
        **_QWEN3, "hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16,
        "intermediate_size": 3072, "tie_word_embeddings": True,
    },
    "Qwen3-1.7B": {
        **_QWEN3, "hidden_size": 2048, "num_hidden_layers": 28, "num_attention_heads": 16,
        "intermediate_size": 6144, "tie_word_embeddings": True,
    },
    "Qwen3-4B": {
        **_QWEN3, "hidden_size": 2560, "num_hidden_layers": 36, "num_attention_heads": 32,
        "intermediate_size": 9728, "tie_word_embeddings": True,
    },
    "Qwen3-8B": {
        **_QWEN3, "hidden_size": 4096, "num_hidden_layers": 36, "num_attention_heads": 32,
        "intermediate_size": 12288, "tie_word_embeddings": False,
    },
}  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """A decoder of the Llama or Qwen family; ``kv_values`` are the keys and values of one token, all layers."""

    parameters: int
    layers: int
    hidden: int
    vocab: int
    kv_values: int
    tied: bool

    @property
    def stored(self) -> int:
        """Return the number of values in a checkpoint: a tied head is written out as well."""
        return self.parameters + (self.vocab * self.hidden if self.tied else 0)


def of_config(config: Mapping[str, Any]) -> Shape:
    """Return the shape that a Hugging Face ``config.json`` describes. Raises ConfigError where a number is missing."""
    try:
        hidden, layers, vocab = (int(config[k]) for k in ("hidden_size", "num_hidden_layers", "vocab_size"))
        heads, mlp = int(config["num_attention_heads"]), int(config["intermediate_size"])
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"the model's config.json does not say its size: {error!r}; give --parameters") from error
    kv_heads = int(config.get("num_key_value_heads") or heads)
    head = int(config.get("head_dim") or hidden // heads)
    tied = bool(config.get("tie_word_embeddings", False))
    layer = 2 * hidden * heads * head + 2 * hidden * kv_heads * head + 3 * hidden * mlp + 2 * hidden
    layer += 2 * head if config.get("model_type", "qwen3") == "qwen3" else 0
    return Shape(
        parameters=layers * layer + hidden + vocab * hidden * (1 if tied else 2),
        layers=layers,
        hidden=hidden,
        vocab=vocab,
        kv_values=2 * layers * kv_heads * head,
        tied=tied,
    )


def of_source(model: ModelConfig) -> Shape:
    """Return the shape of the model that a run starts from. Raises ConfigError where only the weights would tell."""
    kind, _, locator = model.source.partition(":")
    if model.source == "init:tiny":
        return of_config(
            {
                "hidden_size": model.hidden, "num_hidden_layers": model.layers, "num_attention_heads": model.heads,
                "num_key_value_heads": 1, "head_dim": 32, "intermediate_size": model.mlp, "vocab_size": model.vocab,
                "tie_word_embeddings": True,
            }
        )  # fmt: skip
    if kind == "smollm2":
        return of_config({**_KNOWN["SmolLM2-135M"], "model_type": "llama"})
    if kind in ("hf", "checkpoint"):
        file = Path(locator).expanduser() / "config.json"
        if file.is_file():
            return of_config(json.loads(file.read_text(encoding="utf-8")))
    if kind == "registry":
        return of_config(json.loads(_published_config(model.source)))
    known = next((shape for name, shape in _KNOWN.items() if name in locator), None)
    if known is None:
        raise ConfigError(
            f"the size of model.source={model.source} is not known here; known: {', '.join(_KNOWN)}, "
            "and every folder with a config.json: model.source=hf:<folder>"
        )
    return of_config({**known, "model_type": "llama" if "SmolLM2" in locator else "qwen3"})


def _published_config(source: str) -> str:
    from spiral_lib.registry import Reference, Registry

    reference = Reference.parse(source)
    registry = Registry(reference.root)
    return registry.text(registry.resolve(reference.name, reference.selector), "checkpoint/config.json")
