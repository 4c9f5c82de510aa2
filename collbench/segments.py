"""Few intervals with little loss: dynamic programming over all sizes of one series."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Segment = tuple[int, int, int]
"""(first size, last size, choice): inclusive indices and a column."""

_EPSILON = 1e-12


def fewest(cost: Floats, allowance: float) -> list[tuple[int, int]]:
    """Return the fewest intervals that cover 0 … n−1 with a total cost within ``allowance``.

    Among covers of that many intervals the cheapest is taken. Where no cover is within the allowance, the cheapest
    cover of all (with the fewest intervals among equals) is.

    Args:
        cost: shape (n, n); cost[i, j] of the interval i … j inclusive, inf where it is not permitted (j < i: ignored).
        allowance: largest total cost.

    Raises:
        ValueError: no cover exists at all.
    """
    n = len(cost)
    best = np.full((n + 1, n + 1), np.inf)
    cut = np.zeros((n + 1, n + 1), np.int64)
    best[0, 0] = 0.0
    for used in range(1, n + 1):
        for end in range(used, n + 1):
            totals = best[used - 1, :end] + cost[:end, end - 1]
            at = int(np.argmin(totals))
            best[used, end], cut[used, end] = totals[at], at
        if best[used, n] <= allowance + _EPSILON:
            return _walk(cut, used, n)
    used = int(np.argmin(np.where(best[:, n] <= best[:, n].min() + _EPSILON, 0, 1)))
    if not np.isfinite(best[used, n]):
        raise ValueError("no cover of all sizes exists")
    return _walk(cut, used, n)


def _walk(cut: Ints, used: int, n: int) -> list[tuple[int, int]]:
    spans = []
    end = n
    while used:
        start = int(cut[used, end])
        spans.append((start, end - 1))
        end, used = start, used - 1
    return spans[::-1]


def interval_costs(loss: Floats, permitted: npt.NDArray[np.bool_]) -> tuple[Floats, Ints]:
    """Return for each interval the least total loss of one permitted choice, and that choice.

    Args:
        loss: shape (n, k), inf where the choice cannot run; columns in order of preference among equals.
        permitted: shape (n, n, k); whether the choice may serve the whole interval i … j.
    """
    n, k = loss.shape
    finite = np.where(np.isfinite(loss), loss, 0.0)
    blocked = np.cumsum(~np.isfinite(loss), axis=0)
    totals = np.cumsum(finite, axis=0)
    zero = np.zeros((1, k))
    span = totals[None, :, :] - np.concatenate([zero, totals[:-1]])[:, None, :]
    holes = blocked[None, :, :] - np.concatenate([zero, blocked[:-1]])[:, None, :]
    cost = np.where(permitted & (holes == 0), np.maximum(span, 0.0), np.inf)
    cost[np.tril_indices(n, -1)] = np.inf
    # Rounding of the running sums must not decide between equals: the preferred (first) column wins.
    choice = np.argmax(cost <= cost.min(axis=2, keepdims=True) + _EPSILON, axis=2)
    return np.take_along_axis(cost, choice[:, :, None], axis=2)[:, :, 0], choice


def choose(loss: Floats, permitted: npt.NDArray[np.bool_], allowance: float) -> list[Segment]:
    """Return the fewest segments (first, last, choice) whose total loss is within ``allowance``."""
    cost, choice = interval_costs(loss, permitted)
    return [(i, j, int(choice[i, j])) for i, j in fewest(cost, allowance)]


def boundary(sizes: tuple[int, int], below: Sequence[float], above: Sequence[float]) -> int:
    """Return the first size that the upper rule serves, in (sizes[0], sizes[1]].

    It is where the two curves cross, both taken as straight between the two measured sizes in log size and log time.
    Where one choice is faster at both ends its interval takes all sizes in between; where a curve is unknown at the
    far end, its rule is not extended into the gap.

    Args:
        sizes: the last size of the lower rule and the first of the upper rule.
        below: log times of the lower rule's choice at both sizes; NaN = unknown.
        above: log times of the upper rule's choice at both sizes.
    """
    low, high = sizes
    at_low, at_high = above[0] - below[0], above[1] - below[1]
    if np.isnan(at_low) and np.isnan(at_high):
        share = 0.5
    elif np.isnan(at_low):
        share = 1.0
    elif np.isnan(at_high):
        share = 0.0
    elif at_low > 0 > at_high:
        share = at_low / (at_low - at_high)
    else:
        share = 0.0 if at_low + at_high < 0 else 1.0
    crossing = float(np.exp(np.log(max(low, 1)) + share * (np.log(high) - np.log(max(low, 1)))))
    return int(min(max(np.ceil(crossing), low + 1), high))
