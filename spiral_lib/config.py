"""RunConfig: frozen, validated, read by our own strict loader (preset < YAML < dotted overrides).

Every field carries its documentation and bounds in its metadata, from which the configuration reference is made.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import typing
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from spiral_lib import setting_values, strict_yaml
from spiral_lib.errors import ConfigError
from spiral_lib.settings import EndpointConfig, EngineConfig, RetentionConfig, setting

Scalar = int | float | str | bool
ROUTES: Final = ("self_play", "rlvr", "sft")


@dataclass(frozen=True, kw_only=True, slots=True)
class Named:
    """A module name with its parameters and share, used for games, rewards and benchmarks."""

    name: str = setting("", "module name, or package.module:NAME")
    weight: float = setting(1.0, "relative share (games) or factor (rewards)", low=0.0)
    params: dict[str, Scalar] = setting(dict, "keyword arguments of the module")


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig:
    """The policy's starting point and precision."""

    source: str = setting(
        "init:tiny", "init:tiny, smollm2, hf:<repo or folder>, registry:<name> or checkpoint:<folder>"
    )
    dtype: str = setting("float32", "weights and compute of engine and learner", choices=("float32", "bfloat16"))
    context_tokens: int = setting(512, "window of the model, prompt and response together", low=16)
    hidden: int = setting(64, "init:tiny only: hidden size", low=8, high=65_536)
    layers: int = setting(3, "init:tiny only: decoder layers", low=1, high=1_000)
    heads: int = setting(2, "init:tiny only: query heads (head size 32, one key-value head)", low=1)
    mlp: int = setting(192, "init:tiny only: feed-forward size", low=8)
    vocab: int = setting(448, "init:tiny only: tokenizer vocabulary at most", low=300)


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptConfig:
    """How a view becomes a prompt."""

    style: str = setting("full", "full shows the game's rules, compact only its name", choices=("full", "compact"))
    reasoning: str = setting(
        "plain", "plain reasoning, or a <think> block before the answer", choices=("plain", "think")
    )
    keep_lines: int = setting(
        0,
        "0 ends a match whose observation outgrows the window; else the oldest lines after so many first ones are left "
        "out to make it fit",
        low=0,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class ColdStartConfig:
    """Supervised start: format and legal play from scripted transcripts, with a gate of its own."""

    steps: int = setting(300, "SFT steps; 0 uses the source as it is", low=0)
    batch: int = setting(32, "turns in an SFT step", low=1)
    lr: float = setting(3e-3, "peak learning rate of the SFT", low=0.0)
    examples: int = setting(6000, "scripted turns generated per attempt", low=1)
    bank_examples: int = setting(
        0, "short-answer bank items mixed in (own seeds, disjoint from the evaluated ones)", low=0
    )
    skilled_share: float = setting(
        0.3, "share of scripted turns by a simple beginner's heuristic, the rest uniform", low=0.0, high=1.0
    )
    min_legal: float = setting(0.97, "gate: share of legal turns in self-play", low=0.0, high=1.0)
    min_gap: float = setting(
        0.1,
        "gate: how much play depends on private information (largest difference of an action's probability)",
        low=0.0,
        high=1.0,
    )
    gate_matches: int = setting(256, "matches played for the gate", low=1)
    attempts: int = setting(3, "attempts with fresh seeds before the run stops", low=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutConfig:
    """Self-play matches of one learner step."""

    engine: str = setting("hf", "token generator: hf, vllm or package.module:NAME")
    matches: int = setting(128, "matches per learner step", low=1, high=1_000_000)
    shards: int = setting(1, "rollout shards; the matches do not depend on it", low=1, high=10_000)
    steps_per_iteration: int = setting(
        1, "rollout-update steps in one iteration; above 1 they run in one task", low=1, high=100_000
    )
    concurrency: int = setting(128, "matches in play at once in a shard; the matches do not depend on it", low=1)
    temperature: float = setting(1.0, "sampling temperature", low=0.01)
    max_new_tokens: int = setting(48, "response tokens at most", low=1)
    max_invalid_share: float = setting(
        0.95,
        "more illegal turns than this stop the run; of a policy that began legally they are a collapse for the gate",
        low=0.0,
        high=1.0,
    )
    save_every: int = setting(5, "steps between saves within an iteration; a killed task goes on from there", low=0)
    max_bad_shards: float = setting(0.0, "share of quarantined shards the run tolerates", low=0.0, high=1.0)
    max_void_share: float = setting(
        0.1, "share of matches lost to endpoint errors the run tolerates", low=0.0, high=1.0
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class OpponentConfig:
    """Who sits opposite the learner, as shares of the matches, and what the pool keeps."""

    self_play: float = setting(1.0, "share of matches in which both seats are the learner and both train", low=0.0)
    pool: float = setting(0.0, "share against a pool snapshot (self-play while the pool is empty)", low=0.0)
    random: float = setting(0.0, "share against uniformly random legal play", low=0.0)
    optimal: float = setting(0.0, "share against the game's solver or strong scripted player", low=0.0)
    api: float = setting(0.0, "share against the model api_model behind the endpoint", low=0.0)
    api_model: str = setting("", "model name at the endpoint")
    candidates: int = setting(1, "replies a pool opponent samples for each move, to play the most frequent", low=1)
    capacity: int = setting(6, "snapshots kept", low=1)
    keep_recent: int = setting(3, "newest snapshots always kept; the rest spreads over the run's history", low=1)
    snapshot_every: int = setting(1, "iterations between snapshots", low=1)
    max_new_tokens: int = setting(0, "response tokens of pool opponents; 0 means as the learner", low=0)


@dataclass(frozen=True, kw_only=True, slots=True)
class RewardConfig:
    """From returns to rewards."""

    forfeit: str = setting(
        "zero_sum", "-1/+1 (zero_sum) or -1.5/+0.5 as upstream trains", choices=("zero_sum", "upstream")
    )
    terms: tuple[Named, ...] = setting((), "shaping terms from spiral_lib/rewards, added to the outcome")


@dataclass(frozen=True, kw_only=True, slots=True)
class RaeConfig:
    """Role-conditioned advantage estimation."""

    baseline: str = setting(
        "role", "role: per game and role; game: per game; none: raw reward", choices=("role", "game", "none")
    )
    decay: float = setting(0.95, "EMA decay alpha", low=0.0, high=1.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class LearnerConfig:
    """The policy-gradient step."""

    backend: str = setting("torch", "torch, or deepspeed on several processes", choices=("torch", "deepspeed"))
    processes: int = setting(0, "deepspeed: processes on this machine; 0 is one for each GPU, or one on a CPU", low=0)
    zero_stage: int = setting(2, "deepspeed: 1 splits moments, 2 gradients too, 3 all", low=1, high=3)
    offload: bool = setting(False, "deepspeed: keep optimizer state in host memory")
    lora_rank: int = setting(0, "rank of LoRA adapters, merged into the checkpoint; 0 trains all weights", low=0)
    lr: float = setting(1e-6, "peak learning rate", low=0.0)
    lr_final: float = setting(1.0, "learning rate at the end of the decay, as a share of the peak", low=0.0, high=1.0)
    lr_decay_steps: int = setting(0, "learner steps of linear decay; 0 keeps the rate constant", low=0)
    lr_warmup_steps: int = setting(0, "learner steps of linear warm-up", low=0)
    beta1: float = setting(0.9, "AdamW", low=0.0, high=0.9999)
    beta2: float = setting(0.95, "AdamW", low=0.0, high=0.99999)
    weight_decay: float = setting(0.0, "AdamW, decoupled", low=0.0)
    max_grad_norm: float = setting(1.0, "gradient norm clip", low=0.0)
    epochs: int = setting(2, "passes over the turns of a step", low=1, high=4)
    minibatch: int = setting(160, "turns per optimizer step; 0 means all", low=0)
    pack_tokens: int = setting(2048, "tokens in a packed micro-batch; does not change the result", low=16)
    share_header: bool = setting(False, "run what prompts begin with in common once a micro-batch, with gradient")
    checkpoint_activations: bool = setting(False, "recompute activations in the backward pass: less memory, more time")
    chunk: int = setting(512, "response positions per chunk of vocabulary logits", low=1)
    normalizer: int = setting(4096, "constant token divisor N of the loss (upstream: its 4096 response tokens)", low=1)
    clip_low: float = setting(0.2, "PPO clip below 1", low=0.0, high=1.0)
    clip_high: float = setting(0.2, "PPO clip above 1", low=0.0)
    ratio: str = setting("token", "of each token, or one of the whole response", choices=("token", "sequence"))
    whiten_advantages: bool = setting(False, "advantages of a learner step less their mean, over their deviation")
    kl_coef: float = setting(0.0, "KL to the reference in the loss", low=0.0)
    kl_reference: str = setting("cold_start", "or the iteration's first weights", choices=("cold_start", "previous"))
    kl_estimator: str = setting(
        "k2", "estimator in the loss; k2's gradient is the reverse KL's", choices=("k1", "k2", "k3")
    )
    entropy_coef: float = setting(0.0, "entropy bonus on response tokens", low=0.0)
    entropy_target: float = setting(0.0, "entropy a token at which the bonus has faded; 0 keeps it constant", low=0.0)
    role_schedule: tuple[str, ...] = setting((), "role that trains in each learner step, in turn; all is every role")
    role_lr: dict[str, float] = setting(dict, "factors of the rate by role; mini-batches are then of one role each")
    recompute_logprobs: bool = setting(False, "compute old log-probs in the learner instead of taking the engine's")
    tis_cap: float = setting(-1.0, "cap of the weight learner / engine; 0: off, -1: 2 for vllm and off for hf", low=-1)
    gamma: float = setting(1.0, "discount over a player's own turns", low=0.0, high=1.0)
    mask_truncated: bool = setting(False, "give truncated turns no loss (they still count in the divisor)")
    optimizer_state: str = setting(
        "full", "carry AdamW moments between iterations, or restart them", choices=("full", "none")
    )
    ema_decay: float = setting(
        0.0, "publish a moving average of the weights over learner steps, this decay; 0 is off", low=0.0, high=0.9999
    )
    max_mismatch: float = setting(0.02, "k3 between engine and learner above which a step is refused", low=0.0)

    def __post_init__(self) -> None:
        if self.lora_rank and self.backend == "deepspeed":
            raise ConfigError(
                f"learner.lora_rank={self.lora_rank} needs learner.backend=torch: adapters are small enough for one "
                "process, and deepspeed would split what is not trained"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationConfig:
    """What is measured outside self-play, and how often."""

    every: int = setting(1, "iterations between evaluations", low=1)
    matches: int = setting(100, "matches per game and opponent, played in seat-swapped pairs", low=2, high=1_000_000)
    candidates: int = setting(1, "replies sampled for each move of these matches, to play the most frequent", low=1)
    opponents: tuple[str, ...] = field(
        default=("random", "optimal", "cold_start"),
        metadata={"doc": "policies to play against: PolicyRefs and cold_start"},
    )
    exploitability_replies: int = setting(100, "sampled replies per information set", low=1)
    exploitability_games: tuple[str, ...] = setting(("kuhn_poker",), "games whose exact NashConv is computed")
    minimax_states: int = setting(200, "tic_tac_toe positions sampled for minimax agreement", low=1)
    bank: bool = setting(True, "the embedded short-answer bank, through lm-eval")
    bank_limit: int = setting(0, "bank items; 0 means all", low=0)
    bank_max_new_tokens: int = setting(24, "response tokens at most on the bank", low=1)
    benchmarks: tuple[str, ...] = field(
        default=(), metadata={"doc": "more benchmarks: modules of evaluation/benchmark_tasks or package.module:task"}
    )
    benchmark_replies: int = setting(1, "replies sampled per benchmark item: avg@k, pass@k and maj@k", low=1)
    benchmark_temperature: float = setting(0.0, "sampling temperature on benchmarks; 0 is greedy", low=0.0)
    benchmark_max_new_tokens: int = setting(4096, "response tokens at most; lowered to what the window leaves", low=1)
    benchmark_limit: int = setting(0, "items per benchmark, spread evenly; 0 means all", low=0)
    data_dir: str = setting("", "local folder with benchmark data; empty means the hub")

    def __post_init__(self) -> None:
        if self.benchmark_replies > 1 and self.benchmark_temperature == 0.0:
            raise ConfigError(
                f"evaluation.benchmark_replies={self.benchmark_replies} with benchmark_temperature=0 would repeat one "
                "greedy reply; set evaluation.benchmark_temperature, for example 0.6"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class GateConfig:
    """When a candidate is accepted, held or rolled back."""

    enabled: bool = setting(True, "false accepts every candidate, for ablations")
    alpha: float = setting(0.05, "one-sided level of the paired tests", low=0.0, high=0.5)
    max_bank_drop: float = setting(0.05, "bank accuracy below the champion's that may be tolerated", low=0.0, high=1.0)
    max_exploitability_rise: float = setting(0.05, "exploitability above the champion's that may be tolerated", low=0.0)
    patience: int = setting(2, "held iterations in a row before a clear loss rolls back", low=1)
    min_length_share: float = setting(
        0.3, "collapse: median response length relative to the cold start", low=0.0, high=1.0
    )
    max_empty_share: float = setting(0.9, "collapse: share of replies without reasoning", low=0.0, high=1.0)
    max_invalid_share: float = setting(0.5, "collapse: share of illegal turns", low=0.0, high=1.0)
    min_distinct_share: float = setting(
        0.3, "collapse: distinct 4-gram ratio relative to the cold start", low=0.0, high=1.0
    )
    max_seat_share: float = setting(0.95, "collapse: share of decisive matches won by one seat", low=0.5, high=1.0)
    min_grad_share: float = setting(0.01, "collapse: gradient norm relative to its running median", low=0.0, high=1.0)
    on_collapse: str = setting("rollback", "what a collapse alarm does", choices=("hold", "rollback", "halt"))


@dataclass(frozen=True, kw_only=True, slots=True)
class RunConfig:
    """Everything that determines a run's numbers; a YAML file has the same shape."""

    preset: str = setting("tiny", "the preset this configuration started from")
    seed: int = setting(0, "base of every derived seed", low=0, high=(1 << 63) - 1)
    iterations: int = setting(6, "iterations to reach; not part of the hash, so that a run can be extended", low=0)
    route: str = setting(
        "self_play", "what is trained on: self_play, bank questions (rlvr), or an expert's wins (sft)", choices=ROUTES
    )
    threads: int = setting(1, "torch threads; recorded, since results depend on it in the last bits", low=1, high=1024)
    model: ModelConfig = field(default_factory=ModelConfig)
    prompt: PromptConfig = field(default_factory=PromptConfig)
    games: tuple[Named, ...] = setting((Named(name="kuhn_poker"),), "games played, with shares and parameters")
    cold_start: ColdStartConfig = field(default_factory=ColdStartConfig)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    endpoint: EndpointConfig = field(default_factory=EndpointConfig)
    opponents: OpponentConfig = field(default_factory=OpponentConfig)
    rewards: RewardConfig = field(default_factory=RewardConfig)
    rae: RaeConfig = field(default_factory=RaeConfig)
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    gates: GateConfig = field(default_factory=GateConfig)
    retention: RetentionConfig = field(default_factory=RetentionConfig)

    def __post_init__(self) -> None:
        if not self.games:
            raise ConfigError("'games' is empty; name at least one, for example games: [{name: kuhn_poker}]")
        if not any(g.weight > 0 for g in self.games):
            raise ConfigError("every weight in 'games' is 0; give at least one game a positive share")
        o = self.opponents
        if o.self_play + o.pool + o.random + o.optimal + o.api <= 0:
            raise ConfigError("all shares in 'opponents' are 0; set at least one, for example opponents.self_play=1")
        if o.api > 0 and not (o.api_model and self.endpoint.base_url):
            raise ConfigError(f"opponents.api={o.api:g} needs opponents.api_model and endpoint.base_url")
        if self.rollout.shards > self.rollout.matches:
            raise ConfigError(
                f"rollout.shards={self.rollout.shards} is more than rollout.matches={self.rollout.matches}; "
                "give every shard at least one match"
            )
        if self.rollout.max_new_tokens >= self.model.context_tokens:
            raise ConfigError(
                f"rollout.max_new_tokens={self.rollout.max_new_tokens} leaves no room for a prompt in "
                f"model.context_tokens={self.model.context_tokens}; lower the first or raise the second"
            )


def resolve(*, preset: str, yaml_path: Path | None = None, overrides: str = "") -> RunConfig:
    """Return the preset, changed by a YAML file and then by ``a.b=value`` overrides (blanks or commas between them).

    Raises ConfigError naming the setting, the value and the nearest known name.
    """
    from spiral_lib import presets

    config = presets.get(preset)
    if yaml_path is not None:
        config = update(config, strict_yaml.read(yaml_path))
    return overridden(config, overrides)


def overridden(config: RunConfig, overrides: str) -> RunConfig:
    """Return the configuration changed by ``a.b=value`` overrides. Raises ConfigError as ``resolve`` does."""
    changes = strict_yaml.parse_overrides(overrides)
    if changes.get("preset", config.preset) != config.preset:
        raise ConfigError(f"'preset' cannot be overridden; use --preset {changes['preset']}")
    return update(config, changes)


def update(config: RunConfig, changes: Mapping[str, Any]) -> RunConfig:
    """Return the configuration with a nested mapping of changes applied, strictly."""
    return typing.cast(RunConfig, setting_values.changed(config, changes))


def to_dict(config: Any) -> dict[str, Any]:
    """Return plain dictionaries, lists and scalars."""
    return typing.cast(dict[str, Any], _plain(config))


def dump_yaml(config: RunConfig) -> str:
    """Return the resolved configuration as YAML that ``resolve`` reads back to the same value."""
    return yaml.safe_dump(to_dict(config), sort_keys=False, allow_unicode=True, width=120)


def from_text(text: str) -> RunConfig:
    """Return the configuration that ``dump_yaml`` or ``to_json`` wrote. Raises ConfigError where it is damaged."""
    return update(RunConfig(), strict_yaml.parse(text, "the configuration"))


def to_json(config: RunConfig) -> str:
    """Return canonical JSON (sorted keys): the form passed between tasks and hashed."""
    return json.dumps(to_dict(config), sort_keys=True, separators=(",", ":"))


def config_hash(config: RunConfig) -> str:
    """Return 16 hex digits over what numbers depend on: an extended run keeps its hash, and so does a tidied one."""
    return hash_of(to_dict(config))


def hash_of(content: Mapping[str, Any]) -> str:
    """Return the hash of a configuration as a mapping, which may have settings that this code does not know."""
    counted = {name: value for name, value in content.items() if name not in ("iterations", "retention")}
    if counted.get("route") == ROUTES[0]:
        del counted["route"]  # self-play is what a configuration without this setting means
    return hashlib.sha256(json.dumps(counted, sort_keys=True).encode()).hexdigest()[:16]


def rewards_text(config: RunConfig) -> str:
    """Return the reward configuration as canonical JSON."""
    return json.dumps(to_dict(config.rewards), sort_keys=True, separators=(",", ":"))


def is_evaluated(config: RunConfig, iteration: int, *, adopted: bool) -> bool:
    """Return whether an iteration is evaluated: every so many, and always the first after going on from another run."""
    return adopted or iteration % config.evaluation.every == 0


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, tuple | list):
        return [_plain(v) for v in value]
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return value


def describe(section: type = RunConfig, prefix: str = "") -> list[tuple[str, str, str]]:
    """Return (dotted name, default as YAML, documentation) of every setting, for the reference page."""
    rows: list[tuple[str, str, str]] = []
    hints = typing.get_type_hints(section)
    for f in dataclasses.fields(section):
        if dataclasses.is_dataclass(hints[f.name]):
            rows += describe(hints[f.name], f"{prefix}{f.name}.")
            continue
        default = f.default if f.default_factory is MISSING else f.default_factory()
        rows.append((f"{prefix}{f.name}", json.dumps(_plain(default)), str(f.metadata.get("doc", ""))))
    return rows


def values(config: RunConfig) -> dict[str, str]:
    """Return every setting of a configuration by its dotted name, as JSON."""
    return {name: json.dumps(_plain(_at(config, name))) for name, _, _ in describe()}


def _at(config: RunConfig, name: str) -> Any:
    return functools.reduce(getattr, name.split("."), config)
