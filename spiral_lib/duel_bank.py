"""What happened inside games that keep signals, and the bank of problems that a run has posed before.

Both are computed by playing episodes again from seed, parameters and actions, so that nothing has to be carried through
the turns. A game keeps signals when its match has ``signals()``; it has a bank when its match has ``problem_digest``
and its parameter ``bank``. With ``bank: carried`` among a game's parameters, every match of an iteration plays with the
digests of the problems posed in earlier iterations, read from the ledger: frozen, and the same for all shards.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from spiral_lib import games
from spiral_lib.config import RunConfig
from spiral_lib.ledger import Ledger
from spiral_lib.types import EndReason, Episode, mean

CARRIED: Final = "carried"
CAPACITY: Final = 2000
"""Digests kept for a game, the newest: they are part of every match's record."""

_BY_PROBLEM: Final = frozenset({"problem_length", "duplicate", "bad_commitment", "sound_problem", "true_claim"})
_NAMES: Final = {"duplicate": "known_share", "bad_commitment": "commitment_error_rate", "sound_problem": "sound_share"}

Known = Mapping[str, tuple[str, ...]]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Replay:
    """What one match left behind: its signals, and the digest of its problem where one was soundly posed."""

    episode: Episode
    signals: Mapping[str, float]
    digest: str | None


def replay(episode: Episode) -> Replay | None:
    """Play an episode's legal turns again; None for a game that keeps no signals."""
    if not hasattr(games.kind(episode.game), "signals"):
        return None
    game: Any = games.make(episode.game, seed=episode.seed, **dict(episode.params))
    for turn in episode.turns:
        if turn.legal:
            game.apply(turn.action)
    return Replay(episode=episode, signals=game.signals(), digest=getattr(game, "problem_digest", None))


def metrics(episodes: Iterable[Episode]) -> dict[str, float]:
    """Return ``game/<game>/<signal>`` for every game that keeps signals; void matches are left out.

    Signals are means over matches, those of the problem over matches in which one was posed, ``solved`` over sound
    problems. Besides: ``matches`` and ``problems`` (what the means are over), ``distinct_share`` of the sound problems,
    ``known_share`` (matches at half the stake) and ``<role>_invalid_rate`` over the role's turns.
    """
    replays = _replays(e for e in episodes if e.end_reason is not EndReason.OPPONENT_ERROR)
    found: dict[str, float] = {}
    for game, played in sorted(replays.items()):
        for name, value in _of_game(played).items():
            found[f"game/{game}/{name}"] = value
    return found


def posed(config: RunConfig, episodes: Iterable[Episode]) -> dict[str, list[str]]:
    """Return the digests of the sound problems of every game that carries its bank, each once, in order of play."""
    names = {game.name for game in config.games if game.params.get("bank") == CARRIED}
    carrying = (e for e in episodes if e.game in names)
    return {
        game: digests
        for game, played in sorted(_replays(carrying).items())
        if (digests := list(dict.fromkeys(r.digest for r in played if r.digest)))
    }


def is_carried(config: RunConfig) -> bool:
    """Return whether any game plays with the problems of earlier iterations."""
    return any(game.params.get("bank") == CARRIED for game in config.games)


def filled(config: RunConfig, ledger: Ledger) -> RunConfig:
    """Return the configuration with every ``bank: carried`` replaced by the ledger's digests."""
    chosen = tuple(
        dataclasses.replace(game, params={**game.params, "bank": ",".join(ledger.known_problems.get(game.name, ()))})
        if game.params.get("bank") == CARRIED
        else game
        for game in config.games
    )
    return dataclasses.replace(config, games=chosen)


def merged(known: Known, new: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """Return the bank with new digests put behind the known ones, the oldest dropped beyond ``CAPACITY``."""
    names = sorted({*known, *new})
    return {name: tuple(dict.fromkeys((*known.get(name, ()), *new.get(name, ()))))[-CAPACITY:] for name in names}


def _replays(episodes: Iterable[Episode]) -> dict[str, list[Replay]]:
    found: dict[str, list[Replay]] = {}
    for episode in episodes:
        made = replay(episode)
        if made is not None:
            found.setdefault(episode.game, []).append(made)
    return found


def _of_game(played: Sequence[Replay]) -> dict[str, float]:
    with_problem = [r for r in played if r.signals.get("problem_length", 0.0) > 0.0]
    sound = [r for r in played if r.digest is not None]
    found = {"matches": float(len(played))}
    for name in played[0].signals:
        over = with_problem if name in _BY_PROBLEM else sound if name == "solved" else played
        if over:
            found[_NAMES.get(name, name)] = mean([r.signals[name] for r in over])
    if "problem_length" in played[0].signals:
        found["problems"] = float(len(with_problem))
    if sound:
        found["distinct_share"] = len({r.digest for r in sound}) / len(sound)
    turns = [turn for r in played for turn in r.episode.turns]
    for role in sorted({turn.role for turn in turns}):
        found[f"{role}_invalid_rate"] = mean([float(not turn.legal) for turn in turns if turn.role == role])
    return found
