"""The learner's loss, forward and backward, against the naive padded loss and against TRL's GRPO loss.

All three see the same rows and weights in one run. Every side is a process of its own, so that its peak memory can be
read, and they take turns. Seconds are processor time; a first pass of each is left out, since a learner makes
thousands. Ours keeps freed memory from pass to pass, as the learner does, and the others run as they would by
themselves; what that alone is worth to the naive loss has a row of its own. TRL is no dependency: where it is not
installed (``make bench`` does) its rows are left out and the table says so. It runs as itself: a GRPOTrainer, its
loss ``dr_grpo`` with our constant as its completion length, and that loss is compared with ours.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import multiprocessing
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from bench_learner import our_loss, plain_loss

from spiral_lib.config import LearnerConfig
from spiral_lib.learner import host_memory, packing, shared_prefix
from spiral_lib.learner.batch import Sample

ROUNDS = 4
LENGTH = 512
"""The constant that the loss is divided by: N here, the completion length for TRL."""
KEEPING = ("ours", "shared", "naive_kept")
"""Sides that keep freed memory from pass to pass."""
TEXTS = {
    "ours": "ours without learner.share_header",
    "naive": "padded, all logits",
    "naive_kept": "padded, all logits, freed memory kept",
    "trl": "TRL's GRPO loss",
}
SMALL = {"vocab": 49152, "hidden": 256, "layers": 8, "heads": 4, "kv_heads": 4, "mlp": 688}
SMOLLM2 = {"vocab": 49152, "hidden": 576, "layers": 30, "heads": 9, "kv_heads": 3, "mlp": 1536}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model's shape, and its rows as (prompt tokens, response tokens) with a common beginning of the prompts.

    ``kept`` asks what keeping memory alone is worth to the naive loss, which then holds what it needs at its peak.
    """

    name: str
    shape: dict[str, int]
    rows: tuple[tuple[int, int], ...]
    header: int = 0
    kept: bool = False


CASES = (
    Case(name="small_49k_vocabulary", shape=SMALL, rows=tuple((200 + 10 * i, 30 + 4 * i) for i in range(8)), kept=True),
    Case(
        name="skewed_lengths",
        shape=SMALL,
        rows=(*((40 + 6 * i, 16 + 2 * i) for i in range(10)), (300, 60), (700, 90)),
    ),
    Case(name="smollm2_shape", shape=SMOLLM2, rows=((210, 40), (230, 56), (240, 60), (258, 75)), kept=True),
    Case(
        name="full_size_prompts",
        shape=SMALL,
        rows=tuple((211 + 24 + 2 * (i % 6), 40 + 3 * i) for i in range(12)),
        header=211,
    ),
)


def rows() -> list[dict[str, Any]]:
    """Return the rows of all cases."""
    found: list[dict[str, Any]] = []
    for case in CASES:
        names = ["matmul", "ours", "naive"]
        if case.header:
            names.append("shared")
        elif importlib.util.find_spec("trl") is not None:
            names.append("trl")
        measured = _measure(case, names)
        _check_equal(measured, case)
        found += _rows(case, measured)
        if case.kept:
            measured = _measure(case, ["ours", "naive_kept"])
            _check_equal(measured, case)
            found.append(_speed_row(case, measured, "ours", "naive_kept"))
    return found


def _measure(case: Case, names: Sequence[str]) -> dict[str, list[dict[str, float]]]:
    """Return what each side found in each round; one pass of each comes before."""
    sides = {name: _Side(case, name) for name in names}
    try:
        for side in sides.values():
            side.measure()
        rounds = [{name: side.measure() for name, side in sides.items()} for _ in range(ROUNDS)]
    finally:
        for side in sides.values():
            side.close()
    return {name: [r[name] for r in rounds] for name in names}


class _Side:
    """A process that makes a pass whenever it is told to."""

    def __init__(self, case: Case, name: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(other, case, name), daemon=True)
        self._process.start()
        other.close()

    def measure(self) -> dict[str, float]:
        """Return value and processor seconds of one more pass, and the MB that passes have needed so far."""
        self._pipe.send(True)
        found: dict[str, float] = self._pipe.recv()
        return found

    def close(self) -> None:
        self._pipe.close()
        self._process.join()


def _serve(pipe: Any, case: Case, name: str) -> None:
    torch.set_num_threads(1)
    work = _work(case, name)
    ctypes.CDLL(None).malloc_trim(0)  # memory that was freed and the allocator kept
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    before = _memory("VmRSS")
    keeps = host_memory.kept(torch.device("cpu")) if name in KEEPING else contextlib.nullcontext()
    with keeps, contextlib.suppress(EOFError):
        while pipe.recv():
            start = time.process_time()
            value = work()
            seconds = time.process_time() - start
            pipe.send({"value": value, "seconds": seconds, "mb": _memory("VmHWM") - before})


def _work(case: Case, name: str) -> Callable[[], float]:
    """Return what a side does: a pass forward and backward that returns the loss."""
    if name == "matmul":
        return _matmul_flops
    samples, config, model = _samples(case), LearnerConfig(normalizer=LENGTH, pack_tokens=4096), _model(case.shape)
    if name in ("naive", "naive_kept"):
        return lambda: _naive_pass(model, samples, config)
    if name == "trl":
        trainer = _trl_trainer(model)
        return lambda: _trl_pass(trainer, samples)
    can_pack = packing.prepare(model)
    made = packing.packs(samples, config.pack_tokens, can_pack=can_pack)
    if name == "shared":
        made = shared_prefix.packs(samples, config.pack_tokens)
    return lambda: _our_pass(model, made, samples, config)


def _memory(what: str) -> float:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith(what))


def _matmul_flops() -> float:
    """Return the best floating point operations a second of a 1024 x 1024 product, what a core can do at all."""
    a, best = torch.rand(1024, 1024), float("inf")
    for _ in range(12):
        start = time.process_time()
        a @ a
        best = min(best, time.process_time() - start)
    return 2 * 1024**3 / best


def _our_pass(model: Any, made: Sequence[packing.Pack], samples: Sequence[Sample], config: LearnerConfig) -> float:
    model.zero_grad()
    total = 0.0
    for pack in made:
        loss = our_loss(model, pack, samples, config)
        loss.backward()
        total += float(loss.detach())
    return total


def _naive_pass(model: Any, samples: Sequence[Sample], config: LearnerConfig) -> float:
    model.zero_grad()
    loss = plain_loss(model, samples, config)
    loss.backward()
    return float(loss.detach())


def _trl_trainer(model: Any) -> Any:
    """Return TRL's own trainer around the model; it is never asked to train, only for its loss."""
    from datasets import Dataset
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast
    from trl import GRPOConfig, GRPOTrainer

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel({"<pad>": 0, "<eos>": 1}, unk_token="<pad>")),
        pad_token="<pad>",
        eos_token="<eos>",
    )
    settings = GRPOConfig(
        output_dir=tempfile.mkdtemp(prefix="bench-trl-"),
        use_cpu=True,
        bf16=False,
        loss_type="dr_grpo",
        beta=0.0,
        max_completion_length=LENGTH,
        gradient_checkpointing=False,
        report_to="none",
        per_device_train_batch_size=2,
        num_generations=2,
    )
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=settings,
        train_dataset=Dataset.from_dict({"prompt": ["x", "y"]}),
        processing_class=tokenizer,
    )
    trainer.current_gradient_accumulation_steps = 1
    return trainer


def _trl_pass(trainer: Any, samples: Sequence[Sample]) -> float:
    """TRL pads prompts on the left and completions on the right."""
    trainer.model.zero_grad()
    longest = [max(len(s.prompt_ids) for s in samples), max(len(s.response_ids) for s in samples)]
    inputs: dict[str, Any] = {
        name: torch.zeros(len(samples), longest[part], dtype=torch.long)
        for part, names in enumerate((("prompt_ids", "prompt_mask"), ("completion_ids", "completion_mask")))
        for name in names
    }
    for i, s in enumerate(samples):
        inputs["prompt_ids"][i, longest[0] - len(s.prompt_ids) :] = torch.tensor(s.prompt_ids)
        inputs["prompt_mask"][i, longest[0] - len(s.prompt_ids) :] = 1
        inputs["completion_ids"][i, : len(s.response_ids)] = torch.tensor(s.response_ids)
        inputs["completion_mask"][i, : len(s.response_ids)] = 1
    inputs["advantages"] = torch.tensor([s.advantage for s in samples])
    inputs["num_items_in_batch"] = inputs["completion_mask"].sum()
    loss = trainer.compute_loss(trainer.model, inputs)
    loss.backward()
    return float(loss.detach())


def _check_equal(measured: dict[str, list[dict[str, float]]], case: Case) -> None:
    losses = {name: found[0]["value"] for name, found in measured.items() if name != "matmul"}
    if max(losses.values()) - min(losses.values()) > 1e-5:
        raise SystemExit(f"{case.name}: the losses differ: {losses}")


def _rows(case: Case, measured: dict[str, list[dict[str, float]]]) -> list[dict[str, Any]]:
    best, found = "shared" if case.header else "ours", []
    for other in [o for o in ("ours", "naive", "trl") if o in measured and o != best]:
        found.append(_speed_row(case, measured, best, other))
        ratios = [o["mb"] / b["mb"] for o, b in zip(measured[other], measured[best], strict=True)]
        needed = statistics.median(m["mb"] for m in measured[best])
        found.append(_row(f"losses/{case.name}_peak_memory", needed, "MB", TEXTS[other], ratios))
    if not case.header and "trl" not in measured:
        missing = _speed_row(case, measured, best, best) | {"ratio": None, "spread": None, "n": 0}
        found.append(missing | {"against": "TRL's GRPO loss: not measured, trl is not installed"})
    peaks = zip(measured[best], measured["matmul"], strict=True)
    shares = [_flops(case) / m["seconds"] / p["value"] for m, p in peaks]
    name = f"losses/{case.name}_share_of_peak"
    return [*found, _row(name, statistics.median(shares), "share", "1024 x 1024 products", shares)]


def _speed_row(case: Case, measured: dict[str, list[dict[str, float]]], best: str, other: str) -> dict[str, Any]:
    tokens = sum(p + r for p, r in case.rows)
    ratios = [o["seconds"] / b["seconds"] for o, b in zip(measured[other], measured[best], strict=True)]
    speed = tokens / statistics.median(m["seconds"] for m in measured[best])
    return _row(f"losses/{case.name}", speed, "tokens/cpu-s", TEXTS[other], ratios)


def _row(name: str, value: float, unit: str, against: str, ratios: Sequence[float]) -> dict[str, Any]:
    return {
        "name": name,
        "value": round(value, 3 if unit == "share" else 1),
        "unit": unit,
        "against": against,
        "ratio": round(statistics.median(ratios), 2) if ratios else None,
        "spread": round(max(ratios) - min(ratios), 2) if ratios else None,
        "n": len(ratios),
    }


def _flops(case: Case) -> float:
    """Return the useful operations of a pass: real tokens, response positions of the head, causal attention.

    A shared header counts as often as it stands in the rows, so that the share says what was saved as well.
    """
    s = case.shape
    size = s["hidden"] // s["heads"]
    layer = s["hidden"] * size * (2 * s["heads"] + 2 * s["kv_heads"]) + 3 * s["hidden"] * s["mlp"]
    tokens, responses = sum(p + r for p, r in case.rows), sum(r for _, r in case.rows)
    attention = 6 * s["layers"] * s["hidden"] * sum((p + r) ** 2 for p, r in case.rows)
    return 6 * s["layers"] * layer * tokens + 6 * s["vocab"] * s["hidden"] * responses + attention


def _model(shape: dict[str, int]) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=shape["vocab"],
        hidden_size=shape["hidden"],
        intermediate_size=shape["mlp"],
        num_hidden_layers=shape["layers"],
        num_attention_heads=shape["heads"],
        num_key_value_heads=shape["kv_heads"],
        tie_word_embeddings=True,
        pad_token_id=0,
    )
    return LlamaForCausalLM(config).eval()


def _samples(case: Case) -> list[Sample]:
    draw = random.Random(0)
    ids = range(2, case.shape["vocab"])
    header = tuple(draw.choices(ids, k=case.header))
    return [
        Sample(
            episode=str(i),
            turn=0,
            game="",
            role="",
            prompt_ids=header + tuple(draw.choices(ids, k=prompt - case.header)),
            response_ids=tuple(draw.choices(ids, k=response)),
            old_logprobs=(0.0,) * response,
            reward=1.0,
            baseline=0.0,
            advantage=draw.uniform(-1, 1),
        )
        for i, (prompt, response) in enumerate(case.rows)
    ]


if __name__ == "__main__":
    for row in rows():
        print(row)
