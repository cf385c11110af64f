"""Text of an endpoint reaches files whatever it holds."""

from __future__ import annotations

from spiral_lib.engines import openai
from spiral_lib.engines._http import Reply


def test_half_a_surrogate_pair_is_replaced_so_that_the_turn_can_be_written() -> None:
    body = b'{"choices": [{"message": {"content": "\\ud800 \\\\boxed{[1 1]}"}, "finish_reason": "stop"}]}'
    answer = openai._read(Reply(status=200, fields={}, body=body))
    assert answer.text == "? \\boxed{[1 1]}"
    answer.text.encode("utf-8")
