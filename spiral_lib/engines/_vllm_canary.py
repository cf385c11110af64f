"""A fixed sequence that shows whether vLLM holds the weights it should and reports log-probs as it should.

It is longer than a block of the prefix cache, so that blocks left over from other weights show as well.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from spiral_lib import checkpoints
from spiral_lib.errors import EngineError
from spiral_lib.seeds import generator

if TYPE_CHECKING:
    import torch

TEMPERATURE = 0.7
"""Not 1, where log-probs before and after the temperature would be the same."""
NUM_SAMPLED = 8
_LENGTH = 160
_MAX_FLOAT32 = 1e-3
_MEAN_BFLOAT16 = 0.1


@dataclass(frozen=True, slots=True)
class Reference:
    """What transformers computes from a checkpoint's files; P positions, V vocabulary.

    ``scores`` are the log-probs of the sequence's ids but the first; ``logits_PV`` follow the prefixes in ``prefixes``.
    """

    scores: tuple[float, ...]
    logits_PV: torch.Tensor

    def sampled_logprob(self, row: int, token: int) -> float:
        """Return the log-prob of a token sampled after a prefix."""
        return float((self.logits_PV[row] / TEMPERATURE).log_softmax(-1)[token])


def sequence(checkpoint: Path, window: int) -> tuple[int, ...]:
    """Return the ids: drawn from the model's vocabulary, the same for every checkpoint of its shape."""
    content = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    vocabulary = int(content.get("text_config", content)["vocab_size"])
    draw = generator("canary")
    return tuple(draw.randrange(vocabulary) for _ in range(min(_LENGTH, window - 1)))


def prefixes(ids: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return the beginnings after which one token is sampled."""
    return [ids[: len(ids) - cut] for cut in range(min(NUM_SAMPLED, len(ids) - 1))]


def reference(checkpoint: Path, dtype: str, ids: tuple[int, ...]) -> Reference:
    """Return what the files say, computed on the CPU."""
    import torch

    model = checkpoints.load_model(checkpoint, dtype)
    with torch.inference_mode():
        logits_LV = model(torch.tensor([ids])).logits[0].float()
        logprobs_LV = logits_LV[:-1].log_softmax(-1)
        scores = logprobs_LV.gather(1, torch.tensor(ids[1:])[:, None])[:, 0].tolist()
        rows = [len(prefix) - 1 for prefix in prefixes(ids)]
        return Reference(tuple(scores), logits_LV[rows].clone())


def check(
    expected: Reference, scores: Sequence[float], sampled: Sequence[tuple[int, float]], *, dtype: str, what: str
) -> float:
    """Return the mean difference of log-probs. Raises EngineError where it is more than rounding explains."""
    scored = [abs(a - b) for a, b in zip(scores, expected.scores, strict=True)]
    drawn = [abs(logprob - expected.sampled_logprob(row, token)) for row, (token, logprob) in enumerate(sampled)]
    for differences, cause in (
        (scored, "it computes with other weights than the files hold (a tied head that was not reloaded, or rounding)"),
        (drawn, "its sampling is wrong: stale prefix cache, log-probs before temperature, or top-p and top-k"),
    ):
        mean, most = math.fsum(differences) / len(differences), max(differences)
        limit, found = (_MAX_FLOAT32, most) if dtype == "float32" else (_MEAN_BFLOAT16, mean)
        if not found <= limit:
            raise EngineError(
                f"vllm after loading {what} is {found:.3g} nats from what transformers computes, {limit:g} may be: "
                f"{cause}. Try engine.prefix_caching=false, or engine hf"
            )
    return math.fsum(scored + drawn) / (len(scored) + len(drawn))
