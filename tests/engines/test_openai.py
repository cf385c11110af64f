"""The engine over an endpoint, against a server on this machine that misbehaves."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import pytest
from endpoint_server import WRONG_SCHEMAS, Server, running

from spiral_lib import engines, games, policies, quality, rollout, trajectories
from spiral_lib.config import Named, OpponentConfig, RolloutConfig, RunConfig
from spiral_lib.engines import parity
from spiral_lib.engines.openai import OpenAiEngine
from spiral_lib.errors import ConfigError, EngineError
from spiral_lib.prompts import user_text
from spiral_lib.settings import EndpointConfig
from spiral_lib.types import Completion, EndReason, MatchSpec, PolicyRef, Request


def made(server: Server, **settings: Any) -> OpenAiEngine:
    fast: dict[str, Any] = {"backoff_s": 0.001, "retries": 2, "timeout_s": 5.0} | settings
    return OpenAiEngine("some-model", EndpointConfig(base_url=server.url, **fast))


def ask(number: int, text: str = "What do you play?", limit: int = 20) -> Request:
    return Request(
        id=number, prompt_ids=(), header_len=0, seed=number, temperature=0.5, max_new_tokens=limit, text=text
    )


def finish(engine: OpenAiEngine, asked: list[Request]) -> dict[int, Completion]:
    done = parity.finish(engine, asked)
    engine.close()
    return done


def test_a_reply_comes_back_as_text_and_the_request_is_what_the_api_expects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "secret-4711")
    with running("good") as server:
        done = finish(made(server, key_env="SOME_KEY"), [ask(7)])
    assert done[7] == Completion(
        prompt_ids=(), response_ids=(), logprobs=(), text="I bet. \\boxed{[bet]}", finish_reason="stop"
    )
    assert server.keys == ["Bearer secret-4711"]
    assert server.bodies == [
        {
            "model": "some-model",
            "messages": [{"role": "user", "content": "What do you play?"}],
            "temperature": 0.5,
            "max_tokens": 20,
            "seed": 7,
        }
    ]


@pytest.mark.parametrize(("kind", "reason"), [("chunked", "stop"), ("length", "length"), ("window", "context")])
def test_replies_that_are_cut_off_or_chunked_are_told_apart(kind: str, reason: str) -> None:
    with running(kind) as server:
        assert finish(made(server), [ask(1)])[1].finish_reason == reason


@pytest.mark.parametrize("kind", ["429", "500", "truncated", "half_json", "hang_up", "noise", *WRONG_SCHEMAS])
def test_what_may_pass_is_tried_again(kind: str) -> None:
    with running(lambda number, body: kind if number < 3 else "good") as server:
        engine = made(server)
        done = finish(engine, [ask(1)])
    assert (done[1].finish_reason, len(server.bodies), engine.failures) == ("stop", 3, {})


@pytest.mark.parametrize(
    ("kind", "reason", "attempts"),
    [
        ("429", "http_429", 3),
        ("500", "http_500", 3),
        ("401", "http_401", 1),
        ("302", "http_302", 1),
        ("truncated", "broken_reply", 3),
        ("half_json", "no_json", 3),
        ("hang_up", "broken_reply", 3),
        ("noise", "no_http", 3),
        ("endless", "too_large", 3),
        ("content_filter", "refused", 1),
        *[(kind, "wrong_schema", 3) for kind in WRONG_SCHEMAS],
    ],
)
def test_what_does_not_pass_is_an_error_with_its_reason(kind: str, reason: str, attempts: int) -> None:
    with running(kind) as server:
        engine = made(server, timeout_s=20.0)
        done = finish(engine, [ask(1)])
    assert (done[1].finish_reason, done[1].text) == ("error", reason)
    assert (len(server.bodies), engine.failures) == (attempts, {reason: 1})


@pytest.mark.parametrize("kind", ["silence", "drip"])
def test_an_attempt_ends_at_its_time_limit_however_slowly_bytes_arrive(kind: str) -> None:
    with running(kind) as server:
        engine = made(server, timeout_s=0.3, retries=1)
        start = time.monotonic()
        done = finish(engine, [ask(1)])
    assert (done[1].text, len(server.bodies)) == ("timeout", 2)
    assert time.monotonic() - start < 10


def test_no_server_at_all_is_an_error() -> None:
    with running("good") as server:
        pass
    assert finish(made(server), [ask(1)])[1].text == "no_connection"


def test_no_more_requests_are_in_flight_than_allowed() -> None:
    with running("slow") as server:
        done = finish(made(server, concurrency=3), [ask(n) for n in range(9)])
    assert len(done) == 9
    assert server.most_at_once == 3


def test_a_step_does_not_wait_for_the_endpoint() -> None:
    with running("silence") as server:
        engine = made(server)
        engine.submit(ask(1))
        start = time.monotonic()
        assert engine.step() == []
        assert time.monotonic() - start < 3
        engine.close()
        with pytest.raises(EngineError, match="closed"):
            engine.submit(ask(2))


def test_an_endpoint_that_is_gone_is_given_up() -> None:
    with running("500") as server:
        engine = made(server, retries=0, max_failures=4, concurrency=1)
        done = finish(engine, [ask(n) for n in range(30)])
    assert len(server.bodies) == 4
    assert {c.finish_reason for c in done.values()} == {"error"}
    assert engine.failures == {"http_500": 4, "given_up": 26}


def test_the_token_limit_is_not_overrun_even_with_requests_in_flight() -> None:
    with running("good") as server:  # 110 tokens a reply
        engine = made(server, max_tokens=500)
        done = finish(engine, [ask(n, text="x" * 240, limit=20) for n in range(20)])
    assert engine.spending.tokens == 110 * len(server.bodies) <= 500
    assert len(server.bodies) >= 4
    assert sum(c.text == "over_budget" for c in done.values()) == 20 - len(server.bodies)


def test_the_cost_limit_counts_both_prices() -> None:
    prices = {"price_prompt": 1000.0, "price_reply": 10000.0}  # a reply of the server costs 0.1 + 0.1
    with running("good") as server:
        engine = made(server, max_cost=1.0, concurrency=1, **prices)
        finish(engine, [ask(n, text="x" * 240, limit=10) for n in range(20)])
    assert engine.spending.cost == pytest.approx(0.2 * len(server.bodies))
    assert 0.6 < engine.spending.cost <= 1.0


def test_replies_that_cannot_be_read_are_paid_for_too() -> None:
    with running("half_json") as server:
        engine = made(server)
        finish(engine, [ask(1, limit=20)])
    assert engine.spending.tokens >= 3 * 20


def test_a_cassette_replaces_the_endpoint_and_holds_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "secret-4711")
    cassette = tmp_path / "replies" / "cassette.jsonl"
    asked = [ask(n) for n in range(5)]
    with running("good") as server:
        recorded = finish(made(server, cassette=str(cassette), key_env="SOME_KEY"), asked)
        again = finish(made(server, cassette=str(cassette)), asked)
        assert len(server.bodies) == 5
    alone = made(server, cassette=str(cassette), replay_only=True)
    assert alone.spending.tokens == 5 * 110
    assert finish(alone, asked) == recorded == again
    assert "secret-4711" not in cassette.read_text()
    asks_more = made(server, cassette=str(cassette), replay_only=True)
    with pytest.raises(EngineError, match="lacks a request"):
        finish(asks_more, [ask(99)])


def test_half_a_line_at_the_end_of_a_cassette_costs_one_reply(tmp_path: Path) -> None:
    cassette = tmp_path / "cassette.jsonl"
    asked = [ask(n) for n in range(3)]
    with running("good") as server:
        finish(made(server, cassette=str(cassette), concurrency=1), asked)
        cassette.write_bytes(cassette.read_bytes()[:-40])
        finish(made(server, cassette=str(cassette)), asked)
        assert len(server.bodies) == 4
    assert len(finish(made(server, cassette=str(cassette), replay_only=True), asked)) == 3


def test_failures_are_not_recorded(tmp_path: Path) -> None:
    cassette = tmp_path / "cassette.jsonl"
    with running("500") as server:
        finish(made(server, cassette=str(cassette)), [ask(1)])
    assert not cassette.exists()


def test_the_key_is_in_no_log_line_and_no_representation(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SOME_KEY", "secret-4711")
    caplog.set_level(logging.DEBUG)
    with running("401") as server:
        engine = made(server, key_env="SOME_KEY")
        finish(engine, [ask(1)])
    assert "http_401" in caplog.text
    assert "secret-4711" not in caplog.text + repr(engine) + engine.digest


@pytest.mark.parametrize("url", ["", "ftp://x/v1", "http://", "http://key@host/v1", "http://host:notaport/v1"])
def test_a_wrong_url_is_refused_before_anything_is_sent(url: str) -> None:
    with pytest.raises(ConfigError):
        OpenAiEngine("some-model", EndpointConfig(base_url=url))


def test_the_learner_cannot_play_through_an_endpoint() -> None:
    with pytest.raises(ConfigError, match=r"opponents\.api"):
        engines.make("openai", Path("x"), RunConfig())


CONFIG = RunConfig(
    games=(Named(name="kuhn_poker"),),
    rollout=RolloutConfig(matches=20, concurrency=8),
    opponents=OpponentConfig(self_play=0.0, api=1.0, api_model="some-model"),
    endpoint=EndpointConfig(base_url="http://127.0.0.1:1/v1"),
)


def play(server: Server, **settings: Any) -> list[Any]:
    """Matches of scripted play in the learner's seat against the endpoint, as a rollout plans them."""
    engine = made(server, **settings)
    ref = PolicyRef.parse("api:some-model")
    table = {"self": policies.make(PolicyRef.parse("random")), str(ref): policies.make(ref, engine=engine)}
    specs = rollout.plan_matches(CONFIG, step=1, pool=())
    episodes = sorted(rollout.play_matches(specs, table, concurrency=8), key=lambda e: e.id)
    engine.close()
    return episodes


def test_an_endpoint_plays_matches_and_sees_what_a_model_would_see() -> None:
    with running("good") as server:
        episodes = play(server)
    assert {e.end_reason for e in episodes} <= {EndReason.FINISHED, EndReason.ILLEGAL_ACTION}
    turns = [t for e in episodes for t in e.turns if t.policy == "api:some-model"]
    assert turns and not any(t.trainable for t in turns)
    assert {(t.engine, t.policy_digest) for t in turns} == {("openai", f"127.0.0.1:{server.port}/some-model")}
    assert {t.text for t in turns} == {"I bet. \\boxed{[bet]}"}
    sent = [body["messages"][0]["content"] for body in server.bodies]
    assert any("Legal: [check] [bet]" in text for text in sent)


def test_an_endpoint_that_fails_nine_times_of_ten_voids_matches_and_the_gate_stops(tmp_path: Path) -> None:
    with running(lambda number, body: "good" if number % 10 == 0 else "500") as server:
        episodes = play(server, retries=0, max_failures=1000)
    void = [e for e in episodes if e.end_reason is EndReason.OPPONENT_ERROR]
    assert len(void) >= len(episodes) // 2
    assert all(e.returns == (0.0, 0.0) and e.turns[-1].invalid_reason == "error:http_500" for e in void)
    where = {"run": "r", "iteration": 1, "step": 1, "shard": 0, "config_hash": "0" * 16}
    shard = trajectories.write_shard(tmp_path / "shard-00.parquet", episodes, **where)
    report = quality.check([shard], planned=len(episodes), config=CONFIG, full=False)
    assert not report.ok
    assert any("void" in failure for failure in report.failures)


def test_a_prompt_too_long_for_the_endpoint_is_truncated_not_void() -> None:
    with running("window") as server:
        episodes = play(server)
    assert {e.end_reason for e in episodes if any(t.policy.startswith("api") for t in e.turns)} == {EndReason.TRUNCATED}


def test_replies_are_replayed_as_a_whole_evaluation_would_need_them(tmp_path: Path) -> None:
    cassette = str(tmp_path / "cassette.jsonl")
    with running("good") as server:
        played = play(server, cassette=cassette)
    assert play(server, cassette=cassette, replay_only=True) == played


def test_the_user_message_is_the_view_as_any_model_gets_it() -> None:
    specs = [MatchSpec(id="0", game="kuhn_poker", seed=3, policies=("api:m", "api:m"), trainable=(False, False))]
    with running("good") as server:
        engine = made(server)
        policy = policies.make(PolicyRef.parse("api:m"), engine=engine, prompt=CONFIG.prompt)
        list(rollout.play_matches(specs, {"api:m": policy}, concurrency=1))
        engine.close()
    expected = user_text(games.make("kuhn_poker", seed=3).view(0), CONFIG.prompt)
    assert server.bodies[0]["messages"] == [{"role": "user", "content": expected}]
