"""What stands in examples/ works: the game and the reward by their dotted paths alone, the YAML file, the commands."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import micro_runs
import pytest

from examples import add_a_game, add_a_reward
from spiral_lib import cli, config, game_check, games, pipeline, rewards, trajectories
from spiral_lib.cold_start import scripted_examples
from spiral_lib.config import Named, RewardConfig
from spiral_lib.state import read_state
from spiral_lib.types import EndReason, Episode, Turn

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
GAME = "examples.add_a_game:GAME"


def best_take(left: int) -> int:
    """Return the winning number of stones to take, 0 where there is none: leave a multiple of four and one more."""
    return (left - 1) % 4


def test_the_game_is_found_by_its_path_with_its_parameters() -> None:
    game = games.make(GAME, seed=1, stones=4)
    assert games.spec(GAME) == add_a_game.SPEC and game.view(0).legal_actions == ("[1]", "[2]", "[3]")
    game.apply("[3]")
    game.apply("[1]")
    assert game.current_player is None and game.returns() == (1.0, -1.0)


def test_the_game_passes_the_check_before_training() -> None:
    found = game_check.check(GAME, matches=40)
    assert found.ok and found.judged.agreed == found.judged.cases == 2


@pytest.mark.parametrize("stones", range(1, 22))
def test_the_game_is_won_by_whoever_should(stones: int) -> None:
    game = games.make(GAME, seed=0, stones=stones)
    while game.current_player is not None:
        left = int(game.view(0).info_state.split()[0])
        game.apply(f"[{best_take(left) or 1}]")
    assert game.returns()[0] == (1.0 if best_take(stones) else -1.0)


def test_the_cold_start_has_scripted_play_for_a_game_it_has_never_heard_of() -> None:
    settings = config.resolve(preset="smoke", overrides=f"games=[{{name: {GAME}}}] cold_start.examples=60")
    played = [e for e in scripted_examples(settings) if e.view is not None]
    assert len(played) >= 30 and {e.view.role for e in played if e.view} == {"first", "second"}
    boxed = Counter(re.search(r"\\boxed\{(.*?)\}", e.reply).group(1) for e in played)  # type: ignore[union-attr]
    assert set(boxed) == {"[1]", "[2]", "[3]"}


def test_the_game_and_the_reward_train_through_the_yaml_file(micro_checkpoint: Path, tmp_path: Path) -> None:
    small = "evaluation.exploitability_games=[] evaluation.bank=false iterations=1 opponents.pool=0 gates.enabled=false"
    changed = micro_runs.overrides(micro_checkpoint, small)
    settings = config.resolve(preset="smoke", yaml_path=EXAMPLES / "custom_run.yaml", overrides=changed)
    assert [g.name for g in settings.games] == ["kuhn_poker", GAME] and settings.seed == 7
    run = tmp_path / "run"
    pipeline.train(settings, run)
    shards = sorted((run / "trajectories").rglob("*.parquet"))
    episodes = list(trajectories.read_episodes(shards))
    own = [e for e in episodes if e.game == GAME]
    assert own and len(own) < len(episodes) and {e.params for e in own} == {(("stones", 9),)}
    scores = json.loads((run / "evaluations" / "0001.json").read_text())["metrics"]
    assert f"eval/{GAME}/vs_random/win_rate" in scores and "eval/kuhn_poker/vs_random/win_rate" in scores
    assert read_state(run).iteration == 1


def test_a_person_plays_the_game(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    monkeypatch.setattr(sys, "stdin", io.StringIO("3\n1\n1\n1\n"))
    code = cli.run(["play", GAME, "--seat", "0", "--set-game", "stones=4", "--vs", "random"])
    out = capsys.readouterr().out
    assert code == 0 and "Whoever takes the last stone loses." in out and "you won" in out


def episode(winner: int, turns: int, end: EndReason = EndReason.FINISHED) -> Episode:
    turn = Turn(
        index=0, player=0, role="first", seed=0, policy="random", policy_digest="", engine="scripted", temperature=1.0,
        trainable=False, info_state="", observation="", text="", action="[1]", legal=True, invalid_reason=None,
        finish_reason="stop",
    )  # fmt: skip
    returns = (1.0, -1.0) if winner == 0 else (-1.0, 1.0)
    return Episode(
        id="x", game=GAME, seed=0, policies=("self", "self"), turns=(turn,) * turns, returns=returns, end_reason=end
    )


def test_the_reward_pays_only_the_winner_and_more_for_a_shorter_match() -> None:
    assert add_a_reward.shape(episode(0, 3), 0) == pytest.approx(0.1)
    assert add_a_reward.shape(episode(0, 3), 1) == 0.0
    assert add_a_reward.shape(episode(0, 9), 0) == 0.0
    assert add_a_reward.shape(episode(0, 1, EndReason.ILLEGAL_ACTION), 0) == 0.0


def test_the_reward_is_added_by_its_path_to_an_outcome_that_counts_in_full() -> None:
    terms = (Named(name="examples.add_a_reward:shape", weight=0.5),)
    assert rewards.rewards(episode(1, 3), RewardConfig(terms=terms)) == pytest.approx((-1.0, 1.05))


def commands(path: Path) -> list[str]:
    """Return the commands of a page's bash blocks in order."""
    blocks = re.findall(r"```bash\n(.*?)```", path.read_text(), flags=re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line]


def test_the_audit_page_names_only_commands_that_there_are() -> None:
    found = commands(EXAMPLES / "audit_a_run.md")
    assert len(found) >= 7
    for line in found:
        assert line.startswith(("spiral train ", "spiral audit ", "python -c "))


@pytest.mark.slow
def test_every_command_of_the_audit_page_does_what_it_says(tmp_path: Path) -> None:
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for line in commands(EXAMPLES / "audit_a_run.md"):
        done = subprocess.run(["bash", "-c", line], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=900)
        expected = 1 if "# exit code 1" in line else 0
        assert done.returncode == expected, (line, done.stdout[-500:], done.stderr[-2000:])
        assert ("first broken link" in done.stdout) == (expected == 1)
