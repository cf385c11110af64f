"""Run all benchmarks, print a table and write build/bench/NAME.json: python tests/benchmarks/run.py [NAME ...]

Each ``bench_*.py`` beside this file has ``rows() -> list[dict]`` with name, value, unit, against, ratio, spread, n. The
two things of a row were measured in one run on the same machine, so the ratio is what counts.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import time
from pathlib import Path

# Threads that wait for work count as processor time.
os.environ["OMP_NUM_THREADS"] = "1"

HERE = Path(__file__).parent
COLUMNS = ("name", "value", "unit", "against", "ratio", "spread", "n")


def main() -> None:
    """Run the chosen benchmarks one after another; what is done is kept when a later one fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="for example engine learner; all by default")
    chosen = parser.parse_args().names
    out = HERE.parents[1] / "build" / "bench"
    out.mkdir(parents=True, exist_ok=True)
    for path in sorted(HERE.glob("bench_*.py")):
        name = path.stem.removeprefix("bench_")
        if chosen and name not in chosen:
            continue
        start = time.perf_counter()
        found = importlib.import_module(path.stem).rows()
        (out / f"{name}.json").write_text(json.dumps(found, indent=1))
        print(f"\n{name} ({time.perf_counter() - start:.0f} s)")
        for row in found:
            print("  " + "  ".join(f"{column}={_shown(row.get(column))}" for column in COLUMNS))
    print(f"\nwritten: {out}/")


def _shown(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
