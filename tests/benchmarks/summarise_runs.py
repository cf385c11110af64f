"""Print a Markdown table of finished runs: python tests/benchmarks/summarise_runs.py runs/a runs/b ...

One row per run, first and last value of the metrics that docs/results.md reports, and the wall seconds of its steps.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from spiral_lib import lineage, report

METRICS = (
    "eval/kuhn_poker/exploitability",
    "eval/kuhn_poker/legal_mass",
    "eval/kuhn_poker/vs_cold_start/win_rate",
    "eval/tic_tac_toe/minimax_agreement",
    "eval/tic_tac_toe/vs_random/mean_return",
    "eval/bank/accuracy",
    "rollout/invalid_rate",
    "reasoning/median_tokens",
    "reasoning/empty_share",
    "learner/kl",
    "learner/grad_norm",
    "rae/variance_ratio",
)


def row(run: Path) -> dict[str, str]:
    """Return the table's cells for a run folder."""
    files = report.read(run)
    cells = {"run": run.name, "seed": str(files.config.seed), "iterations": str(files.ledger.iteration)}
    for name in METRICS:
        values = [m[name] for _, m in files.iterations if name in m]
        if values:
            span = f"{min(values):.3f} to {max(values):.3f}"
            cells[name.removeprefix("eval/")] = f"{values[0]:.3f} → {values[-1]:.3f} ({span})"
    decisions = [d.decision.value for d in files.ledger.decisions]
    cells["gate"] = " ".join(decisions)
    cells["champion"] = str(files.ledger.champion.iteration if files.ledger.champion else 0)
    cells["seconds"] = f"{sum(r.seconds for r in lineage.read_all(run)):.0f}"
    return cells


def main() -> None:
    """Print the table, one metric a line and one run a column."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--json", action="store_true", help="print JSON instead")
    arguments = parser.parse_args()
    rows = [row(run) for run in arguments.runs]
    if arguments.json:
        print(json.dumps(rows, indent=1, ensure_ascii=False))
        return
    names = list(dict.fromkeys(name for cells in rows for name in cells if name != "run"))
    print("| | " + " | ".join(cells["run"] for cells in rows) + " |")
    print("|---" * (len(rows) + 1) + "|")
    for name in names:
        print(f"| {name} | " + " | ".join(cells.get(name, "") for cells in rows) + " |")


if __name__ == "__main__":
    main()
