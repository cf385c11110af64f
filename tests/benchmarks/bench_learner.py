"""The learner's loss against the plain one: padded rows, all logits, log-softmax of everything, same data, one run."""

from __future__ import annotations

import dataclasses
import random
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from spiral_lib.config import LearnerConfig
from spiral_lib.learner import backends, logprobs, packing, shared_prefix
from spiral_lib.learner.batch import Sample
from spiral_lib.learner.loss import TokenInputs, token_loss

REPEATS = 5
SHAPES = {
    "tiny_similar_lengths": {
        "hidden": 64, "layers": 3, "heads": 2, "vocab": 440, "rows": 290, "prompt": (46, 54), "response": (8, 34),
    },
    "wide_vocabulary_skewed_lengths": {
        "hidden": 128, "layers": 4, "heads": 4, "vocab": 32768, "rows": 16, "prompt": (20, 240), "response": (8, 64),
    },
}  # fmt: skip


def rows() -> list[dict[str, Any]]:
    """Return one row a shape; both sides run once beforehand, then alternately."""
    torch.set_num_threads(1)
    return [*(_compare(name, shape) for name, shape in SHAPES.items()), _shared_header()]


def _compare(name: str, shape: dict[str, Any]) -> dict[str, Any]:
    samples = _samples(shape)
    tokens = sum(len(s.prompt_ids) + len(s.response_ids) for s in samples)
    config = LearnerConfig(pack_tokens=4096 if shape["vocab"] < 1000 else 2048)
    plain_model, our_model = _model(shape), _model(shape)
    can_pack = packing.prepare(our_model)
    plain, ours = _stepper(plain_model, config), _stepper(our_model, config)

    def plain_losses() -> Any:
        yield plain_loss(plain_model, samples, config)

    def our_losses() -> Any:
        for pack in packing.packs(samples, config.pack_tokens, can_pack=can_pack):
            yield our_loss(our_model, pack, samples, config)

    sides = (lambda: plain(plain_losses()), lambda: ours(our_losses()))
    return _row(f"learner/update_{name}", tokens, sides, "one padded block, all logits")


def _shared_header() -> dict[str, Any]:
    """Compare the learner with itself, on prompts of which 186 tokens are the rules and 46 to 71 the state."""
    shape: dict[str, Any] = {"hidden": 64, "layers": 3, "heads": 2, "vocab": 440, "rows": 96}
    samples = _samples(shape | {"prompt": (46, 72), "response": (8, 34)})
    rules = tuple(random.Random(1).choices(range(440), k=186))
    samples = [dataclasses.replace(s, prompt_ids=rules + s.prompt_ids) for s in samples]
    config, models = LearnerConfig(pack_tokens=4096), (_model(shape), _model(shape))
    for model in models:
        packing.prepare(model)

    def run(model: Any, packs: list[packing.Pack]) -> Callable[[], None]:
        step = _stepper(model, config)
        return lambda: step(our_loss(model, pack, samples, config) for pack in packs)

    sides = (
        run(models[0], packing.packs(samples, config.pack_tokens, can_pack=True)),
        run(models[1], shared_prefix.packs(samples, config.pack_tokens)),
    )
    tokens = sum(len(s.prompt_ids) + len(s.response_ids) for s in samples)
    return _row("learner/update_shared_header", tokens, sides, "the same without learner.share_header")


def _row(name: str, tokens: int, sides: tuple[Callable[[], None], Callable[[], None]], against: str) -> dict[str, Any]:
    other_s, our_s = [], []
    for i in range(REPEATS + 1):
        # In turn, so that both see the same machine; the first round only warms up.
        times = _cpu_seconds(sides[0]), _cpu_seconds(sides[1])
        if i:
            other_s.append(times[0])
            our_s.append(times[1])
    ratios = [a / b for a, b in zip(other_s, our_s, strict=True)]
    return {
        "name": name,
        "value": round(tokens / statistics.median(our_s), 1),
        "unit": "tokens/cpu-s",
        "against": against,
        "ratio": round(statistics.median(ratios), 2),
        "spread": round(max(ratios) - min(ratios), 2),
        "n": REPEATS,
    }


def _cpu_seconds(step: Callable[[], None]) -> float:
    start = time.process_time()
    step()
    return time.process_time() - start


def _stepper(model: Any, config: LearnerConfig) -> Callable[[Any], None]:
    backend = backends.TorchBackend(model, config)

    def step(losses: Any) -> None:
        for loss in losses:
            backend.backward(loss)
        backend.step(1e-6)

    return step


def our_loss(model: Any, pack: packing.Pack, samples: Sequence[Sample], config: LearnerConfig) -> torch.Tensor:
    new, entropy = logprobs.token_logprobs(model, pack, temperature=1.0, chunk=config.chunk)
    return _loss(new, entropy, [samples[i] for i in pack.rows], len(samples), config)


def plain_loss(model: Any, samples: Sequence[Sample], config: LearnerConfig) -> torch.Tensor:
    """The usual way: one padded block with a mask, every logit of every position, entropy from all of them."""
    width = max(len(s.prompt_ids) + len(s.response_ids) for s in samples)
    ids, mask = torch.zeros(len(samples), width, dtype=torch.long), torch.zeros(len(samples), width, dtype=torch.long)
    scored = torch.zeros(len(samples), width - 1, dtype=torch.bool)
    for i, s in enumerate(samples):
        p, n = len(s.prompt_ids), len(s.prompt_ids) + len(s.response_ids)
        ids[i, :n] = torch.tensor([*s.prompt_ids, *s.response_ids])
        mask[i, :n] = 1
        scored[i, p - 1 : n - 1] = True
    logits = model(input_ids=ids, attention_mask=mask, use_cache=False).logits[:, :-1].float()
    every = torch.log_softmax(logits, dim=-1)
    entropy = -(every.exp() * every).sum(-1)
    new = every.gather(-1, ids[:, 1:, None]).squeeze(-1)
    return _loss(new[scored], entropy[scored], samples, len(samples), config)


def _loss(new: Any, entropy: Any, chosen: Sequence[Sample], count: int, config: LearnerConfig) -> torch.Tensor:
    advantage = torch.tensor([s.advantage for s in chosen for _ in s.response_ids])
    inputs = TokenInputs(old_R=new.detach(), advantage_R=advantage, mask_R=torch.ones_like(new, dtype=torch.bool))
    return token_loss(new, entropy, inputs, config).total / config.normalizer / count


def _model(shape: dict[str, Any]) -> Any:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=shape["vocab"],
        hidden_size=shape["hidden"],
        intermediate_size=3 * shape["hidden"],
        num_hidden_layers=shape["layers"],
        num_attention_heads=shape["heads"],
        num_key_value_heads=1,
        head_dim=32,
        tie_word_embeddings=True,
    )
    return Qwen3ForCausalLM(config).eval()


def _samples(shape: dict[str, Any]) -> list[Sample]:
    draw = random.Random(0)
    out = []
    for i in range(shape["rows"]):
        prompt, response = (
            tuple(draw.choices(range(shape["vocab"]), k=draw.randint(*shape[part]))) for part in ("prompt", "response")
        )
        out.append(
            Sample(
                episode=str(i),
                turn=0,
                game="",
                role="",
                prompt_ids=prompt,
                response_ids=response,
                old_logprobs=(0.0,) * len(response),
                reward=1.0,
                baseline=0.0,
                advantage=draw.uniform(-1, 1),
            )
        )
    return out


if __name__ == "__main__":
    for row in rows():
        print(row)
