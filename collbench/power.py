"""What a comparison could have seen: the smallest change found 8 times in 10, and how many launches a change needs."""

import math
from collections.abc import Sequence

import numpy as np
from scipy.stats import norm

POWER = 0.8
EFFICIENCY = math.sqrt(math.pi / 3)
"""Standard error of the Hodges–Lehmann estimate over that of a mean, for normal data (Lehmann 1975)."""
MAX_COUNT = 1000


def spread(base: Sequence[float], new: Sequence[float], *, paired: bool) -> float | None:
    """Return the standard deviation of log-ratios of single launches (of pairs); None with fewer than three.

    For unpaired groups: sqrt of the sum of both variances, what one launch against one launch would scatter.
    """
    if min(len(base), len(new)) < 3:
        return None
    logs = [np.log(np.asarray(side, float)) for side in (base, new)]
    if paired:
        return float(np.std(logs[1] - logs[0], ddof=1))
    return math.sqrt(sum(float(np.var(side, ddof=1)) for side in logs))


def least_count(alpha: float, *, paired: bool) -> int:
    """Return the fewest pairs (launches a side) with which the exact test can reach ``alpha`` at all."""
    for count in range(1, MAX_COUNT):
        least = 2.0 * 0.5**count if paired else 2.0 / math.comb(2 * count, count)
        if least <= alpha:
            return count
    return MAX_COUNT


def detectable(
    spread_log: float, count: int, threshold: float, alpha: float = 0.05, *, paired: bool = True
) -> float | None:
    """Return the smallest slow-down (0.07 = 7 %) that is called slower 8 times in 10; None: too few launches.

    Both conditions of the verdict must hold: p at most ``alpha``, and an estimate of at least the threshold. So this
    is never below the threshold: a true change equal to it is called slower half the time.

    Args:
        spread_log: standard deviation of the log-ratio of one pair (one launch against one launch).
        count: pairs, or launches a side.
        threshold: practical threshold of the verdict.
        alpha: level of the test.
        paired: whether the launches are pairs.
    """
    if count < least_count(alpha, paired=paired):
        return None
    error = EFFICIENCY * spread_log / math.sqrt(count)
    by_estimate = math.log1p(threshold) + float(norm.ppf(POWER)) * error
    by_test = float(norm.ppf(1 - alpha / 2) + norm.ppf(POWER)) * error
    return math.expm1(max(by_estimate, by_test))


def needed(
    spread_log: float, change: float, threshold: float, alpha: float = 0.05, *, paired: bool = True
) -> int | None:
    """Return how many pairs (launches a side) find a slow-down of ``change`` 8 times in 10; None: no number does.

    A change not above the threshold cannot be found reliably, whatever the number.
    """
    if change <= threshold:
        return None
    for count in range(least_count(alpha, paired=paired), MAX_COUNT):
        seen = detectable(spread_log, count, threshold, alpha, paired=paired)
        if seen is not None and seen <= change:
            return count
    return None
