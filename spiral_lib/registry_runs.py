"""Between runs and the registry: what a run publishes, what it starts from, and how two versions differ."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path

from spiral_lib import ancestry, checkpoints, durable, lineage
from spiral_lib.config import RunConfig, dump_yaml, from_text
from spiral_lib.errors import RegistryError
from spiral_lib.ledger import Ledger
from spiral_lib.lineage import StepRecord
from spiral_lib.registry import Registry
from spiral_lib.registry_types import PREFIX, Attachments, Reference, Version
from spiral_lib.types import Evaluation

EVALUATION, CONFIG, LINEAGE = "evaluation.json", "config.yaml", "lineage.json"


def pin(config: RunConfig) -> RunConfig:
    """Return the configuration with an alias in ``model.source`` replaced by the version it stands at now.

    A run must start from the same weights however often it is continued, and its hash must say which.
    """
    if not config.model.source.startswith(PREFIX):
        return config
    reference = Reference.parse(config.model.source)
    if reference.is_pinned:
        return config
    version = Registry(reference.root).resolve(reference.name, reference.selector)
    pinned = dataclasses.replace(reference, selector=version.id)
    return dataclasses.replace(config, model=dataclasses.replace(config.model, source=str(pinned)))


def require_source(source: str) -> None:
    """Raise RegistryError where a ``registry:`` source names nothing that is published."""
    reference = Reference.parse(source)
    Registry(reference.root).resolve(reference.name, reference.selector)


def fetch_source(source: str, out: Path) -> None:
    """Download the checkpoint that a ``registry:`` source names."""
    reference = Reference.parse(source)
    Registry(reference.root).fetch(reference.name, reference.selector, out)


def of_run(run: Path, iteration: int | None = None) -> tuple[Path, Attachments]:
    """Return a checkpoint of a run, by default its champion, and what is published beside it.

    Raises RegistryError where the run has no such iteration, or where no step of it wrote the checkpoint.
    """
    checkpoint, scores, number = _chosen(run, iteration)
    return checkpoint, attach(run, checkpoint, scores, iteration=number)


def attach(run: Path, checkpoint: Path, scores: Path | None, *, iteration: int) -> Attachments:
    """Return what is published beside a checkpoint; of the run its small files are enough.

    Raises RegistryError where no recorded step wrote the checkpoint.
    """
    records = lineage.read_all(run)
    digest = durable.digest_path(checkpoint)
    hashes = [digest, *([durable.digest_path(scores)] if scores is not None else [])]
    chain = ancestry.ancestors(records, hashes)
    if not any(a.sha256 == digest for r in chain for a in r.outputs.values()):
        raise RegistryError(f"'{checkpoint}' is not what a step of the run wrote; see: spiral audit {run}")
    config = from_text((run / CONFIG).read_text(encoding="utf-8"))
    texts = {CONFIG: dump_yaml(config), LINEAGE: _records_json(chain)}
    metrics: Mapping[str, float] = {}
    if scores is not None:
        evaluation = Evaluation.from_json(scores.read_text(encoding="utf-8"))
        texts[EVALUATION] = evaluation.to_json()
        metrics = {name: value for name, value in evaluation.metrics.items() if math.isfinite(value)}
    return Attachments(texts=texts, metrics=metrics, facts=_facts(config, run, iteration, chain))


def _chosen(run: Path, iteration: int | None) -> tuple[Path, Path | None, int]:
    """Return checkpoint, its evaluation (None: it was not evaluated) and the iteration that made it."""
    if iteration is None:
        try:
            state = json.loads((run / "state.json").read_text(encoding="utf-8"))
            ledger = Ledger.from_json((run / state["ledger"]).read_text(encoding="utf-8"))
        except (OSError, ValueError, KeyError) as error:
            raise RegistryError(f"'{run}' is no run folder with a champion: {error}; give runs/<run>") from error
        number = ledger.champion.iteration if ledger.champion is not None else 0
        return run / state["champion"], run / state["champion_scores"], number
    checkpoint = run / "checkpoints" / f"{iteration:04d}"
    if not checkpoint.is_dir():
        raise RegistryError(f"'{run}' has no checkpoint of iteration {iteration}; leave it out for the champion")
    scores = run / "evaluations" / f"{iteration:04d}.json"
    return checkpoint, scores if scores.is_file() else None, iteration


def _facts(config: RunConfig, run: Path, iteration: int, chain: list[StepRecord]) -> dict[str, str]:
    ledger = Ledger.from_json((run / "ledger.json").read_text(encoding="utf-8"))
    decision = next((d for d in ledger.decisions if d.iteration == iteration), None)
    facts = {
        "preset": config.preset,
        "games": ", ".join(g.name for g in config.games),
        "started from": config.model.source,
        "seed": str(config.seed),
        "steps in its lineage": str(len(chain)),
    }
    if decision is not None:
        facts["gate"] = f"{decision.decision}: {'; '.join(decision.reasons)}"
    if images := sorted({record.image for record in chain if record.image}):
        facts["images"] = ", ".join(images)
    return facts


def _records_json(chain: list[StepRecord]) -> str:
    return json.dumps([json.loads(record.to_json()) for record in chain], sort_keys=True)


def check_version(registry: Registry, version: Version) -> list[str]:
    """Return what is wrong with a published version: its bytes, and whether its lineage leads to them."""
    problems = registry.verify(version)
    text = registry.attachment(version, LINEAGE) if not problems else None
    if text is None:
        return problems
    records = [StepRecord.from_json(json.dumps(content)) for content in json.loads(text)]
    files = {p.removeprefix("checkpoint/"): e.sha256 for p, e in version.files.items() if p.startswith("checkpoint/")}
    made = {artifact.sha256 for record in records for artifact in record.outputs.values()}
    if durable.digest_files(files) not in made:
        problems.append(f"no step in the lineage of {version.id[:12]} made this checkpoint")
    for record in records:
        for name, artifact in record.inputs.items():
            if name not in record.sources and artifact.sha256 not in made:
                problems.append(f"input '{name}' of step {record.step} ({record.order}) comes from nowhere")
    return problems


def diff(registry: Registry, first: Version, second: Version) -> list[tuple[str, str, str]]:
    """Return (what, in the first, in the second) for everything in which two versions differ, metrics last."""
    rows = []
    for name in ("id", "parent", "base_model", "iteration", "config_hash", "code_version"):
        rows.append((name, str(getattr(first, name)), str(getattr(second, name))))
    rows += _changes("", first.facts, second.facts)
    settings = [_settings(registry.attachment(v, CONFIG)) for v in (first, second)]
    rows += _changes("config ", settings[0], settings[1])
    figures = [{name: f"{value:.4g}" for name, value in v.metrics.items()} for v in (first, second)]
    rows += _changes("", figures[0], figures[1])
    return [row for row in rows if row[1] != row[2]]


def _changes(prefix: str, first: Mapping[str, str], second: Mapping[str, str]) -> list[tuple[str, str, str]]:
    return [(f"{prefix}{name}", first.get(name, "-"), second.get(name, "-")) for name in sorted({*first, *second})]


def _settings(text: str | None) -> dict[str, str]:
    """Return a configuration's settings by dotted name."""
    import yaml

    flat: dict[str, str] = {}

    def walk(value: object, name: str) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                walk(inner, f"{name}.{key}" if name else str(key))
        else:
            flat[name] = json.dumps(value)

    walk(yaml.safe_load(text) if text else {}, "")
    return flat


def publish(registry: Registry, name: str, source: Path, *, iteration: int | None = None) -> Version:
    """Publish a run's checkpoint (by default its champion) or a bare checkpoint folder."""
    if (source / checkpoints.MANIFEST).is_file():
        return registry.publish(name, source)
    checkpoint, attached = of_run(source, iteration)
    return registry.publish(name, checkpoint, attached)
