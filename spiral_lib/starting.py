"""The first step of a run: a fresh cold start, or the last state of an earlier run."""

from __future__ import annotations

import dataclasses
import logging
import shutil
from pathlib import Path

from spiral_lib import checkpoints, durable, lineage, preflight, publish
from spiral_lib.config import RunConfig, config_hash, dump_yaml, from_text, rewards_text
from spiral_lib.errors import ConfigError, SpiralError
from spiral_lib.ledger import Champion, EvaluationRecord, Ledger, RewardChange
from spiral_lib.rae import RoleBaselines
from spiral_lib.state import State, read_state, write_state
from spiral_lib.steps import baselines_of, evaluate, set_threads, training_json
from spiral_lib.types import Evaluation

log = logging.getLogger(__name__)


def open_run(config: RunConfig, run: Path, *, resume_from: Path | None = None) -> None:
    """Create the run folder with its resolved configuration, once it is clear that the run can begin, and claim it.

    Raises ConfigError where another run or another process lives in the folder, LineageError where ``resume_from`` is
    no run folder, and what ``preflight`` raises; the disk is untouched then.
    """
    preflight.check(config, fresh=resume_from is None)
    if resume_from is not None:
        if resume_from.resolve() == run.resolve():
            raise ConfigError(f"'{run}' cannot resume from itself; leave --resume_from out to continue it")
        _check_reward_change(config, Ledger.from_json(read_state(resume_from).ledger.read_text()))
    written = run / "config.yaml"
    try:
        if written.is_file():
            require_same(config, written.read_text(encoding="utf-8", errors="replace"), str(run))
        elif run.exists() and any(p.name != durable.LOCK for p in run.iterdir()):
            raise ConfigError(f"'{run}' is not empty and not a run folder; choose another folder with --out")
        run.mkdir(parents=True, exist_ok=True)
        durable.claim(run)
        durable.write_text(written, dump_yaml(config))
    except OSError as error:
        raise ConfigError(f"cannot write to '{run}': {error}; choose another folder with --out") from error


def require_same(config: RunConfig, written: str, where: str) -> None:
    """Raise ConfigError unless the configuration written in a run's folder is this one, but for the iterations."""
    try:
        same = config_hash(from_text(written)) == config_hash(config)
    except ConfigError:
        same = False
    if not same:
        raise ConfigError(
            f"'{where}' holds a run with another configuration; choose another folder with --out, "
            "or use the same preset, config and overrides to continue it"
        )


def cold_start(config: RunConfig, run: Path) -> State:
    """Make iteration 0: fetch or train the cold start, pass its gate, evaluate it."""
    from spiral_lib import cold_start as cold

    set_threads(config)
    checkpoint, training = run / "checkpoints" / "0000", run / "training" / "0000.json"

    def body() -> None:
        figures = cold.make(config, checkpoint)
        durable.write_text(training, training_json((), figures, RoleBaselines(config.rae.decay)))

    outputs = {"checkpoint": checkpoint, "training": training}
    try:
        lineage.run_step(
            "cold_start", run=run, order=0, inputs={}, values={}, config=config, outputs=outputs, body=body
        )
    except SpiralError:
        _forget_unbegun(run)
        raise
    scores = evaluate(config, checkpoint, checkpoint, iteration=0, run=run)
    ledger_path = publish.ledger_path(run, 0)

    def begin() -> None:
        metrics = Evaluation.from_json(scores.read_text()).metrics
        identity = checkpoints.read_manifest(checkpoint).id
        ledger = Ledger(
            champion=Champion(iteration=0, checkpoint=identity, metrics=metrics),
            evaluations=(EvaluationRecord(iteration=0, metrics=metrics),),
            rewards=rewards_text(config),
        )
        durable.write_text(ledger_path, ledger.to_json())

    inputs, outputs = {"checkpoint": checkpoint, "scores": scores}, {"ledger": ledger_path}
    lineage.run_step("begin", run=run, order=0, inputs=inputs, values={}, config=config, outputs=outputs, body=begin)
    ledger = Ledger.from_json(ledger_path.read_text())
    publish.publish(ledger, run)
    state = State(
        iteration=0,
        checkpoint=checkpoint,
        optimizer=None,
        champion=checkpoint,
        champion_scores=scores,
        cold_start=checkpoint,
        cold_start_scores=scores,
        opponents=(),
        ledger=ledger_path,
    )
    if not publish.is_past(ledger, run):
        write_state(state, run)
    return state


def _forget_unbegun(run: Path) -> None:
    """Remove a run folder that holds nothing but its configuration: a refused run leaves nothing behind."""
    begun = {p.name for p in run.iterdir()} - {"config.yaml", "checkpoints", durable.LOCK}
    if not begun and not any((run / "checkpoints").glob("*")):
        shutil.rmtree(run)


def adopt(config: RunConfig, earlier: State, run: Path) -> State:
    """Begin a run where an earlier one ended: its checkpoints, optimizer, pool and ledger become iteration 0.

    The earlier run's cold start stays the reference for KL and gate. Weights are linked, not copied, where they can be.
    Under another reward configuration the adopted checkpoint is evaluated first: the gate holds what comes after to
    that bank. Raises CheckpointError where a checkpoint is damaged, ConfigError where that bank is switched off.
    """
    sources = {
        "checkpoint": earlier.checkpoint,
        "champion": earlier.champion,
        "cold_start": earlier.cold_start,
        "champion_scores": earlier.champion_scores,
        "cold_start_scores": earlier.cold_start_scores,
        "ledger": earlier.ledger,
        **{f"opponent-{i:02d}": p for i, p in enumerate(earlier.opponents)},
    }
    if earlier.optimizer is not None:
        sources["optimizer"] = earlier.optimizer
    places = {name: run / "adopted" / (name if path.is_dir() else f"{name}.json") for name, path in sources.items()}
    training = run / "training" / "0000.json"
    is_changed = _check_reward_change(config, Ledger.from_json(earlier.ledger.read_text()))

    def body() -> None:
        for name, path in sources.items():
            if name == "ledger":
                durable.write_text(places[name], _begun_anew(Ledger.from_json(path.read_text())).to_json())
            elif path.is_dir():
                if name != "optimizer":
                    checkpoints.verify(path)
                durable.link_folder(path, places[name])
            else:
                durable.write_text(places[name], path.read_text())
        baselines = baselines_of(config, Ledger.from_json(places["ledger"].read_text()))
        durable.write_text(training, training_json((), {}, baselines))

    lineage.run_step(
        "adopt",
        run=run,
        order=0,
        inputs={f"earlier-{name}": path for name, path in sources.items()},
        values={},
        config=config,
        outputs={**places, "training": training},
        body=body,
        sources=[f"earlier-{name}" for name in sources],
    )
    ledger = _begin_adopted(config, places, run, is_changed=is_changed)
    state = State(
        iteration=0,
        checkpoint=places["checkpoint"],
        optimizer=places.get("optimizer"),
        champion=places["champion"],
        champion_scores=places["champion_scores"],
        cold_start=places["cold_start"],
        cold_start_scores=places["cold_start_scores"],
        opponents=tuple(p for name, p in places.items() if name.startswith("opponent-")),
        ledger=ledger,
    )
    adopted = Ledger.from_json(state.ledger.read_text())
    publish.publish(adopted, run)
    if not publish.is_past(adopted, run):
        write_state(state, run)
    return state


def _check_reward_change(config: RunConfig, earlier: Ledger) -> bool:
    """Return whether the rewards differ from an earlier run's. Raises ConfigError where no bank could compare them."""
    if not earlier.rewards:
        log.warning("the earlier run does not say what rewards it had; they are taken to be the same")
        return False
    if earlier.rewards == rewards_text(config):
        return False
    if config.gates.enabled and not config.evaluation.bank:
        raise ConfigError(
            "rewards differ from those of the earlier run, and the gate compares the bank before and after such a "
            "change: set evaluation.bank=true, or gates.enabled=false to go on without"
        )
    return True


def _begun_anew(earlier: Ledger) -> Ledger:
    """Return what a run takes over of an earlier one's ledger."""
    return dataclasses.replace(
        earlier, iteration=0, evaluations=(), decisions=(), notes={}, holds=0, reward_change=None
    )


def _begin_adopted(config: RunConfig, places: dict[str, Path], run: Path, *, is_changed: bool) -> Path:
    """Write the first ledger of a run that goes on from another one; evaluate first where the rewards changed."""
    out, inputs = publish.ledger_path(run, 0), {"ledger": places["ledger"]}
    if is_changed:
        inputs["scores"] = evaluate(config, places["checkpoint"], places["cold_start"], iteration=0, run=run)

    def begin() -> None:
        ledger, rewards = Ledger.from_json(places["ledger"].read_text()), rewards_text(config)
        if is_changed:
            measured = Evaluation.from_json(inputs["scores"].read_text())
            change = RewardChange(before=ledger.rewards, after=rewards, bank_correct=measured.bank_correct)
            evaluations = (EvaluationRecord(iteration=0, metrics=measured.metrics),)
            ledger = dataclasses.replace(ledger, reward_change=change, evaluations=evaluations)
        durable.write_text(out, dataclasses.replace(ledger, rewards=rewards).to_json())

    outputs = {"ledger": out}
    lineage.run_step(
        "adopt-ledger", run=run, order=0, inputs=inputs, values={}, config=config, outputs=outputs, body=begin
    )
    return out
