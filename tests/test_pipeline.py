"""The loop end to end in plain Python: run folder, equal hashes, resuming after any kind of stop."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import micro_runs
import pyarrow.parquet as pq
import pytest
from micro_runs import WITHOUT_EVALUATION, checkpoint_ids, records, turns_hashes, weights_hash

from spiral_lib import checkpoints, lineage, pipeline, trajectories
from spiral_lib.config import resolve
from spiral_lib.errors import CheckpointError, ConfigError, DataQualityError, LineageError, SpiralError
from spiral_lib.state import read_state
from spiral_lib.types import Episode

ALONE = f"{WITHOUT_EVALUATION} gates.enabled=false opponents.pool=0"


def train(checkpoint: Path, run: Path, more: str = "") -> Path:
    pipeline.train(micro_runs.config(checkpoint, more), run)
    return run


def metrics(run: Path) -> list[dict[str, float]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["iteration"] for line in lines] == list(range(len(lines)))
    return [line["metrics"] for line in lines]


def episodes(run: Path) -> list[Episode]:
    """Return all episodes of a run without the columns that name the iteration or shard they were played in."""
    return list(trajectories.read_episodes(sorted((run / "trajectories").rglob("*.parquet"))))


def test_the_run_folder_holds_what_the_contract_names(micro_run: Path) -> None:
    for name in ("config.yaml", "metrics.jsonl", "ledger.json", "report.html", "state.json"):
        assert (micro_run / name).stat().st_size > 0, name
    for i in (1, 2):
        shard = micro_run / "trajectories" / f"iteration={i:04d}" / "shard-00.parquet"
        assert pq.read_metadata(shard).num_rows >= 8
    assert sorted(checkpoint_ids(micro_run)) == [0, 1, 2]
    pool = sorted(p.name for p in (micro_run / "pool").iterdir())
    assert pool == [f"{i:04d}-{checkpoint_ids(micro_run)[i][:12]}" for i in (1, 2)]
    for folder in (micro_run / "checkpoints").iterdir():
        checkpoints.verify(folder)
    assert resolve(preset="tiny", yaml_path=micro_run / "config.yaml").rollout.matches == 8
    assert not list((micro_run / "quarantine").glob("*"))
    assert not list(micro_run.rglob("*.tmp"))


def test_metrics_start_with_the_cold_start_and_carry_the_documented_names(micro_run: Path) -> None:
    rows = metrics(micro_run)
    assert len(rows) == 3
    for row in rows:
        for game in ("eval/kuhn_poker/exploitability", "eval/kuhn_poker/legal_mass", "eval/bank/accuracy"):
            assert 0.0 <= row[game] <= 1.0
        for part in ("", "_low", "_high", "_n"):
            assert f"eval/kuhn_poker/vs_random/win_rate{part}" in row
    assert rows[0]["cold_start/legal_share"] > 0.5
    assert not {n for n in rows[0] if n.startswith(("learner/", "gate/"))}
    for row in rows[1:]:
        names = ("rollout/invalid_rate", "rollout/response_tokens", "learner/grad_norm", "learner/kl")
        assert row["learner/grad_norm"] > 0.0
        assert all(n in row for n in names)
        assert row["gate/decision"] in (-1.0, 0.0, 1.0)


def test_each_iteration_has_new_weights_and_names_its_parent(micro_run: Path) -> None:
    manifests = [checkpoints.read_manifest(micro_run / "checkpoints" / f"{i:04d}") for i in range(3)]
    assert len({m.id for m in manifests}) == 3
    assert [m.iteration for m in manifests] == [0, 1, 2]
    assert manifests[1].parent == manifests[0].id


def test_only_the_learners_turns_carry_tokens_for_training_and_pool_opponents_appear(micro_run: Path) -> None:
    second = list(trajectories.read_episodes([micro_run / "trajectories" / "iteration=0002" / "shard-00.parquet"]))
    opponents = {p for e in second for p in e.policies} - {"self"}
    pool_id = checkpoint_ids(micro_run)[1][:16]
    assert opponents == {f"pool:{pool_id}"}
    for turn in (t for e in second for t in e.turns):
        assert turn.trainable == (turn.policy == "self")
    seats = [e.policies.index("self") for e in second if len(set(e.policies)) == 2]
    assert abs(2 * sum(seats) - len(seats)) <= 1, "the learner sits equally often in both seats"


def test_the_audit_of_a_run_is_clean_and_finds_one_changed_byte(micro_run: Path, tmp_path: Path) -> None:
    assert lineage.audit(micro_run) == []
    copy = tmp_path / "copy"
    shutil.copytree(micro_run, copy)
    damaged = copy / "trajectories" / "iteration=0001" / "shard-00.parquet"
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    assert {p.path for p in lineage.audit(copy)} == {"trajectories/iteration=0001/shard-00.parquet"}


def test_running_again_does_nothing_again(micro_run: Path, micro_checkpoint: Path, tmp_path: Path) -> None:
    run = tmp_path / "again"
    shutil.copytree(micro_run, run)
    before, turns = records(run), turns_hashes(run)
    train(micro_checkpoint, run)
    assert records(run) == before
    assert turns_hashes(run) == turns


def test_more_iterations_continue_a_run_to_where_one_longer_run_ends(micro_checkpoint: Path, tmp_path: Path) -> None:
    short = train(micro_checkpoint, tmp_path / "short", f"{WITHOUT_EVALUATION} iterations=1")
    before = records(short)
    train(micro_checkpoint, short, f"{WITHOUT_EVALUATION} iterations=3")
    assert {name: records(short)[name] for name in before} == before
    long = train(micro_checkpoint, tmp_path / "long", f"{WITHOUT_EVALUATION} iterations=3")
    assert checkpoint_ids(short) == checkpoint_ids(long)
    assert turns_hashes(short) == turns_hashes(long)
    assert metrics(short) == metrics(long)


@pytest.mark.parametrize(
    "lost",
    [
        ["lineage/0002-learn.json"],
        ["checkpoints/0002"],
        ["trajectories/iteration=0002/shard-00.parquet"],
        ["lineage/0001-decide.json", "ledgers/0001.json", "training/0002.json"],
        ["optimizer/0001", "state.json", "metrics.jsonl", "report.html"],
    ],
    ids=lambda lost: lost[0],
)
def test_a_run_that_lost_something_ends_at_the_same_hashes(
    micro_run: Path, micro_checkpoint: Path, tmp_path: Path, lost: list[str]
) -> None:
    run = tmp_path / "damaged"
    shutil.copytree(micro_run, run)
    for name in lost:
        path = run / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    train(micro_checkpoint, run)
    assert checkpoint_ids(run) == checkpoint_ids(micro_run)
    assert turns_hashes(run) == turns_hashes(micro_run)
    assert metrics(run) == metrics(micro_run)
    assert lineage.audit(run) == []


def test_a_half_written_shard_is_played_again(micro_run: Path, micro_checkpoint: Path, tmp_path: Path) -> None:
    run = tmp_path / "torn"
    shutil.copytree(micro_run, run)
    shard = run / "trajectories" / "iteration=0002" / "shard-00.parquet"
    shard.write_bytes(shard.read_bytes()[:-100])
    train(micro_checkpoint, run)
    assert turns_hashes(run) == turns_hashes(micro_run)
    assert checkpoint_ids(run) == checkpoint_ids(micro_run)


KILLED = """
import sys
from pathlib import Path
from spiral_lib import pipeline
from spiral_lib.config import resolve
pipeline.train(resolve(preset="smoke", overrides=sys.argv[1]), Path(sys.argv[2]))
"""


@pytest.mark.slow
def test_a_run_killed_at_any_moment_continues_to_the_same_hashes(micro_checkpoint: Path, tmp_path: Path) -> None:
    more = f"{WITHOUT_EVALUATION} iterations=4"
    whole = train(micro_checkpoint, tmp_path / "whole", more)
    run = tmp_path / "killed"
    command = [sys.executable, "-c", KILLED, micro_runs.overrides(micro_checkpoint, more), str(run)]
    for moment in ("lineage/0000-cold_start.json", "checkpoints/0001", "lineage/0002-play-00.json", "optimizer/0003"):
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"})
        deadline = time.monotonic() + 120
        while not (run / moment).exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, f"the run ended before {moment} appeared"
    done = records(run)
    train(micro_checkpoint, run, more)
    assert checkpoint_ids(run) == checkpoint_ids(whole)
    assert turns_hashes(run) == turns_hashes(whole)
    assert metrics(run) == metrics(whole)
    assert {name: records(run)[name] for name in done} == done, "finished steps were kept"
    assert lineage.audit(run) == []
    assert not list(run.rglob("*.tmp"))


def test_the_same_seed_gives_the_same_hashes_and_another_seed_does_not(micro_checkpoint: Path, tmp_path: Path) -> None:
    first = train(micro_checkpoint, tmp_path / "first", f"{ALONE} rollout.shards=2")
    second = train(micro_checkpoint, tmp_path / "second", f"{ALONE} rollout.shards=2")
    other = train(micro_checkpoint, tmp_path / "other", f"{ALONE} rollout.shards=2 seed=1")
    assert checkpoint_ids(first) == checkpoint_ids(second)
    assert turns_hashes(first) == turns_hashes(second)
    assert checkpoint_ids(first)[2] != checkpoint_ids(other)[2]
    assert {r.threads for r in lineage.read_all(first)} == {1}


def test_three_shards_play_the_very_same_matches_as_one(micro_checkpoint: Path, tmp_path: Path) -> None:
    one = train(micro_checkpoint, tmp_path / "one", f"{ALONE} iterations=1 learner.recompute_logprobs=true")
    more = f"{ALONE} iterations=1 learner.recompute_logprobs=true rollout.shards=3 rollout.concurrency=2"
    three = train(micro_checkpoint, tmp_path / "three", more)
    assert len(turns_hashes(three)) == 3
    for a, b in zip(episodes(one), episodes(three), strict=True):
        assert without_logprobs(a) == without_logprobs(b)
    weights = [weights_hash(run / "checkpoints" / "0001") for run in (one, three)]
    assert weights[0] == weights[1], "recomputed old log-probs do not depend on how matches were batched"


def without_logprobs(episode: Episode) -> list[object]:
    """Return what two plays of a match must share; log-probs may differ in the last bits between batch shapes."""
    turns = [(t.prompt_ids, t.response_ids, t.text, t.action, t.legal, t.seed, t.policy) for t in episode.turns]
    return [episode.id, episode.game, episode.seed, episode.returns, episode.end_reason, turns]


def test_two_iterations_of_one_step_equal_one_iteration_of_two(micro_checkpoint: Path, tmp_path: Path) -> None:
    single = train(micro_checkpoint, tmp_path / "single", f"{ALONE} iterations=2")
    double = train(micro_checkpoint, tmp_path / "double", f"{ALONE} iterations=1 rollout.steps_per_iteration=2")
    assert undigested(single) == undigested(double)
    assert weights_hash(single / "checkpoints" / "0002") == weights_hash(double / "checkpoints" / "0001")
    steps = [[json.loads(s) for s in (run / "steps.jsonl").read_text().splitlines()] for run in (single, double)]
    assert [s["step"] for s in steps[0]] == [1, 2]
    assert steps[0] == steps[1]


def undigested(run: Path) -> list[Episode]:
    """Return a run's episodes without what names the weights: between two steps they are no checkpoint yet."""
    found = episodes(run)
    return [replace(e, turns=tuple(replace(t, policy_digest="") for t in e.turns)) for e in found]


def test_a_run_goes_on_from_another_run(micro_run: Path, micro_checkpoint: Path, tmp_path: Path) -> None:
    run = tmp_path / "next"
    config = micro_runs.config(micro_checkpoint, "iterations=1 seed=5")
    after = pipeline.train(config, run, resume_from=micro_run)
    earlier = read_state(micro_run)
    assert after.iteration == 1
    adopted = checkpoints.read_manifest(run / "adopted" / "checkpoint").id
    assert adopted == checkpoints.read_manifest(earlier.checkpoint).id
    assert checkpoints.read_manifest(run / "checkpoints" / "0001").parent == adopted
    start = checkpoints.read_manifest(after.cold_start).id
    assert start == checkpoints.read_manifest(earlier.cold_start).id, "KL and gate keep their reference"
    before = json.loads((micro_run / "ledger.json").read_text())
    ledger = json.loads((run / "ledgers" / "0000.json").read_text())
    assert ledger["baselines"] == before["baselines"] != {}
    assert ledger["pool"] == before["pool"]
    assert lineage.audit(run) == []
    assert len(metrics(run)) == 2


def test_a_resumed_run_is_resumed_itself_without_the_earlier_one(
    micro_run: Path, micro_checkpoint: Path, tmp_path: Path
) -> None:
    earlier = tmp_path / "earlier"
    shutil.copytree(micro_run, earlier)
    config = micro_runs.config(micro_checkpoint, f"{WITHOUT_EVALUATION} iterations=1 seed=5")
    pipeline.train(config, tmp_path / "next", resume_from=earlier)
    done = records(tmp_path / "next")
    pipeline.train(config, tmp_path / "next", resume_from=earlier)
    assert records(tmp_path / "next") == done
    shutil.rmtree(earlier)
    assert lineage.audit(tmp_path / "next") == []


def test_a_bad_shard_is_quarantined_and_stops_the_run_with_its_reasons(
    micro_run: Path, micro_checkpoint: Path, tmp_path: Path
) -> None:
    run = spoiled(micro_run, tmp_path)
    with pytest.raises(DataQualityError, match=r"1 of 1 shards are bad.*zero_sum.*000002-") as error:
        train(micro_checkpoint, run)
    assert str(run / "quarantine") in str(error.value)
    reasons = list((run / "quarantine").glob("*.json"))
    assert len(reasons) == 1
    assert json.loads(reasons[0].read_text())["reasons"]
    assert not (run / "trajectories" / "iteration=0002" / "shard-00.parquet").exists()
    assert not (run / "checkpoints" / "0002").exists(), "nothing was learned from it"
    assert (run / "checkpoints" / "0001").exists()


def spoiled(micro_run: Path, tmp_path: Path) -> Path:
    """Return a copy of the run that stopped after playing iteration 2, one of whose episodes is not zero-sum."""
    run = tmp_path / "spoiled"
    shutil.copytree(micro_run, run)
    for name in ("lineage/0002-learn.json", "lineage/0002-evaluate.json", "lineage/0002-decide.json"):
        (run / name).unlink()
    shutil.rmtree(run / "checkpoints" / "0002")
    shard = run / "trajectories" / "iteration=0002" / "shard-00.parquet"
    table = pq.read_table(shard)
    column = next(n for n in table.column_names if n.startswith("return") and "reason" not in n)
    values = table.column(column).to_pylist()
    spoil = 7.0 if not isinstance(values[0], list) else [7.0, 7.0]
    at = table.column_names.index(column)
    changed = table.set_column(at, table.schema.field(column), [[spoil, *values[1:]]])
    pq.write_table(changed, shard)
    record = run / "lineage" / "0002-play-00.json"
    content = json.loads(record.read_text())
    content["outputs"]["turns"]["sha256"] = micro_runs.sha256_file(shard)
    record.write_text(json.dumps(content))
    return run


def test_a_halt_stops_the_run_and_a_second_try_halts_again(micro_checkpoint: Path, tmp_path: Path) -> None:
    more = "gates.on_collapse=halt gates.max_empty_share=0 gates.min_length_share=1 gates.max_invalid_share=0"
    with pytest.raises(SpiralError, match=r"halted the run at iteration 1.*champion is iteration 0"):
        train(micro_checkpoint, tmp_path / "run", more)
    done = records(tmp_path / "run")
    assert "1-decide" in done, "everything up to the halt is kept"
    assert (tmp_path / "run" / "report.html").exists()
    with pytest.raises(SpiralError, match="halted the run"):
        train(micro_checkpoint, tmp_path / "run", more)
    assert records(tmp_path / "run") == done


def test_a_rollback_goes_on_from_the_champion_at_half_the_rate(micro_checkpoint: Path, tmp_path: Path) -> None:
    more = "gates.on_collapse=rollback gates.max_empty_share=0 gates.min_length_share=1 gates.max_invalid_share=0"
    run = train(micro_checkpoint, tmp_path / "run", more)
    ledger = json.loads((run / "ledger.json").read_text())
    assert [d["decision"] for d in ledger["decisions"]] == ["rollback", "rollback"]
    assert ledger["lr_scale"] == 0.25
    assert ledger["pool"] == [], "what was rolled back never becomes an opponent"
    ids = checkpoint_ids(run)
    assert checkpoints.read_manifest(run / "checkpoints" / "0002").parent == ids[0]
    state = read_state(run)
    assert weights_hash(state.checkpoint) == weights_hash(run / "checkpoints" / "0000")
    assert state.optimizer is None


def test_another_configuration_cannot_take_over_a_run_folder(
    micro_run: Path, micro_checkpoint: Path, tmp_path: Path
) -> None:
    before = (micro_run / "config.yaml").read_bytes()
    with pytest.raises(ConfigError, match="another configuration"):
        train(micro_checkpoint, micro_run, "learner.lr=1e-9")
    assert (micro_run / "config.yaml").read_bytes() == before
    (tmp_path / "mine.txt").write_text("not a run")
    with pytest.raises(ConfigError, match="not a run folder"):
        train(micro_checkpoint, tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]


def test_a_run_that_cannot_begin_leaves_nothing_behind(micro_checkpoint: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    bad = (
        ("games=[chess_boxing]", ConfigError, "chess_boxing"),
        ("games=[{name: kuhn_poker, params: {hans: 3}}]", ConfigError, "Did you mean 'hands'"),
        ("games=[{name: kuhn_poker, params: {hands: 0}}]", ConfigError, "hands"),
        ("model.source=checkpoint:/nowhere", CheckpointError, "/nowhere"),
        ("model.source=hf:/nowhere", CheckpointError, "no such folder"),
        ("model.source=init:huge", ConfigError, "init:huge"),
        ("rollout.engine=warp", ConfigError, "warp"),
        ("evaluation.opponents=[rnadom]", ConfigError, "rnadom"),
        ("evaluation.exploitability_games=[chess]", ConfigError, "chess"),
        ("rewards.terms=[flattery]", ConfigError, "flattery"),
    )
    for overrides, kind, text in bad:
        with pytest.raises(kind, match=text):
            train(micro_checkpoint, run, overrides)
        assert not run.exists(), overrides
    with pytest.raises(LineageError, match="no run folder"):
        pipeline.train(micro_runs.config(micro_checkpoint), run, resume_from=tmp_path)
    assert not run.exists()
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(ConfigError, match="cannot write"):
        train(micro_checkpoint, blocked / "run")


def test_a_run_cannot_resume_from_itself(micro_run: Path, micro_checkpoint: Path) -> None:
    with pytest.raises(ConfigError, match="from itself"):
        pipeline.train(micro_runs.config(micro_checkpoint), micro_run, resume_from=micro_run)
