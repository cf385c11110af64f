"""The match audit: a stratified, seeded sample on one safe page, and verdicts that reach the report."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from spiral_lib import cli, match_audit, match_audit_page, report_verdicts, trajectories
from spiral_lib.errors import ConfigError, LineageError
from spiral_lib.types import EndReason, Episode, Turn

WHY = "I hold the king and the pot is small so betting wins more often than it loses here \\boxed{[bet]}"


def turn(index: int, player: int, text: str, **more: object) -> Turn:
    settings: dict[str, object] = {
        "index": index, "player": player, "role": f"player {player}", "seed": 1, "policy": "self",
        "policy_digest": "d", "engine": "hf", "temperature": 1.0, "trainable": True, "info_state": "2",
        "observation": "Your card: K.", "text": text, "action": "[bet]", "legal": True, "invalid_reason": None,
        "finish_reason": "stop", "prompt_ids": (1,), "response_ids": (2, 3), "logprobs": (-0.1, -0.1),
    }  # fmt: skip
    return Turn(**{**settings, **more})  # type: ignore[arg-type]


def match(number: int, turns: tuple[Turn, ...], returns: tuple[float, float], **more: object) -> Episode:
    settings: dict[str, object] = {
        "id": f"000001-{number:06d}", "game": "kuhn_poker", "seed": number, "policies": ("self", "random"),
        "turns": turns, "returns": returns, "end_reason": EndReason.FINISHED,
    }  # fmt: skip
    return Episode(**{**settings, **more})  # type: ignore[arg-type]


def write(run: Path, episodes: list[Episode]) -> Path:
    path = trajectories.shard_path(run, 1, 0)
    path.parent.mkdir(parents=True)
    trajectories.write_shard(path, episodes, run="r", iteration=1, step=1, shard=0, config_hash="c")
    return run


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """One match for each stratum, told apart by its number, among matches without anything special."""
    plain = [match(n, (turn(0, 0, WHY),), (0.0, 0.0)) for n in range(10, 30)]
    illegal = turn(0, 0, "\\boxed{[raise]}", action="", legal=False, invalid_reason="illegal_action")
    long = turn(0, 0, WHY, response_ids=(2,) * 90, logprobs=(-0.1,) * 90)
    folds = turn(0, 0, WHY, info_state="2pb", action="[fold]", logprobs=(-5.0, -5.0))
    special = [
        match(1, (turn(0, 0, WHY),), (0.5, -0.5)),
        match(2, (turn(0, 0, WHY),), (-0.5, 0.5)),
        match(3, (illegal,), (-1.0, 1.0), end_reason=EndReason.ILLEGAL_ACTION, forfeited_by=0),
        match(4, (long,), (0.0, 0.0)),
        match(5, (folds,), (0.0, 0.0)),
    ]
    return write(tmp_path / "run", [*plain, *special])


def test_every_stratum_finds_its_match(made: Path) -> None:
    sample = match_audit.draw(made, matches=5, seed=0)
    assert {one.stratum: int(one.episode.id[-6:]) for one in sample} == {
        "wins": 1, "losses": 2, "invalid": 3, "longest": 4, "surprising": 5,
    }  # fmt: skip
    folded = next(one for one in sample if one.stratum == "surprising").turns[0]
    assert folded.regret is not None and folded.regret > 0.5, "a king beats any bet"


def test_the_sample_depends_on_the_seed_alone_and_holds_no_match_twice(made: Path) -> None:
    drawn = [[one.key for one in match_audit.draw(made, matches=12, seed=seed)] for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(drawn[0]) == len({key.partition("/")[0] for key in drawn[0]}) == 12
    whole = match_audit.draw(made, matches=100, seed=0)
    assert len(whole) == 25, "no more than there are"


def test_reasoning_that_is_empty_templated_or_nearly_the_same_is_flagged(tmp_path: Path) -> None:
    words = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho sigma tau upsilon"
    texts = [
        "\\boxed{[bet]}",
        "My card 1 beats 2. \\boxed{[bet]}",
        "My card 3 beats 4. \\boxed{[check]}",
        f"{words} \\boxed{{[bet]}}",
        f"{words} phi \\boxed{{[bet]}}",
        "Only this one says anything about folding a jack. \\boxed{[bet]}",
    ]
    run = write(tmp_path / "run", [match(n, (turn(0, 0, text),), (0.5, -0.5)) for n, text in enumerate(texts)])
    flags = {int(one.episode.id[-6:]): one.turns[0].flags for one in match_audit.draw(run, matches=6, seed=0)}
    assert flags[0] == ("no reasoning",)
    assert flags[1] == flags[2] == ("templated: 2 of 5 replies have these words, numbers aside",)
    assert flags[3] == ("nearly the same as 000001-000004/0",) and flags[4] == ("nearly the same as 000001-000003/0",)
    assert flags[5] == ()


def test_the_solvers_move_stands_beside_the_one_played(micro_run: Path) -> None:
    sample = match_audit.draw(micro_run, matches=12, seed=0)
    assert len(sample) == 12
    turns = [t for one in sample for t in one.turns]
    assert turns and all(abs(sum(t.best.values()) - 1) < 1e-9 and t.is_exact for t in turns)
    page = match_audit_page.document("run", sample)
    assert "solver: <code>" in page and "regret" in page


def test_text_of_a_model_is_shown_and_never_run(tmp_path: Path) -> None:
    evil = '</pre></script><script>alert(1)</script><img src=x onerror=alert(1)>"'
    bad = turn(0, 0, evil, observation=evil, role=evil, action=evil, legal=False, invalid_reason=evil)
    run = write(tmp_path / "run", [match(0, (bad,), (-1.0, 1.0), end_reason=EndReason.ILLEGAL_ACTION)])
    page = match_audit_page.write(run, matches=3).read_text()
    assert "alert(1)" in page and page.count("<script>") == 1 and "<img" not in page
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None and "default-src 'none'" in policy[1] and "script-src 'sha256-" in policy[1]
    assert not re.search(r"(?:src|href)=[\"']?http", page)


def test_verdicts_are_kept_with_the_run_and_become_a_figure(
    micro_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(micro_run, run)
    assert cli.run(["report", str(run), "--matches", "8", "--seed", "3"]) == 0
    assert (run / "match_audit" / "index.html").is_file()
    sample = json.loads((run / "match_audit" / "sample.json").read_text())
    keys = sorted(sample["strata"])
    assert len(keys) == 8 and "Match quality" not in (run / "report.html").read_text()
    content = {
        "version": 1, "sample": sample["id"], "reviewer": "Reviewer 1",
        "verdicts": {key: "sound" if i < 6 else "empty" for i, key in enumerate(keys)},
    }  # fmt: skip
    file = tmp_path / "verdicts.json"
    file.write_text(json.dumps(content))
    assert cli.run(["report", str(run), "--verdicts", str(file)]) == 0
    capsys.readouterr()
    page = (run / "report.html").read_text()
    assert "Match quality" in page and "Reviewer 1" in page and "75 % [41, 93]" in page
    (review,) = report_verdicts.read(run)
    assert len(review.verdicts) == 8 and set(review.strata.values()) <= set(match_audit.STRATA)
    second = replace(review, reviewer="other", verdicts={keys[0]: "flawed", keys[1]: "sound"})
    assert "agree on 1 of 2 matches" in report_verdicts.figure([review, second])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"sample": "other"}, "another sample"),
        ({"verdicts": {"000009-000000/0": "sound"}}, "not drawn"),
        ({"verdicts": {"KEY": "great"}}, "none of sound"),
        ({"verdicts": {}}, "no verdicts"),
        ({"reviewer": "../../x"}, "reviewer"),
        ({"version": 2}, "version"),
        ({"more": 1}, "needs"),
    ],
)
def test_a_wrong_file_of_verdicts_is_refused(
    made: Path, tmp_path: Path, change: dict[str, object], reason: str
) -> None:
    match_audit_page.write(made, matches=3)
    sample = json.loads((made / "match_audit" / "sample.json").read_text())
    key = min(sample["strata"])
    content = {"version": 1, "sample": sample["id"], "reviewer": "r", "verdicts": {key: "sound"}} | change
    file = tmp_path / "wrong.json"
    file.write_text(json.dumps(content).replace("KEY", key))
    with pytest.raises(ConfigError, match=reason):
        report_verdicts.save(made, file)
    assert report_verdicts.read(made) == ()


def test_verdicts_need_an_audit_and_an_audit_needs_turns(tmp_path: Path) -> None:
    file = tmp_path / "v.json"
    file.write_text("{}")
    with pytest.raises(ConfigError, match="--matches"):
        report_verdicts.save(tmp_path, file)
    with pytest.raises(LineageError, match="no turns"):
        match_audit.draw(tmp_path, matches=4, seed=0)
