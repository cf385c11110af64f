"""A turn of Kuhn poker as a model plays it, for tests of what happens to turns."""

from __future__ import annotations

import dataclasses

from spiral_lib.types import Turn

_TURN = Turn(
    index=0,
    player=0,
    role="first",
    seed=2**63 - 1,
    policy="self",
    policy_digest="d",
    engine="hf",
    temperature=1.0,
    trainable=True,
    info_state="0",
    observation="Your card: K",
    text="\\boxed{[bet]}",
    action="[bet]",
    legal=True,
    invalid_reason=None,
    finish_reason="stop",
    prompt_ids=(1, 2),
    response_ids=(3, 4),
    logprobs=(-0.5, -0.0),
)


def turn(index: int = 0, **changes: object) -> Turn:
    """Return the turn at an index, with changes; players alternate unless one is given."""
    return dataclasses.replace(_TURN, **{"index": index, "player": index % 2, **changes})
