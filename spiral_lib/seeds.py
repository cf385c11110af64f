"""Derived seeds: every random draw is keyed by what it is for, never by when it happens."""

from __future__ import annotations

import functools
import hashlib
import random
from collections.abc import Callable, Sequence


def seed_for(*parts: int | str) -> int:
    """Return a 63-bit seed that depends on all parts and their order.

    Example: ``seed_for(run_seed, "match", step, index)``. Integers and text never collide (``1`` is not ``"1"``).
    """
    digest = hashlib.blake2b("".join(map(_encoded, parts)).encode(), digest_size=8)
    return int.from_bytes(digest.digest(), "big") >> 1


def _encoded(part: int | str) -> str:
    text = f"{type(part).__name__}:{part}"
    return f"{len(text)}:{text};"


def uniform(*parts: int | str) -> float:
    """Return a number in [0, 1) keyed by the parts, with 53 bits."""
    return (seed_for(*parts) >> 10) / float(1 << 53)


def uniforms(*parts: int | str, numbers: Sequence[int]) -> list[float]:
    """Return ``uniform(*parts, n)`` for every n of ``numbers``."""
    seed = series(*parts)
    return [(seed(number) >> 10) / float(1 << 53) for number in numbers]


def series(*parts: int | str) -> Callable[[int], int]:
    """Return the function from n to ``seed_for(*parts, n)``; the common parts are hashed once."""
    common = hashlib.blake2b("".join(map(_encoded, parts)).encode(), digest_size=8)

    def seed(number: int) -> int:
        digest = common.copy()
        digest.update(_encoded_number(number))
        return int.from_bytes(digest.digest(), "big") >> 1

    return seed


@functools.lru_cache(maxsize=256, typed=True)
def _encoded_number(number: int) -> bytes:
    return _encoded(number).encode()


def generator(*parts: int | str) -> random.Random:
    """Return a private generator keyed by the parts; the process-wide generator is never touched."""
    return random.Random(seed_for(*parts))
