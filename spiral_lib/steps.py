"""The steps of a run: deterministic functions from paths to paths, each leaving one record in ``lineage/``.

Both drivers (``pipeline.py`` in plain Python and ``workflows/spiral.py`` on Flyte) call exactly these. A finished step
is re-used when its inputs, configuration and code are the same and its outputs still verify, so a killed run continues.
``step`` numbers learner steps over the whole run, from 1: (iteration - 1) * steps_per_iteration + s + 1.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spiral_lib import (
    checkpoints,
    demonstrations,
    duel_bank,
    durable,
    expired,
    lineage,
    policies,
    quality,
    rollout,
    routes,
    trajectories,
)
from spiral_lib.config import RunConfig, config_hash
from spiral_lib.errors import DataQualityError, EngineError
from spiral_lib.ledger import Ledger
from spiral_lib.prompts import Renderer
from spiral_lib.quality import QualityReport
from spiral_lib.rae import RoleBaselines
from spiral_lib.segment_saves import Progress, SegmentSaves
from spiral_lib.state import Learned, State
from spiral_lib.types import Engine, Episode, MatchSpec, Policy, PolicyRef, RefKind

if TYPE_CHECKING:
    from spiral_lib.learner.update import Learner

log = logging.getLogger(__name__)



def play_shard(config: RunConfig, state: State, *, shard: int, run: Path) -> Path:
    """Play one shard of the next iteration's matches; return its turns as Parquet."""
    set_threads(config)
    iteration = state.iteration + 1
    out = shard_path(run, iteration, shard)

    def body() -> None:
        playing = routes.playing(config)
        with opened_policies(playing, state) as table:
            episodes = _play(_with_known_problems(playing, state), table, step=iteration, shard=shard)
        _write(episodes, out, config, iteration=iteration, step=iteration, shard=shard)

    inputs = _playing_inputs(config, state)
    lineage.run_step(
        f"play-{shard:02d}",
        run=run,
        order=iteration,
        inputs=inputs,
        values={"step": iteration, "shard": shard},
        config=config,
        outputs={"turns": out},
        body=body,
    )
    return out


def learn(config: RunConfig, state: State, shards: Sequence[Path], *, run: Path) -> Learned:
    """Check the shards, quarantine bad ones, and take one learner step over the good ones.

    ``shards`` are all that were planned, by number; one whose player died is not there, and counts as bad.
    """
    from spiral_lib.learner.update import Learner

    set_threads(config)
    iteration = state.iteration + 1
    made = _learned(run, iteration, tuple(shards))

    def body() -> None:
        ledger = Ledger.from_json(state.ledger.read_text())
        checked = check(_limits(config, ledger), shards, run=run, full=True, tolerated=config.rollout.max_bad_shards)
        baselines = baselines_of(config, ledger)
        learner = Learner(state.checkpoint, state.cold_start, config, state.optimizer)
        episodes = list(trajectories.read_episodes(checked.good))
        trained = _train(learner, episodes, baselines, step=iteration, lr_scale=ledger.lr_scale)
        history = [(iteration, {**checked.report.metrics, **trained})]
        problems = duel_bank.posed(config, episodes)
        _save(learner, made, iteration, history, baselines, problems, checked.report)

    known = {f"turns-{i:02d}": p for i, p in enumerate(shards) if p.exists() or expired.covers(run, p)}
    inputs = _learning_inputs(state) | known
    _record_learning("learn", config, iteration, run, inputs, made, body, with_shards=False)
    return made


def segment(
    config: RunConfig, state: State, *, run: Path, on_save: Callable[[Sequence[Path]], None] | None = None
) -> Learned:
    """Take all rollout-update steps of the next iteration in one process, on-policy; the same as one step at a time.

    ``on_save`` is called after every save on the way with the paths that a killed segment needs to go on from it.
    """
    from spiral_lib.learner.update import Learner

    set_threads(config)
    iteration, per, num_shards = state.iteration + 1, config.rollout.steps_per_iteration, config.rollout.shards
    made = _learned(run, iteration, tuple(shard_path(run, iteration, i) for i in range(per * num_shards)))

    def body() -> None:
        ledger = Ledger.from_json(state.ledger.read_text())
        baselines = baselines_of(config, ledger)
        learner = Learner(state.checkpoint, state.cold_start, config, state.optimizer)
        history: list[tuple[int, dict[str, float]]] = []
        played_on = routes.playing(config)
        playing, problems = _with_known_problems(played_on, state), dict[str, tuple[str, ...]]()
        saves = SegmentSaves(config, state, run=run)
        with opened_policies(played_on, state) as table:
            if (begun := saves.resume(learner, made.shards)) is not None:
                history, problems = [(s, dict(m)) for s, m in begun.history], dict(begun.problems)
                baselines = RoleBaselines.from_json(begun.baselines)
                _load_weights(table.engine, learner.state_dict())
                log.info("iteration %d goes on after step %d of %d", iteration, len(history), per)
            for s in range(len(history), per):
                step, start = (iteration - 1) * per + s + 1, time.monotonic()
                paths = made.shards[s * num_shards : (s + 1) * num_shards]
                for i, path in enumerate(paths):
                    episodes, shard = _play(playing, table, step=step, shard=i), s * num_shards + i
                    _write(episodes, path, config, iteration=iteration, step=step, shard=shard)
                checked = check(_limits(config, ledger), paths, run=run, full=s == per - 1, tolerated=0.0)
                played = list(trajectories.read_episodes(checked.good))
                problems = duel_bank.merged(problems, duel_bank.posed(config, played))
                trained = _train(learner, played, baselines, step=step, lr_scale=ledger.lr_scale)
                history.append((step, {**checked.report.metrics, **trained}))
                _load_weights(table.engine, learner.state_dict())
                _log_step(iteration, s, config, history[-1][1], time.monotonic() - start)
                so_far = Progress(history=tuple(history), baselines=baselines.to_json(), problems=problems)
                done = made.shards[: (s + 1) * num_shards]
                if saves.write(learner, so_far, done, steps=per) and on_save is not None:
                    on_save([saves.folder, *done])
        _save(learner, made, iteration, history, baselines, problems, checked.report)
        saves.remove()

    inputs = _learning_inputs(state) | _playing_inputs(config, state)
    _record_learning("segment", config, iteration, run, inputs, made, body, with_shards=True)
    return made


def _playing_inputs(config: RunConfig, state: State) -> dict[str, Path]:
    inputs = {"checkpoint": state.checkpoint, **{f"opponent-{i}": p for i, p in enumerate(state.opponents)}}
    if config.learner.ema_decay > 0 and state.optimizer is not None:
        inputs["optimizer"] = state.optimizer
    return {**inputs, "ledger": state.ledger} if duel_bank.is_carried(config) else inputs


def _with_known_problems(config: RunConfig, state: State) -> RunConfig:
    """Return what to play: the bank is the one that entered the iteration, the same for every shard and step of it."""
    if not duel_bank.is_carried(config):
        return config
    return duel_bank.filled(config, Ledger.from_json(state.ledger.read_text()))


def _limits(config: RunConfig, ledger: Ledger) -> RunConfig:
    """Return the limits to check turns by. A policy that once played legally and no longer does has collapsed.

    That is the gate's matter, whose ``on_collapse`` says what to do; here it would only stop the run.
    """
    start = ledger.evaluations[0].metrics if ledger.evaluations else {}
    began_legally = start.get("reasoning/invalid_share", 1.0) <= config.gates.max_invalid_share
    if not config.gates.enabled or not began_legally:
        return config
    return dataclasses.replace(config, rollout=dataclasses.replace(config.rollout, max_invalid_share=1.0))


def _learning_inputs(state: State) -> dict[str, Path]:
    inputs = {"checkpoint": state.checkpoint, "reference": state.cold_start, "ledger": state.ledger}
    return inputs if state.optimizer is None else {**inputs, "optimizer": state.optimizer}


def evaluate(config: RunConfig, checkpoint: Path, cold_start: Path, *, iteration: int, run: Path) -> Path:
    """Measure a checkpoint outside self-play; return the evaluation as JSON, the replies in a folder beside it."""
    from spiral_lib import evaluation

    set_threads(config)
    out, replies = run / "evaluations" / f"{iteration:04d}.json", replies_folder(config, run, iteration)

    def body() -> None:
        made = evaluation.evaluate(
            checkpoint, cold_start=cold_start, config=config, iteration=iteration, records=replies
        )
        durable.write_text(out, made.to_json())

    lineage.run_step(
        "evaluate",
        run=run,
        order=iteration,
        inputs={"checkpoint": checkpoint, "cold_start": cold_start},
        values={"iteration": iteration},
        config=config,
        outputs={"evaluation": out} if replies is None else {"evaluation": out, "replies": replies},
        body=body,
    )
    return out


def replies_folder(config: RunConfig, run: Path, iteration: int) -> Path | None:
    """Return where an evaluation keeps its benchmark replies, a Parquet file each; None where no benchmark runs."""
    if not config.evaluation.bank and not config.evaluation.benchmarks:
        return None
    return run / "evaluations" / f"{iteration:04d}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Checked:
    """The shards that passed the quality gate, and its verdict on all that were planned."""

    good: list[Path]
    report: QualityReport


def check(config: RunConfig, shards: Sequence[Path], *, run: Path, full: bool, tolerated: float) -> Checked:
    """Return the shards that pass the quality gate; bad ones move to ``quarantine/`` with reasons and a page of them.

    A shard that is not there is a bad one. Raises DataQualityError with the reasons when more than the ``tolerated``
    share is bad, or when what is left fails.
    """
    planned = rollout.plan_matches(config, step=0, pool=())
    sizes = {path: len(rollout.shard_of(planned, i, len(shards))) for i, path in enumerate(shards)}
    lost = {p: (f"{p.name} was not played",) for p in shards if not p.exists()}
    there = [p for p in shards if p not in lost]
    report = quality.check(there, planned=sum(sizes[p] for p in there), config=config, full=full)
    if report.ok and not lost:
        return Checked(good=list(shards), report=report)
    durable.write_text(run / "quarantine" / f"{shards[0].parent.name if shards else 'nothing'}.html", report.html)
    bad = {Path(p): reasons for p, reasons in report.bad_shards.items()}
    for path, reasons in bad.items():
        quality.quarantine(path, reasons, run / "quarantine")
    bad |= lost
    good = [p for p in shards if p not in bad]
    failures = list(report.failures) or [r for rs in bad.values() for r in rs]
    if bad and good and len(bad) <= tolerated * len(shards):
        again = quality.check(good, planned=sum(sizes[p] for p in good), config=config, full=full)
        if again.ok:
            log.warning("%d of %d shards quarantined: %s", len(bad), len(shards), "; ".join(failures))
            return Checked(good=good, report=dataclasses.replace(report, outcomes=again.outcomes))
        failures = list(again.failures)
    raise DataQualityError(
        f"{len(bad)} of {len(shards)} shards are bad, see {run / 'quarantine'}: {'; '.join(failures)}. "
        "rollout.max_bad_shards is the share a sharded run tolerates"
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyTable:
    """The policies of a rollout by their text form, and the learner's own engine; None where only an expert plays."""

    by_ref: Mapping[str, Policy]
    engine: Engine | None
    pool: tuple[str, ...]


@contextlib.contextmanager
def opened_policies(config: RunConfig, state: State) -> Iterator[PolicyTable]:
    """Open the learner's engine and one per pool opponent; close them all at the end."""
    from spiral_lib import engines
    from spiral_lib.learner import averaging

    with contextlib.ExitStack() as stack:
        renderer = Renderer(checkpoints.load_tokenizer(state.checkpoint), config.prompt)
        if config.route == "sft":
            expert = demonstrations.Expert(renderer)
            yield PolicyTable(by_ref={expert.ref: expert}, engine=None, pool=())
            return
        engine = engines.make(config.rollout.engine, state.checkpoint, config)
        stack.callback(engine.close)
        live = averaging.read_live(state.optimizer) if config.learner.ema_decay > 0 else None
        if live is not None:
            _load_weights(engine, live)
        limit = config.rollout.max_new_tokens
        common: dict[str, Any] = {"renderer": renderer, "temperature": config.rollout.temperature}
        table: dict[str, Policy] = {
            "self": policies.make(PolicyRef.parse("self"), engine=engine, max_new_tokens=limit, **common)
        }
        pool = []
        for path in state.opponents if config.opponents.pool > 0 else ():
            ref = PolicyRef.parse(f"pool:{checkpoints.read_manifest(path).id[:16]}")
            other = engines.make(config.rollout.engine, path, config)
            stack.callback(other.close)
            budget = config.opponents.max_new_tokens or limit
            table[str(ref)] = policies.make(
                ref, engine=other, max_new_tokens=budget, candidates=config.opponents.candidates, **common
            )
            pool.append(ref.locator)
        for name in ("random", "optimal"):
            if getattr(config.opponents, name) > 0:
                table[name] = policies.make(PolicyRef.parse(name))
        if config.opponents.api > 0:
            ref = PolicyRef(kind=RefKind.API, locator=config.opponents.api_model)
            asked = engines.endpoint(ref.locator, config)
            stack.callback(asked.close)
            table[str(ref)] = policies.make(ref, engine=asked, max_new_tokens=limit, **common)
        yield PolicyTable(by_ref=table, engine=engine, pool=tuple(pool))


def _play(config: RunConfig, table: PolicyTable, *, step: int, shard: int) -> list[Episode]:
    plan = routes.plan(config, step=step, pool=table.pool)
    specs: list[MatchSpec] = rollout.shard_of(plan, shard, config.rollout.shards)
    episodes = rollout.play_matches(specs, table.by_ref, concurrency=config.rollout.concurrency)
    return sorted(episodes, key=lambda e: e.id)


def _write(
    episodes: Sequence[Episode], path: Path, config: RunConfig, *, iteration: int, step: int, shard: int
) -> None:
    trajectories.write_shard(
        path,
        episodes,
        run=config_hash(config),
        iteration=iteration,
        step=step,
        shard=shard,
        config_hash=config_hash(config),
    )


def _train(
    learner: Learner, episodes: Sequence[Episode], baselines: RoleBaselines, *, step: int, lr_scale: float
) -> dict[str, float]:
    from spiral_lib.evaluation import reasoning

    played = {**reasoning.metrics(episodes), **duel_bank.metrics(episodes)}
    return {**played, **learner.step(episodes, baselines, step=step, lr_scale=lr_scale)}


def _save(
    learner: Learner,
    made: Learned,
    iteration: int,
    history: Sequence[tuple[int, Mapping[str, float]]],
    baselines: RoleBaselines,
    problems: Mapping[str, Sequence[str]],
    report: QualityReport,
) -> None:
    learner.save(made.checkpoint, iteration=iteration)
    learner.save_optimizer(made.optimizer)
    means = average(m for _, m in history)
    durable.write_text(made.training, training_json(history, means, baselines, problems, report.to_dict()))


def average(rows: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of every metric over the rows that have it, ignoring nan."""
    values: dict[str, list[float]] = {}
    for row in rows:
        for name, value in row.items():
            if math.isfinite(value):
                values.setdefault(name, []).append(value)
    return {name: sum(v) / len(v) for name, v in sorted(values.items())}


def training_json(
    history: Sequence[tuple[int, Mapping[str, float]]],
    metrics: Mapping[str, float],
    baselines: RoleBaselines,
    problems: Mapping[str, Sequence[str]] | None = None,
    checked: Mapping[str, Any] | None = None,
) -> str:
    rows = [{k: v for k, v in m.items() if math.isfinite(v)} for _, m in history]
    content = {
        "metrics": {k: v for k, v in metrics.items() if math.isfinite(v)},
        "steps": [{"step": s, "metrics": m} for (s, _), m in zip(history, rows, strict=True)],
        "grad_norms": [m["learner/grad_norm"] for m in rows if "learner/grad_norm" in m],
        "baselines": json.loads(baselines.to_json())["values"],
        **({"problems": problems} if problems else {}),
        **({"quality": checked} if checked else {}),
    }
    return json.dumps(content, sort_keys=True, allow_nan=False)


def baselines_of(config: RunConfig, ledger: Ledger) -> RoleBaselines:
    content = {"decay": config.rae.decay, "baseline": config.rae.baseline, "values": dict(ledger.baselines)}
    return RoleBaselines.from_json(json.dumps(content))


def _learned(run: Path, iteration: int, shards: tuple[Path, ...]) -> Learned:
    return Learned(
        checkpoint=run / "checkpoints" / f"{iteration:04d}",
        optimizer=run / "optimizer" / f"{iteration:04d}",
        training=run / "training" / f"{iteration:04d}.json",
        shards=shards,
    )


def _record_learning(
    name: str,
    config: RunConfig,
    iteration: int,
    run: Path,
    inputs: Mapping[str, Path],
    made: Learned,
    body: Any,
    *,
    with_shards: bool,
) -> None:
    outputs = {"checkpoint": made.checkpoint, "optimizer": made.optimizer, "training": made.training}
    if with_shards:
        outputs |= {f"turns-{i:02d}": p for i, p in enumerate(made.shards)}
    lineage.run_step(
        name,
        run=run,
        order=iteration,
        inputs=inputs,
        values={"iteration": iteration},
        config=config,
        outputs=outputs,
        body=body,
    )


def shard_path(run: Path, iteration: int, shard: int) -> Path:
    """Return where a shard of an iteration lies; with several steps an iteration, shards count over all of them."""
    return run / "trajectories" / f"iteration={iteration:04d}" / f"shard-{shard:02d}.parquet"


def _load_weights(engine: Engine | None, weights: Mapping[str, Any]) -> None:
    """Give the engine other weights of its model. Raises EngineError where it cannot take them in place."""
    if engine is None:
        return
    load = getattr(engine, "load_weights", None)
    if load is None:
        raise EngineError(
            f"engine '{engine.name}' cannot take new weights in place; use rollout.steps_per_iteration=1 and "
            "learner.ema_decay=0, or engine hf"
        )
    own = {name: tensor.cpu().clone() for name, tensor in weights.items()}
    load(own, checkpoints.digest_weights(own))


def _log_step(iteration: int, s: int, config: RunConfig, metrics: Mapping[str, float], seconds: float) -> None:
    log.info(
        "iteration %d, step %d of %d: %.1f s, invalid %.1f %%, %.1f tokens a reply, KL %.3f, norm %.2f; %.0f s left",
        iteration,
        s + 1,
        config.rollout.steps_per_iteration,
        seconds,
        100 * metrics.get("rollout/invalid_rate", math.nan),
        metrics.get("rollout/response_tokens", math.nan),
        metrics.get("learner/kl", math.nan),
        metrics.get("learner/grad_norm", math.nan),
        (config.rollout.steps_per_iteration - s - 1) * seconds,
        extra={"learner_step": (iteration - 1) * config.rollout.steps_per_iteration + s + 1},
    )


def set_threads(config: RunConfig) -> None:
    """Fix the number of torch threads, on which the last bits of every result depend."""
    import torch

    torch.set_num_threads(config.threads)
