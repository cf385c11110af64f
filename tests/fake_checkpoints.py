"""Folders that are checkpoints as far as their manifest goes, for tests that need no model in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from spiral_lib.checkpoints import CheckpointManifest, FileEntry
from spiral_lib.durable import digest_files, sha256_file


def checkpoint(folder: Path, weights: str, **origin: Any) -> Path:
    """Write a checkpoint folder whose weights are a text, and return it."""
    folder.mkdir(parents=True)
    for name, text in {"config.json": "{}", "model.safetensors": weights, "tokenizer.json": "[]"}.items():
        (folder / name).write_text(text)
    files = {p.name: FileEntry(sha256=sha256_file(p), bytes=p.stat().st_size) for p in sorted(folder.iterdir())}
    manifest = CheckpointManifest(
        id=digest_files({name: entry.sha256 for name, entry in files.items()}),
        files=files,
        tokenizer_hash="t",
        code_version="c",
        **{"parent": None, "iteration": 3, "base_model": "init:tiny", "config_hash": "h", **origin},
    )
    (folder / "manifest.json").write_text(manifest.to_json())
    return folder
