"""What would go to the Hugging Face hub: laid out in a folder, loadable, with a card; sent only when asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from spiral_lib import cli, hub
from spiral_lib.errors import RegistryError


def test_the_folder_is_a_checkpoint_with_card_evaluation_and_lineage(micro_run: Path, tmp_path: Path) -> None:
    out = hub.stage(micro_run, tmp_path / "push", repo="me/kuhn", iteration=1)
    card = (out / "README.md").read_text()
    head = yaml.safe_load(card.split("---")[1])
    assert head["library_name"] == "transformers"
    assert head["version"] == json.loads((out / "manifest.json").read_text())["id"]
    assert "from_pretrained('me/kuhn')" in card
    assert "eval/kuhn\\_poker/exploitability" in card
    assert {p.name for p in (out / "run").iterdir()} == {"config.yaml", "evaluation.json", "lineage.json"}
    assert not (out / "trajectories").exists()


def test_what_was_staged_loads_as_any_model_does(micro_run: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    out = hub.stage(micro_run, tmp_path / "push", repo="me/kuhn")
    model, tokenizer = AutoModelForCausalLM.from_pretrained(out), AutoTokenizer.from_pretrained(out)
    assert model.get_input_embeddings().num_embeddings >= len(tokenizer)


@pytest.mark.slow
def test_turns_load_as_a_data_set(micro_run: Path, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    out = hub.stage(micro_run, tmp_path / "push", repo="me/kuhn", trajectories=True)
    files = [str(p) for p in sorted((out / "trajectories").glob("*/*.parquet"))]
    turns = datasets.load_dataset("parquet", data_files=files, cache_dir=str(tmp_path / "cache"))["train"]
    assert {"prompt_ids", "response_ids", "logprobs", "return_0"} <= set(turns.column_names)
    assert all(len(row["logprobs"]) == len(row["response_ids"]) for row in turns)


def test_a_folder_that_is_there_is_never_written_into(micro_run: Path, tmp_path: Path) -> None:
    with pytest.raises(RegistryError, match="is there already"):
        hub.stage(micro_run, tmp_path, repo="me/kuhn")
    assert list(tmp_path.iterdir()) == []


def test_an_iteration_that_a_run_lacks_is_refused(micro_run: Path, tmp_path: Path) -> None:
    with pytest.raises(RegistryError, match="iteration 9"):
        hub.stage(micro_run, tmp_path / "push", repo="me/kuhn", iteration=9)


def test_staging_from_the_command_line_sends_nothing(
    micro_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["push", str(micro_run), "me/kuhn", "--stage", str(tmp_path / "push")]) == cli.OK
    assert "nothing pushed" in capsys.readouterr().out
    assert (tmp_path / "push" / "model.safetensors").is_file()


def test_two_runs_are_compared_from_the_command_line(
    micro_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "compare.html"
    assert cli.run(["report", str(micro_run), str(micro_run), "--out", str(page), "--json"]) == cli.OK
    assert json.loads(capsys.readouterr().out)["report"] == str(page)
    assert page.is_file()
    assert cli.run(["report", str(micro_run), "--out", str(page)]) == cli.MISTAKE


def test_a_run_is_watched_once_from_the_command_line(micro_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["watch", str(micro_run), "--once"]) == cli.OK
    assert "2 of 2 iterations" in capsys.readouterr().out
    assert cli.run(["watch", str(micro_run)]) == cli.OK
