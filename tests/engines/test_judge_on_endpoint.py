"""A judge behind an endpoint, against the server that misbehaves: verdicts, abstentions and giving up."""

from __future__ import annotations

from typing import Any

import pytest
from endpoint_server import Script, running

from spiral_lib.engines.openai import OpenAiEngine
from spiral_lib.errors import EngineError
from spiral_lib.evaluation import judge
from spiral_lib.evaluation.patterns import Pattern
from spiral_lib.settings import EndpointConfig

TEXTS = [f"Case {n}: if the king bets, I fold; if not, I check." for n in range(10)]
YES = "say \\boxed{yes, yes, yes, yes}"


def verdicts(script: Script | str, texts: list[str] = TEXTS, **settings: Any) -> list[judge.Verdict]:
    fast: dict[str, Any] = {"backoff_s": 0.001, "retries": 1, "timeout_s": 5.0, "concurrency": 4} | settings
    with running(script) as server:
        engine = OpenAiEngine("some-judge", EndpointConfig(base_url=server.url, **fast))
        try:
            return judge.judge(texts, engine, None)
        finally:
            engine.close()


def test_a_judge_needs_no_tokenizer_of_ours() -> None:
    assert verdicts(YES) == [dict.fromkeys(Pattern, True)] * len(TEXTS)


@pytest.mark.parametrize("kind", ["500", "half_json", "content_filter", "no_choices"])
def test_a_request_that_fails_for_good_leaves_its_reply_undecided(kind: str) -> None:
    def script(number: int, body: dict[str, Any]) -> str:
        return kind if "Case 3" in body["messages"][0]["content"] else YES

    found = verdicts(script)
    assert found[3] == dict.fromkeys(Pattern)
    assert found[:3] + found[4:] == [dict.fromkeys(Pattern, True)] * 9
    calibration = judge.agreement(found, [frozenset(Pattern), *[frozenset[Pattern]()] * 9])
    metrics = judge.metrics(found, calibration, "games")
    assert metrics["reasoning/judge/games/decomposition_undecided_share"] == pytest.approx(0.1)


def test_a_judge_that_mostly_fails_gives_no_verdict_at_all() -> None:
    with pytest.raises(EngineError, match="failed on 3 of 20 evaluation prompts, the last time with: http_500"):
        verdicts("500")


def test_a_reply_without_a_box_is_undecided() -> None:
    assert verdicts("say Answer these questions: yes, no, yes, no") == [dict.fromkeys(Pattern)] * len(TEXTS)
