"""The cold start: a checkpoint that plays legally, in the expected format, and looks at what it holds.

Scripted turns (and a few easy bank items, so that a loss of ability shows later) are learned by supervised fine-tuning;
then a gate measures the share of legal turns in self-play and how far play depends on private information. A cold start
that ignores its card gets stuck in self-play, so the gate tries again with fresh seeds before it stops the run.
"""

from __future__ import annotations

import itertools
import logging
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from spiral_lib import (
    bank_items,
    checkpoint_sources,
    checkpoints,
    engines,
    games,
    policies,
    registry_runs,
    rollout,
    scripted_play,
)
from spiral_lib.config import RunConfig, config_hash
from spiral_lib.errors import ColdStartError
from spiral_lib.prompts import Renderer, response_text
from spiral_lib.registry_types import PREFIX
from spiral_lib.seeds import generator, seed_for
from spiral_lib.types import PolicyRef, View

log = logging.getLogger(__name__)

GAP_REPLIES = 24
PUBLIC_KEYS: dict[str, Callable[[str], str]] = {"kuhn_poker": lambda key: key[1:]}
"""Per game, what both players know of a state, from its ``info_state``: the rest is the private card."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Example:
    """A prompt as its user text or view, and the scripted reply."""

    view: View | None
    question: str
    reply: str


def make(config: RunConfig, out: Path) -> dict[str, float]:
    """Write the checkpoint of iteration 0 to ``out`` and return its figures (``cold_start/*``).

    Raises ColdStartError with the figures of every attempt when none passes the gate.
    """
    examples = scripted_examples(config)
    failures = []
    for attempt in range(config.cold_start.attempts if config.cold_start.steps else 1):
        seed = config.seed if attempt == 0 else seed_for(config.seed, "cold start", attempt)
        with tempfile.TemporaryDirectory(prefix="cold-start-") as scratch:
            source = Path(scratch) / "source"
            _fetch(replace(config, seed=seed), examples, source)
            figures = _attempt(config, examples, source, out, seed)
        failed = _gate(config, figures)
        log.info("cold start, attempt %d: %s", attempt + 1, describe(figures))
        if not failed:
            return {**figures, "cold_start/attempts": float(attempt + 1)}
        failures.append(f"attempt {attempt + 1}: {'; '.join(failed)}")
    raise ColdStartError(
        f"the cold start of {config.model.source} did not pass its gate ({' | '.join(failures)}). "
        "Raise cold_start.steps or cold_start.examples, or lower cold_start.min_legal or cold_start.min_gap"
    )


def describe(figures: Mapping[str, float]) -> str:
    """Return the figures in one line."""
    return ", ".join(f"{name.split('/', 1)[1]} {value:.3f}" for name, value in sorted(figures.items()))


def scripted_examples(config: RunConfig) -> list[Example]:
    """Return scripted turns of the configured games, by weight, and bank items; the same for the same configuration."""
    if config.cold_start.steps == 0 and config.model.source != "init:tiny":
        return []
    total = sum(g.weight for g in config.games)
    found = []
    for game in config.games:
        wanted = round(config.cold_start.examples * game.weight / total)
        found += list(itertools.islice(_scripted_turns(config, game.name, game.params), wanted))
    for item in bank_items.training_items(config.seed, config.cold_start.bank_examples):
        found.append(Example(view=None, question=bank_items.user_text(item), reply=bank_items.reply_text(item)))
    return found


def _scripted_turns(config: RunConfig, name: str, params: Mapping[str, int | float | str | bool]) -> Iterable[Example]:
    """Yield the turns of one scripted match after another, without end."""
    for match in itertools.count():
        game = games.make(name, seed=seed_for(config.seed, "scripted match", name, match), **params)
        rng = generator(config.seed, "scripted play", name, match)
        while (player := game.current_player) is not None:
            view = game.view(player)
            reasoning, action = scripted_play.reply(view, rng, skilled_share=config.cold_start.skilled_share)
            yield Example(view=view, question="", reply=response_text(reasoning, action, config.prompt))
            game.apply(action)


def _fetch(config: RunConfig, examples: Sequence[Example], out: Path) -> None:
    if config.model.source.startswith(PREFIX):
        registry_runs.fetch_source(config.model.source, out)
        return
    if config.model.source != "init:tiny":
        checkpoint_sources.fetch(config, out)
        return
    from spiral_lib.prompts import user_text

    # The chat template's own words go in as well, so that they become single tokens.
    asked = (f"user\n{user_text(e.view, config.prompt) if e.view else e.question}" for e in examples)
    texts = itertools.chain(asked, (f"assistant\n{e.reply}" for e in examples))
    checkpoint_sources.init_tiny(config, texts, out)


def _attempt(config: RunConfig, examples: Sequence[Example], source: Path, out: Path, seed: int) -> dict[str, float]:
    """Fine-tune the source into ``out`` and measure it."""
    from spiral_lib.learner import sft

    settings = config.cold_start
    tokenizer = checkpoints.load_tokenizer(source)
    renderer = Renderer(tokenizer, config.prompt)
    model = checkpoints.load_model(source, config.model.dtype)
    figures: dict[str, float] = {}
    if settings.steps:
        figures = sft.train(
            model,
            [_encode(e, renderer) for e in examples],
            steps=settings.steps,
            batch=settings.batch,
            lr=settings.lr,
            seed=seed,
            pack_tokens=config.learner.pack_tokens,
            on_step=_progress(settings.steps),
        )
    manifest = checkpoints.read_manifest(source)
    checkpoints.save(
        model,
        tokenizer,
        out,
        parent=manifest.id,
        iteration=0,
        base_model=manifest.base_model,
        config_hash=config_hash(config),
    )
    measured = {f"cold_start/{name.split('/')[1]}": value for name, value in figures.items()}
    return {**measured, **measure(config, out, renderer)}


def _encode(example: Example, renderer: Renderer) -> tuple[Sequence[int], Sequence[int]]:
    prompt = renderer.encode(example.view)[0] if example.view else renderer.encode_text(example.question)
    return prompt, renderer.encode_reply(example.reply)


def _progress(steps: int) -> Callable[[int, float], None]:
    def report(step: int, loss: float) -> None:
        if step % max(1, steps // 6) == 0 or step == steps:
            log.info("cold start: step %d of %d, loss %.3f", step, steps, loss)

    return report


def measure(config: RunConfig, checkpoint: Path, renderer: Renderer) -> dict[str, float]:
    """Return the share of legal turns in self-play and, per game with private information, the conditioning gap."""
    engine = engines.make(config.rollout.engine, checkpoint, config)
    try:
        policy = policies.make(
            PolicyRef.parse("self"),
            engine=engine,
            renderer=renderer,
            temperature=config.rollout.temperature,
            max_new_tokens=config.rollout.max_new_tokens,
        )
        fixed = replace(
            config,
            seed=seed_for(config.seed, "cold start gate"),
            rollout=replace(config.rollout, matches=config.cold_start.gate_matches, shards=1),
        )
        plan = rollout.plan_matches(_only_self_play(fixed), step=0, pool=())
        played = list(rollout.play_matches(plan, {"self": policy}, concurrency=config.rollout.concurrency))
        turns = [t for e in played for t in e.turns]
        figures = {"cold_start/legal_share": sum(t.legal for t in turns) / len(turns)}
        return {**figures, **_gaps(config, engine, renderer)}
    finally:
        engine.close()


def _only_self_play(config: RunConfig) -> RunConfig:
    return replace(config, opponents=replace(config.opponents, self_play=1.0, pool=0.0, random=0.0, optimal=0.0))


def _gaps(config: RunConfig, engine: Any, renderer: Renderer) -> dict[str, float]:
    """Return ``cold_start/gap/<game>``: the smallest difference, over public situations, that the private card makes.

    In a situation that is the largest difference of an action's probability between two cards. Where it is near 0,
    self-play pushes all cards the same way and never learns to tell them apart.
    """
    from spiral_lib.evaluation import exploitability

    found = {}
    for game in config.games:
        is_solved = game.name in PUBLIC_KEYS and game.params.get("hands", 1) == 1
        if game.weight == 0 or not is_solved or not hasattr(engine, "score"):
            continue
        table = exploitability.action_table(
            game.name,
            engine,
            renderer,
            replies=GAP_REPLIES,
            seed=seed_for(config.seed, "gap"),
            temperature=config.rollout.temperature,
            max_new_tokens=config.rollout.max_new_tokens,
        )
        situations: dict[str, list[tuple[float, ...]]] = {}
        for key, row in table.policy().items():
            situations.setdefault(PUBLIC_KEYS[game.name](key), []).append(row)
        found[f"cold_start/gap/{game.name}"] = min(
            max(max(column) - min(column) for column in zip(*rows, strict=True)) for rows in situations.values()
        )
    return found


def _gate(config: RunConfig, figures: Mapping[str, float]) -> list[str]:
    """Return what is below its threshold, in words."""
    settings = config.cold_start
    failed = []
    legal = figures["cold_start/legal_share"]
    if legal < settings.min_legal:
        failed.append(f"{100 * legal:.1f} % legal turns, cold_start.min_legal is {100 * settings.min_legal:.1f} %")
    for name, value in figures.items():
        if name.startswith("cold_start/gap/") and value < settings.min_gap:
            failed.append(f"play of {name.rsplit('/', 1)[1]} hardly depends on private information: {value:.3f}, ")
            failed[-1] += f"cold_start.min_gap is {settings.min_gap:.3f}"
    return failed
