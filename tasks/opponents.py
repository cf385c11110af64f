"""The gate and the opponent pool: which state the run goes on with."""


import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flytekit import Deck, FlyteContextManager, task
from flytekit.types.directory import FlyteDirectory
from flytekit.types.file import FlyteFile

from spiral_lib import config as configs
from spiral_lib import deciding, report, retention
from spiral_lib import state as paths
from spiral_lib.config import RunConfig
from spiral_lib.expired import Tombstone
from tasks.config import user_errors
from tasks.resources import CACHE_VERSION, CPU_IMAGE, SITE, SMALL
from tasks.types import Learned, Scores, TrainState, file, history, is_remote, local, paths_of, placed, run_folder


@task(
    container_image=CPU_IMAGE,
    requests=SMALL,
    environment=SITE,
    cache=True,
    cache_version=CACHE_VERSION,
    enable_deck=True,
    deck_fields=(),
)
def decide(state: TrainState, learned: Learned, scores: Scores | None, config: str, out: str) -> TrainState:
    """Accept, hold or roll back the candidate; snapshot the pool; bring ledger, metrics and report up to date."""
    with user_errors(out), run_folder(out, CPU_IMAGE) as run:
        settings = configs.from_text(config)
        if is_remote(out):
            _bring_history(state, learned, scores, run)
        waiting = _due(settings, run, out, before=state.iteration + 1)
        before = paths_of(state, run, out)
        candidate = paths.Learned(
            checkpoint=placed(learned.checkpoint, run, out),
            optimizer=placed(learned.optimizer, run, out),
            training=placed(learned.training, run, out),
            shards=tuple(placed(s, run, out) for s in learned.shards[-1:]),
        )
        evaluation = placed(scores.evaluation, run, out) if scores is not None else None
        after = deciding.decide(settings, before, candidate, evaluation, run=run)
        Deck("SPIRAL", report.body(report.read(run)))
        known = _known_items(state, learned, scores, before, candidate, evaluation)
        kept = {
            "checkpoint": known[after.checkpoint],
            "optimizer": None if after.optimizer is None else learned.optimizer,
            "champion": known[after.champion],
            "champion_scores": known[after.champion_scores],
            "cold_start": state.cold_start,
            "cold_start_scores": state.cold_start_scores,
        }
        opponents = [known[o] for o in after.opponents]
        if is_remote(out):
            _write_state(run, after, kept, opponents)
            _expire(run, out, waiting, _due(settings, run, out, before=after.iteration))
        else:
            retention.tidy(settings, run, after.iteration)
        return TrainState(
            iteration=after.iteration,
            **kept,
            opponents=opponents,
            ledger=file(after.ledger, run, out),
            history=history(run, out, after.iteration),
            replies=None if scores is None else scores.replies,
        )


def _due(config: RunConfig, run: Path, out: str, *, before: int) -> list[Tombstone]:
    """Return what the state in the run folder lets go in the store, of what was made before an iteration."""
    rule = retention.Rule.of(config)
    return [] if rule is None or "://" not in out else retention.due_in_store(run, rule, out, before=before)


def _expire(run: Path, out: str, before: Sequence[Tombstone], after: Sequence[Tombstone]) -> None:
    """Delete in the store what neither the state before nor the one after this iteration needs."""
    paths = {tombstone.path for tombstone in before}
    if gone := [tombstone for tombstone in after if tombstone.path in paths]:
        files = FlyteContextManager.current_context().file_access.get_filesystem_for_path(out)
        retention.expire_in_store(run, gone, files, out)


def _write_state(run: Path, after: paths.State, kept: dict[str, Any], opponents: list[FlyteDirectory]) -> None:
    """Name in ``state.json`` where in the store everything lies that a later run needs; the ledger lies beside it."""
    places = {name: None if item is None else str(item.remote_source) for name, item in kept.items()}
    places["ledger"] = after.ledger.relative_to(run).as_posix()
    urls = [str(o.remote_source) for o in opponents]
    paths.write_places(run, iteration=after.iteration, places=places, opponents=urls)


def _known_items(
    state: TrainState,
    learned: Learned,
    scores: Scores | None,
    before: paths.State,
    candidate: paths.Learned,
    evaluation: Path | None,
) -> dict[Path, Any]:
    """Return the typed item of every local path that came in, so that nothing unchanged is uploaded again."""
    known: dict[Path, FlyteDirectory | FlyteFile] = {
        **dict(zip(before.opponents, state.opponents, strict=True)),
        before.champion: state.champion,
        before.champion_scores: state.champion_scores,
        candidate.checkpoint: learned.checkpoint,
    }
    if scores is not None and evaluation is not None:
        known[evaluation] = scores.evaluation
    return known


def _bring_history(state: TrainState, learned: Learned, scores: Scores | None, run: Path) -> None:
    """Lay the small files of all earlier iterations, and this one's, into a fresh run folder."""
    shutil.copytree(local(state.history), run, dirs_exist_ok=True)
    iteration = state.iteration + 1
    targets = {run / "training" / f"{iteration:04d}.json": learned.training}
    if scores is not None:
        targets[run / "evaluations" / f"{iteration:04d}.json"] = scores.evaluation
    for target, item in targets.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(local(item), target)
    for record in [*learned.records, *([scores.record] if scores is not None else [])]:
        source = local(record)
        shutil.copyfile(source, run / "lineage" / source.name)
