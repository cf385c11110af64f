"""The moving average of the weights: what is published, and that learning goes on from the live weights."""

from __future__ import annotations

from pathlib import Path

import torch

from spiral_lib.learner import averaging


def test_average_moves_by_one_minus_decay_towards_the_live_weights() -> None:
    average = averaging.WeightAverage(0.9, {"w": torch.tensor([1.0, 2.0])})
    average.update({"w": torch.tensor([2.0, 0.0])})
    assert torch.allclose(average.weights["w"], torch.tensor([1.1, 1.8]))
    average.update({"w": torch.tensor([2.0, 0.0])})
    assert torch.allclose(average.weights["w"], torch.tensor([1.19, 1.62]))


def test_average_does_not_share_memory_with_the_live_weights() -> None:
    live = torch.zeros(3)
    average = averaging.WeightAverage(0.5, {"w": live})
    live += 1.0
    assert average.weights["w"].sum() == 0.0


def test_live_weights_survive_the_optimizer_folder_exactly(tmp_path: Path) -> None:
    weights = {"a": torch.randn(4, 3, generator=torch.Generator().manual_seed(1)), "b": torch.arange(3)}
    averaging.write_live(weights, tmp_path)
    read = averaging.read_live(tmp_path)
    assert read is not None
    assert all(torch.equal(read[name], tensor) for name, tensor in weights.items())


def test_without_live_weights_the_checkpoint_is_live(tmp_path: Path) -> None:
    assert averaging.read_live(None) is None
    assert averaging.read_live(tmp_path) is None
