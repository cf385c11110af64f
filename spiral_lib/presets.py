"""Run configurations as functions; ``--preset NAME`` calls the function of that name."""

from __future__ import annotations

import difflib
import inspect
import sys
from dataclasses import replace

from spiral_lib.config import (
    ColdStartConfig,
    EvaluationConfig,
    GateConfig,
    LearnerConfig,
    ModelConfig,
    Named,
    OpponentConfig,
    PromptConfig,
    RolloutConfig,
    RunConfig,
)
from spiral_lib.errors import ConfigError


def tiny() -> RunConfig:
    """Kuhn poker by a 0.17M model trained from scratch: real learning in minutes on two cores."""
    return RunConfig(
        preset="tiny",
        iterations=6,
        threads=1,
        model=ModelConfig(source="init:tiny"),
        prompt=PromptConfig(style="compact"),
        cold_start=ColdStartConfig(
            steps=400, batch=32, lr=3e-3, examples=6000, bank_examples=2000, skilled_share=0.4, min_gap=0.2
        ),
        rollout=RolloutConfig(matches=128, steps_per_iteration=10, max_new_tokens=48),
        opponents=OpponentConfig(self_play=0.8, pool=0.2),
        learner=LearnerConfig(
            lr=5e-4,
            lr_final=0.1,
            lr_decay_steps=60,
            beta2=0.99,
            epochs=2,
            minibatch=160,
            normalizer=24,
            kl_coef=0.05,
            ema_decay=0.95,
            pack_tokens=4096,
        ),
        gates=GateConfig(patience=3),
    )


def smoke() -> RunConfig:
    """The tiny loop cut down to seconds: proves the plumbing, learns nothing."""
    base = tiny()
    return replace(
        base,
        preset="smoke",
        iterations=2,
        threads=1,
        cold_start=replace(
            base.cold_start, steps=60, examples=800, bank_examples=200, min_legal=0.0, min_gap=0.0, gate_matches=16
        ),
        rollout=replace(base.rollout, matches=16, steps_per_iteration=2),
        evaluation=EvaluationConfig(matches=8, exploitability_replies=4, bank_limit=20),
        gates=replace(base.gates, on_collapse="hold"),
    )


def tiny_tic_tac_toe() -> RunConfig:
    """TicTacToe by a 0.34M model: the asymmetric game on which RAE shows."""
    base = tiny()
    return replace(
        base,
        preset="tiny_tic_tac_toe",
        iterations=5,
        model=replace(base.model, hidden=96, heads=3, mlp=288),
        games=(Named(name="tic_tac_toe"),),
        cold_start=replace(base.cold_start, steps=500, min_legal=0.85, min_gap=0.0),
        rollout=replace(base.rollout, matches=48),
        learner=replace(base.learner, kl_coef=0.02, lr_decay_steps=50),
        evaluation=replace(base.evaluation, exploitability_games=()),
    )


def smollm2() -> RunConfig:
    """The same loop with the real SmolLM2-135M weights: a demonstration on a CPU, not a training run."""
    return RunConfig(
        preset="smollm2",
        iterations=1,
        threads=2,
        model=ModelConfig(source="smollm2", context_tokens=1024),
        prompt=PromptConfig(style="compact"),
        cold_start=ColdStartConfig(
            steps=40,
            batch=8,
            lr=1e-4,
            examples=400,
            bank_examples=80,
            min_legal=0.5,
            min_gap=0.0,
            gate_matches=8,
            attempts=1,
        ),
        rollout=RolloutConfig(matches=16, steps_per_iteration=1, concurrency=32, max_new_tokens=48),
        learner=LearnerConfig(lr=1e-5, minibatch=0, epochs=1, normalizer=48, pack_tokens=1024),
        evaluation=EvaluationConfig(matches=4, exploitability_replies=2, bank_limit=40),
    )


def gpu_kuhn() -> RunConfig:
    """Qwen3-4B-Base on one-hand Kuhn poker with the paper's hyper-parameters (table 6), on GPUs."""
    return RunConfig(
        preset="gpu_kuhn",
        iterations=400,
        threads=8,
        model=ModelConfig(source="hf:Qwen/Qwen3-4B-Base", dtype="bfloat16", context_tokens=12800),
        cold_start=ColdStartConfig(steps=0, min_legal=0.0, min_gap=0.0, gate_matches=64),
        rollout=RolloutConfig(engine="vllm", matches=64, shards=8, concurrency=64, max_new_tokens=4096),
        opponents=OpponentConfig(self_play=0.8, pool=0.2, capacity=25, keep_recent=8, snapshot_every=5),
        learner=LearnerConfig(backend="deepspeed", lr=1e-6, epochs=2, minibatch=128, pack_tokens=16384, tis_cap=2.0),
        evaluation=EvaluationConfig(every=16, matches=128, benchmarks=("math500", "aime24", "amc23")),
    )


def gpu_multi_game() -> RunConfig:
    """As gpu_kuhn, on TicTacToe, Kuhn poker and negotiation together."""
    return replace(
        gpu_kuhn(),
        preset="gpu_multi_game",
        games=(Named(name="tic_tac_toe"), Named(name="kuhn_poker"), Named(name="simple_negotiation")),
    )


def names() -> list[str]:
    """Return the preset names in the order they stand here."""
    module = sys.modules[__name__]
    return [
        n
        for n, f in vars(module).items()
        if inspect.isfunction(f) and f.__module__ == __name__ and n not in ("names", "get")
    ]


def get(name: str) -> RunConfig:
    """Return a preset by name. Raises ConfigError naming the nearest one."""
    if name not in names():
        near = difflib.get_close_matches(name, names(), n=1)
        hint = f"Did you mean '{near[0]}'? " if near else ""
        raise ConfigError(f"unknown preset '{name}'. {hint}Known: {', '.join(names())}")
    config = getattr(sys.modules[__name__], name)()
    assert isinstance(config, RunConfig)
    return config
