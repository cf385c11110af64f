"""Data sets made from a run's trajectories: winning turns for SFT, preference pairs, and per-turn process labels.

Each is one Parquet file with an explicit schema that ``datasets`` loads as it is. Prompts and responses are given as
text and as the token ids that were sampled; only turns of a model are exported, never scripted play.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from spiral_lib import trajectories
from spiral_lib.durable import new_file
from spiral_lib.errors import DataQualityError
from spiral_lib.evaluation import regret as exact
from spiral_lib.types import EndReason, Episode, RefKind, Turn

Decode = Callable[[Sequence[int]], str]

_SCRIPTED: Final = frozenset({RefKind.RANDOM.value, RefKind.OPTIMAL.value})
_IDS: Final = pa.list_(pa.int32())
_WHERE: Final = [("game", pa.string()), ("role", pa.string()), ("info_state", pa.string()), ("prompt", pa.string())]
SFT: Final = pa.schema(
    [
        ("episode", pa.string()),
        ("turn", pa.int32()),
        *_WHERE,
        ("response", pa.string()),
        ("prompt_ids", _IDS),
        ("response_ids", _IDS),
        ("return", pa.float64()),
    ]
)
PREFERENCES: Final = pa.schema(
    [
        *_WHERE,
        ("chosen", pa.string()),
        ("rejected", pa.string()),
        ("prompt_ids", _IDS),
        ("chosen_ids", _IDS),
        ("rejected_ids", _IDS),
        ("chosen_action", pa.string()),
        ("rejected_action", pa.string()),
        ("basis", pa.string()),
        ("margin", pa.float64()),
    ]
)
PROCESS: Final = pa.schema(
    [
        ("episode", pa.string()),
        ("turn", pa.int32()),
        *_WHERE,
        ("response", pa.string()),
        ("prompt_ids", _IDS),
        ("response_ids", _IDS),
        ("action", pa.string()),
        ("legal", pa.bool_()),
        ("return", pa.float64()),
        ("regret", pa.float64()),
    ]
)


def export(run: Path, out: Path) -> dict[str, Path]:
    """Write ``sft``, ``preferences`` and ``process`` of all of a run's trajectories; return the files by name."""
    from spiral_lib import checkpoints

    shards = sorted((run / "trajectories").rglob("*.parquet"))
    if not shards:
        raise DataQualityError(f"'{run}' has no trajectories to export; is it a run folder?")
    # A run that went on from another one has no checkpoint 0000 of its own.
    first = min((run / "checkpoints").glob("*"), default=run / "checkpoints" / "0000")
    tokenizer: Any = checkpoints.load_tokenizer(first)
    decode = functools.partial(tokenizer.decode, skip_special_tokens=False)
    episodes = list(trajectories.read_episodes(shards))
    made = {
        "sft": (SFT, sft(episodes, decode)),
        "preferences": (PREFERENCES, preferences(episodes, decode)),
        "process": (PROCESS, process(episodes, decode)),
    }
    return {name: _write(out / f"{name}.parquet", schema, rows) for name, (schema, rows) in made.items()}


def sft(episodes: Iterable[Episode], decode: Decode) -> Iterator[dict[str, Any]]:
    """Yield the legal turns of every seat that won its match."""
    for episode, turn in _model_turns(episodes):
        ret = episode.returns[turn.player]
        if ret > 0 and turn.legal:
            yield _where(episode, turn, decode) | _response(episode, turn, decode)


def process(episodes: Iterable[Episode], decode: Decode) -> Iterator[dict[str, Any]]:
    """Yield every turn with its match's return and, where the game is solved, the regret of the action.

    Regret is what the action gives away against solved play, in match returns; null for illegal actions.
    """
    for episode, turn in _model_turns(episodes):
        labels = {"action": turn.action, "legal": turn.legal, "regret": regret(episode, turn)}
        yield _where(episode, turn, decode) | _response(episode, turn, decode) | labels


def preferences(episodes: Iterable[Episode], decode: Decode) -> Iterator[dict[str, Any]]:
    """Yield pairs of turns from one state, in which the better action was ``chosen``.

    A state is a prompt. ``basis`` says what makes an action better: ``legality``, ``regret`` where the game is solved,
    else the mean ``return`` of the matches that went on from there; ``margin`` is by how much. The best action is
    paired with every worse one, each by its first turn.
    """
    states: dict[tuple[str, Sequence[int]], list[tuple[Episode, Turn]]] = {}
    for episode, turn in _model_turns(episodes):
        states.setdefault((episode.game, turn.prompt_ids), []).append((episode, turn))
    for group in states.values():
        moves = _moves(group)
        best = max(moves, key=lambda m: (m.legal, m.value))
        for other in moves:
            if (other.legal, other.value) >= (best.legal, best.value):
                continue
            both_legal = other.legal and best.legal
            yield _where(*best.first, decode) | {
                "chosen": decode(best.first[1].response_ids),
                "rejected": decode(other.first[1].response_ids),
                "prompt_ids": best.first[1].prompt_ids,
                "chosen_ids": best.first[1].response_ids,
                "rejected_ids": other.first[1].response_ids,
                "chosen_action": best.first[1].action,
                "rejected_action": other.first[1].action,
                "basis": best.basis if both_legal else "legality",
                "margin": best.value - other.value if both_legal else 1.0,
            }


@dataclass(frozen=True, kw_only=True, slots=True)
class _Move:
    """What is known of one action in one state."""

    first: tuple[Episode, Turn]
    legal: bool
    value: float
    basis: str


def _moves(group: Sequence[tuple[Episode, Turn]]) -> list[_Move]:
    by_action: dict[tuple[bool, str], list[tuple[Episode, Turn]]] = {}
    for episode, turn in group:
        # Illegal replies are one kind: which of them is worse means nothing.
        by_action.setdefault((turn.legal, turn.action if turn.legal else ""), []).append((episode, turn))
    found = []
    for (legal, _), members in by_action.items():
        lost = regret(*members[0])
        value = statistics.fmean(e.returns[t.player] for e, t in members) if lost is None else -lost
        found.append(_Move(first=members[0], legal=legal, value=value, basis="return" if lost is None else "regret"))
    return found


def regret(episode: Episode, turn: Turn) -> float | None:
    """Return what a legal action gives away in match returns, None where no exact value is known.

    A loss within the error of the solution (``evaluation.regret.slack``) is none.
    """
    lost = exact.of_turn(episode, turn) if turn.legal else None
    return lost if lost is None or lost > exact.slack(episode.game) else 0.0


def _model_turns(episodes: Iterable[Episode]) -> Iterator[tuple[Episode, Turn]]:
    for episode in episodes:
        if episode.end_reason is not EndReason.OPPONENT_ERROR:
            yield from ((episode, turn) for turn in episode.turns if turn.response_ids and turn.policy not in _SCRIPTED)


def _where(episode: Episode, turn: Turn, decode: Decode) -> dict[str, Any]:
    place = {"game": episode.game, "role": turn.role, "info_state": turn.info_state}
    return place | {"prompt": decode(turn.prompt_ids)}


def _response(episode: Episode, turn: Turn, decode: Decode) -> dict[str, Any]:
    return {
        "episode": episode.id,
        "turn": turn.index,
        "response": decode(turn.response_ids),
        "prompt_ids": turn.prompt_ids,
        "response_ids": turn.response_ids,
        "return": episode.returns[turn.player],
    }


def _write(path: Path, schema: pa.Schema, rows: Iterable[dict[str, Any]]) -> Path:
    with new_file(path) as temporary:
        pq.write_table(pa.Table.from_pylist(list(rows), schema=schema), temporary, compression="zstd")
    return path
