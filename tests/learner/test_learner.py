"""The learner over checkpoint folders: what it writes, and that a run can stop between any two steps."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from learner_cases import episode, random_model, same_bits, sampled, settings, turn

from spiral_lib import checkpoints
from spiral_lib.config import config_hash
from spiral_lib.errors import CheckpointError
from spiral_lib.learner.update import Learner
from spiral_lib.rae import RoleBaselines
from spiral_lib.types import Episode


def tokenizer() -> Any:
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    vocab = {f"t{i}": i for i in range(40)}
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(vocab, unk_token="t0")))


def checkpoint(out: Path, seed: int = 0) -> Path:
    model = random_model(seed, tie_word_embeddings=True)
    checkpoints.save(model, tokenizer(), out, parent=None, iteration=0, base_model="tiny", config_hash="")
    return out


def played(model: Any, count: int = 6) -> list[Episode]:
    """Episodes of two turns each, with the model's own log-probs."""
    rows = sampled(model, 2 * count)
    out = []
    for i in range(count):
        turns = []
        for player, s in enumerate(rows[2 * i : 2 * i + 2]):
            ids = {"prompt_ids": s.prompt_ids, "response_ids": s.response_ids, "logprobs": s.old_logprobs}
            turns.append(turn(player, player, **ids))
        out.append(episode(f"{i:03d}", ((1, -1), (-1, 1), (0, 0))[i % 3], tuple(turns)))
    return out


CONFIG = settings("epochs=2 minibatch=6 kl_coef=0.05 max_mismatch=100.0 lr=1e-3 lr_decay_steps=4 lr_final=0.1")


def test_two_steps_saved_and_two_more_equal_four_bit_for_bit(tmp_path: Path) -> None:
    start = checkpoint(tmp_path / "start")
    episodes = played(checkpoints.load_model(start))
    whole, baselines = Learner(start, start, CONFIG), RoleBaselines(0.95)
    expected = [whole.step(episodes, baselines, step=s) for s in (1, 2, 3, 4)]

    first, b = Learner(start, start, CONFIG), RoleBaselines(0.95)
    found = [first.step(episodes, b, step=s) for s in (1, 2)]
    first.save(tmp_path / "half", iteration=1)
    first.save_optimizer(tmp_path / "optimizer")
    second = Learner(tmp_path / "half", start, CONFIG, tmp_path / "optimizer")
    again = RoleBaselines.from_json(b.to_json())
    found += [second.step(episodes, again, step=s) for s in (3, 4)]

    assert found == expected
    assert same_bits(dict(second.state_dict()), dict(whole.state_dict()))
    assert again.to_json() == baselines.to_json()


def test_restarting_the_optimizer_is_another_run(tmp_path: Path) -> None:
    start = checkpoint(tmp_path / "start")
    episodes = played(checkpoints.load_model(start))
    learner = Learner(start, None, CONFIG)
    learner.step(episodes, RoleBaselines(0.95), step=1)
    learner.save(tmp_path / "one", iteration=1)
    learner.save_optimizer(tmp_path / "optimizer")
    ends = []
    for state in ("full", "none"):
        config = settings(f"max_mismatch=100.0 lr=1e-3 optimizer_state={state}")
        resumed = Learner(tmp_path / "one", None, config, tmp_path / "optimizer")
        resumed.step(episodes, RoleBaselines(0.95), step=2)
        ends.append({n: t.clone() for n, t in resumed.state_dict().items()})
    assert not same_bits(*ends)


def test_a_saved_checkpoint_names_its_parent_and_computes_the_same_numbers(tmp_path: Path) -> None:
    start = checkpoint(tmp_path / "start")
    learner = Learner(start, None, CONFIG)
    learner.step(played(checkpoints.load_model(start)), RoleBaselines(0.95), step=1)
    manifest = learner.save(tmp_path / "one", iteration=3)
    assert (manifest.parent, manifest.iteration) == (checkpoints.read_manifest(start).id, 3)
    assert (manifest.base_model, manifest.config_hash) == ("tiny", config_hash(CONFIG))
    assert checkpoints.verify(tmp_path / "one") == manifest
    loaded = checkpoints.load_model(tmp_path / "one")
    assert same_bits(dict(loaded.state_dict()), dict(learner.state_dict()))
    ids = torch.tensor([[1, 2, 3, 4]])
    live = learner._update.backend.model
    assert float((loaded(ids).logits - live(ids).logits).abs().max().detach()) < 1e-6


def test_the_checkpoints_own_attention_is_written_and_not_the_learners(tmp_path: Path) -> None:
    start = checkpoint(tmp_path / "start")
    Learner(start, None, CONFIG).save(tmp_path / "one", iteration=1)
    assert "spiral" not in (tmp_path / "one" / "config.json").read_text()
    assert json.loads((tmp_path / "one" / "config.json").read_text()) == json.loads((start / "config.json").read_text())


def test_the_reference_is_loaded_only_where_the_loss_needs_it(tmp_path: Path) -> None:
    start = checkpoint(tmp_path / "start")
    episodes = played(checkpoints.load_model(start))
    without = Learner(start, tmp_path / "absent", settings()).step(episodes, RoleBaselines(0.95), step=1)
    assert "learner/kl" not in without
    held = Learner(start, checkpoint(tmp_path / "other", 1), CONFIG).step(episodes, RoleBaselines(0.95), step=1)
    assert held["learner/kl"] > 0
    with pytest.raises(CheckpointError):
        Learner(start, tmp_path / "absent", CONFIG)
