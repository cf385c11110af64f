"""Turn rows on disk: one explicit versioned schema, one Parquet file a shard, episodes in sorted order.

A match without a single turn (void before its first move) is kept as one row with ``turn`` -1 and ``num_turns`` 0.
"""

from __future__ import annotations

import heapq
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from spiral_lib.durable import new_file
from spiral_lib.errors import DataQualityError
from spiral_lib.types import EndReason, Episode, Turn

SCHEMA_VERSION = 1
NO_TURN = -1
_VERSION_KEY = b"spiral_schema_version"
_ROWS_READ = 256
_ROWS_IN_GROUP = 1024  # a group is made and compressed at once; long replies make it some tens of megabytes

_FIELDS: tuple[tuple[str, pa.DataType, bool, str], ...] = (
    ("run", pa.string(), False, "name of the run"),
    ("iteration", pa.int32(), False, "iteration the match was played in"),
    ("step", pa.int32(), False, "learner step the match was played for"),
    ("shard", pa.int32(), False, "shard that played the match; the matches do not depend on it"),
    ("episode", pa.string(), False, "id of the match, unique in the run"),
    ("turn", pa.int32(), False, "number of the turn in the match, from 0; -1 in the only row of a match without turns"),
    ("num_turns", pa.int32(), False, "turns of the whole match"),
    ("game", pa.string(), False, "name of the game"),
    ("game_params", pa.string(), False, "parameters of the game, a JSON object"),
    ("episode_seed", pa.int64(), False, "seed of the match, 63 bits"),
    ("turn_seed", pa.int64(), False, "seed of the turn's sampling, 63 bits"),
    ("role", pa.string(), False, "what advantage estimation conditions on"),
    ("player", pa.int8(), False, "seat that moved, 0 or 1"),
    ("policy_0", pa.string(), False, "policy in seat 0"),
    ("policy_1", pa.string(), False, "policy in seat 1"),
    ("policy", pa.string(), False, "policy that moved"),
    ("policy_digest", pa.string(), False, "digest of the weights that moved, or of the scripted policy"),
    ("engine", pa.string(), False, "token generator"),
    ("temperature", pa.float64(), False, "sampling temperature"),
    ("trainable", pa.bool_(), False, "whether the learner trains on this turn"),
    ("info_state", pa.string(), False, "key of what the mover knew"),
    ("observation", pa.string(), False, "what the mover was shown of the state"),
    ("prompt_ids", pa.list_(pa.int32()), False, "token ids of the prompt as fed to the engine"),
    ("response_ids", pa.list_(pa.int32()), False, "token ids as sampled, the end token included; never re-tokenised"),
    ("logprobs", pa.list_(pa.float32()), False, "nats at the sampling temperature, one for each response id"),
    ("text", pa.string(), False, "raw response text"),
    ("action", pa.string(), False, "move read from the text, empty where none was found"),
    ("legal", pa.bool_(), False, "whether the game took the action"),
    ("invalid_reason", pa.string(), True, "why there was no action or why it was refused"),
    ("finish_reason", pa.string(), False, "stop, length, context or error"),
    ("return_0", pa.float64(), False, "raw return of seat 0 in [-1, 1]"),
    ("return_1", pa.float64(), False, "raw return of seat 1 in [-1, 1]"),
    ("end_reason", pa.string(), False, "why the match ended"),
    ("forfeited_by", pa.int8(), True, "seat that lost by forfeit"),
    ("config_hash", pa.string(), False, "hash of the run's configuration"),
)
SCHEMA = pa.schema(
    [pa.field(name, kind, nullable, metadata={"doc": doc}) for name, kind, nullable, doc in _FIELDS],
    metadata={_VERSION_KEY: str(SCHEMA_VERSION).encode()},
)


def shard_path(run: Path, iteration: int, shard: int) -> Path:
    """Return where a shard of an iteration lies in a run folder."""
    return run / "trajectories" / f"iteration={iteration:04d}" / f"shard-{shard:02d}.parquet"


def write_shard(
    path: Path,
    episodes: Iterable[Episode],
    *,
    run: str,
    iteration: int,
    step: int,
    shard: int,
    config_hash: str,
) -> Path:
    """Write the episodes, sorted by id, as a file that appears whole or not at all; equal content gives equal bytes."""
    common = {"run": run, "iteration": iteration, "step": step, "shard": shard, "config_hash": config_hash}
    ordered = sorted(episodes, key=lambda e: e.id)
    rows = ((episode, turn) for episode in ordered for turn in episode.turns or (_PLACEHOLDER,))
    # zstd finds repeated values by itself: dictionaries would cost as much time again and save nothing.
    options: dict[str, Any] = {"compression": "zstd", "use_dictionary": False}
    with new_file(path) as temporary, pq.ParquetWriter(temporary, SCHEMA, **options) as writer:
        while group := list(itertools.islice(rows, _ROWS_IN_GROUP)):
            writer.write_table(_table(group, common))
    return path


def read_episodes(paths: Sequence[Path]) -> Iterator[Episode]:
    """Yield the episodes of all files in the order of their ids, with one row group of each file in memory.

    Raises DataQualityError naming the file (and column) that is unreadable, of another schema, or out of order.
    """
    return heapq.merge(*(_read_file(path) for path in paths), key=lambda e: e.id)


def read_table(paths: Sequence[Path], columns: Sequence[str] | None = None) -> pa.Table:
    """Return the rows of all files as one table. Raises DataQualityError as ``read_episodes`` does."""
    wanted = SCHEMA.names if columns is None else list(columns)
    schema = pa.schema([SCHEMA.field(name) for name in wanted])
    return pa.concat_tables([schema.empty_table(), *(_columns(path, wanted) for path in paths)])


def read_batches(path: Path, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Yield a file's rows in batches after checking its schema."""
    try:
        with pq.ParquetFile(path) as file:
            check_schema(path, file.schema_arrow)
            yield from file.iter_batches(batch_size=_ROWS_READ, columns=columns)
    except (OSError, pa.ArrowException) as error:
        raise DataQualityError(f"cannot read '{path}': {error}; quarantine it and play the shard again") from error


def check_schema(path: Path, found: pa.Schema) -> None:
    """Raise DataQualityError naming the file and column where a schema is not ours."""
    version = (found.metadata or {}).get(_VERSION_KEY, b"none").decode(errors="replace")
    if version != str(SCHEMA_VERSION):
        raise DataQualityError(f"'{path}' has schema version {version}, this code reads {SCHEMA_VERSION}")
    for name in SCHEMA.names:
        if name not in found.names:
            raise DataQualityError(f"'{path}' lacks the column '{name}'")
        if found.field(name).type != SCHEMA.field(name).type:
            expected = SCHEMA.field(name).type
            raise DataQualityError(f"'{path}': column '{name}' is {found.field(name).type}, not {expected}")
    for name in found.names:
        if name not in SCHEMA.names or found.names.count(name) > 1:
            raise DataQualityError(f"'{path}' has the unexpected column '{name}'")


def _columns(path: Path, columns: list[str]) -> pa.Table:
    schema = pa.schema([SCHEMA.field(name) for name in columns])
    return pa.Table.from_batches([b.select(columns).cast(schema) for b in read_batches(path, columns)], schema=schema)


def _table(group: Sequence[tuple[Episode, Turn]], common: Mapping[str, Any]) -> pa.Table:
    """Return rows as a table, made column by column: a dictionary for each row would take three times as long."""
    episodes, turns = [episode for episode, _ in group], [turn for _, turn in group]
    columns = {name: [value] * len(group) for name, value in common.items()}
    columns |= {name: [value(e) for e in episodes] for name, value in _OF_EPISODE.items()}
    # Written once a match, and by identity: parameters 1 and true are equal and not the same.
    params = {key: json.dumps(dict(e.params)) for key, e in {id(e): e for e in episodes}.items()}
    columns["game_params"] = [params[id(e)] for e in episodes]
    columns |= {"turn": [t.index for t in turns], "turn_seed": [t.seed for t in turns]}
    columns |= {name: list(map(attrgetter(name), turns)) for name in _TURN_FIELDS}
    return pa.Table.from_arrays([pa.array(columns[f.name], f.type) for f in SCHEMA], schema=SCHEMA)


def _read_file(path: Path) -> Iterator[Episode]:
    rows = (row for batch in read_batches(path) for row in batch.to_pylist())
    previous = ""
    for first in rows:
        group = [first, *itertools.islice(rows, max(first["num_turns"], 1) - 1)]
        numbers = [row["turn"] for row in group]
        if {row["episode"] for row in group} != {first["episode"]} or numbers != expected_turns(first["num_turns"]):
            raise DataQualityError(f"'{path}': the turns of episode '{first['episode']}' are not whole: {numbers}")
        if first["episode"] < previous:
            raise DataQualityError(f"'{path}': episode '{first['episode']}' comes after '{previous}'")
        previous = first["episode"]
        yield _episode(group)


def expected_turns(num_turns: int) -> list[int]:
    """Return the turn numbers of a whole match: 0, 1, ... or the placeholder alone."""
    return list(range(num_turns)) or [NO_TURN]


def _episode(group: list[dict[str, Any]]) -> Episode:
    first = group[0]
    return Episode(
        id=first["episode"],
        game=first["game"],
        seed=first["episode_seed"],
        policies=(first["policy_0"], first["policy_1"]),
        turns=tuple(_turn(row) for row in group if row["turn"] != NO_TURN),
        returns=(first["return_0"], first["return_1"]),
        end_reason=EndReason(first["end_reason"]),
        forfeited_by=first["forfeited_by"],
        params=tuple(json.loads(first["game_params"]).items()),
    )


def _turn(row: dict[str, Any]) -> Turn:
    lists = {name: tuple(row[name]) for name in ("prompt_ids", "response_ids", "logprobs")}
    return Turn(index=row["turn"], seed=row["turn_seed"], **({name: row[name] for name in _TURN_FIELDS} | lists))


_OF_EPISODE: Mapping[str, Callable[[Episode], Any]] = {
    "episode": lambda e: e.id,
    "num_turns": lambda e: len(e.turns),
    "game": lambda e: e.game,
    "episode_seed": lambda e: e.seed,
    "policy_0": lambda e: e.policies[0],
    "policy_1": lambda e: e.policies[1],
    "return_0": lambda e: e.returns[0],
    "return_1": lambda e: e.returns[1],
    "end_reason": lambda e: e.end_reason.value,
    "forfeited_by": lambda e: e.forfeited_by,
}
# Columns of the same name in Turn; ``index`` and ``seed`` have longer names in a row.
_TURN_FIELDS = tuple(f for f in Turn.__slots__ if f not in ("index", "seed"))
_PLACEHOLDER = Turn(
    index=NO_TURN,
    player=-1,
    role="",
    seed=0,
    policy="",
    policy_digest="",
    engine="",
    temperature=1.0,
    trainable=False,
    info_state="",
    observation="",
    text="",
    action="",
    legal=True,
    invalid_reason=None,
    finish_reason="stop",
)
