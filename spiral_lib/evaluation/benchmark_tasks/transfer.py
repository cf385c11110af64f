"""Transfer: 350 puzzles of reasoning_gym 0.1.25 (logic, spatial, numbers), frozen once and scored by exact comparison.

``python -m spiral_lib.evaluation.benchmark_tasks.transfer FOLDER`` writes ``FOLDER/transfer.parquet``. That needs the
extra ``transfer``; evaluating does not. Only sets with one right answer are taken, so that reasoning_gym's own scorers
never see a model's reply: some evaluate the text they score, many give credit for quoting the answer in a sentence. A
test holds our verdicts to the package's score, taken as right from 0.99 on.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spiral_lib import answers, durable
from spiral_lib._answers_compare import MAX_CHARS, exact
from spiral_lib.config import EvaluationConfig
from spiral_lib.errors import ConfigError, DataQualityError, EngineError
from spiral_lib.evaluation.benchmark_tasks import _graded
from spiral_lib.evaluation.benchmark_tasks._items import Items, Problem, digest

SETS: Mapping[str, str] = {
    "knights_knaves": "logic",
    "syllogism": "logic",
    "zebra_puzzles": "logic",
    "family_relationships": "logic",
    "mini_sudoku": "spatial",
    "maze": "spatial",
    "spiral_matrix": "spatial",
    "rotate_matrix": "spatial",
    "largest_island": "spatial",
    "chain_sum": "numbers",
    "gcd": "numbers",
    "base_conversion": "numbers",
    "number_sequence": "numbers",
    "simple_equations": "numbers",
}
"""Sets of reasoning_gym and the family that each counts in."""

PER_SET = 25
SEED = 770_001
"""Item i of a set is drawn with seed SEED + i; seeds of other uses must be far away."""

_MODULE = "spiral_lib.evaluation.benchmark_tasks.transfer"
FILE = "transfer.parquet"
SHA256 = "09ab28da2c7cd233a4a02ee84ea967faa083680248b0b8d6e2589abd3f6e40c4"
# Digits of another base and grids are compared as text; all other numbers by value.
_AS_TEXT = frozenset({"base_conversion", "mini_sudoku", "spiral_matrix", "rotate_matrix"})
_ROLE = re.compile(r"\b(\w+) is an? (\w+)")


def freeze(folder: Path) -> Path:
    """Write the items as Parquet. Raises EngineError without reasoning_gym, DataQualityError for another version."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = _generate()
    found = digest(_problem(row) for row in rows)
    if found != SHA256:
        raise DataQualityError(
            f"the generated puzzles have sha256 {found}, not {SHA256}; install reasoning-gym==0.1.25"
        )
    folder.mkdir(parents=True, exist_ok=True)
    schema = pa.schema([(name, pa.string()) for name in ("id", "set", "question", "answer", "metadata")])
    with durable.new_file(folder / FILE) as temporary:
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), temporary, compression="zstd")
    return folder / FILE


def task(settings: EvaluationConfig) -> dict[str, Any]:
    """Return the puzzles as an lm-eval task. Raises ConfigError where they are not in ``evaluation.data_dir``."""
    return _graded.task("transfer", load(settings), settings, prompt=_graded.math_prompt, grade=is_correct)


def load(settings: EvaluationConfig) -> Items:
    """Return the frozen items, checked."""
    import pyarrow.parquet as pq

    path = Path(settings.data_dir) / FILE
    if not settings.data_dir or not path.is_file():
        raise ConfigError(
            f"benchmark 'transfer' needs {FILE} in evaluation.data_dir ('{settings.data_dir}'); write it with "
            f"python -m {_MODULE} FOLDER (extra: pip install 'spiral-pipeline[transfer]')"
        )
    problems = tuple(_problem(row) for row in pq.read_table(path).to_pylist())
    found = digest(problems)
    if found != SHA256:
        raise DataQualityError(f"{path} has items with sha256 {found[:16]}, not {SHA256[:16]}; write it again")
    return Items(problems=problems, sha256=found)


def is_correct(problem: Problem, answer: str) -> bool:
    """Return whether a box's content is the one right answer; linear time, nothing is evaluated."""
    given, gold = _plain(answer), _plain(problem.gold)
    if given == gold:
        return True
    name = problem.id.rpartition("-")[0]
    if name == "knights_knaves":
        return bool(given) and dict(_ROLE.findall(given)) == dict(_ROLE.findall(gold))
    if name in _AS_TEXT or len(given) > MAX_CHARS:
        return False
    value = exact(gold)
    return value is not None and value == exact(given)


def _plain(text: str) -> str:
    return answers.unwrap(text).casefold().rstrip(".")


def _generate() -> list[dict[str, str]]:
    try:
        import reasoning_gym
    except ImportError as error:
        raise EngineError(
            "the transfer puzzles are made with reasoning_gym, which is not installed; "
            "install the extra: pip install 'spiral-pipeline[transfer]'"
        ) from error
    rows = []
    for name in SETS:
        puzzles = reasoning_gym.create_dataset(name, seed=SEED, size=PER_SET)
        for i in range(PER_SET):
            puzzle = puzzles[i]
            rows.append(
                {
                    "id": f"{name}-{i:02d}",
                    "set": name,
                    "question": str(puzzle["question"]),
                    "answer": str(puzzle["answer"]),
                    "metadata": json.dumps(puzzle["metadata"], sort_keys=True, default=str),
                }
            )
    return rows


def _problem(row: Mapping[str, Any]) -> Problem:
    return Problem(id=row["id"], question=row["question"], gold=row["answer"], family=SETS[row["set"]])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m spiral_lib.evaluation.benchmark_tasks.transfer FOLDER")
    sys.stdout.write(f"{freeze(Path(sys.argv[1]))}\n")
