"""``spiral play`` against a checkpoint that reasons first; endpoints in play and tournament; whose folders are kept."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
import tiny_checkpoints

from spiral_lib import cli, trajectories

sys.path.insert(0, str(Path(__file__).parent / "engines"))
from endpoint_server import running


def test_a_person_plays_a_checkpoint_that_is_prompted_to_reason_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    player = tiny_checkpoints.save_player(tmp_path / "player", max_position_embeddings=1024)
    typed = "[0]\nwhat?\n\\boxed{[4]}\n" + "[1]\n[2]\n[3]\n[5]\n[6]\n[8]\n" * 5
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
    saved = tmp_path / "match.parquet"
    settings = "prompt.reasoning=think rollout.max_new_tokens=12 model.context_tokens=1024"
    argv = ["play", "tic_tac_toe", "--vs", f"checkpoint:{player}", "--seat", "0", "--seed", "3", "--show-reasoning"]
    code = cli.run([*argv, "--preset", "tiny", "--set", settings, "--save", str(saved)])
    shown = capsys.readouterr().out
    assert code == 0 and "you are player 0" in shown and "for you" in shown
    [episode] = trajectories.read_episodes([saved])
    theirs = [turn for turn in episode.turns if turn.player == 1]
    assert episode.policies[0] == "human" and theirs and all(turn.response_ids for turn in theirs)
    assert all(turn.text in shown for turn in theirs)


def test_a_person_is_not_shown_moves_meant_for_scripted_play(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("[Guess: 1]\n"))
    assert cli.run(["play", "truth_and_deception", "--vs", "random", "--seat", "1", "--seed", "2"]) == 0
    shown = capsys.readouterr().out
    assert "Form: [Say: your words]" in shown and "For example" not in shown


def test_a_model_behind_an_endpoint_is_played_against_and_enters_a_tournament(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with running("say I give up. \\boxed{[fold]}") as server:
        endpoint = ["--preset", "tiny", "--set", f"endpoint.base_url={server.url}"]
        monkeypatch.setattr(sys, "stdin", io.StringIO("[bet]\n"))
        assert cli.run(["play", "kuhn_poker", "--vs", "api:m", "--seat", "0", *endpoint]) == 0
        assert "you won: +0.50 for you" in capsys.readouterr().out
        argv = ["tournament", "optimal", "api:m", "--game", "kuhn_poker", "--matches", "8", *endpoint, "--json"]
        assert cli.run([*argv, "--out", str(tmp_path / "ladder")]) == 0
    ratings = json.loads(capsys.readouterr().out)["ratings"]
    assert [rating["policy"] for rating in ratings] == ["optimal", "api:m"] and ratings[1]["invalid"] > 0
    assert cli.run(["play", "kuhn_poker", "--vs", "api:m", "--seat", "0"]) == 2
    assert "needs an endpoint; give --preset" in capsys.readouterr().err


def test_a_tournament_writes_over_its_own_output_and_into_no_other_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own, foreign = tmp_path / "ladder", tmp_path / "mine"
    foreign.mkdir()
    (foreign / "ratings.parquet").write_text("a table of somebody else's")
    (foreign / "thesis.txt").write_text("the only copy")
    argv = ["tournament", "random", "optimal", "--game", "nim", "--matches", "2", "--out"]
    assert cli.run([*argv, str(own)]) == cli.run([*argv, str(own)]) == 0
    assert cli.run([*argv, str(foreign)]) == 2
    assert "holds other files (thesis.txt)" in capsys.readouterr().err
    assert (foreign / "ratings.parquet").read_text() == "a table of somebody else's"
