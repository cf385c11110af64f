"""What a run will cost before it starts: tokens, hours, memory, disk and money; and whether it fits.

Rates on a CPU are measured (one thread, idle machine; docs/operations.md lists them). Rates on GPUs follow from the
cards' published peaks with stated efficiencies: good for a first budget, to be replaced by a run's own metrics.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from spiral_lib import bank_items, games, plugins
from spiral_lib.config import RunConfig
from spiral_lib.model_shapes import Shape, of_source
from spiral_lib.prompts import user_text
from spiral_lib.seeds import generator, seed_for
from spiral_lib.types import View

GIB = 2**30
SAMPLED_MATCHES = 24
# Characters of prompt text to a token (chat template included): the tokenizer trained for init:tiny, SmolLM2's, Qwen's.
CHARS_PER_TOKEN_TINY, CHARS_PER_TOKEN = 2.0, 3.1
# Replies are this share of the token limit on average (tiny: 21 of 48 tokens; the paper's models stay below it too).
REPLY_SHARE = 0.45
# FLOP/s of one CPU thread in training, and tokens/s of batched decoding, by parameters.
CPU_TRAINING = ((0.17e6, 30e9), (0.34e6, 37e9), (0.84e6, 39e9), (3.26e6, 52e9), (134.5e6, 73e9))
CPU_DECODING = ((0.17e6, 14_400.0), (134.5e6, 200.0))
THREAD_GAIN = 0.7
# Shares of the cards' peaks: dense bfloat16 in training, memory bandwidth in decoding.
GPU_TRAINING_SHARE, GPU_DECODING_SHARE = 0.35, 0.6
# What a card really has for us: the rest goes to the driver, workspaces and fragmentation.
GPU_USABLE = 0.85
BUCKETS = 2e9
CHECKPOINTED_ABOVE = 5e8
PROCESS_GIB = 1.4
ITERATION_OVERHEAD_S = {"local": 2.0, "flyte": 60.0}


@dataclass(frozen=True, kw_only=True, slots=True)
class Device:
    """A kind of GPU: memory in GiB, dense bfloat16 FLOP/s, bytes/s of its memory."""

    memory_gib: float
    flops: float
    bandwidth: float


DEVICES = {
    "a100-80": Device(memory_gib=80, flops=312e12, bandwidth=2.0e12),
    "h100": Device(memory_gib=80, flops=990e12, bandwidth=3.35e12),
    "h200": Device(memory_gib=141, flops=990e12, bandwidth=4.8e12),
    "l40s": Device(memory_gib=48, flops=362e12, bandwidth=0.86e12),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """What a run may use: without a GPU kind it runs on the CPU. Prices are per GPU hour and per core hour."""

    gpu: str = ""
    learner_gpus: int = 1
    memory_gib: float = math.inf
    disk_gib: float = math.inf
    gpu_price: float = 2.5
    core_price: float = 0.05
    max_hours: float = math.inf
    budget: float = math.inf


@dataclass(frozen=True, kw_only=True, slots=True)
class GameLoad:
    """Mean turns of a match and characters of a prompt, from matches of uniformly random play."""

    turns: float
    prompt_chars: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Tokens:
    """Tokens of a whole run. ``prompt`` and ``response`` are those of self-play, ``learner`` counts every pass."""

    matches: int
    turns: float
    prompt: float
    response: float
    learner: float
    cold_start: float
    evaluation: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """A prediction. Hours are wall-clock; ``device_hours`` are those of all GPUs, or of all cores on a CPU."""

    shape: Shape
    tokens: Tokens
    rollout_hours: float
    learner_hours: float
    evaluation_hours: float
    overhead_hours: float
    device_hours: float
    learner_gib: float
    engine_gib: float
    disk_gib: float
    iteration_gib: float
    cost: float

    @property
    def hours(self) -> float:
        """Return the wall-clock hours of the run."""
        return self.rollout_hours + self.learner_hours + self.evaluation_hours + self.overhead_hours


def make(config: RunConfig, machine: Machine) -> Plan:
    """Return the prediction for a configuration on a machine."""
    shape = of_source(config.model)
    tokens = count_tokens(config)
    decode, train = _decoding_rate(config, machine, shape), _training_rate(config, machine, shape)
    gpus = machine.learner_gpus if machine.gpu else 1
    # Prefill is one forward pass, a third of a training pass.
    rollout_s = tokens.response / decode + tokens.prompt / (3 * train)
    learner_s = (tokens.learner + tokens.cold_start) / (train * gpus)
    evaluation_s = tokens.evaluation / decode
    overhead_s = config.iterations * ITERATION_OVERHEAD_S["flyte" if machine.gpu else "local"]
    units = 1 if machine.gpu else config.threads
    device_hours = (rollout_s + evaluation_s + learner_s * gpus) * units / 3600
    checkpoint_gib, optimizer_gib = _saved(config, shape)
    turns_gib = (tokens.prompt + tokens.response) * 6 / GIB / max(config.iterations, 1)
    iteration_gib = checkpoint_gib + optimizer_gib + turns_gib
    price = machine.gpu_price if machine.gpu else machine.core_price
    return Plan(
        shape=shape,
        tokens=tokens,
        rollout_hours=rollout_s / 3600 / (config.rollout.shards if machine.gpu else 1),
        learner_hours=learner_s / 3600,
        evaluation_hours=evaluation_s / 3600,
        overhead_hours=overhead_s / 3600,
        device_hours=device_hours,
        learner_gib=_learner_gib(config, machine, shape),
        engine_gib=_engine_gib(config, machine, shape),
        disk_gib=_disk_gib(config, checkpoint_gib, optimizer_gib, turns_gib),
        iteration_gib=iteration_gib,
        cost=device_hours * price,
    )


def problems(plan: Plan, machine: Machine) -> list[str]:
    """Return why the run should not be started there, each with a way out; an empty list means that it fits."""
    memory = DEVICES[machine.gpu].memory_gib * GPU_USABLE if machine.gpu else machine.memory_gib
    where = f"one {machine.gpu}" if machine.gpu else "this machine"
    found = []
    if plan.learner_gib > memory:
        way_out = "raise --learner-gpus with learner.backend=deepspeed, or lower learner.pack_tokens"
        found.append(f"the learner needs {plan.learner_gib:.1f} GiB, {where} has {memory:.1f}: {way_out}")
    if plan.engine_gib > memory:
        way_out = "lower rollout.concurrency or model.context_tokens"
        found.append(f"the engine needs {plan.engine_gib:.1f} GiB, {where} has {memory:.1f}: {way_out}")
    if plan.disk_gib > machine.disk_gib:
        each = f"{plan.disk_gib:.1f} GiB ({plan.iteration_gib:.2f} an iteration)"
        way_out = "lower iterations or retention.keep_recent, or set learner.optimizer_state=none"
        found.append(f"the run writes {each}, there are {machine.disk_gib:.1f}: {way_out}")
    if plan.hours > machine.max_hours:
        way_out = "lower iterations, rollout.matches or rollout.max_new_tokens, or raise rollout.shards"
        found.append(f"the run takes {plan.hours:.1f} hours, more than {machine.max_hours:g}: {way_out}")
    if plan.cost > machine.budget:
        found.append(f"the run costs {plan.cost:.2f}, the budget is {machine.budget:.2f}: lower iterations or matches")
    return found


def count_tokens(config: RunConfig) -> Tokens:
    """Return the tokens of a run, expected from random play of its games."""
    loads = {game.name: measure(config, game.name) for game in config.games}
    weight = sum(g.weight for g in config.games)
    turns = sum(g.weight * loads[g.name].turns for g in config.games) / weight
    chars = sum(g.weight * loads[g.name].turns * loads[g.name].prompt_chars for g in config.games) / weight / turns
    prompt = chars / (CHARS_PER_TOKEN_TINY if config.model.source == "init:tiny" else CHARS_PER_TOKEN)
    reply = REPLY_SHARE * config.rollout.max_new_tokens
    prompt = min(prompt, config.model.context_tokens - reply)
    matches = config.iterations * config.rollout.steps_per_iteration * config.rollout.matches
    o = config.opponents
    shares = o.self_play + o.pool + o.random + o.optimal
    # Both seats are played by a model in self-play and against the pool; only in self-play do both learn.
    played = matches * turns * (o.self_play + o.pool + 0.5 * (o.random + o.optimal)) / shares
    learned = matches * turns * (o.self_play + 0.5 * (shares - o.self_play)) / shares
    extra = (config.learner.kl_coef > 0) + config.learner.recompute_logprobs
    return Tokens(
        matches=matches,
        turns=matches * turns,
        prompt=played * prompt,
        response=played * reply,
        learner=learned * (prompt + reply) * (config.learner.epochs + extra / 3),
        cold_start=config.cold_start.steps * config.cold_start.batch * (prompt + min(reply, 30)),
        evaluation=_evaluation_tokens(config, {name: load.turns for name, load in loads.items()}, reply),
    )


def measure(config: RunConfig, name: str) -> GameLoad:
    """Play random matches of a game and return what they were like."""
    params = next((g.params for g in config.games if g.name == name), {})
    turns = chars = 0
    for match in range(SAMPLED_MATCHES):
        game = games.make(name, seed=seed_for(0, "plan", name, match), **params)
        rng = generator(0, "plan play", name, match)
        while (player := game.current_player) is not None:
            view = game.view(player)
            turns, chars = turns + 1, chars + len(user_text(view, config.prompt))
            game.apply(_any_action(view, rng.random()))
    return GameLoad(turns=turns / SAMPLED_MATCHES, prompt_chars=chars / turns)


def _any_action(view: View, draw: float) -> str:
    actions = view.legal_actions or view.sample_actions
    return actions[int(draw * len(actions))]


def _evaluation_tokens(config: RunConfig, turns: dict[str, float], reply: float) -> float:
    """Return generated tokens of all evaluations: matches, sampled replies, the bank and the benchmarks."""
    e = config.evaluation
    played = sum(turns.values()) * len(e.opponents) * e.matches
    solved = [game for game in config.games if game.name in e.exploitability_games]
    states = sum(len(games.views(game.name, **game.params)) for game in solved)
    asked = states * e.exploitability_replies
    asked += e.minimax_states if "tic_tac_toe" in turns else 0
    tokens = (played + asked) * reply
    if e.bank:
        tokens += (e.bank_limit or len(bank_items.items())) * REPLY_SHARE * e.bank_max_new_tokens
    for name in e.benchmarks:
        items = int(plugins.load("spiral_lib.evaluation.benchmark_tasks", name, "SOURCE").num_items)
        items = min(items, e.benchmark_limit) if e.benchmark_limit else items
        tokens += items * e.benchmark_replies * REPLY_SHARE * e.benchmark_max_new_tokens
    return tokens * (1 + config.iterations // e.every)


def _training_rate(config: RunConfig, machine: Machine, shape: Shape) -> float:
    """Return tokens/s of forward and backward on one device (6 FLOP a parameter and token)."""
    if machine.gpu:
        return DEVICES[machine.gpu].flops * GPU_TRAINING_SHARE / (6 * shape.parameters)
    return _interpolated(CPU_TRAINING, shape.parameters) * _threads(config) / (6 * shape.parameters)


def _decoding_rate(config: RunConfig, machine: Machine, shape: Shape) -> float:
    """Return response tokens/s of one device with a full batch."""
    if not machine.gpu:
        return _interpolated(CPU_DECODING, shape.parameters) * _threads(config)
    device, batch = DEVICES[machine.gpu], config.rollout.concurrency
    cached = 0.5 * (config.model.context_tokens + config.rollout.max_new_tokens) / 2
    moved = 2 * shape.parameters + batch * cached * shape.kv_values * 2
    return batch * device.bandwidth * GPU_DECODING_SHARE / moved


def _threads(config: RunConfig) -> float:
    return 1 + THREAD_GAIN * (config.threads - 1)


def _interpolated(points: Sequence[tuple[float, float]], x: float) -> float:
    """Return the value at ``x``, linear between the points on logarithmic scales, the nearest slope beyond them."""
    pairs = list(itertools.pairwise(points))
    (x0, y0), (x1, y1) = next((p for p in pairs if x <= p[1][0]), pairs[-1])
    share = math.log(x / x0) / math.log(x1 / x0)
    return math.exp(math.log(y0) + share * (math.log(y1) - math.log(y0)))


def _learner_gib(config: RunConfig, machine: Machine, shape: Shape) -> float:
    """Return GiB on each device: weights, gradients, AdamW, the reference, activations and one chunk of logits.

    torch keeps 16 bytes a parameter; DeepSpeed's ZeRO-2 2 on every device and 14 spread over all of them.
    """
    spread = config.learner.backend == "deepspeed"
    states = shape.parameters * (2 + 14 / machine.learner_gpus if spread else 16)
    reference = shape.parameters * (2 if spread else 4) if config.learner.kl_coef > 0 else 0
    width = 2 if config.model.dtype == "bfloat16" else 4
    packed = max(config.learner.pack_tokens, config.rollout.max_new_tokens)
    # About 20 values a layer and hidden unit are kept for the backward pass; with checkpointing the layers' inputs.
    kept = shape.layers + 20 if shape.parameters > CHECKPOINTED_ABOVE else 20 * shape.layers
    activations = packed * kept * shape.hidden * width
    logits = 3.7 * config.learner.chunk * shape.vocab * 4
    buckets = BUCKETS if spread else 0
    return (states + reference + activations + logits + buckets) / GIB + PROCESS_GIB


def _engine_gib(config: RunConfig, machine: Machine, shape: Shape) -> float:
    """Return GiB of one rollout: weights of the learner and the pool's, and keys and values of the live matches.

    vLLM queues what has no room, so it needs room for one full window only.
    """
    width = 2 if config.model.dtype == "bfloat16" else 4
    models = 1 + (config.opponents.capacity if config.opponents.pool > 0 and not machine.gpu else 0)
    windows = 1 if config.rollout.engine == "vllm" else min(config.rollout.concurrency, config.rollout.matches)
    cache = windows * config.model.context_tokens * shape.kv_values * width
    return (models * shape.parameters * width + cache) / GIB + PROCESS_GIB


def _disk_gib(config: RunConfig, checkpoint_gib: float, optimizer_gib: float, turns_gib: float) -> float:
    """Return the GiB that are on the disk at the end, by the run's rule of what stays."""
    iterations, rule = config.iterations, config.retention
    if not rule.enabled:
        return iterations * (checkpoint_gib + optimizer_gib + turns_gib) + checkpoint_gib
    # A checkpoint that is kept keeps what its step read: the one before it and that one's moments.
    steps = rule.keep_recent + 1 + (2 * (iterations // rule.keep_every) if rule.keep_every else 0)
    apart = config.opponents.capacity + 2  # the pool, the champion and the cold start
    weights = min(iterations + 1, steps + apart) * checkpoint_gib
    return weights + min(iterations, steps) * optimizer_gib + min(iterations, rule.keep_shards + steps) * turns_gib


def _saved(config: RunConfig, shape: Shape) -> tuple[float, float]:
    """Return GiB of a checkpoint and of an optimizer state (two float32 moments)."""
    width = 2 if config.model.dtype == "bfloat16" else 4
    moments = 8 * shape.parameters if config.learner.optimizer_state == "full" else 0
    return shape.stored * width / GIB, moments / GIB
