"""The whole evaluation on a real checkpoint: complete, deterministic, and comparable between checkpoints."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from spiral_lib import checkpoint_sources, evaluation, presets, prompts
from spiral_lib.config import EvaluationConfig, Named, RunConfig
from spiral_lib.errors import ConfigError
from spiral_lib.evaluation import exploitability
from spiral_lib.types import Evaluation

pytest.importorskip("pyspiel", reason="needs the extra 'exact' (open-spiel)")
pytest.importorskip("lm_eval", reason="needs the extra 'eval' (lm-eval)")


def small(**evaluated: object) -> RunConfig:
    base = presets.smoke()
    settings = EvaluationConfig(
        matches=4, exploitability_replies=2, minimax_states=6, bank_limit=24, bank_max_new_tokens=6
    )
    games = (Named(name="kuhn_poker"), Named(name="tic_tac_toe", weight=0))  # the second is held out
    rollout = replace(base.rollout, max_new_tokens=6)
    return replace(base, games=games, rollout=rollout, evaluation=replace(settings, **evaluated))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("evaluate") / "untrained"
    texts = ["I hold K. I must call or fold. \\boxed{[call]}", "Your card: J. Moves: none. Pot: 2 chips. 0123456789"]
    checkpoint_sources.init_tiny(small(), texts * 20, out)
    return out


@pytest.fixture(scope="module")
def evaluated(checkpoint: Path) -> Evaluation:
    return evaluation.evaluate(checkpoint, cold_start=checkpoint, config=small(), iteration=1)


def test_everything_that_applies_is_measured_in_held_out_games_too(evaluated: Evaluation) -> None:
    games = ("kuhn_poker", "tic_tac_toe")
    assert set(evaluated.match_returns) == {f"{g}/{o}" for g in games for o in ("random", "optimal", "cold_start")}
    assert {len(returns) for returns in evaluated.match_returns.values()} == {4}
    assert len(evaluated.bank_correct) == 24
    expected = {
        "eval/kuhn_poker/exploitability",
        "eval/kuhn_poker/legal_mass",
        "eval/kuhn_poker/vs_random/win_rate",
        "eval/tic_tac_toe/vs_optimal/win_rate_low",
        "eval/tic_tac_toe/minimax_agreement",
        "eval/bank/accuracy",
        "eval/bank/extraction_failure_rate",
        "reasoning/median_tokens",
    }
    assert expected <= set(evaluated.metrics)
    assert all(math.isfinite(value) for value in evaluated.metrics.values())
    json.dumps(dict(evaluated.metrics), allow_nan=False)


def test_an_untrained_model_is_unscored_and_not_called_good(evaluated: Evaluation) -> None:
    assert evaluated.metrics["eval/kuhn_poker/legal_mass"] == 0.0
    assert evaluated.metrics["eval/kuhn_poker/unscored_states"] == 12.0
    assert evaluated.metrics["eval/kuhn_poker/vs_random/win_rate"] == 0.0
    assert evaluated.metrics["eval/kuhn_poker/vs_random/invalid_rate"] == 1.0


def test_the_same_checkpoint_gets_the_same_evaluation_in_any_iteration_and_folder(
    checkpoint: Path, evaluated: Evaluation, tmp_path: Path
) -> None:
    moved = tmp_path / "elsewhere"
    moved.symlink_to(checkpoint)
    again = evaluation.evaluate(moved, cold_start=checkpoint, config=small(), iteration=7)
    assert replace(again, iteration=1) == evaluated
    assert Evaluation.from_json(evaluated.to_json()) == evaluated


def test_progress_is_reported_for_every_stage(checkpoint: Path) -> None:
    config = small(opponents=("random",), bank=False)
    stages: dict[str, tuple[int, int]] = {}
    found = evaluation.evaluate(
        checkpoint,
        cold_start=checkpoint,
        config=config,
        iteration=0,
        on_progress=lambda stage, done, total: stages.__setitem__(stage, (done, total)),
    )
    assert set(stages) == {"matches against random", "minimax agreement", "exploitability of kuhn_poker"}
    assert all(done == total for done, total in stages.values())
    assert found.bank_correct == ()
    assert not any(name.startswith("eval/bank") for name in found.metrics)


def test_a_game_that_openspiel_does_not_have_in_this_form_is_left_out_and_not_zero(checkpoint: Path) -> None:
    config = replace(
        small(opponents=("random",), bank=False), games=(Named(name="kuhn_poker", params={"hands": 2}),)
    )
    found = evaluation.evaluate(checkpoint, cold_start=checkpoint, config=config, iteration=0)
    assert not any("exploitability" in name for name in found.metrics)
    assert "eval/kuhn_poker/vs_random/win_rate" in found.metrics


def test_pool_opponents_are_found_by_id_and_unknown_ones_are_named(checkpoint: Path) -> None:
    config = small(opponents=("pool:ab",), bank=False, exploitability_games=())
    config = replace(config, games=(Named(name="kuhn_poker"),))
    found = evaluation.evaluate(
        checkpoint, cold_start=checkpoint, config=config, iteration=0, pool={"ab": checkpoint}
    )
    assert found.metrics["eval/kuhn_poker/vs_pool_ab/win_rate_n"] == 4.0
    with pytest.raises(ConfigError, match="pool:ab"):
        evaluation.evaluate(checkpoint, cold_start=checkpoint, config=config, iteration=0)


def test_box_cuts_keep_sampled_tokens_with_the_real_tokenizer(checkpoint: Path) -> None:
    from spiral_lib import checkpoints
    from spiral_lib.types import Completion

    renderer = prompts.Renderer(checkpoints.load_tokenizer(checkpoint), small().prompt)
    ids = renderer.encode_fragment("I hold K. \\boxed{[call]}")
    completion = Completion(prompt_ids=(1,), response_ids=ids, logprobs=(), text="", finish_reason="stop")
    question = exploitability._Boxes(renderer).open(completion, ("[fold]", "[call]"))
    assert question is not None
    kept = question.context[1:]
    assert kept == ids[: len(kept)]
    assert renderer.decode(kept) == "I hold K. \\boxed{"
    assert [renderer.decode(c) for c in question.continuations] == ["[fold]}", "[call]}"]
    assert kept + question.continuations[1] == ids
