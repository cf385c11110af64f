"""Indicators of collapsing reasoning, from episodes: how long, varied, empty and invalid the replies are."""

from __future__ import annotations

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
    ``seat_share_n``. A number with nothing to measure is left out, never 0.
    """
    kept = list(episodes)
    turns = [t for e in kept for t in e.turns if t.response_ids and t.policy == policy]
    found = {"reasoning/turns": float(len(turns))}
    if turns:
        found |= _of_turns(turns) | _by_role(kept, policy)
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
    before = text.rpartition("\\boxed")[0] if "\\boxed" in text else text
    return any(c.isalnum() for c in before.replace("<think>", "").replace("</think>", ""))


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
