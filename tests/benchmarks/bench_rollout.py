"""The match driver against what its engine can do at best, how it grows, and what writing the turns costs.

With vllm importable (``.venv-vllm/bin/python tests/benchmarks/run.py rollout``) its driver rows are measured too.
"""

from __future__ import annotations

import importlib.util
import itertools
import resource
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
import tiny_checkpoints as tiny

from spiral_lib import checkpoints, engines, games, policies, rollout, trajectories
from spiral_lib.config import Named, PromptConfig, RunConfig
from spiral_lib.prompts import Renderer, user_text
from spiral_lib.types import Completion, Episode, PolicyRef, Request

PRESET = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32,
          "intermediate_size": 192}  # fmt: skip
COMPACT = PromptConfig(style="compact")
ROUNDS = 3

Row = dict[str, Any]


class Seen:
    """An engine that notes its requests and completions."""

    def __init__(self, engine: Any) -> None:
        self.name, self.digest = engine.name, engine.digest
        self.tokens = 0
        self.made: dict[int, tuple[Request, Completion]] = {}
        self._engine = engine
        self._asked: dict[int, Request] = {}

    def submit(self, request: Request) -> None:
        self._asked[request.id] = request
        self._engine.submit(request)

    def step(self) -> list[tuple[int, Completion]]:
        done: list[tuple[int, Completion]] = self._engine.step()
        for number, completion in done:
            self.tokens += len(completion.response_ids)
            self.made[number] = (self._asked.pop(number), completion)
        return done

    def close(self) -> None:
        self._engine.close()


class Bench:
    """One engine over the player's checkpoint, and matches to play on it."""

    def __init__(self, folder: Path, engine: str, *, slots: int, matches: int) -> None:
        base = tiny.config(slots=slots, matches=matches)
        self.config: RunConfig = replace(
            base, prompt=COMPACT, games=(Named(name="kuhn_poker"),), rollout=replace(base.rollout, max_new_tokens=48)
        )
        self.engine: Any = engines.make(engine, folder, self.config)
        self.slots = slots
        self.renderer = Renderer(checkpoints.load_tokenizer(folder), COMPACT)
        self._steps = itertools.count()

    def play(self, matches: int, concurrency: int) -> tuple[Seen, list[Episode]]:
        """Play new matches (no prompt of theirs is in a cache beyond what Kuhn's few cards repeat)."""
        seen = Seen(self.engine)
        own = policies.make(PolicyRef.parse("self"), engine=seen, renderer=self.renderer, max_new_tokens=48)
        specs = rollout.plan_matches(self.config, step=next(self._steps), pool=[])[:matches]
        return seen, list(rollout.play_matches(specs, {"self": own}, concurrency=concurrency))

    def replay(self, seen: Seen) -> int:
        """Generate what the matches generated, all of it known beforehand; return the tokens."""
        tokens = 0
        for number, (request, completion) in seen.made.items():
            # The same prompts and lengths; the seed is the same too, so stop tokens fall where they fell.
            self.engine.submit(replace(request, id=number, max_new_tokens=len(completion.response_ids)))
        left = len(seen.made)
        while left:
            done = self.engine.step()
            left -= len(done)
            tokens += sum(len(c.response_ids) for _, c in done)
        return tokens


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """Return the result and the process's CPU seconds."""
    start = time.process_time()
    result = work()
    return result, time.process_time() - start


def row(name: str, unit: str, against: str, pairs: list[tuple[float, float]]) -> Row:
    ratios = [a / b for a, b in pairs]
    return {
        "name": name,
        "value": round(median(a for a, _ in pairs), 1),
        "unit": unit,
        "against": against,
        "ratio": round(median(ratios), 3),
        "spread": round(max(ratios) - min(ratios), 3),
        "n": len(pairs),
    }


def sequential_row(bench: Bench, name: str, many: int, few: int) -> Row:
    """Turns a second with all slots in use against one match at a time."""

    def rate(matches: int, concurrency: int) -> float:
        (_, episodes), seconds = timed(lambda: bench.play(matches, concurrency))
        return sum(len(e.turns) for e in episodes) / seconds

    rate(few, 1)
    pairs = [(rate(many, bench.slots), rate(few, 1)) for _ in range(ROUNDS)]
    return row(name, "turns/cpu-s", "one match at a time", pairs)


def static_row(bench: Bench, name: str, matches: int) -> Row:
    """Tokens a second of the driver against the same prompts and lengths handed to the engine at once."""
    pairs = []
    for _ in range(ROUNDS):
        (seen, _), driver_s = timed(lambda: bench.play(matches, bench.slots))
        tokens, static_s = timed(lambda: bench.replay(seen))  # noqa: B023
        pairs.append((seen.tokens / driver_s, tokens / static_s))
    return row(name, "tokens/cpu-s", "same engine, all requests at once", pairs)


def growth_rows(bench: Bench) -> list[Row]:
    """Tokens a second and memory at 64, 256 and 1,024 matches, against the smallest."""
    bench.play(64, bench.slots)
    rates = defaultdict(list)
    memory: dict[int, float] = {}
    for _ in range(ROUNDS):
        for count in (64, 256, 1024):
            (seen, _), seconds = timed(lambda: bench.play(count, 64))  # noqa: B023
            rates[count].append(seen.tokens / seconds)
            memory[count] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    rows = [
        row(f"rollout/{count}_matches", "tokens/cpu-s", "64 matches", list(zip(rates[count], rates[64], strict=True)))
        for count in (256, 1024)
    ]
    peak = row("rollout/1024_matches_peak_memory", "MB", "after 64 matches", [(memory[1024], memory[64])])
    return [*rows, peak]


def writing_row(bench: Bench, scratch: Path) -> Row:
    """CPU seconds of writing a shard's Parquet against those of playing it."""
    pairs = []
    where = {"run": "bench", "iteration": 1, "step": 1, "shard": 0, "config_hash": "0" * 16}
    for attempt in range(ROUNDS):
        (_, episodes), playing_s = timed(lambda: bench.play(512, bench.slots))
        path = scratch / f"{attempt}.parquet"
        _, writing_s = timed(lambda: trajectories.write_shard(path, episodes, **where))  # noqa: B023
        pairs.append((writing_s * 1000, playing_s * 1000))
    return row("rollout/parquet_512_matches", "cpu-ms", "playing them", pairs)


def rows() -> list[Row]:
    """Return all rows of this file."""
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        views = [games.make("kuhn_poker", seed=seed).view(0) for seed in range(20)]
        tok = tiny.tokenizer("\n".join(user_text(view, COMPACT) for view in views), vocab=430)
        moves = ("[check]", "[bet]")
        # About 20 tokens a turn and two or three turns a match, as after the cold start.
        player = tiny.save_player(scratch / "player", tok, moves=moves, move_bias=0.75, stop_bias=0.5, **PRESET)
        hf = Bench(player, "hf", slots=128, matches=1024)
        found = [static_row(hf, "rollout/driver_share_hf", 512), writing_row(hf, scratch), *growth_rows(hf)]
        if importlib.util.find_spec("vllm") is not None:
            vllm = Bench(player, "vllm", slots=64, matches=256)
            found.append(sequential_row(vllm, "rollout/64_matches_at_once_vllm", 128, 4))
            found.append(static_row(vllm, "rollout/driver_share_vllm", 128))
            vllm.engine.close()
        return found


if __name__ == "__main__":
    import json

    for each in rows():
        print(json.dumps(each))
