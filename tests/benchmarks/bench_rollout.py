"""The match driver against what its engine can do at best, how it grows, and what writing the turns costs."""

from __future__ import annotations

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
from spiral_lib.types import Completion, Episode, MatchSpec, Policy, PolicyRef, Request

PRESET = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32,
          "intermediate_size": 192}  # fmt: skip
COMPACT = PromptConfig(style="compact")
ROUNDS = 5

# One hand is two or three turns; twelve make a match that others would have to wait for in waves.
KUHN = (Named(name="kuhn_poker"),)
MIXED = (Named(name="kuhn_poker", weight=7), Named(name="kuhn_poker", params={"hands": 12}))

Row = dict[str, Any]
Mark = tuple[int, float]
"""Tokens and CPU seconds so far."""


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


class Told:
    """An engine that gives known completions at once: what is left is the driver's own work."""

    def __init__(self, seen: Seen) -> None:
        self.name, self.digest = seen.name, seen.digest
        self._known = {(r.prompt_ids, r.seed): completion for r, completion in seen.made.values()}
        self._asked: list[Request] = []

    def submit(self, request: Request) -> None:
        self._asked.append(request)

    def step(self) -> list[tuple[int, Completion]]:
        asked, self._asked = self._asked, []
        return [(r.id, self._known[r.prompt_ids, r.seed]) for r in asked]

    def close(self) -> None:
        self._asked.clear()


class Bench:
    """One engine over the player's checkpoint, and matches to play on it."""

    def __init__(
        self, folder: Path, engine: str, *, slots: int, matches: int, played: tuple[Named, ...] = KUHN
    ) -> None:
        base = tiny.config(slots=slots, matches=matches)
        self.config: RunConfig = replace(
            base, prompt=COMPACT, games=played, rollout=replace(base.rollout, max_new_tokens=48)
        )
        self.engine: Any = engines.make(engine, folder, self.config)
        self.slots = slots
        self.renderer = Renderer(checkpoints.load_tokenizer(folder), COMPACT)
        self._steps = itertools.count()

    def specs(self, matches: int) -> list[MatchSpec]:
        """Return new matches (no prompt of theirs is in a cache beyond what Kuhn's few cards repeat)."""
        return rollout.plan_matches(self.config, step=next(self._steps), pool=[])[:matches]

    def own(self, engine: Any) -> dict[str, Policy]:
        made = policies.make(PolicyRef.parse("self"), engine=engine, renderer=self.renderer, max_new_tokens=48)
        return {"self": made}

    def play(self, matches: int, concurrency: int) -> tuple[Seen, list[Episode]]:
        """Play new matches."""
        seen = Seen(self.engine)
        return seen, list(rollout.play_matches(self.specs(matches), self.own(seen), concurrency=concurrency))

    def play_until_drained(self, matches: int, concurrency: int) -> tuple[Mark, Mark]:
        """Play new matches; return the marks at the moment when the last one has begun, and at the end."""
        seen, start = Seen(self.engine), time.process_time()
        begun = (0, 0.0)
        played = rollout.play_matches(self.specs(matches), self.own(seen), concurrency=concurrency)
        for number, _ in enumerate(played, 1):
            if number == matches - concurrency:
                begun = (seen.tokens, time.process_time() - start)
        return begun, (seen.tokens, time.process_time() - start)

    def play_in_waves(self, specs: list[MatchSpec]) -> int:
        """Play so many at a time as there are slots, each wave to its end; return the tokens."""
        seen = Seen(self.engine)
        for begin in range(0, len(specs), self.slots):
            wave = specs[begin : begin + self.slots]
            list(rollout.play_matches(wave, self.own(seen), concurrency=self.slots))
        return seen.tokens

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


def driver_row(bench: Bench, name: str, matches: int) -> Row:
    """What the driver itself spends on a turn (games, prompts, moves, records), as a share of playing."""
    pairs = []
    for _ in range(ROUNDS):
        specs, seen = bench.specs(matches), Seen(bench.engine)
        _, playing_s = timed(lambda: list(rollout.play_matches(specs, bench.own(seen), concurrency=bench.slots)))  # noqa: B023
        told = bench.own(Told(seen))
        _, driver_s = timed(lambda: list(rollout.play_matches(specs, told, concurrency=bench.slots)))  # noqa: B023
        pairs.append((driver_s * 1e6 / len(seen.made), playing_s * 1e6 / len(seen.made)))
    return row(name, "cpu-us/turn", "playing the turn", pairs)


def refill_row(bench: Bench, name: str, matches: int) -> Row:
    """Tokens a second with freed places refilled at once against waves, on matches of mixed length."""
    pairs = []
    for _ in range(ROUNDS):
        specs, seen = bench.specs(matches), Seen(bench.engine)
        _, refill_s = timed(lambda: list(rollout.play_matches(specs, bench.own(seen), concurrency=bench.slots)))  # noqa: B023
        tokens, waves_s = timed(lambda: bench.play_in_waves(specs))  # noqa: B023
        pairs.append((seen.tokens / refill_s, tokens / waves_s))
    return row(name, "tokens/cpu-s", "lockstep waves", pairs)


def resident_mb() -> float:
    """Return the process's memory now: its peak would be that of whatever ran before."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def growth_rows(bench: Bench) -> list[Row]:
    """Tokens a second and memory at 64, 256 and 1,024 matches of which 8 are in play, so that the drain weighs little.

    With the steady rate, up to the moment when the last match begins; after it slots stand empty.
    """
    bench.play(64, 8)
    whole, steady = defaultdict(list), defaultdict(list)
    memory: dict[int, float] = {}
    for _ in range(ROUNDS):
        for count in (64, 256, 1024):
            begun, end = bench.play_until_drained(count, 8)
            whole[count].append(end[0] / end[1])
            steady[count].append(begun[0] / begun[1])
            memory[count] = max(memory.get(count, 0.0), resident_mb())
    rows = [
        row(f"rollout/{count}_matches{kind}", "tokens/cpu-s", "64 matches", list(zip(r[count], r[64], strict=True)))
        for kind, r in (("", whole), ("_steady", steady))
        for count in (256, 1024)
    ]
    return [*rows, row("rollout/1024_matches_memory", "MB", "after 64 matches", [(memory[1024], memory[64])])]


def writing_row(bench: Bench, scratch: Path) -> Row:
    """CPU seconds of writing a shard's Parquet against those of playing it."""
    pairs = []
    where = {"run": "bench", "iteration": 1, "step": 1, "shard": 0, "config_hash": "0" * 16}
    # The first one imports what it needs.
    trajectories.write_shard(scratch / "first.parquet", bench.play(32, bench.slots)[1], **where)
    for attempt in range(ROUNDS):
        (_, episodes), playing_s = timed(lambda: bench.play(512, bench.slots))
        path = scratch / f"{attempt}.parquet"
        _, writing_s = timed(lambda: trajectories.write_shard(path, episodes, **where))  # noqa: B023
        pairs.append((writing_s * 1000, playing_s * 1000))
    return row("rollout/parquet_512_matches", "cpu-ms", "playing them", pairs)


def save_player(scratch: Path) -> Path:
    """Write a checkpoint of the tiny preset's shape: about 20 tokens a turn, two or three turns a match of Kuhn."""
    views = [games.make("kuhn_poker", seed=seed).view(0) for seed in range(20)]
    tok = tiny.tokenizer("\n".join(user_text(view, COMPACT) for view in views), vocab=430)
    moves = ("[check]", "[bet]")
    return tiny.save_player(scratch / "player", tok, moves=moves, move_bias=0.75, stop_bias=0.5, **PRESET)


def rows() -> list[Row]:
    """Return all rows of this file."""
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        player = save_player(scratch)
        hf = Bench(player, "hf", slots=128, matches=1024)
        found = [
            sequential_row(hf, "rollout/128_matches_at_once_hf", 512, 32),
            static_row(hf, "rollout/driver_share_hf", 1024),
            driver_row(hf, "rollout/driver_alone", 512),
            writing_row(hf, scratch),
            *growth_rows(hf),
        ]
        mixed = Bench(player, "hf", slots=64, matches=512, played=MIXED)
        found.append(refill_row(mixed, "rollout/refill_mixed_games", 512))
        return found


if __name__ == "__main__":
    import json

    for each in rows():
        print(json.dumps(each))
