"""Statistics of launches and blocks: medians, paired ratios with intervals (facts: timing-and-statistics §6, §9)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

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
