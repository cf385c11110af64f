"""What is measured of a checkpoint outside self-play, the same for every checkpoint of a run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from spiral_lib.config import Named, RunConfig
from spiral_lib.errors import ConfigError
from spiral_lib.types import Engine, Episode, Evaluation, Policy, PolicyRef, RefKind

if TYPE_CHECKING:
    from spiral_lib.evaluation.exploitability import ScoringEngine
    from spiral_lib.prompts import Renderer

COLD_START = "cold_start"
log = logging.getLogger(__name__)

StageProgress = Callable[[str, int, int], None]
"""Called with a stage's name and how much of how much of it is done."""


def evaluate(
    checkpoint: Path,
    *,
    cold_start: Path,
    config: RunConfig,
    iteration: int,
    pool: Mapping[str, Path] | None = None,
    records: Path | None = None,
    on_progress: StageProgress | None = None,
) -> Evaluation:
    """Return a checkpoint's evaluation: exploitability, matches, solved moves, benchmarks, reasoning indicators.

    It depends on the weights and the configuration alone: all seeds come from ``config.seed``, none from the iteration
    or the path. What does not apply (a game without a solver, exploitability of a game that is not played) is left out
    of the metrics. ``pool`` maps pool ids to folders, for opponents such as ``pool:<id>``. Every benchmark's replies go
    to ``<records>/<benchmark>.parquet``. Missing benchmark data raise before anything is loaded or played.
    """
    from spiral_lib import checkpoints, engines
    from spiral_lib.evaluation import benchmarks
    from spiral_lib.prompts import Renderer

    for name in config.evaluation.benchmarks:
        benchmarks.task(name, config.evaluation)
    with ExitStack() as stack:

        def load(path: Path) -> tuple[Engine, Renderer]:
            engine = engines.make(config.rollout.engine, path, config)
            stack.callback(engine.close)
            return engine, Renderer(checkpoints.load_tokenizer(path), config.prompt)

        def ask(model: str) -> Engine:
            engine = engines.endpoint(model, config)
            stack.callback(engine.close)
            return engine

        engine, renderer = load(checkpoint)
        subject = _Subject(engine=engine, renderer=renderer, config=config, on_progress=on_progress, ask=ask)
        folders = {COLD_START: cold_start, **{f"pool:{i}": path for i, path in (pool or {}).items()}}
        metrics, returns, episodes = _play(subject, folders, load)
        metrics |= _reasoning(episodes) | _minimax(subject)
        metrics |= _exploitability(subject, checkpoint, stack)
        scores, bank_correct = _benchmarks(subject, records)
        log.info("evaluated iteration %d: %d measures", iteration, len(metrics) + len(scores))
        return Evaluation(
            metrics=dict(sorted((metrics | scores).items())),
            bank_correct=bank_correct,
            match_returns=returns,
            iteration=iteration,
            checkpoint=engine.digest,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Subject:
    """The checkpoint that is evaluated, and how."""

    engine: Engine
    renderer: Renderer
    config: RunConfig
    on_progress: StageProgress | None
    ask: Callable[[str], Engine]

    def stage(self, name: str) -> Callable[[int, int], None] | None:
        """Return the progress callback of one stage."""
        report = self.on_progress
        return None if report is None else lambda done, total: report(name, done, total)

    def policy(self, ref: PolicyRef, engine: Engine, renderer: Renderer) -> Policy:
        from spiral_lib import policies

        rollout = self.config.rollout
        return policies.make(
            ref,
            engine=engine,
            renderer=renderer,
            temperature=rollout.temperature,
            max_new_tokens=rollout.max_new_tokens,
            candidates=self.config.evaluation.candidates if ref.kind is RefKind.SELF else 1,
        )


def _play(
    subject: _Subject, folders: Mapping[str, Path], load: Callable[[Path], tuple[Engine, Renderer]]
) -> tuple[dict[str, float], dict[str, tuple[float | None, ...]], list[Episode]]:
    """Return metrics, returns and episodes of the matches in every game of the configuration."""
    from spiral_lib.evaluation import matches

    config = subject.config
    own = subject.policy(PolicyRef(kind=RefKind.SELF), subject.engine, subject.renderer)
    metrics: dict[str, float] = {}
    returns: dict[str, tuple[float | None, ...]] = {}
    episodes: list[Episode] = []
    for name in config.evaluation.opponents:
        rivals = [game for game in config.games if _can_oppose(name, game)]
        if not rivals:
            continue
        ref, opponent = _opponent(subject, name, folders, load)
        progress = subject.stage(f"matches against {name}")
        for i, game in enumerate(rivals):
            specs = matches.plan(
                game, name, opponent_ref=str(ref), matches=config.evaluation.matches, seed=config.seed
            )
            policies = {matches.SELF: own, str(ref): opponent}
            played = matches.play(specs, policies, concurrency=config.rollout.concurrency)
            found = matches.outcome(game.name, name, played)
            metrics |= matches.metrics(found)
            returns[f"{game.name}/{name}"] = found.returns
            episodes += played
            if progress is not None:
                progress(i + 1, len(rivals))
    return metrics, returns, episodes


def _can_oppose(opponent: str, game: Named) -> bool:
    from spiral_lib.policies import optimal

    return opponent != RefKind.OPTIMAL.value or game.name in optimal.STRATEGIES


def _opponent(
    subject: _Subject, name: str, folders: Mapping[str, Path], load: Callable[[Path], tuple[Engine, Renderer]]
) -> tuple[PolicyRef, Policy]:
    ref = PolicyRef.parse(f"{RefKind.CHECKPOINT}:{COLD_START}" if name == COLD_START else name)
    if ref.kind in (RefKind.RANDOM, RefKind.OPTIMAL):
        return ref, subject.policy(ref, subject.engine, subject.renderer)
    if ref.kind is RefKind.API:
        return ref, subject.policy(ref, subject.ask(ref.locator), subject.renderer)
    if name not in folders and ref.kind is not RefKind.CHECKPOINT:
        raise ConfigError(
            f"evaluation.opponents has '{name}', which cannot be evaluated against here; "
            f"known: random, optimal, api:<model>, checkpoint:<folder>, {', '.join(sorted(folders))}"
        )
    engine, renderer = load(folders.get(name, Path(ref.locator)))
    return ref, subject.policy(ref, engine, renderer)


def _reasoning(episodes: list[Episode]) -> dict[str, float]:
    from spiral_lib.evaluation import patterns, reasoning, regret

    replies = [t.text for e in episodes for t in e.turns if t.policy == RefKind.SELF.value]
    return reasoning.metrics(episodes) | patterns.metrics(replies, "games") | regret.metrics(episodes)


def _minimax(subject: _Subject) -> dict[str, float]:
    from spiral_lib.evaluation import minimax

    config = subject.config
    if all(game.name != minimax.GAME for game in config.games):
        return {}
    return minimax.measure(
        subject.engine,
        subject.renderer,
        states=config.evaluation.minimax_states,
        seed=config.seed,
        temperature=config.rollout.temperature,
        max_new_tokens=config.rollout.max_new_tokens,
        on_progress=subject.stage("minimax agreement"),
    )


def _exploitability(subject: _Subject, checkpoint: Path, stack: ExitStack) -> dict[str, float]:
    from spiral_lib import engines
    from spiral_lib.evaluation import exploitability

    config = subject.config
    found: dict[str, float] = {}
    scoring = subject.engine
    for game in _exactly_evaluated(config):
        if not hasattr(scoring, "score"):
            # Only the local engine scores given tokens.
            scoring = engines.make("hf", checkpoint, config)
            stack.callback(scoring.close)
        table = exploitability.action_table(
            game.name,
            cast("ScoringEngine", scoring),
            subject.renderer,
            replies=config.evaluation.exploitability_replies,
            seed=config.seed,
            temperature=config.rollout.temperature,
            max_new_tokens=config.rollout.max_new_tokens,
            params=game.params,
            on_progress=subject.stage(f"exploitability of {game.name}"),
        )
        found |= exploitability.measure(table)
    return found


def _exactly_evaluated(config: RunConfig) -> Iterator[Named]:
    """Yield the games to solve that are played, with parameters under which they are OpenSpiel's game."""
    from spiral_lib import games

    for game in config.games:
        if game.name not in config.evaluation.exploitability_games:
            continue
        if games.make(game.name, seed=0, **game.params).spec.openspiel is None:
            log.warning("no exploitability of %s: with %s it is not OpenSpiel's game", game.name, game.params)
            continue
        yield game


def _benchmarks(subject: _Subject, records: Path | None) -> tuple[dict[str, float], tuple[bool, ...]]:
    """Return all benchmarks' metrics, and the bank's verdicts."""
    from spiral_lib.evaluation import benchmarks, patterns

    config = subject.config
    metrics: dict[str, float] = {}
    bank_correct: tuple[bool, ...] = ()
    for name in (["bank"] if config.evaluation.bank else []) + list(config.evaluation.benchmarks):
        result = benchmarks.run(
            name,
            subject.engine,
            subject.renderer,
            config.evaluation,
            context_tokens=config.model.context_tokens,
            seed=config.seed,
            on_progress=subject.stage(f"benchmark {name}"),
        )
        metrics |= benchmarks.metrics(result)
        metrics |= patterns.metrics([graded.reply.text for graded in result.graded], result.name)
        if records is not None:
            benchmarks.write_records(records / f"{result.name}.parquet", result)
        if name == "bank":
            bank_correct = result.correct
    return metrics, bank_correct
