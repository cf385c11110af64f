"""Whether the files that a run shows (configuration, ledger, metrics, state, pool) follow from what its steps recorded.

``lineage.audit`` hashes what the step records name. This looks at what no record names, because it is rewritten as the
run goes on, and for records that must be there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from spiral_lib import checkpoints, lineage, publish, strict_yaml
from spiral_lib.config import hash_of
from spiral_lib.errors import LineageError, SpiralError
from spiral_lib.ledger import Ledger
from spiral_lib.lineage import Problem, StepRecord
from spiral_lib.state import read_state

_STALE = "run the command that made the run again to have it rewritten"
_DAMAGES = (SpiralError, OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError)


def problems(run: Path) -> list[Problem]:
    """Return every difference between what a run shows and what its steps made; empty where there is none.

    What has expired by rule is no difference, and neither is an iteration that was stopped before its decision.
    """
    records = lineage.read_sound(run)
    found = _guarded("config.yaml", lambda: _config(run, records))
    found += _guarded("checkpoints", lambda: _unrecorded(run, records))
    try:
        ledger = _newest_ledger(run)
    except _DAMAGES as error:
        return [*found, _problem("ledgers", str(error))]
    found += _guarded("ledger.json", lambda: _ledger(run, ledger))
    found += _guarded("training", lambda: _metrics(run, ledger))
    found += _guarded("state.json", lambda: _state(run, ledger))
    found += _guarded("pool", lambda: _pool(run, ledger))
    return found + _guarded("lineage", lambda: _missing_records(records, ledger))


def _problem(path: str, reason: str) -> Problem:
    return Problem(step="publish", path=path, reason=reason)


def _guarded(path: str, check: Callable[[], Iterator[Problem]]) -> list[Problem]:
    """Return what a check finds; that it cannot read its file is a finding as well."""
    try:
        return list(check())
    except _DAMAGES as error:
        return [_problem(path, f"cannot be read: {error}")]


def _config(run: Path, records: Sequence[StepRecord]) -> Iterator[Problem]:
    # Not through RunConfig: a run stays whole when later code has more settings than it knew.
    written = hash_of(strict_yaml.parse((run / "config.yaml").read_text(encoding="utf-8"), "the configuration"))
    if others := sorted({record.config_hash for record in records} - {written}):
        yield _problem("config.yaml", f"hashes to {written}, the records say {', '.join(others)}")


def _newest_ledger(run: Path) -> Ledger:
    files = {int(p.stem): p for p in (run / "ledgers").glob("*.json") if p.stem.isdecimal()}
    if not files:
        raise LineageError("the run has no ledgers")
    iteration = max(files)
    ledger = Ledger.from_json(files[iteration].read_text(encoding="utf-8"))
    if ledger.iteration != iteration:
        raise LineageError(f"{files[iteration].name} is the ledger of iteration {ledger.iteration}")
    return ledger


def _ledger(run: Path, newest: Ledger) -> Iterator[Problem]:
    path = publish.ledger_path(run, newest.iteration)
    if (run / "ledger.json").read_bytes() != path.read_bytes():
        yield _problem("ledger.json", f"is no copy of ledgers/{path.name}; {_STALE}")


def _metrics(run: Path, ledger: Ledger) -> Iterator[Problem]:
    for name, text in publish.metric_files(ledger, run).items():
        file = run / name
        if not file.is_file():
            yield _problem(name, f"is missing; {_STALE}")
        elif file.read_bytes() != text.encode():
            yield _problem(name, f"does not follow from ledger and training; {_STALE}")


def _state(run: Path, ledger: Ledger) -> Iterator[Problem]:
    state = read_state(run, fetch=lambda url: run)  # what lies in a store is not looked at from here
    is_halted = ledger.notes.get("halted") == ledger.iteration
    if state.iteration != ledger.iteration - is_halted:
        yield _problem("state.json", f"is of iteration {state.iteration}, the ledger of {ledger.iteration}; {_STALE}")
    elif state.ledger.resolve() != publish.ledger_path(run, state.iteration).resolve():
        yield _problem("state.json", f"goes on from '{state.ledger}', not from its iteration's ledger; {_STALE}")
    if ledger.champion is None or state.champion == run:
        return
    if checkpoints.read_manifest(state.champion).id != ledger.champion.checkpoint:
        yield _problem("state.json", f"names a champion that is not {ledger.champion.checkpoint[:12]}; {_STALE}")


def _pool(run: Path, ledger: Ledger) -> Iterator[Problem]:
    entries = {f"{e.iteration:04d}-{e.id[:12]}": e for e in ledger.pool}
    folders = {p.name: p for p in sorted((run / "pool").glob("*")) if not p.name.startswith(".")}
    for name, folder in folders.items():
        if name not in entries:
            yield _problem(f"pool/{name}", "is in no pool of the ledger")
        elif (found := checkpoints.digest_folder(folder)) != entries[name].digest or found != entries[name].id:
            yield _problem(f"pool/{name}", f"hashes to {found[:12]}, the ledger says {entries[name].digest[:12]}")
        elif checkpoints.read_manifest(folder).id != found:
            yield _problem(f"pool/{name}", "has a manifest with another id")
    # A run that goes on from another one shows the pool it took over from its first decision on.
    if ledger.iteration > 0:
        for name in sorted(entries.keys() - folders.keys()):
            yield _problem(f"pool/{name}", f"is missing; {_STALE}")


def _missing_records(records: Sequence[StepRecord], ledger: Ledger) -> Iterator[Problem]:
    present = {(record.order, record.step) for record in records}
    wanted: list[tuple[int, tuple[str, ...]]] = [(0, ("begin", "adopt")), (0, ("begin", "adopt-ledger"))]
    for iteration in range(1, ledger.iteration + 1):
        wanted += [(iteration, ("learn", "segment")), (iteration, ("decide",))]
    wanted += [(evaluation.iteration, ("evaluate",)) for evaluation in ledger.evaluations]
    for order, steps in dict.fromkeys(wanted):
        if not any((order, step) in present for step in steps):
            yield _problem(f"lineage/{order:04d}-{steps[0]}.json", f"there is no record of {' or '.join(steps)}")


def _unrecorded(run: Path, records: Sequence[StepRecord]) -> Iterator[Problem]:
    made = {artifact.path for record in records for artifact in record.outputs.values()}
    for folder in sorted((run / "checkpoints").glob("[0-9]*")):
        if f"checkpoints/{folder.name}" not in made:
            yield _problem(f"checkpoints/{folder.name}", "no step record says where it comes from")
