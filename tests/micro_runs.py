"""Runs small enough for tests: a cold start learned in a second, and configurations of a few matches on top of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from spiral_lib import cold_start, strict_yaml
from spiral_lib.config import RunConfig, resolve
from spiral_lib.durable import sha256_file
from spiral_lib.lineage import read_all

TRAINED = (
    "cold_start.steps=110 cold_start.batch=16 cold_start.lr=5e-3 cold_start.examples=400 cold_start.bank_examples=10 "
    "cold_start.gate_matches=8 cold_start.min_legal=0 model.hidden=48 model.layers=2 model.mlp=96"
)
SMALL = (
    "cold_start.steps=0 cold_start.gate_matches=2 rollout.matches=8 rollout.steps_per_iteration=1 "
    "rollout.max_new_tokens=48 rollout.max_invalid_share=1 opponents.self_play=0.5 opponents.pool=0.5 "
    "evaluation.matches=2 evaluation.exploitability_replies=2 evaluation.bank_limit=4 evaluation.bank_max_new_tokens=8"
)
WITHOUT_EVALUATION = "evaluation.every=1000 evaluation.bank=false evaluation.exploitability_games=[]"

FROM_NOTHING = (
    "cold_start.steps=10 cold_start.batch=8 cold_start.examples=100 cold_start.bank_examples=10 "
    "cold_start.gate_matches=2 model.hidden=48 model.layers=2 model.mlp=96 rollout.matches=6 "
    "rollout.max_invalid_share=1 rollout.max_new_tokens=16 opponents.self_play=1 opponents.pool=0 "
    f"evaluation.matches=2 evaluation.exploitability_replies=1 {WITHOUT_EVALUATION}"
)
"""For runs that need no checkpoint to start from, and whose play does not matter."""


def train_cold_start(out: Path) -> Path:
    """Write a micro checkpoint that plays Kuhn poker mostly legally, and return its folder."""
    cold_start.make(resolve(preset="smoke", overrides=TRAINED), out)
    return out


def overrides(checkpoint: Path, more: str = "") -> str:
    """Return the overrides of preset smoke for a micro run that starts at a checkpoint; later ones replace earlier."""
    return merged(f"model.source=checkpoint:{checkpoint}", SMALL, more)


def merged(*texts: str) -> str:
    """Return overrides as one text in which a later one has replaced an earlier one of the same name."""
    parts = [part.partition("=") for text in texts for part in strict_yaml.split(text)]
    return " ".join(f"{name}={value}" for name, value in {name: value for name, _, value in parts}.items())


def config(checkpoint: Path, more: str = "") -> RunConfig:
    return resolve(preset="smoke", overrides=overrides(checkpoint, more))


def checkpoint_ids(run: Path) -> dict[int, str]:
    """Return the ids of a run's checkpoints by iteration."""
    found = sorted((run / "checkpoints").iterdir())
    return {int(f.name): json.loads((f / "manifest.json").read_text())["id"] for f in found}


def weights_hash(checkpoint: Path) -> str:
    return sha256_file(checkpoint / "model.safetensors")


def turns_hashes(run: Path) -> dict[str, str]:
    """Return the hashes of a run's Parquet files by their names."""
    return {str(p.relative_to(run)): sha256_file(p) for p in sorted(run.rglob("*.parquet"))}


def records(run: Path) -> dict[str, tuple[Any, ...]]:
    """Return when and with what outcome each step of a run was done: equal before and after means not done again."""
    return {f"{r.order}-{r.step}": (r.start, r.seconds, r.outputs) for r in read_all(run)}
