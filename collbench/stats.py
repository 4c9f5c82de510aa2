"""Statistics of launches and blocks: medians, paired ratios with intervals (facts: timing-and-statistics §6, §9)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import rankdata

from collbench.results import CASE_COLUMNS

MAD_TO_SIGMA = 1.4826
"""Normal consistency factor of the median absolute deviation."""
MEDIAN_EFFICIENCY = 1.2533
"""Standard error of a median over that of a mean for normal data: sqrt(pi / 2)."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio of times with its 95 % interval.

    Attributes:
        value: estimate.
        low: lower end; None where no interval can be given.
        high: upper end; None where no interval can be given.
        count: pairs (or launches a side) behind it.
        p: two-sided p value; None where there is none.
    """

    value: float
    low: float | None
    high: float | None
    count: int
    p: float | None = None


def paired_log_median(numerator: Sequence[float], denominator: Sequence[float], z: float = 1.96) -> Ratio:
    """Return the ratio of two interleaved series, paired block by block (median log-ratio, MAD interval).

    Args:
        numerator: block medians in seconds, in order; the longer of the two series is cut at the end.
        denominator: block medians in seconds, in order.
        z: half-width in standard errors.

    Source: facts of the race: standard error of a median is 1.2533 · 1.4826 · MAD / sqrt(n).
    """
    n = min(len(numerator), len(denominator))
    logs = np.log(np.asarray(numerator[:n], float)) - np.log(np.asarray(denominator[:n], float))
    centre = float(np.median(logs))
    if n < 3:
        return Ratio(float(np.exp(centre)), None, None, n)
    spread = MAD_TO_SIGMA * float(np.median(np.abs(logs - centre)))
    half = z * MEDIAN_EFFICIENCY * spread / n**0.5
    return Ratio(float(np.exp(centre)), float(np.exp(centre - half)), float(np.exp(centre + half)), n)


def summarise(frame: pd.DataFrame) -> pd.DataFrame:
    """Return one row per case over all its launches.

    Adds ``time_s`` (median of launch medians), ``launches``, ``min_s`` and ``max_s`` (smallest and largest launch
    median), ``iterations`` (sum). Other columns keep their first value.
    """
    if frame.empty:
        return frame.assign(
            launches=pd.Series(dtype=int), min_s=pd.Series(dtype=float), max_s=pd.Series(dtype=float)
        )
    grouped = frame.groupby(list(CASE_COLUMNS), dropna=False, sort=False)
    first = grouped.first()
    first["launches"] = grouped["time_s"].size()
    first["min_s"] = grouped["time_s"].min()
    first["max_s"] = grouped["time_s"].max()
    first["time_s"] = grouped["time_s"].median()
    first["iterations"] = grouped["iterations"].sum(min_count=1)
    return first.reset_index()


def _signed_rank_null(doubled_ranks: np.ndarray) -> np.ndarray:
    """Return P(W+ = k/2) for every k: all signs of these (mid)ranks, doubled to be whole, are equally likely."""
    distribution = np.zeros(int(doubled_ranks.sum()) + 1)
    distribution[0] = 1.0
    for rank in doubled_ranks:
        shifted = np.zeros_like(distribution)
        shifted[rank:] = distribution[: distribution.size - rank]
        distribution = 0.5 * (distribution + shifted)
    return distribution


def _two_sided(distribution: np.ndarray, observed: int) -> float:
    low, high = distribution[: observed + 1].sum(), distribution[observed:].sum()
    return float(min(1.0, 2.0 * min(low, high)))


def signed_rank_p(differences: Sequence[float]) -> float:
    """Return the exact two-sided p of Wilcoxon's signed-rank test; zeros are dropped, ties take midranks.

    Source: Wilcoxon 1945; the null distribution by convolution over the signs. Equals ``scipy.stats.wilcoxon`` with
    ``method="exact"`` where there are no ties.
    """
    values = np.asarray(differences, float)
    values = values[values != 0]
    if not values.size:
        return 1.0
    doubled = np.rint(2 * rankdata(np.abs(values))).astype(int)
    return _two_sided(_signed_rank_null(doubled), int(doubled[values > 0].sum()))


def paired_ratio(numerator: Sequence[float], denominator: Sequence[float], level: float = 0.95) -> Ratio:
    """Return the Hodges–Lehmann ratio of paired times with its signed-rank interval and exact p.

    Args:
        numerator: one time per pair, seconds.
        denominator: its partners, in the same order.
        level: coverage of the interval; the ends are None where so few pairs cannot give it.

    Source: Hollander, Wolfe, Chicken, Nonparametric Statistical Methods, §3.2–3.3 (Walsh averages).
    """
    logs = np.log(np.asarray(numerator, float)) - np.log(np.asarray(denominator, float))
    n = logs.size
    if not n:
        raise ValueError("a ratio needs at least one pair")
    first, second = np.triu_indices(n)
    walsh = np.sort((logs[first] + logs[second]) / 2)
    cumulative = np.cumsum(_signed_rank_null(2 * np.arange(1, n + 1)))[::2]
    out = _order_statistics(walsh, cumulative, level)
    return Ratio(float(np.exp(np.median(walsh))), *out, n, signed_rank_p(logs.tolist()))


def _order_statistics(
    ordered: np.ndarray, cumulative: np.ndarray, level: float
) -> tuple[float | None, float | None]:
    """Return the two order statistics whose outside has at most the wanted probability, as ratios."""
    outside = int(np.searchsorted(cumulative, (1 - level) / 2 * (1 + 1e-12), side="right"))
    if outside == 0:
        return None, None
    return float(np.exp(ordered[outside - 1])), float(np.exp(ordered[-outside]))


def _rank_sum_null(doubled_ranks: np.ndarray, size: int) -> np.ndarray:
    """Return P(sum of ``size`` of these doubled (mid)ranks = k) when every choice is equally likely."""
    counts = np.zeros((size + 1, int(doubled_ranks.sum()) + 1))
    counts[0, 0] = 1.0
    for rank in doubled_ranks:
        for chosen in range(size, 0, -1):
            counts[chosen, rank:] += counts[chosen - 1, : counts.shape[1] - rank]
    distribution: np.ndarray = counts[size] / counts[size].sum()
    return distribution


def unpaired_ratio(numerator: Sequence[float], denominator: Sequence[float], level: float = 0.95) -> Ratio:
    """Return the Hodges–Lehmann ratio of two independent groups of launches, its interval and exact rank-sum p.

    Args:
        numerator: launch medians of one group, seconds.
        denominator: launch medians of the other.
        level: coverage of the interval; the ends are None where so few launches cannot give it.

    Source: Hollander, Wolfe, Chicken, §4.1–4.3; ties take midranks and the permutation distribution given them.
    """
    new, base = np.log(np.asarray(numerator, float)), np.log(np.asarray(denominator, float))
    m, n = new.size, base.size
    if not m or not n:
        raise ValueError("a ratio needs at least one launch a side")
    shifts = np.sort((new[:, None] - base[None, :]).ravel())
    doubled = np.rint(2 * rankdata(np.concatenate([new, base]))).astype(int)
    p = _two_sided(_rank_sum_null(doubled, m), int(doubled[:m].sum()))
    untied = _rank_sum_null(2 * np.arange(1, m + n + 1), m)[m * (m + 1) :: 2]
    low, high = _order_statistics(shifts, np.cumsum(untied), level)
    return Ratio(float(np.exp(np.median(shifts))), low, high, min(m, n), p)


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Return adjusted p values that control the false discovery rate, in the order given.

    Source: Benjamini and Hochberg 1995.
    """
    p = np.asarray(p_values, float)
    order = np.argsort(p, kind="stable")
    scaled = p[order] * p.size / np.arange(1, p.size + 1)
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(1.0, np.minimum.accumulate(scaled[::-1])[::-1])
    return [float(value) for value in adjusted]


def row_median(values: npt.NDArray[np.float64], count: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return each row's median over its first ``count`` entries; NaN where there is none."""
    ordered = np.sort(values, axis=1)  # NaN sorts last
    rows = np.arange(len(values))
    low, high = np.maximum((count - 1) // 2, 0), np.maximum(count // 2, 0)
    high = np.minimum(high, values.shape[1] - 1)
    return np.where(count > 0, (ordered[rows, low] + ordered[rows, high]) / 2, np.nan)
