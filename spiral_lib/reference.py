"""The reference pages that are made from the code: configuration and data dictionary, as Markdown.

``python -m spiral_lib.reference docs`` writes them; a test holds the committed pages to what this module makes.
"""

from __future__ import annotations

import dataclasses
import sys
import typing
from pathlib import Path

from spiral_lib import config, durable, presets, setting_values, trajectories
from spiral_lib.ledger import Ledger
from spiral_lib.lineage import StepRecord

_NOTE = "<!-- made by python -m spiral_lib.reference docs -->\n"
_RUN_FOLDER = (
    ("config.yaml", "the resolved configuration; `spiral config` reads it back"),
    ("metrics.jsonl", "one object an iteration: `{iteration, metrics}`; iteration 0 is the cold start"),
    ("steps.jsonl", "one object a learner step: `{step, metrics}`"),
    ("tensorboard/", "the same numbers as TensorBoard event files, one an iteration"),
    ("trajectories/iteration=NNNN/shard-NN.parquet", "every turn played, in the schema below"),
    ("checkpoints/NNNN/", "one Hugging Face folder an iteration: safetensors, tokenizer, `manifest.json` with hashes"),
    ("optimizer/NNNN/", "AdamW's moments"),
    ("pool/", "the opponent pool's snapshots, hard links where the file system has them"),
    (
        "training/, evaluations/, ledgers/",
        "what each iteration measured and remembered, one JSON file each; in training/ also the quality gate",
    ),
    ("evaluations/NNNN/<benchmark>.parquet", "every benchmark reply with its verdict; none where no benchmark runs"),
    ("ledger.json, state.json", "the newest ledger, and where everything lies that a later run goes on from"),
    ("samples.json", "the matches that the report shows: three of each of at most 24 iterations, long texts cut"),
    ("lineage/NNNN-<step>.json", "one record a step: what it read and wrote, by hash"),
    ("quarantine/", "shards that the quality gate took out, with the reasons beside them, and a page of the check"),
    ("match_audit/", "the sample of matches drawn for reviewers, and their verdicts"),
    ("report.html", "the page of the run"),
)


def configuration() -> str:
    """Return the configuration reference: every setting with default, range and meaning, then the presets."""
    lines = [
        _NOTE,
        "# Configuration\n",
        "A run is one `RunConfig`. A preset gives every value; a YAML file with the same shape replaces some; dotted",
        "overrides replace both. An unknown name is an error that names the nearest known one; a name given twice, and",
        "a number such as `010`, which YAML reads as 8, are errors too.\n",
        "```bash",
        "spiral config --preset tiny",
        'spiral config --preset tiny --set "learner.lr=1e-4 games=[kuhn_poker,tic_tac_toe]"',
        "spiral config --preset smollm2 --describe",
        "```\n",
        "The configuration's hash covers everything but `iterations`, so a finished run can be extended. The defaults",
        "below are those of the settings themselves; a preset may have others, which `--describe` shows beside them.",
        f"No whole number may be above {setting_values.MOST:,} unless its row says otherwise.\n",
    ]
    lines += _section(config.RunConfig, "", "Run")
    hints = typing.get_type_hints(config.RunConfig)
    for f in dataclasses.fields(config.RunConfig):
        if dataclasses.is_dataclass(hints[f.name]):
            lines += _section(typing.cast(type, hints[f.name]), f"{f.name}.", f"`{f.name}`")
    lines += _section(config.Named, "", "An entry of `games` or `rewards.terms`")
    lines += ["## Presets\n", "| preset | what it is |", "|---|---|"]
    for name in presets.names():
        doc = (getattr(presets, name).__doc__ or "").strip().splitlines()[0]
        lines.append(f"| `{name}` | {_cell(doc)} |")
    return "\n".join(lines) + "\n"


def _section(kind: type, prefix: str, title: str) -> list[str]:
    """Return the table of a section's own settings; sections inside it have tables of their own."""
    hints = typing.get_type_hints(kind)
    doc = (kind.__doc__ or "").strip()
    lines = [f"## {title}\n", f"{doc}\n", "| setting | default | allowed | meaning |", "|---|---|---|---|"]
    described = {name: default for name, default, _ in config.describe(kind)}
    for f in dataclasses.fields(kind):
        if dataclasses.is_dataclass(hints[f.name]):
            continue
        default, meaning = described[f.name], str(f.metadata.get("doc", ""))
        lines.append(f"| `{prefix}{f.name}` | `{_cell(default)}` | {_allowed(f.metadata)} | {_cell(meaning)} |")
    return [*lines, ""]


def _allowed(metadata: typing.Mapping[str, typing.Any]) -> str:
    low, high, choices = metadata.get("low"), metadata.get("high"), metadata.get("choices")
    if choices:
        return ", ".join(f"`{c}`" for c in choices)
    if high is not None and high >= 1 << 62:
        high = None  # what fits in 64 bits
    if low is not None and high is not None:
        return f"{_number(low)} to {_number(high)}"
    if low is not None:
        return f"at least {_number(low)}"
    return "" if high is None else f"at most {_number(high)}"


def _number(bound: float) -> str:
    return f"{bound:,}" if isinstance(bound, int) else f"{bound:g}"


def data_dictionary() -> str:
    """Return what a run folder holds, and the schema of turns, ledger and step records."""
    lines = [_NOTE, "# Data\n", "## The run folder\n", "| path | what it holds |", "|---|---|"]
    lines += [f"| `{path}` | {what} |" for path, what in _RUN_FOLDER]
    lines += [
        "",
        f"## Turns (Parquet, schema version {trajectories.SCHEMA_VERSION})\n",
        "One row a turn, matches in the order of their ids. Returns are raw: the learner computes rewards and",
        "advantages, and they are not stored. A match that ended before its first move is one row with `turn` -1.\n",
        "```python",
        "from datasets import load_dataset",
        'turns = load_dataset("parquet", data_files="runs/tiny-0f3a1c2b/trajectories/*/*.parquet")',
        "```\n",
        "| column | type | null | meaning |",
        "|---|---|---|---|",
    ]
    for column in trajectories.SCHEMA:
        doc = (column.metadata or {}).get(b"doc", b"").decode()
        lines.append(f"| `{column.name}` | {column.type} | {'yes' if column.nullable else 'no'} | {_cell(doc)} |")
    lines += ["", *_record(Ledger, "The ledger (`ledger.json`)"), *_record(StepRecord, "Step records (`lineage/`)")]
    return "\n".join(lines) + "\n"


def _record(kind: type, title: str) -> list[str]:
    doc = "\n".join(line.strip() for line in (kind.__doc__ or "").strip().splitlines()).replace("``", "`")
    rows = [f"| `{f.name}` | `{_cell(str(f.type))}` |" for f in dataclasses.fields(kind)]
    return [f"## {title}\n", f"{doc}\n", "| field | type |", "|---|---|", *rows, ""]


def _cell(text: str) -> str:
    """Return text that cannot end a cell of a Markdown table or start HTML."""
    return text.replace("|", "\\|").replace("<", "&lt;")


PAGES = {"configuration.md": configuration, "data.md": data_dictionary}


def write(folder: Path) -> list[Path]:
    """Write all reference pages into a folder and return their paths."""
    for name, make in PAGES.items():
        durable.write_text(folder / name, make())
    return [folder / name for name in PAGES]


if __name__ == "__main__":
    for written in write(Path(sys.argv[1])):
        print(written)
