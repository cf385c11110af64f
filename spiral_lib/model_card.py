"""Model cards: a README.md with metadata, made from a published version. Text from models and users is escaped."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from spiral_lib.registry_types import Version

_MARKUP = re.compile(r"([\\`*_{}\[\]()#+!|<>~&$])")


def write(version: Version, root: str) -> str:
    """Return the card of a version in a registry: what the checkpoint is, how it did, how to load it."""
    place = f"{root}/{version.name}/versions/{version.id}/checkpoint"
    return card(
        version,
        "An ordinary Hugging Face folder (safetensors only) that transformers and vLLM load:\n\n"
        f"    spiral registry fetch {version.name}@{version.id[:12]} model --registry {_code(root)}\n"
        '    python -c "from transformers import AutoModelForCausalLM as M; M.from_pretrained(\'model\')"\n\n'
        f"It lies at `{_code(place)}`.\n",
    )


def card(version: Version, use: str) -> str:
    """Return a card with YAML metadata as the hubs read it; ``use`` is Markdown on how to load the checkpoint."""
    metadata = {
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "base_model": version.base_model,
        "tags": ["spiral", "self-play", "reinforcement-learning"],
        "model_name": version.name,
        "version": version.id,
    }
    # JSON scalars and lists are YAML too, and are quoted safely whatever the texts hold.
    head = "".join(f"{name}: {json.dumps(value, ensure_ascii=True)}\n" for name, value in metadata.items())
    parts = [
        f"---\n{head}---\n\n# {escape(version.name)} {version.id[:12]}\n",
        "A language model trained by self-play on two-player zero-sum text games.\n",
        "## Identity\n\n" + _table(("", ""), _identity(version)),
        "## Evaluation\n\n" + _metrics(version.metrics),
        f"## Use\n\n{use}",
        "## Limits\n\nTrained on games and measured as above, no more. Its text is not checked for truth or harm.\n",
    ]
    return "\n".join(parts)


def escape(text: str) -> str:
    """Return text as one line of Markdown that shows it literally."""
    return _MARKUP.sub(r"\\\1", " ".join(text.split()))


def _code(text: str) -> str:
    return " ".join(text.split()).replace("`", "'")


def _identity(version: Version) -> list[tuple[str, str]]:
    size = sum(entry.bytes for path, entry in version.files.items() if path.startswith("checkpoint/"))
    rows = [
        ("version", version.id),
        ("published", version.published),
        ("base model", version.base_model),
        ("parent checkpoint", version.parent or "none"),
        ("iteration", str(version.iteration)),
        ("configuration", version.config_hash),
        ("code", version.code_version),
        ("size", f"{size / 1e6:.1f} MB"),
    ]
    return rows + sorted(version.facts.items())


def _metrics(metrics: Mapping[str, float]) -> str:
    if not metrics:
        return "No evaluation was attached.\n"
    rows = []
    for name, value in sorted(metrics.items()):
        if name.endswith(("_low", "_high", "_n")):
            continue
        low, high, n = (metrics.get(f"{name}{end}") for end in ("_low", "_high", "_n"))
        interval = f"{low:.3f} to {high:.3f}" if low is not None and high is not None else ""
        rows.append((name, f"{value:.4g}", interval, f"{n:.0f}" if n is not None else ""))
    return _table(("metric", "value", "95 % interval", "n"), rows)


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(headings)} |", f"|{'---|' * len(headings)}"]
    lines += [f"| {' | '.join(escape(cell) for cell in row)} |" for row in rows]
    return "\n".join(lines) + "\n"
