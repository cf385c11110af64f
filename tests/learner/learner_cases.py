"""Small models, samples and episodes shared by the learner's tests."""

import math
from typing import Any

import torch

from spiral_lib.config import RunConfig, update
from spiral_lib.learner import packing
from spiral_lib.learner.batch import Sample
from spiral_lib.strict_yaml import parse_overrides
from spiral_lib.types import EndReason, Episode, Turn

GOLDEN_ROWS = (((1, 5, 9), (3, 7), 0.5), ((2, 4), (6, 8, 10, 12), -1.0), ((11, 13, 15, 17), (0,), 2.0))
"""Prompt, response and advantage of the golden case."""


def golden_model(dtype: torch.dtype = torch.float32) -> Any:
    """A Llama of 5200 parameters whose weights are sines, so that its numbers depend on no generator."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=32,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        tie_word_embeddings=True,
        rms_norm_eps=1e-6,
        rope_theta=10000.0,
    )
    model = LlamaForCausalLM(config).to(torch.float64)
    with torch.no_grad():
        for j, (name, p) in enumerate(model.named_parameters()):
            k = torch.arange(p.numel(), dtype=torch.float64)
            p.copy_(torch.ones_like(p) if "norm" in name else (0.3 * torch.sin(k + 1 + j)).view_as(p))
    return model.to(dtype).eval()


def random_model(seed: int = 0, kind: str = "qwen3", **settings: Any) -> Any:
    """A tiny random model of the given architecture."""
    import transformers

    shape: dict[str, Any] = {
        "vocab_size": 40,
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 8,
        "max_position_embeddings": 128,
    } | settings
    names = {"qwen3": ("Qwen3Config", "Qwen3ForCausalLM"), "mistral": ("MistralConfig", "MistralForCausalLM")}
    names |= {"llama": ("LlamaConfig", "LlamaForCausalLM"), "nemotron": ("NemotronConfig", "NemotronForCausalLM")}
    names |= {"gpt2": ("GPT2Config", "GPT2LMHeadModel"), "gemma2": ("Gemma2Config", "Gemma2ForCausalLM")}
    if kind == "gpt2":
        shape = {"vocab_size": 40, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 128}
    config_name, model_name = names[kind]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = getattr(transformers, model_name)(getattr(transformers, config_name)(**shape))
        with torch.no_grad():
            for p in model.parameters():
                if p.ndim > 1:
                    p.normal_(0, 0.3)
    return model.eval()


def sample(
    prompt: tuple[int, ...], response: tuple[int, ...], advantage: float, *, episode: str = "e", **rest: Any
) -> Sample:
    """A sample with the given ids; log-probs of the engine default to zeros."""
    values: dict[str, Any] = {"turn": 0, "game": "g", "role": "0", "reward": advantage, "baseline": 0.0}
    values |= {"old_logprobs": (0.0,) * len(response)} | rest
    return Sample(episode=episode, prompt_ids=prompt, response_ids=response, advantage=advantage, **values)


def sampled(model: Any, count: int, *, seed: int = 0, shift: float = 0.0, temperature: float = 1.0) -> list[Sample]:
    """Samples of various lengths whose engine log-probs are the model's own plus ``shift``."""
    from spiral_lib.learner.logprobs import score

    g = torch.Generator().manual_seed(seed)
    rows = []
    for i in range(count):
        p, r = (int(torch.randint(1, n, (1,), generator=g)) for n in (12, 9))
        ids = torch.randint(0, 30, (p + r,), generator=g).tolist()
        advantage = math.sin(1.0 + i)
        rows.append(sample(tuple(ids[:p]), tuple(ids[p:]), advantage, episode=f"{i:03d}"))
    found = score(model, rows, temperature=temperature, chunk=512, budget=512, can_pack=False)
    return [with_logprobs(s, tuple((t + shift).tolist())) for s, t in zip(rows, found, strict=True)]


def with_logprobs(s: Sample, logprobs: tuple[float, ...]) -> Sample:
    """The sample with other engine log-probs."""
    import dataclasses

    return dataclasses.replace(s, old_logprobs=logprobs)


def settings(text: str = "") -> RunConfig:
    """A configuration with small round numbers, changed by overrides such as ``"epochs=1 lr=0.01"`` of the learner."""
    base = {"lr": 1e-2, "epochs": 1, "minibatch": 0, "normalizer": 8, "pack_tokens": 64, "kl_coef": 0.0}
    return update(RunConfig(), {"learner": base | parse_overrides(text)})


def turn(index: int, player: int, **rest: Any) -> Turn:
    """A legal trainable turn of two response tokens."""
    values: dict[str, Any] = {
        "role": str(player),
        "seed": 0,
        "policy": "self",
        "policy_digest": "",
        "engine": "scripted",
        "temperature": 1.0,
        "trainable": True,
        "info_state": "",
        "observation": "",
        "text": "",
        "action": "[a]",
        "legal": True,
        "invalid_reason": None,
        "finish_reason": "stop",
        "prompt_ids": (1, 2, 3),
        "response_ids": (4, 5),
        "logprobs": (-1.0, -2.0),
    } | rest
    return Turn(index=index, player=player, **values)


def episode(id: str, returns: tuple[float, float], turns: tuple[Turn, ...] | None = None, **rest: Any) -> Episode:
    """An episode with one turn of each player unless turns are given."""
    values: dict[str, Any] = {"game": "g", "seed": 0, "policies": ("self", "self")}
    values |= {"end_reason": EndReason.FINISHED} | rest
    return Episode(id=id, returns=returns, turns=turns or (turn(0, 0), turn(1, 1)), **values)


def gradients(model: Any) -> dict[str, torch.Tensor]:
    """The gradients by name, taken off the model."""
    out = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    model.zero_grad(set_to_none=True)
    return out


def weights(model: Any) -> dict[str, torch.Tensor]:
    """A copy of the weights."""
    return {n: p.detach().clone() for n, p in model.named_parameters()}


def same_bits(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    """Whether two sets of tensors are equal bit for bit."""
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def furthest(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> float:
    """The largest difference of two sets of tensors."""
    return max(float((a[k] - b[k]).abs().max()) for k in a)


def packs_of(rows: list[Sample], how: str) -> list[packing.Pack]:
    """All rows padded into one block, packed into one line, or one by one."""
    if how == "single":
        return [packing.make(rows, [i], packed=False) for i in range(len(rows))]
    return [packing.make(rows, range(len(rows)), packed=how == "packed")]
