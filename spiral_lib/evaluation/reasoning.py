"""Indicators of collapsing reasoning, from episodes: how long, varied, empty and invalid the replies are."""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence

from spiral_lib.types import EndReason, Episode, Turn

_GRAM = 4
_MAX_GRAMS = 8192
"""4-grams counted at most: the ratio falls with the amount of text, so it compares equal amounts only."""


def metrics(episodes: Iterable[Episode], *, policy: str = "self") -> dict[str, float]:
    """Return the indicators as ``reasoning/*`` metrics over the turns of one policy, named as turns name it.

    Of ``turns`` turns: ``median_tokens`` and ``p10_tokens`` of a response; shares of replies without a word before
    their box (``empty_share``), equal to another one (``duplicate_share``), without a legal action (``invalid_share``,
    also per game and role) and cut by a token limit (``truncated_share``); ``distinct_4grams``, distinct over all
    4-grams of response tokens. ``seat_share`` is the share of decisive matches won by the seat that wins more, over
    ``seat_share_n``. ``state_dependence``, over ``state_dependence_n`` replies, says how much the reasoning follows
    what only its player knows, see ``_dependence``. A number with nothing to measure is left out, never 0.
    """
    kept = list(episodes)
    turns = [t for e in kept for t in e.turns if t.response_ids and t.policy == policy]
    found = {"reasoning/turns": float(len(turns))}
    if turns:
        found |= _of_turns(turns) | _by_role(kept, policy) | _dependence(kept, policy)
    return found | _seats(kept)


def _of_turns(turns: Sequence[Turn]) -> dict[str, float]:
    lengths = sorted(len(t.response_ids) for t in turns)
    n = len(turns)
    copies = Counter(t.response_ids for t in turns)
    metrics = {
        "reasoning/median_tokens": float(statistics.median(lengths)),
        "reasoning/p10_tokens": float(lengths[(n - 1) // 10]),
        "reasoning/empty_share": sum(not has_reasoning(t.text) for t in turns) / n,
        "reasoning/duplicate_share": sum(count for count in copies.values() if count > 1) / n,
        "reasoning/invalid_share": sum(not t.legal for t in turns) / n,
        "reasoning/truncated_share": sum(t.finish_reason in ("length", "context") for t in turns) / n,
    }
    grams = _grams(turns)
    return metrics | ({"reasoning/distinct_4grams": len(set(grams)) / len(grams)} if grams else {})


def has_reasoning(text: str) -> bool:
    """Return whether a reply says anything, that is has a letter or digit, before its last box (or at all without one).

    The ``<think>`` tags themselves are no words.
    """
    return any(c.isalnum() for c in _before_box(text))


def _before_box(text: str) -> str:
    before = text.rpartition("\\boxed")[0] if "\\boxed" in text else text
    return before.replace("<think>", "").replace("</think>", "")


def _grams(turns: Sequence[Turn]) -> list[tuple[int, ...]]:
    """Return the first 4-grams of the replies; none spans two replies."""
    grams: list[tuple[int, ...]] = []
    for turn in turns:
        ids = turn.response_ids
        grams += [ids[i : i + _GRAM] for i in range(len(ids) - _GRAM + 1)]
        if len(grams) >= _MAX_GRAMS:
            break
    return grams[:_MAX_GRAMS]


def _by_role(episodes: Sequence[Episode], policy: str) -> dict[str, float]:
    seen: Counter[str] = Counter()
    invalid: Counter[str] = Counter()
    for episode in episodes:
        for turn in episode.turns:
            if turn.response_ids and turn.policy == policy:
                name = f"reasoning/{episode.game}/{turn.role.replace(' ', '_')}/invalid_share"
                seen[name] += 1
                invalid[name] += not turn.legal
    return {name: invalid[name] / n for name, n in sorted(seen.items())}


def _seats(episodes: Sequence[Episode]) -> dict[str, float]:
    decisive = [e for e in episodes if e.end_reason is not EndReason.OPPONENT_ERROR and e.returns[0] != e.returns[1]]
    first = sum(e.returns[0] > e.returns[1] for e in decisive)
    metrics = {"reasoning/seat_share_n": float(len(decisive))}
    if decisive:
        metrics["reasoning/seat_share"] = max(first, len(decisive) - first) / len(decisive)
    return metrics


def _dependence(episodes: Sequence[Episode], policy: str) -> dict[str, float]:
    """Return how much less alike the reasoning for different states is than for one: 1 nothing shared, 0 the same.

    Compared are replies of one role after the same actions of both players, so that states differ by hidden cards and
    the like alone, and a game without such has no number. Likeness is the cosine of the words and pairs of words.
    """
    groups: dict[tuple[object, ...], dict[str, list[Counter[str]]]] = {}
    for episode in episodes:
        for i, turn in enumerate(episode.turns):
            if turn.response_ids and turn.policy == policy and has_reasoning(turn.text):
                public = (episode.game, episode.params, turn.role, *(t.action for t in episode.turns[:i]))
                groups.setdefault(public, {}).setdefault(turn.info_state, []).append(_words(turn.text))
    within = across = compared = 0.0
    for states in groups.values():
        sizes = [len(replies) for replies in states.values()]
        n, same_pairs = sum(sizes), sum(size * (size - 1) for size in sizes)
        other_pairs = n * (n - 1) - same_pairs
        if not same_pairs or not other_pairs:
            continue
        sums = [_total(replies) for replies in states.values()]
        same, whole = sum(map(_square, sums)), _square(_total(sums))
        # Every reply's likeness to itself is 1 and no pair.
        within += n * (same - n) / same_pairs
        across += n * (whole - same) / other_pairs
        compared += n
    if within <= 0.0:
        return {}
    return {"reasoning/state_dependence": 1.0 - across / within, "reasoning/state_dependence_n": compared}


def _words(text: str) -> Counter[str]:
    """Return a vector of length 1 over the words and pairs of words before the box."""
    words = _before_box(text).lower().split()
    kinds = {*words, *(f"{a} {b}" for a, b in itertools.pairwise(words))}
    return Counter(dict.fromkeys(kinds, 1.0 / math.sqrt(len(kinds))))


def _total(vectors: Iterable[Counter[str]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for vector in vectors:
        for word, weight in vector.items():
            total[word] += weight
    return total


def _square(vector: Counter[str]) -> float:
    return math.fsum(weight * weight for weight in vector.values())
