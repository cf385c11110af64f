"""Token engine and match driver against the plain way of doing the same, on the model of the tiny preset.

``rows()`` returns {name, value, unit, against, ratio, spread, n}: the two sides of a row are timed alternately,
``ratio`` is the median over rounds and ``spread`` the range of the rounds' ratios.
"""

from __future__ import annotations

import itertools
import random
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
import tiny_checkpoints as tiny

from spiral_lib import checkpoints, games, policies, rollout
from spiral_lib.config import Named, PromptConfig
from spiral_lib.engines import parity
from spiral_lib.engines.hf import HfEngine
from spiral_lib.prompts import Renderer, user_text
from spiral_lib.types import PolicyRef, Request

PRESET = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32,
          "intermediate_size": 192}  # fmt: skip
COMPACT = PromptConfig(style="compact")
PROMPT_TOKENS, NEW_TOKENS, HEADER_TOKENS = 45, 24, 16
ROUNDS = 5

# Seconds are of the process: what other processes take from a shared core is no part of the comparison.
Work = Callable[[], int]


def rate(work: Work) -> float:
    """Return units per CPU second of one run."""
    start = time.process_time()
    units = work()
    return units / (time.process_time() - start)


def compare(name: str, unit: str, ours: Work, against: str, theirs: Work) -> dict[str, Any]:
    """Return one row; both sides run once beforehand, then alternately."""
    ours(), theirs()
    pairs = [(rate(ours), rate(theirs)) for _ in range(ROUNDS)]
    ratios = [a / b for a, b in pairs]
    return {
        "name": name,
        "value": round(median(a for a, _ in pairs), 1),
        "unit": unit,
        "against": against,
        "ratio": round(median(ratios), 2),
        "spread": round(max(ratios) - min(ratios), 2),
        "n": ROUNDS,
    }


def requests(limits: list[int], seed: int = 0) -> list[Request]:
    """Return requests whose prompts share a header, with these token limits."""
    draw = random.Random(seed)
    header = tuple(draw.randrange(3, 280) for _ in range(HEADER_TOKENS))
    return [
        Request(
            id=number,
            prompt_ids=header + tuple(draw.randrange(3, 280) for _ in range(PROMPT_TOKENS - HEADER_TOKENS)),
            header_len=HEADER_TOKENS,
            seed=number,
            temperature=1.0,
            max_new_tokens=limit,
        )
        for number, limit in enumerate(limits)
    ]


def finish(engine: HfEngine, asked: list[Request]) -> int:
    """Run requests to their ends and return the tokens generated."""
    return sum(len(completion.response_ids) for completion in parity.finish(engine, asked).values())


def decoder_row(folder: Path, batch: int) -> dict[str, Any]:
    engine = HfEngine(folder, tiny.config(slots=batch))
    model = checkpoints.load_model(folder)
    seeds = itertools.count()
    prompts = torch.tensor([r.prompt_ids for r in requests([NEW_TOKENS] * batch)])

    def ours() -> int:
        # New prompts (and a new header) every time: none may come from the engine's cache.
        return finish(engine, requests([NEW_TOKENS] * batch, next(seeds)))

    def generate() -> int:
        with torch.inference_mode():
            made = model.generate(
                prompts, attention_mask=torch.ones_like(prompts), do_sample=True, top_k=0, eos_token_id=None,
                max_new_tokens=NEW_TOKENS, pad_token_id=0,
            )  # fmt: skip
        return int((made.shape[1] - PROMPT_TOKENS) * batch)

    name = f"engine/decode_batch_{batch}"
    return compare(name, "tokens/cpu-s", ours, "hf generate", generate)


def driver_row(folder: Path) -> dict[str, Any]:
    config = tiny.config(slots=128, matches=512)
    config = replace(config, prompt=COMPACT, games=(Named(name="kuhn_poker"),))
    renderer = Renderer(checkpoints.load_tokenizer(folder), config.prompt)
    engine = HfEngine(folder, config)
    played = {"self": policies.make(PolicyRef.parse("self"), engine=engine, renderer=renderer, max_new_tokens=48)}
    specs = rollout.plan_matches(config, step=0, pool=[])

    def play(count: int, concurrency: int) -> int:
        return sum(1 for _ in rollout.play_matches(specs[:count], played, concurrency=concurrency))

    name, against = "rollout/128_matches_at_once", "one match at a time"
    return compare(name, "matches/cpu-s", lambda: play(512, 128), against, lambda: play(32, 1))


def refill_row(folder: Path) -> dict[str, Any]:
    draw = random.Random(1)
    engine = HfEngine(folder, tiny.config(slots=64))
    # Most replies are short and some are long, as when a model thinks.
    asked = requests([draw.choice((8, 8, 8, 12, 16, 24, 32, 96)) for _ in range(512)])

    def waves() -> int:
        return sum(finish(engine, asked[begin : begin + 64]) for begin in range(0, len(asked), 64))

    name = "engine/refill_mixed_lengths"
    return compare(name, "tokens/cpu-s", lambda: finish(engine, asked), "lockstep waves", waves)


def _prompt_texts() -> str:
    views = [games.make("kuhn_poker", seed=seed).view(0) for seed in range(20)]
    return "\n".join(user_text(view, COMPACT) for view in views)


def rows() -> list[dict[str, Any]]:
    """Return all rows of this file."""
    with tempfile.TemporaryDirectory() as scratch:
        # Without a stop token's bias nothing ends early, so that both decoders do the same work.
        tok = tiny.tokenizer(_prompt_texts(), vocab=430)
        plain = tiny.save_player(Path(scratch) / "plain", tok, stop_bias=-9.0, **PRESET)
        # Two or three turns a match and about 20 tokens a turn, as after the cold start.
        player = tiny.save_player(
            Path(scratch) / "player", tok, moves=("[check]", "[bet]"), move_bias=0.75, stop_bias=0.5, **PRESET
        )
        decoding = [decoder_row(plain, batch) for batch in (16, 64, 256)]
        return [*decoding, driver_row(player), refill_row(plain)]


if __name__ == "__main__":
    import json

    for row in rows():
        print(json.dumps(row))
