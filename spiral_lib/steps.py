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
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spiral_lib import checkpoints, durable, gates, lineage, opponents, policies, quality, rollout, trajectories
from spiral_lib.config import RunConfig, config_hash, dump_yaml
from spiral_lib.errors import ConfigError, DataQualityError, SpiralError
from spiral_lib.ledger import Champion, DecisionRecord, EvaluationRecord, Ledger, PoolEntry
from spiral_lib.prompts import Renderer
from spiral_lib.rae import RoleBaselines
from spiral_lib.types import Decision, Engine, Episode, Evaluation, MatchSpec, Policy, PolicyRef

if TYPE_CHECKING:
    from spiral_lib.learner.update import Learner

log = logging.getLogger(__name__)

HISTORY = ("config.yaml", "ledger.json", "metrics.jsonl", "steps.jsonl", "samples.json", "report.html")
HISTORY_FOLDERS = ("training", "evaluations", "lineage", "ledgers")
SAMPLES_PER_ITERATION = 3
ROLLBACK_LR = 0.5  # after a rollback training goes on more carefully


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """Where a run stands after an iteration, as local paths; iteration 0 is the cold start."""

    iteration: int
    checkpoint: Path
    optimizer: Path
    champion: Path
    champion_scores: Path
    cold_start: Path
    cold_start_scores: Path
    opponents: tuple[Path, ...]
    ledger: Path


@dataclass(frozen=True, kw_only=True, slots=True)
class Learned:
    """A candidate: checkpoint folder, optimizer folder, training metrics (JSON) and the turns it learned from."""

    checkpoint: Path
    optimizer: Path
    training: Path
    shards: tuple[Path, ...]


def open_run(config: RunConfig, run: Path) -> None:
    """Create the run folder with its resolved configuration. Raises ConfigError when another run lives there."""
    written = run / "config.yaml"
    if written.is_file():
        from spiral_lib.config import from_text

        if config_hash(from_text(written.read_text())) != config_hash(config):
            raise ConfigError(
                f"'{run}' holds a run with another configuration; choose another folder with --out, "
                "or use the same preset, config and overrides to continue it"
            )
    elif run.exists() and any(run.iterdir()):
        raise ConfigError(f"'{run}' is not empty and not a run folder; choose another folder with --out")
    run.mkdir(parents=True, exist_ok=True)
    durable.write_text(written, dump_yaml(config))


def cold_start(config: RunConfig, run: Path) -> State:
    """Make iteration 0: fetch or train the cold start, pass its gate, evaluate it."""
    from spiral_lib import cold_start as starting

    set_threads(config)
    checkpoint, optimizer = run / "checkpoints" / "0000", run / "optimizer" / "0000"
    metrics = run / "training" / "0000.json"

    def body() -> None:
        figures = starting.make(config, checkpoint)
        _fresh_optimizer(optimizer)
        durable.write_text(metrics, _training_json((), figures, RoleBaselines(config.rae.decay)))

    outputs = {"checkpoint": checkpoint, "optimizer": optimizer, "training": metrics}
    lineage.run_step("cold_start", run=run, order=0, inputs={}, values={}, config=config, outputs=outputs, body=body)
    scores = evaluate(config, checkpoint, checkpoint, iteration=0, run=run)
    evaluation = Evaluation.from_json(scores.read_text())
    manifest = checkpoints.read_manifest(checkpoint)
    ledger = Ledger(
        champion=Champion(iteration=0, checkpoint=manifest.id, metrics=evaluation.metrics),
        evaluations=(EvaluationRecord(iteration=0, metrics=evaluation.metrics),),
    )
    ledger_path = run / "ledgers" / "0000.json"
    durable.write_text(ledger_path, ledger.to_json())
    _publish(config, ledger, run)
    return State(
        iteration=0,
        checkpoint=checkpoint,
        optimizer=optimizer,
        champion=checkpoint,
        champion_scores=scores,
        cold_start=checkpoint,
        cold_start_scores=scores,
        opponents=(),
        ledger=ledger_path,
    )


def play_shard(config: RunConfig, state: State, *, shard: int, run: Path) -> Path:
    """Play one shard of the next iteration's matches; return its turns as Parquet."""
    set_threads(config)
    iteration = state.iteration + 1
    out = shard_path(run, iteration, shard)

    def body() -> None:
        with opened_policies(config, state) as table:
            episodes = _play(config, table, step=iteration, shard=shard)
        _write(episodes, out, config, run=run, iteration=iteration, step=iteration, shard=shard)

    inputs = {"checkpoint": state.checkpoint, **{f"opponent-{i}": p for i, p in enumerate(state.opponents)}}
    lineage.run_step(
        f"play-{iteration:04d}-{shard:02d}",
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
    """Check the shards, quarantine bad ones, and take one learner step over the good ones."""
    from spiral_lib.learner.update import Learner

    set_threads(config)
    iteration = state.iteration + 1
    made = _learned(run, iteration, tuple(shards))

    def body() -> None:
        good = check(config, shards, run=run, full=True)
        ledger = Ledger.from_json(state.ledger.read_text())
        baselines = _baselines(config, ledger)
        learner = Learner(state.checkpoint, state.cold_start, config, state.optimizer)
        episodes = list(trajectories.read_episodes(good))
        metrics = _train(learner, episodes, baselines, step=iteration, lr_scale=ledger.lr_scale)
        _save(learner, made, iteration, [(iteration, metrics)], baselines)

    inputs = {
        "checkpoint": state.checkpoint,
        "optimizer": state.optimizer,
        "reference": state.cold_start,
        "ledger": state.ledger,
        **{f"turns-{i:02d}": p for i, p in enumerate(shards)},
    }
    _record_learning("learn", config, iteration, run, inputs, made, body, with_shards=False)
    return made


def segment(config: RunConfig, state: State, *, run: Path) -> Learned:
    """Take all rollout-update steps of the next iteration in one process, on-policy; the same as one step at a time."""
    from spiral_lib import engines
    from spiral_lib.learner.update import Learner

    set_threads(config)
    iteration, per, num_shards = state.iteration + 1, config.rollout.steps_per_iteration, config.rollout.shards
    made = _learned(run, iteration, tuple(shard_path(run, iteration, i) for i in range(per * num_shards)))

    def body() -> None:
        ledger = Ledger.from_json(state.ledger.read_text())
        baselines = _baselines(config, ledger)
        learner = Learner(state.checkpoint, state.cold_start, config, state.optimizer)
        history: list[tuple[int, dict[str, float]]] = []
        with opened_policies(config, state) as table:
            for s in range(per):
                step, start = (iteration - 1) * per + s + 1, time.monotonic()
                paths = made.shards[s * num_shards : (s + 1) * num_shards]
                for shard, path in enumerate(paths):
                    episodes = _play(config, table, step=step, shard=shard)
                    _write(episodes, path, config, run=run, iteration=iteration, step=step, shard=s * num_shards + shard)
                good = check(config, paths, run=run, full=s == per - 1)
                played = list(trajectories.read_episodes(good))
                history.append((step, _train(learner, played, baselines, step=step, lr_scale=ledger.lr_scale)))
                engines.reload(table.engine, learner.state_dict(), _weights_digest(learner))
                _log_step(step, config, history[-1][1], time.monotonic() - start)
        _save(learner, made, iteration, history, baselines)

    inputs = {
        "checkpoint": state.checkpoint,
        "optimizer": state.optimizer,
        "reference": state.cold_start,
        "ledger": state.ledger,
        **{f"opponent-{i}": p for i, p in enumerate(state.opponents)},
    }
    _record_learning("segment", config, iteration, run, inputs, made, body, with_shards=True)
    return made


def evaluate(config: RunConfig, checkpoint: Path, cold_start: Path, *, iteration: int, run: Path) -> Path:
    """Measure a checkpoint outside self-play; return the evaluation as JSON."""
    from spiral_lib import evaluation

    set_threads(config)
    out = run / "evaluations" / f"{iteration:04d}.json"

    def body() -> None:
        made = evaluation.evaluate(checkpoint, cold_start=cold_start, config=config, iteration=iteration)
        durable.write_text(out, made.to_json())

    lineage.run_step(
        f"evaluate-{iteration:04d}",
        run=run,
        order=iteration,
        inputs={"checkpoint": checkpoint, "cold_start": cold_start},
        values={"iteration": iteration},
        config=config,
        outputs={"evaluation": out},
        body=body,
    )
    return out


def decide(config: RunConfig, state: State, learned: Learned, scores: Path | None, *, run: Path) -> State:
    """Let the gate choose what to go on with, snapshot the pool, and bring ledger, metrics and report up to date.

    Without scores (an iteration that is not evaluated) the candidate is carried on and the champion stays.
    Raises SpiralError when the gate halts the run; everything up to here is kept.
    """
    iteration = state.iteration + 1
    ledger_path = run / "ledgers" / f"{iteration:04d}.json"
    inputs = {
        "candidate": learned.checkpoint,
        "training": learned.training,
        "ledger": state.ledger,
        "champion_scores": state.champion_scores,
        "cold_start_scores": state.cold_start_scores,
    }
    if scores is not None:
        inputs["scores"] = scores

    def body() -> None:
        durable.write_text(ledger_path, _decide(config, state, learned, scores).to_json())

    lineage.run_step(
        f"decide-{iteration:04d}",
        run=run,
        order=iteration,
        inputs=inputs,
        values={},
        config=config,
        outputs={"ledger": ledger_path},
        body=body,
    )
    ledger = Ledger.from_json(ledger_path.read_text())
    _sample_matches(learned, iteration, run)
    _publish(config, ledger, run)
    last = ledger.decisions[-1] if ledger.decisions and ledger.decisions[-1].iteration == iteration else None
    if last is not None:
        log.info("iteration %d: %s (%s)", iteration, last.decision, "; ".join(last.reasons))
    if ledger.notes.get("halted") == iteration:
        assert last is not None
        raise SpiralError(
            f"the gate halted the run at iteration {iteration}: {'; '.join(last.reasons)}. "
            f"The champion is iteration {ledger.champion.iteration if ledger.champion else 0}; see {run / 'report.html'}"
        )
    return _next_state(config, state, learned, scores, ledger, ledger_path, run)


def _decide(config: RunConfig, state: State, learned: Learned, scores: Path | None) -> Ledger:
    """Return the ledger after this iteration."""
    iteration = state.iteration + 1
    before = Ledger.from_json(state.ledger.read_text())
    training = json.loads(learned.training.read_text())
    grad_norms = (*before.grad_norms, *(float(g) for g in training["grad_norms"]))
    after = dataclasses.replace(before, iteration=iteration, baselines=training["baselines"], grad_norms=grad_norms)
    if scores is None:
        return _with_snapshot(config, after, learned.checkpoint, iteration)
    candidate = Evaluation.from_json(scores.read_text())
    verdict = gates.decide(
        candidate=candidate,
        champion=Evaluation.from_json(state.champion_scores.read_text()),
        cold_start=Evaluation.from_json(state.cold_start_scores.read_text()),
        ledger=before,
        training=training["metrics"],
        config=config,
    )
    record = DecisionRecord(
        iteration=iteration, decision=verdict.decision, reasons=verdict.reasons, alarms=verdict.alarms
    )
    after = dataclasses.replace(
        after,
        evaluations=(*before.evaluations, EvaluationRecord(iteration=iteration, metrics=candidate.metrics)),
        decisions=(*before.decisions, record),
        holds=before.holds + 1 if verdict.decision is Decision.HOLD else 0,
    )
    if verdict.halt:
        after = dataclasses.replace(after, notes={**after.notes, "halted": iteration})
    if verdict.decision is Decision.ROLLBACK:
        note = f"lr_scale {after.lr_scale * ROLLBACK_LR:g} after the rollback"
        return dataclasses.replace(
            after,
            lr_scale=after.lr_scale * ROLLBACK_LR,
            grad_norms=before.grad_norms,
            notes={**after.notes, f"iteration {iteration}": note},
        )
    if verdict.decision is Decision.ACCEPT:
        identity = checkpoints.read_manifest(learned.checkpoint).id
        champion = Champion(iteration=iteration, checkpoint=identity, metrics=candidate.metrics)
        after = dataclasses.replace(after, champion=champion)
    return _with_snapshot(config, after, learned.checkpoint, iteration)


def _with_snapshot(config: RunConfig, ledger: Ledger, checkpoint: Path, iteration: int) -> Ledger:
    """Add the candidate to the pool when a snapshot is due; a policy that was rolled back never enters it."""
    if iteration % config.opponents.snapshot_every:
        return ledger
    identity = checkpoints.read_manifest(checkpoint).id
    entry = PoolEntry(id=identity, iteration=iteration, digest=identity)
    pool = opponents.OpponentPool(entries=ledger.pool).add(entry).retained(config.opponents)
    return dataclasses.replace(ledger, pool=pool.entries)


def _next_state(
    config: RunConfig, state: State, learned: Learned, scores: Path | None, ledger: Ledger, ledger_path: Path, run: Path
) -> State:
    iteration = state.iteration + 1
    decision = ledger.decisions[-1].decision if scores is not None else None
    known = {checkpoints.read_manifest(p).id: p for p in state.opponents}
    folders = []
    for entry in ledger.pool:
        source = known.get(entry.id, learned.checkpoint)
        folders.append(_pool_folder(source, run / "pool" / f"{entry.iteration:04d}-{entry.id[:12]}"))
    for path in (run / "pool").glob("*"):
        if path not in folders:
            shutil.rmtree(path)
    rolled_back, accepted = decision is Decision.ROLLBACK, decision is Decision.ACCEPT
    optimizer = learned.optimizer
    if rolled_back:
        optimizer = run / "optimizer" / f"{iteration:04d}-fresh"
        _fresh_optimizer(optimizer)
    return State(
        iteration=iteration,
        checkpoint=state.champion if rolled_back else learned.checkpoint,
        optimizer=optimizer,
        champion=learned.checkpoint if accepted else state.champion,
        champion_scores=scores if accepted and scores is not None else state.champion_scores,
        cold_start=state.cold_start,
        cold_start_scores=state.cold_start_scores,
        opponents=tuple(folders),
        ledger=ledger_path,
    )


def _pool_folder(source: Path, target: Path) -> Path:
    """Return a pool snapshot: hard links where the file system has them, so that it costs no disk."""
    if source == target or target.is_dir():
        return target
    with durable.new_folder(target) as folder:
        for name in durable.list_files(source):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(source / name, folder / name)
            except OSError:
                shutil.copy2(source / name, folder / name)
    return target


def check(config: RunConfig, shards: Sequence[Path], *, run: Path, full: bool) -> list[Path]:
    """Return the shards that pass the quality gate; bad ones move to ``quarantine/`` with their reasons.

    Raises DataQualityError with the reasons when more than the allowed share is bad.
    """
    report = quality.check(list(shards), planned=config.rollout.matches, config=config, full=full)
    if report.ok:
        return list(shards)
    bad = {Path(p): reasons for p, reasons in report.bad_shards.items()}
    for path, reasons in bad.items():
        quality.quarantine(path, reasons, run / "quarantine")
    good = [p for p in shards if p not in bad]
    if not bad or not good or len(bad) > config.rollout.max_bad_shards * len(shards):
        reasons = "; ".join(report.failures) or "; ".join(r for rs in bad.values() for r in rs)
        raise DataQualityError(f"{len(bad)} of {len(shards)} shards are bad, see {run / 'quarantine'}: {reasons}")
    log.warning("%d of %d shards quarantined: %s", len(bad), len(shards), "; ".join(report.failures))
    return good


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyTable:
    """The policies of a rollout by their text form, and the learner's own engine."""

    by_ref: Mapping[str, Policy]
    engine: Engine
    pool: tuple[str, ...]


@contextlib.contextmanager
def opened_policies(config: RunConfig, state: State) -> Iterator[PolicyTable]:
    """Open the learner's engine and one per pool opponent; close them all at the end."""
    from spiral_lib import engines

    with contextlib.ExitStack() as stack:
        renderer = Renderer(checkpoints.load_tokenizer(state.checkpoint), config.prompt)
        engine = engines.make(config.rollout.engine, state.checkpoint, config)
        stack.callback(engine.close)
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
            table[str(ref)] = policies.make(ref, engine=other, max_new_tokens=budget, **common)
            pool.append(ref.locator)
        for name in ("random", "optimal"):
            if getattr(config.opponents, name) > 0:
                table[name] = policies.make(PolicyRef.parse(name))
        yield PolicyTable(by_ref=table, engine=engine, pool=tuple(pool))


def _play(config: RunConfig, table: PolicyTable, *, step: int, shard: int) -> list[Episode]:
    plan = rollout.plan_matches(config, step=step, pool=table.pool)
    specs: list[MatchSpec] = rollout.shard_of(plan, shard, config.rollout.shards)
    episodes = rollout.play_matches(specs, table.by_ref, concurrency=config.rollout.concurrency)
    return sorted(episodes, key=lambda e: e.id)


def _write(
    episodes: Sequence[Episode], path: Path, config: RunConfig, *, run: Path, iteration: int, step: int, shard: int
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

    return {**reasoning.metrics(episodes), **learner.step(episodes, baselines, step=step, lr_scale=lr_scale)}


def _save(
    learner: Learner,
    made: Learned,
    iteration: int,
    history: Sequence[tuple[int, Mapping[str, float]]],
    baselines: RoleBaselines,
) -> None:
    learner.save(made.checkpoint, iteration=iteration)
    learner.save_optimizer(made.optimizer)
    durable.write_text(made.training, _training_json(history, average(m for _, m in history), baselines))


def average(rows: Iterator[Mapping[str, float]] | Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of every metric over the rows that have it, ignoring nan."""
    values: dict[str, list[float]] = {}
    for row in rows:
        for name, value in row.items():
            if math.isfinite(value):
                values.setdefault(name, []).append(value)
    return {name: sum(v) / len(v) for name, v in sorted(values.items())}


def _training_json(
    history: Sequence[tuple[int, Mapping[str, float]]], metrics: Mapping[str, float], baselines: RoleBaselines
) -> str:
    content = {
        "metrics": {k: v for k, v in metrics.items() if math.isfinite(v)},
        "steps": [{"step": s, "metrics": {k: v for k, v in m.items() if math.isfinite(v)}} for s, m in history],
        "grad_norms": [m["learner/grad_norm"] for _, m in history if math.isfinite(m.get("learner/grad_norm", math.nan))],
        "baselines": json.loads(baselines.to_json())["values"],
    }
    return json.dumps(content, sort_keys=True, allow_nan=False)


def _baselines(config: RunConfig, ledger: Ledger) -> RoleBaselines:
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
        f"{name}-{iteration:04d}",
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


def _fresh_optimizer(folder: Path) -> None:
    """Make an optimizer state without moments: an empty folder but for a note, so that it has a hash."""
    with durable.new_folder(folder) as temporary:
        (temporary / "empty.json").write_text('{"moments": "none"}')


def _weights_digest(learner: Learner) -> str:
    import hashlib

    digest = hashlib.sha256()
    for name, tensor in sorted(learner.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(-1).numpy().tobytes())
    return digest.hexdigest()


def _publish(config: RunConfig, ledger: Ledger, run: Path) -> None:
    """Rewrite ledger.json, metrics.jsonl, steps.jsonl and the report from the immutable files of all iterations."""
    from spiral_lib import report

    durable.write_text(run / "ledger.json", ledger.to_json())
    evaluations = {e.iteration: e.metrics for e in ledger.evaluations}
    decisions = {d.iteration: d.decision for d in ledger.decisions}
    code = {Decision.ACCEPT: 1.0, Decision.HOLD: 0.0, Decision.ROLLBACK: -1.0}
    lines, steps = [], []
    for iteration in range(ledger.iteration + 1):
        training = json.loads((run / "training" / f"{iteration:04d}.json").read_text())
        metrics = {**training["metrics"], **evaluations.get(iteration, {})}
        if iteration in decisions:
            metrics["gate/decision"] = code[decisions[iteration]]
        lines.append(json.dumps({"iteration": iteration, "metrics": metrics}, sort_keys=True))
        steps += [json.dumps(s, sort_keys=True) for s in training["steps"]]
    durable.write_text(run / "metrics.jsonl", "\n".join(lines) + "\n")
    durable.write_text(run / "steps.jsonl", "".join(f"{s}\n" for s in steps))
    report.write(run)


def _sample_matches(learned: Learned, iteration: int, run: Path) -> None:
    """Keep a few matches for the report: the first finished, the first forfeited and the longest of the last shard."""
    path = run / "samples.json"
    kept = [s for s in (json.loads(path.read_text()) if path.is_file() else []) if s["iteration"] != iteration]
    episodes = list(trajectories.read_episodes([learned.shards[-1]])) if learned.shards[-1].is_file() else []
    chosen: dict[str, Episode] = {}
    for test in (lambda e: e.forfeited_by is None, lambda e: e.forfeited_by is not None):
        found = next((e for e in episodes if test(e)), None)
        if found is not None:
            chosen[found.id] = found
    if episodes:
        longest = max(episodes, key=lambda e: sum(len(t.response_ids) for t in e.turns))
        chosen[longest.id] = longest
    kept += [_sample(e, iteration) for e in list(chosen.values())[:SAMPLES_PER_ITERATION]]
    durable.write_text(path, json.dumps(kept))


def _sample(episode: Episode, iteration: int) -> dict[str, Any]:
    turns = [
        {"role": t.role, "policy": t.policy, "legal": t.legal, "observation": t.observation, "text": t.text}
        for t in episode.turns
    ]
    return {
        "iteration": iteration,
        "game": episode.game,
        "episode": episode.id,
        "end_reason": episode.end_reason.value,
        "returns": list(episode.returns),
        "turns": turns,
    }


def _log_step(step: int, config: RunConfig, metrics: Mapping[str, float], seconds: float) -> None:
    total = config.iterations * config.rollout.steps_per_iteration
    log.info(
        "step %d of %d: %.1f s, invalid %.1f %%, %.1f tokens a reply, KL %.3f, gradient %.2f; about %.0f s of steps left",
        step,
        total,
        seconds,
        100 * metrics.get("rollout/invalid_rate", math.nan),
        metrics.get("rollout/response_tokens", math.nan),
        metrics.get("learner/kl", math.nan),
        metrics.get("learner/grad_norm", math.nan),
        max(0, total - step) * seconds,
    )


def set_threads(config: RunConfig) -> None:
    """Fix the number of torch threads, on which the last bits of every result depend."""
    import torch

    torch.set_num_threads(config.threads)
