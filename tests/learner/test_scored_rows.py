"""The last layer leaves out positions that no loss uses, and nothing else changes."""

import pytest
import torch
from learner_cases import furthest, gradients, random_model, sample

from spiral_lib.learner import backends, logprobs, packing, scored_rows, shared_prefix

HEADER = tuple(range(2, 22))
ROWS = [sample((*HEADER, *range(22, 22 + n)), tuple(range(30, 32 + n)), 1.0) for n in range(1, 6)]
MADE = {
    "packed": lambda: packing.make(ROWS, range(5), packed=True),
    "padded": lambda: packing.make(ROWS, range(5), packed=False),
    "shared": lambda: shared_prefix.make(ROWS, range(5), len(HEADER)),
}


def passed(model: torch.nn.Module, how: str):
    packing.prepare(model)
    new, entropy = logprobs.token_logprobs(model, MADE[how](), temperature=1.0, chunk=512)
    (new.sum() + 0.5 * entropy.sum()).backward()
    return new.detach(), entropy.detach(), gradients(model)


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("kind", ["llama", "qwen3"])
@pytest.mark.parametrize("how", MADE)
def test_values_and_gradients_are_those_of_all_rows(
    how: str, kind: str, checkpointing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found():
        model = random_model(kind=kind)
        if checkpointing:
            backends.checkpoint_activations(model)
        return passed(model, how)

    few = found()
    monkeypatch.setattr(scored_rows, "prepare", lambda model: None)
    every = found()
    assert float((few[0] - every[0]).abs().max()) < 1e-5
    assert float((few[1] - every[1]).abs().max()) < 1e-5
    assert furthest(few[2], every[2]) < 1e-5


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("how", MADE)
def test_only_the_last_layer_is_spared_and_only_what_is_not_scored(how: str, checkpointing: bool) -> None:
    model = random_model()
    if checkpointing:
        backends.checkpoint_activations(model)
    packing.prepare(model)
    rows = {}
    for i, layer in enumerate(model.model.layers):
        for name, part in (("attention", layer.self_attn.o_proj), ("mlp", layer.mlp)):
            part.register_forward_pre_hook(
                lambda _, args, key=(i, name): rows.setdefault(key, set()).add(args[0].shape[:-1].numel())
            )
    passed(model, how)
    pack, last = MADE[how](), len(model.model.layers) - 1
    tokens, scored = pack.ids_BT.numel(), len(pack.where_R)
    assert scored < tokens
    assert rows == {(i, name): {scored if i == last else tokens} for i, name in rows}
    assert len(rows) == 2 * (last + 1)


def test_a_pass_that_uses_every_position_is_that_of_an_unprepared_model() -> None:
    model, ids = random_model(), torch.tensor([[5, 6, 7, 8, 9]])
    with torch.no_grad():
        before = model(input_ids=ids).logits
        packing.prepare(model)
        scored_rows.prepare(model)  # a second time changes nothing
        logprobs.token_logprobs(model, MADE["packed"](), temperature=1.0, chunk=512)
        assert torch.allclose(model(input_ids=ids).logits, before, atol=1e-5)


def test_a_model_built_otherwise_is_left_alone() -> None:
    model = torch.nn.Linear(2, 2)
    model.base_model_prefix = "transformer"
    scored_rows.prepare(model)
    assert scored_rows.keyword(model, torch.tensor([0])) == {}
