"""Tiny random checkpoints for tests of engines and rollouts; their tokenizer knows whole moves as single tokens."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    GPTNeoXConfig,
    LlamaConfig,
    PreTrainedTokenizerFast,
    Qwen3Config,
)

from spiral_lib.config import ModelConfig, RolloutConfig, RunConfig

# Thread barriers on shared cores cost more than these models do.
torch.set_num_threads(1)

MOVES = ["[check]", "[bet]", "[fold]", "[call]", *(f"[{i}]" for i in range(9))]
WINDOW = 256
_CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tokenizer(text: str = "Your card is the king. Legal: [check] [bet]", vocab: int = 290) -> PreTrainedTokenizerFast:
    """Return a byte-level tokenizer whose vocabulary also holds every boxed move of MOVES as one token."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    special = ["<|pad|>", "<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    core.train_from_iterator(
        [text] * 4,
        trainers.BpeTrainer(vocab_size=vocab, special_tokens=special, initial_alphabet=alphabet, show_progress=False),
    )
    core.add_tokens([AddedToken(f"\\boxed{{{move}}}", normalized=False) for move in MOVES])
    fast = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<|im_end|>", pad_token="<|pad|>")
    fast.chat_template = _CHAT
    return fast


def model(family: str, vocab: int, seed: int = 0, **changes: Any) -> Any:
    """Return a random model; its weights are large enough for distributions far from uniform."""
    shape: dict[str, Any] = {
        "vocab_size": vocab,
        "hidden_size": 48,
        "intermediate_size": 80,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": WINDOW,
        "initializer_range": 0.2,
    }
    match family:
        case "qwen3":
            config = Qwen3Config(**shape | {"head_dim": 16, "tie_word_embeddings": True} | changes)
        case "llama":
            config = LlamaConfig(**shape | {"tie_word_embeddings": False} | changes)
        case "gpt2":
            config = GPT2Config(
                vocab_size=vocab, n_embd=48, n_layer=2, n_head=4, n_positions=WINDOW, initializer_range=0.2, **changes
            )
        case _:
            del shape["num_key_value_heads"]
            config = GPTNeoXConfig(**shape | changes)
    # The process-wide generator is given back as it was.
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        made = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()
        for name, weight in made.named_parameters():
            if "norm" in name or "ln_" in name:
                weight.data += 0.2 * torch.randn_like(weight)
    return made


def save(folder: Path, family: str, seed: int = 0, **changes: Any) -> Path:
    """Write a checkpoint folder without a manifest and return it."""
    tok = tokenizer()
    made = model(family, len(tok), seed, **changes)
    made.save_pretrained(folder)
    tok.save_pretrained(folder)
    return folder


def save_player(
    folder: Path,
    tok: PreTrainedTokenizerFast | None = None,
    *,
    moves: Sequence[str] = MOVES,
    move_bias: float = 0.65,
    stop_bias: float = 0.7,
    **changes: Any,
) -> Path:
    """Write a Qwen3 checkpoint that often boxes one of the moves and often stops, so that matches last some turns."""
    tok = tok or tokenizer()
    made = model("qwen3", len(tok), **{"tie_word_embeddings": False, "initializer_range": 0.08} | changes)
    boxes = [tok.convert_tokens_to_ids(f"\\boxed{{{move}}}") for move in moves]
    # Channel 0 of the residual stream stays large, so the head's column 0 acts as a bias.
    made.model.embed_tokens.weight.data[:, 0] = 8.0
    made.model.norm.weight.data[0] = 1.0
    head = made.lm_head.weight.data
    head[:, 0] = 0.0
    head[boxes, 0] = move_bias
    head[tok.eos_token_id, 0] = stop_bias
    made.save_pretrained(folder)
    tok.save_pretrained(folder)
    return folder


def config(*, slots: int = 8, max_new_tokens: int = 24, window: int = WINDOW, **rollout: Any) -> RunConfig:
    """Return a configuration for these checkpoints."""
    return RunConfig(
        model=ModelConfig(context_tokens=window),
        rollout=RolloutConfig(concurrency=slots, max_new_tokens=max_new_tokens, **rollout),
    )
