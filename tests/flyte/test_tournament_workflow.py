"""``play_tournament`` on Flyte's local executor: entrants, seats, outputs, refusals."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
import tiny_checkpoints

pytest.importorskip("flytekit")

from flytekit.types.directory import FlyteDirectory

from spiral_lib import checkpoints, tournament_page, trajectories
from tasks.config import Preset
from workflows import spiral


def test_scripted_policies_and_a_checkpoint_play_from_both_seats_and_leave_a_page(
    tmp_path: Path,
) -> None:
    tok = tiny_checkpoints.tokenizer()
    model = tiny_checkpoints.model("qwen3", len(tok))
    origin = {"parent": None, "iteration": 0, "base_model": "init:tiny", "config_hash": "h"}
    player = checkpoints.save(model, tok, tmp_path / "player", **origin)
    made = spiral.play_tournament(
        policies=["random", "optimal"],
        checkpoints=[FlyteDirectory(str(tmp_path / "player"))],
        games=["kuhn_poker"],
        matches=4,
        seed=3,
        preset=Preset.SMOKE,
        overrides="prompt.style=compact rollout.max_new_tokens=8",
        out=str(tmp_path / "out"),
    )
    folder = Path(made.download())
    entrant = f"checkpoint:{player.id[:12]}"
    standings = tournament_page.read_standings(folder / "standings.json")
    assert set(standings.policies) == {"random", "optimal", entrant} and standings.matches == 12
    assert {path.name for path in folder.iterdir()} == tournament_page.OWN
    episodes = list(trajectories.read_episodes([folder / "turns.parquet"]))
    assert sorted(e.policies for e in episodes) == sorted(
        pair
        for first, second in ((entrant, "optimal"), (entrant, "random"), ("optimal", "random"))
        for pair in ((first, second), (second, first))
        for _ in range(2)
    )
    assert pq.read_table(folder / "ratings.parquet").num_rows == 3


def test_a_lineup_of_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="two or more different policies"):
        spiral.play_tournament(policies=["random"], games=["nim"], preset=Preset.SMOKE, out=str(tmp_path))
