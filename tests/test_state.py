"""``state.json``: written relative to the run, read back from anywhere, refused when something is gone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from spiral_lib.errors import LineageError
from spiral_lib.state import State, read_state, write_places, write_state


def state_in(run: Path, optimizer: bool = True) -> State:
    for folder in ("checkpoints/0000", "checkpoints/0002", "optimizer/0002"):
        (run / folder).mkdir(parents=True)
    for name in ("scores.json", "ledger.json"):
        (run / name).write_text("{}")
    return State(
        iteration=2,
        checkpoint=run / "checkpoints" / "0002",
        optimizer=run / "optimizer" / "0002" if optimizer else None,
        champion=run / "checkpoints" / "0000",
        champion_scores=run / "scores.json",
        cold_start=run / "checkpoints" / "0000",
        cold_start_scores=run / "scores.json",
        opponents=(run / "checkpoints" / "0000", run / "checkpoints" / "0002"),
        ledger=run / "ledger.json",
    )


@pytest.mark.parametrize("optimizer", [True, False])
def test_a_state_reads_back_equal(tmp_path: Path, optimizer: bool) -> None:
    state = state_in(tmp_path, optimizer)
    write_state(state, tmp_path)
    assert read_state(tmp_path) == state


def test_a_run_folder_can_be_moved(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    write_state(state_in(here), here)
    shutil.move(here, there)
    assert read_state(there).checkpoint == there / "checkpoints" / "0002"


def test_what_lies_outside_the_run_cannot_be_written_down(tmp_path: Path) -> None:
    state = state_in(tmp_path / "run")
    with pytest.raises(ValueError):
        write_state(state, tmp_path / "other")


def test_urls_are_fetched_and_the_rest_is_found_beside_the_file(tmp_path: Path) -> None:
    run, store = tmp_path / "history", tmp_path / "store"
    state = state_in(store)
    shutil.copytree(store, run)
    names = ("checkpoint", "champion", "champion_scores", "cold_start", "cold_start_scores")
    places = {n: f"s3://bucket/{getattr(state, n).relative_to(store)}" for n in names}
    opponents = ["s3://bucket/checkpoints/0000"]
    write_places(
        run, iteration=2, places={**places, "optimizer": None, "ledger": "ledger.json"}, opponents=opponents
    )
    found = read_state(run, lambda url: store / url.removeprefix("s3://bucket/"))
    assert found.checkpoint == store / "checkpoints" / "0002"
    assert found.opponents == (store / "checkpoints" / "0000",)
    assert found.ledger == run / "ledger.json"
    assert found.optimizer is None


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    write_state(state_in(tmp_path), tmp_path)
    shutil.rmtree(tmp_path / "optimizer")
    with pytest.raises(LineageError, match="optimizer/0002"):
        read_state(tmp_path)


@pytest.mark.parametrize("text", [None, "{", "[1]", "{}", json.dumps({"iteration": 1}), "[" * 100_000])
def test_what_is_no_run_folder_is_refused(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "state.json").write_text(text)
    with pytest.raises(LineageError, match=str(tmp_path)):
        read_state(tmp_path)
