"""The last step of an iteration: the gate's decision, the pool snapshot, and the state to go on with.

accept: the candidate becomes the champion. hold: training goes on from the candidate, the champion stays. rollback:
training goes on from the champion with fresh AdamW moments and half the learning rate. Learning is not monotone, so
holding does not throw weights away; only a clear loss or a collapse does.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from spiral_lib import checkpoints, duel_bank, durable, gates, lineage, publish
from spiral_lib.config import RunConfig
from spiral_lib.errors import CheckpointError, SpiralError
from spiral_lib.ledger import Champion, DecisionRecord, EvaluationRecord, Ledger, PoolEntry
from spiral_lib.opponents import OpponentPool
from spiral_lib.state import Learned, State, write_state
from spiral_lib.types import Decision, Evaluation

log = logging.getLogger(__name__)

ROLLBACK_LR = 0.5


def decide(config: RunConfig, state: State, learned: Learned, scores: Path | None, *, run: Path) -> State:
    """Let the gate choose what to go on with, snapshot the pool, and bring ledger, metrics and report up to date.

    Without scores (an iteration that is not evaluated) the candidate is carried on and the champion stays, unless its
    training raises a collapse alarm.
    Raises SpiralError when the gate halts the run; everything up to here is kept.
    """
    iteration = state.iteration + 1
    ledger_path = publish.ledger_path(run, iteration)
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
        "decide",
        run=run,
        order=iteration,
        inputs=inputs,
        values={},
        config=config,
        outputs={"ledger": ledger_path},
        body=body,
    )
    ledger = Ledger.from_json(ledger_path.read_text())
    pool = _pool_paths(ledger, state, learned)
    past = publish.is_past(ledger, run)  # the run was asked for fewer iterations than it has: nothing is rewound
    if not past:
        _link_pool(ledger, pool, run / "pool")
        for shard in learned.shards[-1:]:
            publish.sample_matches(shard, iteration, run)
        publish.publish(ledger, run)
    decision = _decision_of(ledger, iteration)
    if decision is not None:
        log.info("iteration %d: %s; %s", iteration, decision.decision, "; ".join(decision.reasons))
    if decision is not None and ledger.notes.get("halted") == iteration:
        champion = ledger.champion.iteration if ledger.champion else 0
        raise SpiralError(
            f"the gate halted the run at iteration {iteration}: {'; '.join(decision.reasons)}. "
            f"The champion is iteration {champion}; see {run / 'report.html'}. "
            "gates.on_collapse=rollback would go on from it"
        )
    after = _next_state(state, learned, scores, decision, ledger_path, pool)
    folders = (after.checkpoint, after.champion, after.cold_start)
    if not past and all(p.resolve().is_relative_to(run.resolve()) for p in folders):
        write_state(after, run)
    return after


def _decide(config: RunConfig, state: State, learned: Learned, scores: Path | None) -> Ledger:
    """Return the ledger after this iteration."""
    iteration = state.iteration + 1
    before = Ledger.from_json(state.ledger.read_text())
    training = json.loads(learned.training.read_text())
    after = dataclasses.replace(
        before,
        iteration=iteration,
        baselines=training["baselines"],
        grad_norms=(*before.grad_norms, *(float(g) for g in training["grad_norms"])),
        known_problems=duel_bank.merged(before.known_problems, training.get("problems", {})),
    )
    candidate = None if scores is None else Evaluation.from_json(scores.read_text())
    verdict = _verdict(config, state, before, training["metrics"], candidate)
    if verdict is None:
        return _with_snapshot(config, after, learned.checkpoint, iteration)
    metrics = {} if candidate is None else candidate.metrics
    measured = () if candidate is None else (EvaluationRecord(iteration=iteration, metrics=metrics),)
    record = DecisionRecord(
        iteration=iteration, decision=verdict.decision, reasons=verdict.reasons, alarms=verdict.alarms
    )
    after = dataclasses.replace(
        after,
        evaluations=(*before.evaluations, *measured),
        decisions=(*before.decisions, record),
        holds=before.holds + 1 if verdict.decision is Decision.HOLD else 0,
        notes={**before.notes, "halted": iteration} if verdict.halt else before.notes,
    )
    if verdict.decision is Decision.ROLLBACK:
        return _rolled_back(after, before, iteration)
    if verdict.decision is Decision.ACCEPT:
        identity = checkpoints.read_manifest(learned.checkpoint).id
        accepted = Champion(iteration=iteration, checkpoint=identity, metrics=metrics)
        after = dataclasses.replace(after, champion=accepted)
    return _with_snapshot(config, after, learned.checkpoint, iteration)


def _verdict(
    config: RunConfig, state: State, ledger: Ledger, training: Mapping[str, float], candidate: Evaluation | None
) -> gates.GateDecision | None:
    cold_start, seen = Evaluation.from_json(state.cold_start_scores.read_text()), _comparable(training, config)
    if candidate is None:
        return gates.watch(cold_start=cold_start, ledger=ledger, training=seen, config=config)
    return gates.decide(
        candidate=candidate,
        champion=Evaluation.from_json(state.champion_scores.read_text()),
        cold_start=cold_start,
        ledger=ledger,
        training=seen,
        config=config,
    )


def _comparable(training: Mapping[str, float], config: RunConfig) -> Mapping[str, float]:
    """Return the training metrics that say something beside the cold start's play: on other routes no reply does."""
    if config.route == "self_play":
        return training
    return {name: value for name, value in training.items() if name.startswith("learner/")}


def _rolled_back(after: Ledger, before: Ledger, iteration: int) -> Ledger:
    """Slow the learner down, and forget the gradient norms of what was given up."""
    scale = before.lr_scale * ROLLBACK_LR
    note = f"rolled back to the champion, learning rate times {scale:g}"
    notes = {**after.notes, f"iteration {iteration}": note}
    return dataclasses.replace(after, lr_scale=scale, grad_norms=before.grad_norms, notes=notes)


def _with_snapshot(config: RunConfig, ledger: Ledger, checkpoint: Path, iteration: int) -> Ledger:
    """Add the candidate to the pool when a snapshot is due; a policy that was rolled back never enters it."""
    if iteration % config.opponents.snapshot_every:
        return ledger
    identity = checkpoints.read_manifest(checkpoint).id
    entry = PoolEntry(id=identity, iteration=iteration, digest=identity)
    pool = OpponentPool(entries=ledger.pool).add(entry).retained(config.opponents)
    return dataclasses.replace(ledger, pool=pool.entries)


def _decision_of(ledger: Ledger, iteration: int) -> DecisionRecord | None:
    found = [d for d in ledger.decisions if d.iteration == iteration]
    return found[0] if found else None


def _pool_paths(ledger: Ledger, state: State, learned: Learned) -> tuple[Path, ...]:
    known = {checkpoints.read_manifest(p).id: p for p in (*state.opponents, learned.checkpoint)}
    return tuple(known[entry.id] for entry in ledger.pool)


def _link_pool(ledger: Ledger, pool: Sequence[Path], folder: Path) -> None:
    """Show the pool as a folder of snapshots: hard links where the file system has them, so that it costs no disk."""
    entries = {f"{e.iteration:04d}-{e.id[:12]}": (e.id, path) for e, path in zip(ledger.pool, pool, strict=True)}
    for old in folder.glob("*"):
        if old.name not in entries:
            shutil.rmtree(old)
    for name, (identity, source) in entries.items():
        if not _is_snapshot(folder / name, identity):
            durable.link_folder(source, folder / name)


def _is_snapshot(folder: Path, identity: str) -> bool:
    """Return whether a folder holds a checkpoint whole; a damaged one is linked again."""
    try:
        return checkpoints.verify(folder).id == identity
    except CheckpointError:
        return False


def _next_state(
    state: State,
    learned: Learned,
    scores: Path | None,
    decision: DecisionRecord | None,
    ledger_path: Path,
    pool: tuple[Path, ...],
) -> State:
    kind = decision.decision if decision is not None else None
    after = dataclasses.replace(
        state,
        iteration=state.iteration + 1,
        checkpoint=learned.checkpoint,
        optimizer=learned.optimizer,
        opponents=pool,
        ledger=ledger_path,
    )
    if kind is Decision.ROLLBACK:
        return dataclasses.replace(after, checkpoint=state.champion, optimizer=None)
    if kind is Decision.ACCEPT:
        assert scores is not None
        return dataclasses.replace(after, champion=learned.checkpoint, champion_scores=scores)
    return after
