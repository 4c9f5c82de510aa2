"""Series of one collective over rank counts, aligned; what they say about a rank count that was not measured."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from collbench.candidates import Choice, Series

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

REACH = 0.7
"""Distance in log ranks over which evidence fades to 1/e: one doubling of the ranks."""
KIND = 2.0
"""Log weight between a power of two and another rank count (facts: evidence §1.4: they behave differently)."""
NEIGHBOUR = 0.1
"""Weight of the two neighbouring sizes: borders between algorithms move with the ranks (facts: evidence §4)."""
UNKNOWN_LOSS = 0.3
"""Log loss assumed where a choice was not measured at a rank count that counts as evidence."""


@dataclass(frozen=True)
class Pool:
    """Aligned series.

    Attributes:
        collective: name.
        ranks: shape (q,), ascending.
        sizes: shape (m,), the union of sizes.
        choices: the k columns, simplest first.
        log_time: shape (q, m, k); NaN where not measured.
        doubtful: shape (q, m, k): not shown to be faster than the default beyond noise, where that was measured at all.
        measured: shape (q, m): False where a size was read off between two measured ones.
    """

    collective: str
    ranks: Ints
    sizes: Ints
    choices: tuple[Choice, ...]
    log_time: Floats
    doubtful: npt.NDArray[np.bool_]
    measured: npt.NDArray[np.bool_]

    @property
    def default(self) -> int | None:
        """Column of the default; None where no series has it."""
        return next((i for i, c in enumerate(self.choices) if c.algorithm == "default"), None)

    def without(self, index: int) -> "Pool":
        """Return the pool without one rank count."""
        keep = np.arange(len(self.ranks)) != index
        return replace(
            self,
            ranks=self.ranks[keep],
            log_time=self.log_time[keep],
            doubtful=self.doubtful[keep],
            measured=self.measured[keep],
        )

    def actual(self, index: int) -> Floats:
        """Return the log losses of one rank count, shape (m, k), at the sizes that were measured; NaN elsewhere."""
        return np.where(self.measured[index][:, None], losses(self.log_time[index]), np.nan)


def align(series: Sequence[Series]) -> Pool:
    """Return the pool of series of one collective, one a rank count.

    A size that one rank count lacks between two that it has is read off the straight line between them in log time over
    log size: else the others' evidence alone would speak there, of borders that move with the ranks.
    """
    choices = sorted({choice for one in series for choice in one.choices}, key=lambda c: c.weight)
    sizes = np.unique(np.concatenate([one.sizes for one in series]))
    ordered = sorted(series, key=lambda s: s.ranks)
    times = np.full((len(ordered), len(sizes), len(choices)), np.nan)
    doubtful = np.zeros(times.shape, np.bool_)
    seen = np.zeros(times.shape[:2], np.bool_)
    for number, measured in enumerate(ordered):
        one = _between(measured, sizes)
        seen[number] = np.isin(sizes, measured.sizes)
        rows = np.searchsorted(sizes, one.sizes)
        columns = np.array([choices.index(c) for c in one.choices], np.int64)
        times[number][np.ix_(rows, columns)] = one.log_time
        doubtful[number] = one.default is not None
        if one.default is not None:
            doubtful[number][np.ix_(rows, columns)] = ~(one.gain - np.nan_to_num(one.half) > 0)
    return Pool(
        ordered[0].collective,
        np.array([s.ranks for s in ordered], np.int64),
        sizes,
        tuple(choices),
        times,
        doubtful,
        seen,
    )


def _between(series: Series, sizes: Ints) -> Series:
    """Return a series with every one of ``sizes`` that lies between two of its own."""
    inside = sizes[(sizes >= series.sizes[0]) & (sizes <= series.sizes[-1])]
    if len(inside) == len(series.sizes):
        return series
    at, own = np.log(np.maximum(inside, 1)), np.log(np.maximum(series.sizes, 1))

    def filled(values: Floats) -> Floats:
        # np.interp hands NaN on from a neighbour, so that nothing is made from one side alone.
        return np.stack([np.interp(at, own, column) for column in values.T], axis=1)

    return replace(
        series,
        sizes=inside,
        log_time=filled(series.log_time),
        gain=filled(series.gain),
        half=filled(series.half),
        launches=np.zeros((len(inside), len(series.choices)), np.int64),
    )


def shapes(series: Sequence[Series]) -> list[list[Series]]:
    """Return groups that speak about each other: one collective, all on one node or equal ranks per node.

    Where one rank count was measured in several shapes, the groups keep them apart.
    """
    groups: dict[tuple[str, int | None], list[Series]] = {}
    for one in series:
        alone = one.ranks_per_node is not None and one.ranks_per_node >= one.ranks
        groups.setdefault((one.collective, 0 if alone else one.ranks_per_node), []).append(one)
    return list(groups.values())


def losses(log_time: Floats) -> Floats:
    """Return log losses against the best of each (rank count, size); NaN where not measured."""
    best = np.min(np.where(np.isnan(log_time), np.inf, log_time), axis=-1, keepdims=True)
    return np.where(np.isfinite(best), log_time - np.where(np.isfinite(best), best, 0.0), np.nan)


def expected_loss(pool: Pool, ranks: int) -> Floats:
    """Return shape (m, k): the expected log loss of each choice at a rank count that was not measured.

    It is the mean loss at the measured rank counts, each weighted by nearness in log ranks and by whether it is a power
    of two as ``ranks`` is, smoothed over neighbouring sizes. inf where there is no evidence at all.
    """
    own = losses(pool.log_time)
    seen = ~np.isnan(pool.log_time).all(axis=2)
    weight = np.exp(-np.abs(np.log(pool.ranks) - np.log(ranks)) / REACH)
    same_kind = ((pool.ranks & (pool.ranks - 1)) == 0) == ((ranks & (ranks - 1)) == 0)
    weights = (weight * np.where(same_kind, 1.0, np.exp(-KIND)))[:, None] * seen
    filled = np.where(np.isnan(own), UNKNOWN_LOSS, own)
    total = np.maximum(weights.sum(axis=0), 1e-300)
    mean = (weights[:, :, None] * filled).sum(axis=0) / total[:, None]
    padded = np.concatenate([mean[:1], mean, mean[-1:]])
    smooth = (mean + NEIGHBOUR * (padded[:-2] + padded[2:])) / (1 + 2 * NEIGHBOUR)
    unseen = np.isnan(pool.log_time).all(axis=0) | ~np.any(seen, axis=0, keepdims=True).T
    return np.where(unseen, np.inf, smooth)
