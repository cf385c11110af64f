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

from spiral_lib import plugins, trajectories
from spiral_lib.durable import new_file
from spiral_lib.errors import DataQualityError, EngineError
from spiral_lib.types import EndReason, Episode, RefKind, Turn, View

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

    Regret is what the action gives away against solved play, as a share of the largest win; null for illegal actions.
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
    """Return what an action gives away against solved play, None where no exact value is known.

    In a game with hidden cards it is the expectation over what the mover cannot see, both playing on in equilibrium.
    """
    if not turn.legal or episode.params:
        return None
    if episode.game == "tic_tac_toe":
        return _minimax_regret(turn.info_state[:9], turn.action)
    if episode.game in _BY_TREE:
        return _tree_regrets(episode.game)[turn.info_state][turn.action]
    return None


_BY_TREE: Final = frozenset({"kuhn_poker"})
"""Games whose whole tree is small, whose information states are OpenSpiel's and whose equilibrium is in closed form."""


def _minimax_regret(cells: str, action: str) -> float:
    from spiral_lib.evaluation import minimax

    board = tuple({"x": 1, "o": -1}.get(c, 0) for c in cells.lower())
    side, cell = (1 if sum(board) == 0 else -1), int(action[1:-1])
    after = (*board[:cell], side, *board[cell + 1 :])
    return (minimax.value(board) + minimax.value(after)) / 2


@functools.cache
def _tree_regrets(game: str) -> dict[str, dict[str, float]]:
    """Return the regret of every action in every information state. Raises EngineError without OpenSpiel."""
    try:
        import pyspiel
    except ImportError as error:
        raise EngineError(
            f"exact regrets of {game} need OpenSpiel, which is not installed: pip install 'spiral-pipeline[exact]'"
        ) from error
    from spiral_lib.policies.optimal import strategy

    views: dict[str, View] = plugins.load("spiral_lib.games", game, "views")()
    loaded = pyspiel.load_game(game)
    sums: dict[str, list[float]] = {}

    def visit(state: Any, reach: tuple[float, float, float]) -> tuple[float, float]:
        """Return both players' values; ``reach`` are the probabilities by player 0, player 1 and chance."""
        if state.is_terminal():
            first, second = state.returns()
            return float(first), float(second)
        mover = 2 if state.is_chance_node() else int(state.current_player())
        key = "" if mover == 2 else str(state.information_state_string())
        if mover == 2:
            chances = [(int(a), float(p)) for a, p in state.chance_outcomes()]
        else:
            chances = list(zip(state.legal_actions(), strategy(views[key]).values(), strict=True))
        values, others = (0.0, 0.0), reach[0] * reach[1] * reach[2]
        if mover != 2:
            others = reach[1 - mover] * reach[2]
        for i, (action, chance) in enumerate(chances):
            onward = tuple(r * chance if who == mover else r for who, r in enumerate(reach))
            child = visit(state.child(action), (onward[0], onward[1], onward[2]))
            values = (values[0] + chance * child[0], values[1] + chance * child[1])
            if mover != 2:
                sums.setdefault(key, [0.0] * (len(chances) + 1))[i] += others * child[mover]
                sums[key][-1] += others / len(chances)
        return values

    visit(loaded.new_initial_state(), (1.0, 1.0, 1.0))
    scale = float(loaded.max_utility())
    found = {}
    for key, (*totals, reached) in sums.items():
        best = max(totals)
        lost = [(best - total) / reached / scale for total in totals]
        found[key] = dict(zip(views[key].legal_actions or (), lost, strict=True))
    return found


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
