"""The sample matches of a run: few however long it is, and their texts cut."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path

import pytest

from spiral_lib import publish, steps, trajectories


def test_samples_stay_few_however_long_the_run_is(micro_run: Path, tmp_path: Path) -> None:
    shard = steps.shard_path(micro_run, 1, 0)
    for iteration in range(1, publish.SAMPLED_ITERATIONS + 3):
        publish.sample_matches(shard, iteration, tmp_path)
    kept = json.loads((tmp_path / "samples.json").read_text())
    iterations = sorted({match["iteration"] for match in kept})
    assert len(iterations) == publish.SAMPLED_ITERATIONS
    assert iterations[0] == 1 and iterations[-1] == publish.SAMPLED_ITERATIONS + 2


@pytest.mark.parametrize("length", [0, 1, 2, 24, 25, 400])
def test_a_long_run_keeps_its_first_and_newest_and_even_steps_between(length: int) -> None:
    kept: list[int] = []
    for iteration in range(length):
        kept = publish.thinned({*kept, iteration}, 24)
    assert len(kept) == min(length, 24)
    if length > 24:
        gaps = [later - earlier for earlier, later in itertools.pairwise(kept)]
        assert kept[0] == 0 and kept[-1] == length - 1
        assert max(gaps) <= 4 * length / 24


def test_a_long_reply_is_cut_and_says_so(micro_run: Path, tmp_path: Path) -> None:
    played = list(trajectories.read_episodes([steps.shard_path(micro_run, 1, 0)]))
    first = played[0]
    turn = dataclasses.replace(first.turns[0], text="x" * (publish.MAX_TEXT + 1_234))
    long = dataclasses.replace(first, turns=(turn, *first.turns[1:]))
    path = tmp_path / "shard.parquet"
    trajectories.write_shard(path, [long], run="r", iteration=1, step=1, shard=0, config_hash="c")
    publish.sample_matches(path, 1, tmp_path)
    [match] = json.loads((tmp_path / "samples.json").read_text())
    text = match["turns"][0]["text"]
    assert text.endswith(" [1,234 more characters in the trajectories]") and len(text) < publish.MAX_TEXT + 60
