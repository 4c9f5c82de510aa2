"""Few intervals with little loss: dynamic programming over all sizes of one series."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Segment = tuple[int, int, int]
"""(first size, last size, choice): inclusive indices and a column."""

_EPSILON = 1e-12


@dataclass(frozen=True)
class Frontier:
    """The cheapest cover of all sizes for each number of intervals.

    Attributes:
        totals: shape (n + 1,): totals[r] is the least cost of at most r intervals; inf where there is no such cover.
        cut: shape (n + 1, n + 1): where the last of r intervals that cover the first e sizes starts.
        used: shape (n + 1,): the number of intervals that totals[r] really needs.
    """

    totals: Floats
    cut: Ints
    used: Ints

    def spans(self, count: int) -> list[tuple[int, int]]:
        """Return the intervals (first, last) of the cheapest cover by at most ``count``."""
        spans = []
        end, used = len(self.totals) - 1, int(self.used[count])
        while used:
            start = int(self.cut[used, end])
            spans.append((start, end - 1))
            end, used = start, used - 1
        return spans[::-1]

    @property
    def least(self) -> int:
        """The fewest intervals at the least cost."""
        return int(np.argmax(self.totals <= self.totals[-1] + _EPSILON))


def frontier(cost: Floats) -> Frontier:
    """Return the cheapest covers of 0 … n−1.

    Args:
        cost: shape (n, n); cost[i, j] of the interval i … j inclusive, inf where not permitted (j < i: ignored).

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
        if used > 1 and best[1 : used + 1, n].min() <= _EPSILON:
            break  # more intervals cannot cost less than nothing
    if not np.isfinite(best[:, n].min()):
        raise ValueError("no cover of all sizes exists")
    exact = best[:, n]
    used_by = np.array(
        [int(np.argmin(np.where(np.isnan(exact[: r + 1]), np.inf, exact[: r + 1]))) for r in range(n + 1)]
    )
    return Frontier(np.minimum.accumulate(exact), cut, used_by)


def share(frontiers: Sequence[Frontier], allowance: float) -> list[int]:
    """Return how many intervals each series gets: few in total, with a total cost within ``allowance``.

    Starts from the cheapest covers and takes intervals away where that costs least for each one saved, as long as
    the allowance lasts. For one series the result is the fewest intervals there are.

    Args:
        frontiers: of all series that share the allowance.
        allowance: largest total cost.
    """
    counts = [f.least for f in frontiers]
    spent = sum(float(f.totals[c]) for f, c in zip(frontiers, counts, strict=True))
    steps = [step for number, f in enumerate(frontiers) for step in _steps(number, f, counts[number])]
    heapq.heapify(steps)
    while steps:
        _, number, target = heapq.heappop(steps)
        if target >= counts[number]:
            continue
        own = frontiers[number]
        more = float(own.totals[target] - own.totals[counts[number]])
        if spent + more <= allowance + _EPSILON:
            spent, counts[number] = spent + more, target
            for step in _steps(number, own, target):
                heapq.heappush(steps, step)
    return counts


def _steps(number: int, own: Frontier, count: int) -> list[tuple[float, int, int]]:
    """Return (cost for each interval saved, series, new count) of all smaller covers."""
    return [
        (float(own.totals[r] - own.totals[count]) / (count - r), number, r)
        for r in range(1, count)
        if np.isfinite(own.totals[r])
    ]


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
