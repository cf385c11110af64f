"""The match driver on engine vllm: many matches against one at a time, and against the engine's best.

Needs vllm: ``make bench`` runs this file in its environment. Without it there are no rows.
"""

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path

from bench_rollout import Bench, Row, save_player, sequential_row, static_row


def rows() -> list[Row]:
    """Return all rows of this file."""
    if importlib.util.find_spec("vllm") is None:
        return []
    with tempfile.TemporaryDirectory() as name:
        # Many matches for few slots: a step of few rows costs vllm as much as one of many, so the drain weighs.
        bench = Bench(save_player(Path(name)), "vllm", slots=64, matches=768)
        found = [
            sequential_row(bench, "rollout/64_matches_at_once_vllm", 512, 24),
            static_row(bench, "rollout/driver_share_vllm", 768),
        ]
        bench.engine.close()
        return found
