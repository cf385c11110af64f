"""Publishing a checkpoint on the Hugging Face hub: never by itself, only when asked, with a generated card.

What goes up is laid out in a folder first, which can be looked at before anything is sent.
"""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path

from spiral_lib import checkpoints, durable, model_card, registry_runs
from spiral_lib.errors import RegistryError
from spiral_lib.registry_types import Version

TRAJECTORIES = "trajectories"


def stage(source: Path, out: Path, *, repo: str, iteration: int | None = None, trajectories: bool = False) -> Path:
    """Write what would be pushed for a run's checkpoint (by default its champion) to a new folder and return it.

    The folder is the checkpoint itself, a ``README.md`` with its metrics, and beside it evaluation, configuration and
    lineage; with ``trajectories`` also the turns of the run as Parquet. Raises RegistryError where the run has no such
    checkpoint or ``out`` is there already, CheckpointError where the checkpoint is damaged.
    """
    if out.exists():
        raise RegistryError(f"'{out}' is there already; choose a new folder")
    checkpoint, attached = registry_runs.of_run(source, iteration)
    manifest = checkpoints.verify(checkpoint)
    version = Version(
        name=repo,
        id=manifest.id,
        published=datetime.now(UTC).isoformat(timespec="seconds"),
        parent=manifest.parent,
        base_model=manifest.base_model,
        iteration=manifest.iteration,
        config_hash=manifest.config_hash,
        code_version=manifest.code_version,
        files={f"checkpoint/{name}": entry for name, entry in manifest.files.items()},
        metrics=dict(attached.metrics),
        facts=dict(attached.facts),
    )
    with durable.new_folder(out) as folder:
        shutil.copytree(checkpoint, folder, dirs_exist_ok=True)
        for name, text in attached.texts.items():
            (folder / "run" / name).parent.mkdir(exist_ok=True)
            (folder / "run" / name).write_text(text, encoding="utf-8")
        if trajectories:
            shutil.copytree(source / TRAJECTORIES, folder / TRAJECTORIES)
        (folder / "README.md").write_text(model_card.card(version, _use(repo, trajectories)), encoding="utf-8")
    return out


def push_to_hub(folder: Path, repo: str, *, private: bool = True) -> str:
    """Upload a folder that ``stage`` wrote, making the repository where there is none; return its address.

    The token is the one that the hub's own client finds; it is neither read nor kept here.
    Raises RegistryError where the hub refuses or cannot be reached.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    hub = HfApi()
    try:
        address = hub.create_repo(repo, private=private, exist_ok=True)
        hub.upload_folder(repo_id=repo, folder_path=folder, commit_message="Checkpoint with card, evaluation, lineage")
    except (HfHubHTTPError, OSError, ValueError) as error:
        raise RegistryError(f"cannot push to '{repo}': {error}; log in with: hf auth login") from error
    return str(address)


def _use(repo: str, trajectories: bool) -> str:
    lines = [
        "    from transformers import AutoModelForCausalLM, AutoTokenizer",
        f"    model = AutoModelForCausalLM.from_pretrained({repo!r})",
        f"    tokenizer = AutoTokenizer.from_pretrained({repo!r})",
    ]
    if trajectories:
        lines += [
            "    from datasets import load_dataset",
            f'    turns = load_dataset({repo!r}, data_files="{TRAJECTORIES}/*/*.parquet")',
        ]
    return "\n".join(lines) + "\n\nEvaluation, configuration and lineage lie in `run/`.\n"
