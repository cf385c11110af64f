"""The sample of matches that a person reviews: stratified, seeded, with the solver's move beside the one played.

Strata are read from the seat of the learner that is looked at; in self-play either seat may be. A match is drawn once.
A stratum with too few matches leaves its places to any others, drawn at random.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from spiral_lib import games, trajectories
from spiral_lib.errors import EngineError, IllegalAction, LineageError
from spiral_lib.evaluation import reasoning, regret
from spiral_lib.policies import optimal
from spiral_lib.seeds import seed_for
from spiral_lib.types import Episode, RefKind, Turn, View

STRATA: Mapping[str, str] = {
    "wins": "won",
    "losses": "lost",
    "invalid": "with an illegal move",
    "longest": "most tokens",
    "surprising": "largest regret or least likely reply",
    "other": "drawn from the rest",
}
_SHINGLE = 5
_NEAR = 0.8
"""Share of common five-word sequences from which two replies of the sample count as near-duplicates."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReviewedTurn:
    """A turn of the learner's or of its opponent.

    ``best`` are the moves that a solver plays, with their probabilities; ``is_exact`` says that it is a perfect one.
    ``flags`` are what is odd about the reasoning, in words; none for scripted play.
    """

    turn: Turn
    best: Mapping[str, float]
    is_exact: bool
    regret: float | None
    flags: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Reviewed:
    """One match of the sample, the seat under review and the stratum it was drawn for."""

    key: str
    stratum: str
    iteration: int
    seat: int
    episode: Episode
    turns: tuple[ReviewedTurn, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Candidate:
    """What drawing needs to know of a seat in a match; ``rarity`` is minus the least mean log-prob of its replies."""

    shard: Path
    iteration: int
    match: str
    game: str
    seat: int
    result: float
    illegal: bool
    tokens: int
    regret: float
    rarity: float

    @property
    def key(self) -> str:
        return f"{self.match}/{self.seat}"


def draw(run: Path, *, matches: int, seed: int) -> list[Reviewed]:
    """Return a sample of a run's matches: the same run, number and seed give the same one.

    Raises LineageError where the run has no turns of the learner.
    """
    candidates, wordings = _survey(run)
    if not candidates:
        raise LineageError(f"'{run}' has no turns of the learner in trajectories/; a match audit needs a run's Parquet")
    chosen = _choose(candidates, matches, seed)
    wanted: dict[Path, dict[str, tuple[str, _Candidate]]] = defaultdict(dict)
    for stratum, candidate in chosen:
        wanted[candidate.shard][candidate.match] = (stratum, candidate)
    drawn = []
    for shard, found in wanted.items():
        for episode in trajectories.read_episodes([shard]):
            if episode.id in found:
                stratum, candidate = found[episode.id]
                drawn.append((stratum, candidate, episode))
    order = list(STRATA)
    drawn.sort(key=lambda d: (order.index(d[0]), d[1].iteration, d[1].key))
    near = _near_duplicates([episode for _, _, episode in drawn])
    return [
        Reviewed(
            key=candidate.key,
            stratum=stratum,
            iteration=candidate.iteration,
            seat=candidate.seat,
            episode=episode,
            turns=_review(episode, wordings, near),
        )
        for stratum, candidate, episode in drawn
    ]


def digest(sample: Sequence[Reviewed]) -> str:
    """Return a short hash of which matches a sample holds."""
    return hashlib.sha256("\n".join(sorted(one.key for one in sample)).encode()).hexdigest()[:16]


def _survey(run: Path) -> tuple[list[_Candidate], Counter[bytes]]:
    """Return every seat of the learner's, and how often each wording occurs; reads shard by shard."""
    candidates: list[_Candidate] = []
    wordings: Counter[bytes] = Counter()
    for shard in sorted((run / "trajectories").rglob("*.parquet")):
        iteration = int(shard.parent.name.partition("=")[2])
        for episode in trajectories.read_episodes([shard]):
            for seat in sorted({t.player for t in episode.turns if _is_own(t)}):
                candidates.append(_candidate(shard, iteration, episode, seat))
            wordings.update(_wording(t.text) for t in episode.turns if _is_own(t) and reasoning.has_reasoning(t.text))
    return candidates, wordings


def _is_own(turn: Turn) -> bool:
    return turn.policy == RefKind.SELF.value and bool(turn.response_ids)


def _candidate(shard: Path, iteration: int, episode: Episode, seat: int) -> _Candidate:
    own = [t for t in episode.turns if t.player == seat and _is_own(t)]
    lost = [found for t in own if (found := regret.of_turn(episode, t)) is not None]
    return _Candidate(
        shard=shard,
        iteration=iteration,
        match=episode.id,
        game=episode.game,
        seat=seat,
        result=episode.returns[seat],
        illegal=any(not t.legal for t in own),
        tokens=sum(len(t.response_ids) for t in own),
        regret=max(lost, default=0.0),
        rarity=max((-math.fsum(t.logprobs) / len(t.logprobs) for t in own if t.logprobs), default=0.0),
    )


def _choose(candidates: Sequence[_Candidate], matches: int, seed: int) -> list[tuple[str, _Candidate]]:
    by_regret = sorted((c for c in candidates if c.regret > 0), key=lambda c: (-c.regret, c.key))
    by_rarity = sorted(candidates, key=lambda c: (-c.rarity, c.key))
    pairs = itertools.chain.from_iterable(itertools.zip_longest(by_regret, by_rarity))
    orders: dict[str, list[_Candidate]] = {
        "invalid": _shuffled([c for c in candidates if c.illegal], seed, "invalid"),
        "longest": sorted(candidates, key=lambda c: (-c.tokens, c.key)),
        "surprising": [c for c in pairs if c is not None],
        "wins": _shuffled([c for c in candidates if c.result > 0], seed, "wins"),
        "losses": _shuffled([c for c in candidates if c.result < 0], seed, "losses"),
    }
    quota, extra = divmod(matches, len(orders))
    chosen: list[tuple[str, _Candidate]] = []
    taken: set[str] = set()

    def take(stratum: str, order: Sequence[_Candidate], number: int) -> None:
        for candidate in order:
            if number == 0:
                return
            if candidate.match not in taken:
                taken.add(candidate.match)
                chosen.append((stratum, candidate))
                number -= 1

    for i, (stratum, order) in enumerate(orders.items()):
        take(stratum, order, quota + (i < extra))
    take("other", _shuffled(candidates, seed, "other"), matches - len(chosen))
    return chosen


def _shuffled(candidates: Sequence[_Candidate], seed: int, stratum: str) -> list[_Candidate]:
    """Return the candidates in random order, the games in turn, so that none crowds out another."""
    by_game: dict[str, list[_Candidate]] = defaultdict(list)
    for candidate in sorted(candidates, key=lambda c: seed_for(seed, "match audit", stratum, c.key)):
        by_game[candidate.game].append(candidate)
    rounds = itertools.zip_longest(*(by_game[game] for game in sorted(by_game)))
    return [c for one in rounds for c in one if c is not None]


def _review(episode: Episode, wordings: Counter[bytes], near: Mapping[str, str]) -> tuple[ReviewedTurn, ...]:
    found = []
    for turn, view in zip(episode.turns, _views(episode), strict=True):
        best, is_exact = _solved(view, episode)
        flags = _flags(episode, turn, wordings, near) if turn.response_ids else ()
        lost = regret.of_turn(episode, turn)
        found.append(ReviewedTurn(turn=turn, best=best, is_exact=is_exact, regret=lost, flags=flags))
    return tuple(found)


def _views(episode: Episode) -> list[View | None]:
    """Return what the player to move saw at every turn, from playing the match again; None where it does not agree."""
    views: list[View | None] = [None] * len(episode.turns)
    try:
        game = games.make(episode.game, seed=episode.seed, **dict(episode.params))
        for i, turn in enumerate(episode.turns):
            view = game.view(turn.player)
            if view.info_state != turn.info_state:
                break
            views[i] = view
            if turn.legal:
                game.apply(turn.action)
    except (EngineError, IllegalAction):
        pass  # a game that is not installed, or a record that its rules do not allow
    return views


def _solved(view: View | None, episode: Episode) -> tuple[Mapping[str, float], bool]:
    """Return the moves that solved or strong play makes, likeliest first, and whether it is exact."""
    if view is None or view.game not in optimal.STRATEGIES or not view.legal_actions:
        return {}, False
    try:
        chances = optimal.strategy(view)
    except (EngineError, KeyError):
        return {}, False  # no OpenSpiel, or parameters under which the table does not hold
    ranked = sorted(((a, p) for a, p in chances.items() if p > 0), key=lambda item: (-item[1], item[0]))
    return dict(ranked), view.game in optimal.SOLVED


def _flags(episode: Episode, turn: Turn, wordings: Counter[bytes], near: Mapping[str, str]) -> tuple[str, ...]:
    flags = [] if turn.legal else [f"illegal ({turn.invalid_reason})"]
    if turn.finish_reason in ("length", "context"):
        flags.append("cut off by a token limit")
    if not reasoning.has_reasoning(turn.text):
        return (*flags, "no reasoning")
    copies = wordings[_wording(turn.text)]
    if copies > 1:
        flags.append(f"templated: {copies} of {wordings.total()} replies have these words, numbers aside")
    elif (other := near.get(f"{episode.id}/{turn.index}")) is not None:
        flags.append(f"nearly the same as {other}")
    return tuple(flags)


def _wording(text: str) -> bytes:
    """Return a short hash of a reply's reasoning without case, numbers, blanks and its box."""
    return hashlib.blake2b(" ".join(_words(text)).encode(), digest_size=8).digest()


def _words(text: str) -> list[str]:
    before = text.rpartition("\\boxed")[0] or text
    return re.findall(r"[^\W\d_]+", before.casefold())


def _near_duplicates(episodes: Sequence[Episode]) -> dict[str, str]:
    """Return, by ``match/turn``, the first other match of the sample with nearly the same reply."""
    grams: dict[str, tuple[str, frozenset[tuple[str, ...]]]] = {}
    for episode in episodes:
        for turn in episode.turns:
            words = _words(turn.text)
            found = frozenset(tuple(words[i : i + _SHINGLE]) for i in range(len(words) - _SHINGLE + 1))
            if _is_own(turn) and found:
                grams[f"{episode.id}/{turn.index}"] = episode.id, found
    near: dict[str, str] = {}
    for (one, (match, a)), (other, (its_match, b)) in itertools.combinations(grams.items(), 2):
        if match != its_match and len(a & b) >= _NEAR * len(a | b):
            near.setdefault(one, other)
            near.setdefault(other, one)
    return near
