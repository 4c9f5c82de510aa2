"""Every algorithm's gain over the default with its interval: paired blocks, launch ratios, or unpaired repetitions."""

from collections.abc import Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import chi2
from scipy.stats import t as student

from collbench.stats import MAD_TO_SIGMA, MEDIAN_EFFICIENCY, row_median

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

ALPHA = 0.05
"""Error level of a cell's intervals, shared among all algorithms that compete in the cell (Bonferroni)."""
PRIOR_DF = 4.0
"""Weight, in degrees of freedom, of the series' typical variance in each cell's own (a cell has few samples).
Source: moderated t statistic, Smyth 2004, doi:10.2202/1544-6115.1027."""
LAUNCHES_FOR_RATIOS = 3
"""From this many common launches on the launch is the unit of inference, below it the block (DESIGN §8)."""
PIECE = 8192
"""Pairs whose blocks are compared at a time."""

_CELL = ["series", "nbytes", "choice"]


def entries_of(
    table: pd.DataFrame, blocks: Sequence[Sequence[float]], defaults: Sequence[int]
) -> pd.DataFrame:
    """Return one row per (series, nbytes, choice): log time ``log``, ``gain``, its half-width ``half``, launches ``n``.

    Args:
        table: one row per measured row: series, nbytes, choice and launch as codes, log time, row number.
        blocks: block medians of each row number.
        defaults: choices that are the default.
    """
    grouped = table.groupby(_CELL, sort=True)
    entries = pd.DataFrame(
        {"own_log": grouped["log"].median(), "own_var": grouped["log"].var(), "own_n": grouped["log"].size()}
    ).reset_index()
    base = entries[entries["choice"].isin(defaults)].drop_duplicates(["series", "nbytes"])
    base = base.rename(columns={"own_log": "base_log", "own_var": "base_var", "own_n": "base_n"})
    entries = entries.merge(base.drop(columns="choice"), on=["series", "nbytes"], how="left")
    entries = entries.merge(_paired(table, blocks, defaults), on=_CELL, how="left")
    is_default = entries["choice"].isin(defaults).to_numpy()
    rivals = (
        (~entries["choice"].isin(defaults)).groupby([entries["series"], entries["nbytes"]]).transform("sum")
    )
    gain, variance, degrees = _estimate(entries)
    level = 1 - ALPHA / 2 / np.maximum(rivals.to_numpy(np.float64), 1)
    with np.errstate(invalid="ignore"):
        half = student.ppf(level, degrees) * np.sqrt(variance)
    entries["gain"] = np.where(is_default, 0.0, gain)
    entries["half"] = np.where(is_default, 0.0, half)
    # The paired gain is the better estimate of the difference, so the time follows from it.
    paired = entries["pairs"].fillna(0).to_numpy() > 0
    entries["log"] = np.where(paired & ~is_default, entries["base_log"] - entries["gain"], entries["own_log"])
    entries["n"] = np.where(paired & ~is_default, entries["pairs"], entries["own_n"]).astype(np.int64)
    return entries


def _paired(table: pd.DataFrame, blocks: Sequence[Sequence[float]], defaults: Sequence[int]) -> pd.DataFrame:
    """Return per (series, nbytes, choice) the paired statistics over launches shared with the default."""
    own = table[(table["launch"] >= 0) & ~table["choice"].isin(defaults)]
    base = table[(table["launch"] >= 0) & table["choice"].isin(defaults)]
    base = base.drop_duplicates(["series", "nbytes", "launch"]).drop(columns="choice")
    pairs = own.merge(base, on=["series", "nbytes", "launch"], suffixes=("", "_base"))
    centre, variance, count = _block_ratios(blocks, pairs["row_base"].to_numpy(), pairs["row"].to_numpy())
    ratio = (pairs["log_base"] - pairs["log"]).to_numpy()
    pairs = pairs.assign(
        ratio=ratio,
        centre=np.where(count > 0, centre, ratio),
        block_var=variance,
        block_df=np.where(count > 1, count - 1, np.nan),
        weight=np.where(count > 0, count, np.nan),
    )
    grouped = pairs.groupby(_CELL, sort=False)
    return pd.DataFrame(
        {
            "pairs": grouped.size(),
            "ratio": grouped["ratio"].mean(),
            "ratio_var": grouped["ratio"].var(),
            "centre": grouped["centre"].mean(),
            "centre_var": grouped["centre"].var(),
            "block_var": grouped["block_var"].mean(),
            "block_df": grouped["block_df"].sum(min_count=1),
            "blocks": grouped["weight"].sum(min_count=1),
        }
    ).reset_index()


def _block_ratios(blocks: Sequence[Sequence[float]], base: Ints, own: Ints) -> tuple[Floats, Floats, Ints]:
    """Return median, variance (from the MAD) and count of the paired block log-ratios of each (base, own) row."""
    lengths = np.fromiter((len(b) for b in blocks), np.int64, len(blocks))
    if not lengths.any() or not len(own):
        empty = np.full(len(own), np.nan)
        return empty, empty.copy(), np.zeros(len(own), np.int64)
    padded = np.full((len(blocks), int(lengths.max())), np.nan)
    padded[np.arange(padded.shape[1]) < lengths[:, None]] = np.fromiter(
        chain.from_iterable(blocks), np.float64, int(lengths.sum())
    )
    np.log(padded, out=padded)
    count = np.minimum(lengths[base], lengths[own])
    centre, spread = np.empty(len(own)), np.empty(len(own))
    for start in range(0, len(own), PIECE):
        part = slice(start, start + PIECE)
        ratios = padded[base[part]] - padded[own[part]]
        centre[part] = row_median(ratios, count[part])
        spread[part] = row_median(np.abs(ratios - centre[part, None]), count[part])
    variance = np.where(count >= 2, (MEDIAN_EFFICIENCY * MAD_TO_SIGMA * spread) ** 2, np.nan)
    return centre, variance, count


def _estimate(entries: pd.DataFrame) -> tuple[Floats, Floats, Floats]:
    """Return gain, its variance and degrees of freedom by the best method each entry allows.

    In this order: ratios of three or more common launches, paired blocks of one or two launches, unpaired
    repetitions on both sides, a bare ratio without an interval.
    """
    pairs = entries["pairs"].fillna(0).to_numpy()
    gain = np.where(pairs > 0, entries["ratio"], entries["base_log"] - entries["own_log"]).astype(np.float64)
    variance = np.full(len(entries), np.nan)
    degrees = np.full(len(entries), np.nan)

    by_launch = pairs >= LAUNCHES_FOR_RATIOS
    pooled, df = _moderate(entries, entries["ratio_var"].to_numpy(), pairs - 1, by_launch)
    variance[by_launch], degrees[by_launch] = (pooled / np.maximum(pairs, 1))[by_launch], df[by_launch]

    by_block = (pairs > 0) & ~by_launch & entries["block_df"].notna().to_numpy()
    block_df = entries["block_df"].to_numpy()
    pooled, df = _moderate(entries, entries["block_var"].to_numpy(), block_df, by_block)
    within = pooled / np.maximum(entries["blocks"].to_numpy(), 1)
    between, between_df = _between_launches(entries, by_block)
    gain[by_block] = entries["centre"].to_numpy()[by_block]
    variance[by_block] = np.maximum(within, between)[by_block]
    degrees[by_block] = np.where(between > within, between_df, df)[by_block]

    own_n, base_n = entries["own_n"].to_numpy(np.float64), entries["base_n"].to_numpy(np.float64)
    unpaired = (pairs == 0) & (own_n >= 2) & (base_n >= 2)
    own_pooled, own_df = _moderate(entries, entries["own_var"].to_numpy(), own_n - 1, unpaired)
    base_pooled, base_df = _moderate(entries, entries["base_var"].to_numpy(), base_n - 1, unpaired)
    total = own_pooled / np.maximum(own_n, 1) + base_pooled / np.maximum(base_n, 1)
    variance[unpaired], degrees[unpaired] = total[unpaired], np.minimum(own_df, base_df)[unpaired]
    return gain, variance, degrees


def _between_launches(entries: pd.DataFrame, by_block: npt.NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Return the variance of each gain that differences between launches make, and its degrees of freedom.

    Where some entries of a series have several launches (``confirmation``), their typical variance stands for the
    series: it holds for entries with one launch too, and an entry's own is drawn towards it. 0 where none has.
    """
    pairs = entries["pairs"].fillna(0).to_numpy(np.float64)
    own = np.where(pairs >= 2, entries["centre_var"].to_numpy(np.float64), np.nan)
    df = np.where(np.isfinite(own), pairs - 1, 0.0)
    # A variance from few launches lies below the true one more often than not: its median is corrected for that.
    unbiased = pd.Series(own * df / chi2.ppf(0.5, np.where(df > 0, df, np.nan)))
    typical = unbiased.groupby(entries["series"].to_numpy()).transform("median").to_numpy(np.float64)
    pooled = (PRIOR_DF * np.nan_to_num(typical) + df * np.nan_to_num(own)) / (PRIOR_DF + df)
    return np.where(by_block, pooled / np.maximum(pairs, 1), 0.0), PRIOR_DF + df


def _moderate(
    entries: pd.DataFrame, variance: Floats, df: Floats, where: npt.NDArray[np.bool_]
) -> tuple[Floats, Floats]:
    """Return variances drawn towards their series' median, and the degrees of freedom that result."""
    known = pd.Series(np.where(where, variance, np.nan))
    typical = known.groupby(entries["series"].to_numpy()).transform("median").to_numpy(np.float64)
    return (PRIOR_DF * typical + df * variance) / (PRIOR_DF + df), PRIOR_DF + df
