"""Adapters: what trains, what is written, and that merged weights compute the adapted model's numbers."""

import importlib.util
from pathlib import Path

import pytest
import torch
from learner_cases import random_model, same_bits, settings, weights
from test_learner import checkpoint, played

from spiral_lib import checkpoints
from spiral_lib.errors import ConfigError
from spiral_lib.learner import lora
from spiral_lib.learner.update import Learner
from spiral_lib.rae import RoleBaselines

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("peft") is None, reason="peft is not installed: pip install 'spiral-pipeline[lora]'"
)
TEXT = "lora_rank=2 max_mismatch=100.0 lr=1e-2"


def test_new_adapters_change_nothing_and_merged_weights_compute_what_the_adapters_do() -> None:
    plain, adapted = (random_model(tie_word_embeddings=True) for _ in range(2))
    lora.add(adapted, 2, seed=0, checkpoint="c")
    assert same_bits(dict(plain.state_dict()), lora.merged(adapted))
    ids = torch.tensor([[1, 2, 3, 4]])
    with torch.no_grad():
        for name, p in adapted.named_parameters():
            if "lora_B" in name:
                p.normal_(0, 0.1)
        expected = adapted(ids).logits
        plain.load_state_dict(lora.merged(adapted))
        assert not torch.equal(expected, random_model(tie_word_embeddings=True)(ids).logits)
        assert float((plain(ids).logits - expected).abs().max()) < 1e-5


def test_only_adapters_train_and_their_start_depends_on_seed_and_checkpoint() -> None:
    found = []
    for seed, parent in ((0, "a"), (0, "a"), (1, "a"), (0, "b")):
        model = random_model()
        lora.add(model, 2, seed=seed, checkpoint=parent)
        trained = {n for n, p in model.named_parameters() if p.requires_grad}
        assert trained == {n for n, _ in model.named_parameters() if "lora_" in n}
        found.append({n: p.detach().clone() for n, p in model.named_parameters() if "lora_A" in n})
    assert same_bits(found[0], found[1])
    assert not same_bits(found[0], found[2])
    assert not same_bits(found[0], found[3])


def test_a_learner_with_adapters_writes_a_full_checkpoint_of_low_rank_change(tmp_path: Path) -> None:
    start = checkpoint(tmp_path / "start")
    before = checkpoints.load_model(start)
    learner = Learner(start, None, settings(TEXT))
    episodes = played(before)
    learner.step(episodes, RoleBaselines(0.95), step=1)
    learner.save(tmp_path / "one", iteration=1)
    learner.save_optimizer(tmp_path / "optimizer")
    checkpoints.verify(tmp_path / "one")
    after = checkpoints.load_model(tmp_path / "one")
    assert same_bits(dict(after.state_dict()), dict(learner.state_dict()))
    assert after.state_dict().keys() == before.state_dict().keys()
    change = {n: t - weights(before)[n] for n, t in weights(after).items()}
    assert float(change["model.embed_tokens.weight"].abs().max()) == 0.0
    ranks = [int(torch.linalg.matrix_rank(t, rtol=1e-3)) for n, t in change.items() if "proj" in n]
    assert ranks and all(1 <= r <= 2 for r in ranks)
    resumed = Learner(tmp_path / "one", None, settings(TEXT), tmp_path / "optimizer")
    assert resumed.step(episodes, RoleBaselines(0.95), step=2)["learner/optimizer_steps"] == 1


def test_adapters_with_deepspeed_are_refused_before_anything_runs() -> None:
    with pytest.raises(ConfigError, match=r"learner\.lora_rank=2 needs learner\.backend=torch"):
        settings("lora_rank=2 backend=deepspeed")
