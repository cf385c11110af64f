"""Fixtures shared by the end-to-end tests; nothing is made unless a test asks for it."""

from __future__ import annotations

import logging
from pathlib import Path

import micro_runs
import pytest

from spiral_lib import pipeline


@pytest.fixture(scope="session")
def micro_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cold start that plays Kuhn poker mostly legally."""
    logging.getLogger("great_expectations").setLevel(logging.ERROR)
    return micro_runs.train_cold_start(tmp_path_factory.mktemp("cold") / "checkpoint")


@pytest.fixture(scope="session")
def micro_run(micro_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two iterations with everything switched on. Tests must not change it."""
    run = tmp_path_factory.mktemp("runs") / "micro"
    pipeline.train(micro_runs.config(micro_checkpoint), run)
    return run
