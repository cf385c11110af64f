"""The endpoint client against a real server on this machine: vLLM's own over a tiny checkpoint, without a GPU."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny_checkpoints as tiny

from spiral_lib import policies, rollout
from spiral_lib.config import PromptConfig
from spiral_lib.engines.openai import OpenAiEngine
from spiral_lib.engines.parity import finish
from spiral_lib.settings import EndpointConfig
from spiral_lib.types import EndReason, MatchSpec, PolicyRef, Request

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("vllm") is None, reason="vllm is not installed here; make test-vllm has its own place"
    ),
]

MODEL = "tiny-player"
WINDOW = 256
SHAPE = {"hidden_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32, "intermediate_size": 96}
SETTINGS = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start the server, wait until it answers, and end it by its process id."""
    root = tmp_path_factory.mktemp("serve")
    player = tiny.save_player(root / "player", moves=("[check]", "[bet]"), **SHAPE)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = {
        "--host": "127.0.0.1", "--port": port, "--served-model-name": MODEL, "--dtype": "float32",
        "--max-model-len": WINDOW, "--max-num-seqs": 8, "--max-num-batched-tokens": 8192,
    }  # fmt: skip
    # With chunks a request that has a seed of its own would end the server.
    flags = ["--enforce-eager", "--no-enable-chunked-prefill"]
    # What ``vllm serve`` starts; that command itself asks for a package called vllm, and vllm-cpu is called otherwise.
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(player), *flags]
    command += [str(part) for pair in options.items() for part in pair]
    with (root / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | SETTINGS)
        try:
            wait_for(f"http://127.0.0.1:{port}/health", process, root / "log")
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    os.kill(process.pid, signal.SIGTERM)
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()


def wait_for(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 400
    while time.monotonic() < deadline:
        assert process.poll() is None, f"the server ended: {log.read_text(errors='replace')[-3000:]}"
        try:
            with urllib.request.urlopen(address, timeout=5) as reply:
                if reply.status == 200:
                    return
        except OSError:
            time.sleep(0.5)
    raise AssertionError(f"the server does not answer: {log.read_text(errors='replace')[-3000:]}")


def made(url: str) -> OpenAiEngine:
    return OpenAiEngine(MODEL, EndpointConfig(base_url=url, retries=1, timeout_s=60.0, concurrency=4))


def ask(number: int, text: str, *, seed: int = 1, limit: int = 24) -> Request:
    return Request(
        id=number, prompt_ids=(), header_len=0, seed=seed, temperature=1.0, max_new_tokens=limit, text=text
    )


def test_a_served_model_plays_matches_as_a_fixed_opponent(url: str) -> None:
    engine = made(url)
    ref = PolicyRef.parse(f"api:{MODEL}")
    served = policies.make(
        ref, engine=engine, prompt=PromptConfig(style="compact"), temperature=1.0, max_new_tokens=24
    )
    table: dict[str, Any] = {str(ref): served, "random": policies.make(PolicyRef.parse("random"))}
    seats = [(str(ref), "random"), ("random", str(ref))]
    specs = [
        MatchSpec(id=str(n), game="kuhn_poker", seed=n, policies=seats[n % 2], trainable=(False, False))
        for n in range(8)
    ]
    try:
        episodes = list(rollout.play_matches(specs, table, concurrency=4))
    finally:
        engine.close()
    assert sorted(e.id for e in episodes) == [s.id for s in specs]
    assert not engine.failures
    assert EndReason.OPPONENT_ERROR not in {e.end_reason for e in episodes}
    turns = [t for e in episodes for t in e.turns if t.policy == str(ref)]
    assert len(turns) >= 8
    assert any(t.legal for t in turns)
    assert {t.finish_reason for t in turns} <= {"stop", "length"}
    assert not any(t.trainable or t.response_ids for t in turns)
    assert {t.policy_digest for t in turns} == {engine.digest}


def test_the_server_keeps_seeds_and_counts_tokens(url: str) -> None:
    engine = made(url)
    try:
        done = finish(engine, [ask(0, "Your card: K."), ask(1, "Your card: K."), ask(2, "Your card: K.", seed=2)])
    finally:
        engine.close()
    assert done[0].text == done[1].text != done[2].text
    assert engine.spending.tokens > 3 * len("Your card: K.") / 4


def test_a_prompt_beyond_the_servers_window_is_a_context_end_and_no_failure(url: str) -> None:
    engine = made(url)
    try:
        done = finish(engine, [ask(0, "A very long story. " * 400), ask(1, "Short.")])
    finally:
        engine.close()
    assert done[0].finish_reason == "context"
    assert done[1].finish_reason in ("stop", "length")
    assert not engine.failures
