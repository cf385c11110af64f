"""The distance of two engines' log-probs against numbers worked out by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import tiny_checkpoints as tiny

from spiral_lib.engines import parity
from spiral_lib.engines.hf import HfEngine
from spiral_lib.errors import EngineError
from spiral_lib.types import Request


def test_equal_log_probs_are_no_distance() -> None:
    found = parity.compare([-1.0, -2.0], [-1.0, -2.0])
    assert found == parity.Parity(tokens=2, mean_abs=0.0, max_abs=0.0, kl=0.0, outside=0.0)


def test_differences_are_averaged_and_ratios_outside_are_counted() -> None:
    found = parity.compare([-1.0, -1.0, -1.0, -1.0], [-1.0 + math.log(2.0), -1.2, -0.9, -1.3])
    assert found.mean_abs == pytest.approx((math.log(2.0) + 0.2 + 0.1 + 0.3) / 4)
    assert found.max_abs == pytest.approx(math.log(2.0))
    expected = (2.0 - 1 - math.log(2.0)) + sum(math.exp(d) - 1 - d for d in (-0.2, 0.1, -0.3))
    assert found.kl == pytest.approx(expected / 4)
    assert found.outside == 0.5
    assert found.metrics("parity")["parity/outside"] == 0.5


def test_the_kl_estimate_is_the_kl_of_the_engine_to_the_reference() -> None:
    p, q = (0.5, 0.3, 0.2), (0.4, 0.4, 0.2)
    # 10 tokens in the engine's own proportions.
    tokens = [0] * 5 + [1] * 3 + [2] * 2
    found = parity.compare([math.log(p[t]) for t in tokens], [math.log(q[t]) for t in tokens])
    assert found.kl == pytest.approx(sum(a * math.log(a / b) for a, b in zip(p, q, strict=True)))


def test_far_ratios_stay_finite_and_nonsense_is_refused() -> None:
    assert math.isfinite(parity.compare([-2000.0], [-1.0]).kl)
    for wrong in ([], [math.nan], [-math.inf]):
        with pytest.raises(EngineError, match="cannot be compared"):
            parity.compare(wrong, [-1.0] * len(wrong))


def test_the_hf_engines_own_tokens_score_as_they_were_sampled_at_any_temperature(tmp_path: Path) -> None:
    folder = tiny.save(tmp_path, "llama")
    asked = [
        Request(
            id=n, prompt_ids=(5, 6, 7 + n), header_len=0, seed=n, temperature=(0.0, 0.7, 1.3)[n % 3], max_new_tokens=12
        )
        for n in range(9)
    ]
    found = parity.measure(HfEngine(folder, tiny.config()), HfEngine(folder, tiny.config()), asked)
    assert found.tokens > 30
    assert found.max_abs < 1e-4
