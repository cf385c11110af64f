"""Checkpoint folders: Hugging Face files, safetensors only, content-addressed by a manifest inside."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spiral_lib.durable import digest_files, list_files, new_folder, sha256_file
from spiral_lib.errors import CheckpointError

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from spiral_lib.config import RunConfig

MANIFEST = "manifest.json"
MANIFEST_VERSION = 1
_EXECUTABLE_SUFFIXES = frozenset({".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".joblib", ".npy", ".npz", ".py"})


@dataclass(frozen=True, kw_only=True, slots=True)
class FileEntry:
    """Hex SHA-256 and size in bytes of one file."""

    sha256: str
    bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointManifest:
    """What a checkpoint folder holds and where it came from.

    ``id`` is the hash of the files alone (this manifest is not among them), so that equal weights have equal ids;
    ``parent`` is the id of the checkpoint it was trained from, None for a source.
    """

    id: str
    parent: str | None
    iteration: int
    base_model: str
    tokenizer_hash: str
    files: Mapping[str, FileEntry]
    config_hash: str
    code_version: str

    def to_json(self) -> str:
        """Return JSON text with sorted keys, without times or host names: equal inputs give equal text."""
        return json.dumps({"version": MANIFEST_VERSION, **dataclasses.asdict(self)}, sort_keys=True, indent=1)


def save(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    out: Path,
    *,
    parent: str | None,
    iteration: int,
    base_model: str,
    config_hash: str,
    state_dict: Mapping[str, torch.Tensor] | None = None,
) -> CheckpointManifest:
    """Write a checkpoint folder that appears whole or not at all, and return its manifest.

    ``state_dict`` replaces the model's own weights (for weights gathered from several processes).
    ``lm_head.weight`` is always written: an engine that reloads a tied checkpoint without it keeps its old head.
    """
    weights = dict(model.state_dict() if state_dict is None else state_dict)
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    if head is not None and model.config.get_text_config().tie_word_embeddings:
        names = {id(module): name for name, module in model.named_modules(remove_duplicate=False)}
        # A copy, because shared storage would be dropped as a tied weight again.
        weights[f"{names[id(head)]}.weight"] = weights[f"{names[id(embedding)]}.weight"].detach().clone()
    with new_folder(out) as folder:
        tokenizer.save_pretrained(folder)
        _drop_load_options(folder / "tokenizer_config.json")
        tokenizer_files = {name: sha256_file(folder / name) for name in list_files(folder)}
        with quiet():
            model.save_pretrained(folder, state_dict=weights)
        manifest = _describe(
            folder,
            parent=parent,
            iteration=iteration,
            base_model=base_model,
            tokenizer_hash=digest_files(tokenizer_files),
            config_hash=config_hash,
        )
        (folder / MANIFEST).write_text(manifest.to_json(), encoding="utf-8")
    return manifest


def read_manifest(path: Path) -> CheckpointManifest:
    """Return a folder's manifest without checking its files. Raises CheckpointError when it is missing or damaged."""
    file = path / MANIFEST
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if not path.is_dir():
            raise CheckpointError(f"'{path}' is no checkpoint: there is no such folder; check the path") from None
        if (path / "state.json").is_file():
            way_out = f"it is a run folder; name one of its checkpoints, such as '{path}/checkpoints/0000'"
            raise CheckpointError(f"'{path}' is no checkpoint: {way_out}") from None
        raise CheckpointError(
            f"'{path}' is no checkpoint: {MANIFEST} is missing; a plain model folder is named hf:<folder>"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"cannot read '{file}': {error}") from error
    try:
        version = content.pop("version")
        if version != MANIFEST_VERSION:
            raise CheckpointError(f"'{file}' has manifest version {version}; this code reads {MANIFEST_VERSION}")
        files = {name: FileEntry(**entry) for name, entry in content.pop("files").items()}
        return CheckpointManifest(files=files, **content)
    except (AttributeError, KeyError, TypeError) as error:
        raise CheckpointError(f"'{file}' is damaged: {error}; fetch or write the checkpoint again") from error


def verify(path: Path) -> CheckpointManifest:
    """Return the manifest after hashing every file. Raises CheckpointError naming the first bad file."""
    manifest = read_manifest(path)
    if outside := [n for n in manifest.files if Path(n).is_absolute() or ".." in Path(n).parts]:
        raise CheckpointError(f"checkpoint '{path}': {MANIFEST} lists '{outside[0]}', which lies outside the folder")
    present = set(list_files(path)) - {MANIFEST}
    for name in sorted(present | set(manifest.files)):
        if name not in present:
            raise CheckpointError(f"checkpoint '{path}' lacks '{name}'; restore it or use its parent")
        if name not in manifest.files:
            raise CheckpointError(f"checkpoint '{path}' has '{name}', which its manifest does not list; remove it")
        if sha256_file(path / name) != manifest.files[name].sha256:
            raise CheckpointError(f"checkpoint '{path}': '{name}' differs from its manifest; restore the file")
    if manifest.id != digest_files({name: entry.sha256 for name, entry in manifest.files.items()}):
        raise CheckpointError(f"checkpoint '{path}': the id in {MANIFEST} does not follow from its files")
    return manifest


def load_model(path: Path, dtype: str = "float32") -> PreTrainedModel:
    """Return the causal language model in evaluation mode on the CPU; no pickle is read, no code in the folder run."""
    import torch

    refuse_unsafe(path)
    try:
        with quiet():
            from transformers import AutoModelForCausalLM

            model = AutoModelForCausalLM.from_pretrained(
                str(path),
                dtype=getattr(torch, dtype),
                use_safetensors=True,
                local_files_only=True,
                trust_remote_code=False,
            )
    except (OSError, ValueError, KeyError) as error:
        raise CheckpointError(f"cannot load a model from '{path}': {error}") from error
    return model.eval()


def load_tokenizer(path: Path) -> PreTrainedTokenizerBase:
    """Return the folder's tokenizer with its chat template."""
    from transformers import AutoTokenizer

    refuse_unsafe(path)
    try:
        return AutoTokenizer.from_pretrained(str(path), local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        raise CheckpointError(f"cannot load a tokenizer from '{path}': {error}") from error


def refuse_unsafe(path: Path) -> None:
    """Raise CheckpointError where a folder is missing or holds a file that can run code when it is loaded."""
    if not path.is_dir():
        raise CheckpointError(f"checkpoint '{path}' is not a folder; check the path")
    for name in list_files(path):
        if Path(name).suffix.lower() in _EXECUTABLE_SUFFIXES:
            raise CheckpointError(f"checkpoint '{path}' holds '{name}', which may run code; keep only safetensors")


def fetch(config: RunConfig, out: Path) -> CheckpointManifest:
    """Write the checkpoint that ``config.model.source`` names; see checkpoint_sources."""
    from spiral_lib import checkpoint_sources

    return checkpoint_sources.fetch(config, out)


def init_tiny(config: RunConfig, texts: Iterable[str], out: Path) -> CheckpointManifest:
    """Write a small model made from nothing, with a tokenizer trained on the texts; see checkpoint_sources."""
    from spiral_lib import checkpoint_sources

    return checkpoint_sources.init_tiny(config, texts, out)


def digest_folder(path: Path) -> str:
    """Return the hash over a folder's files; for a checkpoint (whose manifest does not count) this is its id."""
    return digest_files({name: sha256_file(path / name) for name in list_files(path) if name != MANIFEST})


def digest_weights(weights: Mapping[str, Any]) -> str:
    """Return the sha256 over tensors of any type, by name: names and bytes."""
    import torch

    digest = hashlib.sha256()
    for name, weight in sorted(weights.items()):
        digest.update(name.encode())
        digest.update(weight.detach().cpu().contiguous().flatten().view(dtype=torch.uint8).numpy())
    return digest.hexdigest()


@functools.cache
def code_version() -> str:
    """Return 16 hex digits over the sources of this package; needs no version control."""
    return source_digest(Path(__file__).parent)[:16]


def source_digest(package: Path) -> str:
    """Return the hash over a package's Python files and their names."""
    sources = {p.relative_to(package).as_posix(): p for p in package.rglob("*.py")}
    hashes = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in sources.items()}
    return digest_files(hashes)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep the progress bars of transformers, and what it says while it imports others, off the screen.

    Models are imported in it as well: DeepSpeed, imported on the way where it is installed, says on standard output,
    which is for results, that it found no GPU; told so, it is quiet.
    """
    import torch
    from transformers.utils import logging

    if not torch.cuda.is_available():
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _drop_load_options(file: Path) -> None:
    """Remove how the tokenizer happened to be loaded, which is saved with it and would change the checkpoint's id."""
    content = json.loads(file.read_text(encoding="utf-8"))
    for option in ("is_local", "local_files_only", "name_or_path", "trust_remote_code"):
        content.pop(option, None)
    file.write_text(json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


def _describe(folder: Path, **origin: Any) -> CheckpointManifest:
    files = {
        name: FileEntry(sha256=sha256_file(folder / name), bytes=(folder / name).stat().st_size)
        for name in list_files(folder)
    }
    return CheckpointManifest(
        id=digest_files({name: entry.sha256 for name, entry in files.items()}),
        files=files,
        code_version=code_version(),
        **origin,
    )
