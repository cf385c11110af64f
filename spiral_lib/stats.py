"""Small-sample statistics without dependencies: intervals, exact sign test, paired sign-flip test."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Z95 = 1.959963984540054
_EXACT_FLIPS = 12
_FLIP_DRAWS = 9999


def wilson(successes: float, n: int, z: float = Z95) -> tuple[float, float]:
    """Return the Wilson score interval of a share; (0, 1) when nothing was tried.

    It stays inside [0, 1] and is honest at 0 and n successes, where the normal interval has width zero.
    """
    if n == 0:
        return 0.0, 1.0
    share = successes / n
    centre = share + z * z / (2 * n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    return max(0.0, (centre - half) / scale), min(1.0, (centre + half) / scale)


def mean_interval(values: Sequence[float], z: float = Z95) -> tuple[float, float, float]:
    """Return mean, low and high of the normal interval; nan for fewer than one value, the mean alone for one."""
    if not values:
        return math.nan, math.nan, math.nan
    centre = math.fsum(values) / len(values)
    if len(values) == 1:
        return centre, centre, centre
    half = z * statistics.stdev(values) / math.sqrt(len(values))
    return centre, centre - half, centre + half


def normal_tail(z: float) -> float:
    """Return P(Z >= z) of a standard normal variable."""
    return 0.5 * math.erfc(z / math.sqrt(2))


def sign_test(worse: int, better: int) -> float:
    """Return the exact one-sided p-value of "worse at least this often" among discordant pairs (McNemar's exact test).

    Pairs on which both agree carry no information and are not given. No discordant pair gives 1.
    """
    n = worse + better
    return min(1.0, float(sum(math.comb(n, k) for k in range(worse, n + 1)) / 2**n))


def sign_flip_test(differences: Sequence[float], *, seed: int = 0) -> float:
    """Return the one-sided p-value of "the mean is this low" when each difference is as likely with either sign.

    Exact up to 12 non-zero differences; beyond, 9999 sign vectors keyed by ``seed``, the observed one counted among
    them, so that the p-value is valid and never 0. Zeros carry no information. Nothing gives 1.
    """
    moved = [d for d in differences if d != 0]
    if not moved:
        return 1.0
    import numpy as np

    values = np.asarray(moved, dtype=np.float64)
    # A flip that gives the same sum in another order must count as equally low, hence the slack.
    limit = float(values.sum()) + 1e-9
    if len(moved) <= _EXACT_FLIPS:
        bits = np.arange(2 ** len(moved))[:, None] >> np.arange(len(moved))
        return float(np.mean((1 - 2 * (bits & 1)) @ np.abs(values) <= limit))
    random = np.random.Generator(np.random.Philox(key=seed))
    flips = 1 - 2 * random.integers(0, 2, size=(_FLIP_DRAWS, len(moved)), dtype=np.int8)
    return float((1 + np.count_nonzero(flips @ np.abs(values) <= limit)) / (_FLIP_DRAWS + 1))


def z_of(differences: Sequence[float]) -> float:
    """Return the mean over its standard error, 0 for no difference; equal differences count as one sign each.

    Equal differences have no spread to estimate an error from; then the sign test's z, plus or minus the root of n.
    """
    n = len(differences)
    if n == 0 or all(d == 0 for d in differences):
        return 0.0
    centre = math.fsum(differences) / n
    spread = statistics.stdev(differences) if n > 1 else 0.0
    if spread == 0.0:
        return math.copysign(math.sqrt(n), centre)
    return float(centre / (spread / math.sqrt(n)))


def jackknife(left_out: Sequence[float]) -> float:
    """Return the standard error of an estimate from its values with one of g equal groups left out; 0 for g < 2."""
    g = len(left_out)
    if g < 2:
        return 0.0
    centre = math.fsum(left_out) / g
    return math.sqrt((g - 1) / g * math.fsum((value - centre) ** 2 for value in left_out))


@dataclass(frozen=True, kw_only=True, slots=True)
class ShareChange:
    """How a share changed between two evaluations, with the 95 % interval of the difference."""

    difference: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """``grew``, ``fell``, or ``no significant change``."""
        return "grew" if self.low > 0 else "fell" if self.high < 0 else "no significant change"


def share_change(first: Mapping[str, float], last: Mapping[str, float], name: str) -> ShareChange | None:
    """Return a share's difference with Newcombe's interval, made of the Wilson intervals at ``_low`` and ``_high``.

    None where one of the two has no such share.
    """
    if name not in first or name not in last:
        return None
    before, after = first[name], last[name]
    below = math.hypot(after - last[f"{name}_low"], first[f"{name}_high"] - before)
    above = math.hypot(last[f"{name}_high"] - after, before - first[f"{name}_low"])
    return ShareChange(difference=after - before, low=after - before - below, high=after - before + above)


def transfer(play: ShareChange | None, elsewhere: ShareChange | None) -> str:
    """Return what a change in play and one elsewhere say about transfer; never more than the intervals allow."""
    if play is None or elsewhere is None:
        return "not measured"
    if play.verdict != "grew":
        return f"{play.verdict} in play"
    return "grew in both" if elsewhere.verdict == "grew" else "grew in play only"
