"""What competes in each cell: screened rows, and every algorithm's gain over the default with its interval."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import t as student

from collbench.records import Params, algorithm_label
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

_SERIES = ["collective", "ranks", "ranks_per_node"]
_CELL = ["series", "nbytes", "choice"]


@dataclass(frozen=True, slots=True)
class Choice:
    """One algorithm with its component and parameters.

    Attributes:
        algorithm: the provider's own word, or ``default``.
        component: serving component; None = not applicable.
        params: sorted (name, value) pairs.
    """

    algorithm: str
    component: str | None = None
    params: Params = ()

    @property
    def label(self) -> str:
        """The algorithm with its parameters in one word."""
        return algorithm_label(self.algorithm, self.params)

    @property
    def weight(self) -> tuple[int, int, str]:
        """Sort key of simplicity: default first, then fewer channels, then fewer parameters by name."""
        channels = dict(self.params).get("channels", 0)
        return (int(self.algorithm != "default"), channels if isinstance(channels, int) else 0, self.label)


@dataclass(frozen=True, slots=True)
class Series:
    """All sizes and algorithms of one (collective, ranks, ranks per node). Arrays are (sizes, choices).

    Attributes:
        collective: name.
        ranks: number of ranks.
        ranks_per_node: None when unknown.
        sizes: ascending total bytes.
        choices: the columns, simplest first.
        log_time: natural log of seconds; NaN where not measured.
        gain: log t(default) − log t(choice); NaN where the default was not measured. 0 for the default.
        half: half-width of the gain's interval at level 1 − ALPHA over the cell's choices together; NaN = no interval.
        launches: launches (or repetitions) behind each entry.
        default: column of the default; None where it was not measured at all.
    """

    collective: str
    ranks: int
    ranks_per_node: int | None
    sizes: Ints
    choices: tuple[Choice, ...]
    log_time: Floats
    gain: Floats
    half: Floats
    launches: Ints
    default: int | None

    @property
    def key(self) -> tuple[str, int, int]:
        """Order of series in a table; an unknown number of ranks per node comes first."""
        return (self.collective, self.ranks, self.ranks_per_node or 0)


def build(frame: pd.DataFrame) -> list[Series]:
    """Return the series of a screened frame (``screening.screen``), ordered by collective, ranks, ranks per node.

    Args:
        frame: ``results.COLUMNS``; one provider, one context per collective.
    """
    if frame.empty:
        return []
    rows = frame.reset_index(drop=True)
    choices = _choices(rows)
    table = pd.DataFrame(
        {
            "series": rows.groupby(_SERIES, dropna=False, sort=True).ngroup().to_numpy(),
            "nbytes": rows["nbytes"].to_numpy(np.int64),
            "choice": choices[0],
            "launch": _launch_codes(rows),
            "log": np.log(rows["time_s"].to_numpy(np.float64)),
            "row": np.arange(len(rows)),
        }
    )
    entries = _entries(table, rows["blocks_s"].tolist(), choices[1])
    heads = rows.iloc[table.groupby("series")["row"].first().to_numpy()]
    built = [
        _series(heads.iloc[number], part, choices[1])
        for number, (_, part) in enumerate(entries.groupby("series", sort=True))
    ]
    return sorted(built, key=lambda s: s.key)


def _choices(rows: pd.DataFrame) -> tuple[Ints, list[Choice]]:
    grouped = rows.groupby(["algorithm", "component", "params"], dropna=False, sort=False)
    # groupby(sort=False) numbers groups in order of first appearance, as ``ngroup`` does.
    codes = grouped.ngroup().to_numpy(np.int64)
    first = rows.assign(_code=codes).drop_duplicates("_code").sort_values("_code")
    found = [Choice(str(r.algorithm), _text(r.component), _params(r.params)) for r in first.itertuples()]
    order = sorted(range(len(found)), key=lambda i: found[i].weight)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return rank[codes], [found[i] for i in order]


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _params(text: Any) -> Params:
    return tuple(sorted(json.loads(text).items())) if isinstance(text, str) and text != "{}" else ()


def _launch_codes(rows: pd.DataFrame) -> Ints:
    """Number launches; an imported row is its own launch (negative), so that it never pairs with another."""
    codes = rows.groupby(["run", "launch"], dropna=False, sort=False).ngroup().to_numpy(np.int64)
    imported = rows["source"].to_numpy() != "collbench"
    return np.where(imported, -1 - np.arange(len(rows)), codes)


def _entries(
    table: pd.DataFrame, blocks: Sequence[Sequence[float]], choices: Sequence[Choice]
) -> pd.DataFrame:
    """Return one row per (series, nbytes, choice): log time, gain, half-width, launches."""
    grouped = table.groupby(_CELL, sort=True)
    entries = pd.DataFrame(
        {"own_log": grouped["log"].median(), "own_var": grouped["log"].var(), "own_n": grouped["log"].size()}
    ).reset_index()
    defaults = [i for i, choice in enumerate(choices) if choice.algorithm == "default"]
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
    between = np.nan_to_num(entries["centre_var"].to_numpy()) / np.maximum(pairs, 1)
    gain[by_block] = entries["centre"].to_numpy()[by_block]
    variance[by_block], degrees[by_block] = np.maximum(within, between)[by_block], df[by_block]

    own_n, base_n = entries["own_n"].to_numpy(np.float64), entries["base_n"].to_numpy(np.float64)
    unpaired = (pairs == 0) & (own_n >= 2) & (base_n >= 2)
    own_pooled, own_df = _moderate(entries, entries["own_var"].to_numpy(), own_n - 1, unpaired)
    base_pooled, base_df = _moderate(entries, entries["base_var"].to_numpy(), base_n - 1, unpaired)
    total = own_pooled / np.maximum(own_n, 1) + base_pooled / np.maximum(base_n, 1)
    variance[unpaired], degrees[unpaired] = total[unpaired], np.minimum(own_df, base_df)[unpaired]
    return gain, variance, degrees


def _moderate(
    entries: pd.DataFrame, variance: Floats, df: Floats, where: npt.NDArray[np.bool_]
) -> tuple[Floats, Floats]:
    """Return variances drawn towards their series' median, and the degrees of freedom that result."""
    known = pd.Series(np.where(where, variance, np.nan))
    typical = known.groupby(entries["series"].to_numpy()).transform("median").to_numpy(np.float64)
    return (PRIOR_DF * typical + df * variance) / (PRIOR_DF + df), PRIOR_DF + df


def _series(head: pd.Series, part: pd.DataFrame, choices: Sequence[Choice]) -> Series:
    sizes, row = np.unique(part["nbytes"].to_numpy(), return_inverse=True)
    present, column = np.unique(part["choice"].to_numpy(), return_inverse=True)
    shape = (len(sizes), len(present))

    def grid(name: str) -> Floats:
        values = np.full(shape, np.nan)
        values[row, column] = part[name].to_numpy(np.float64)
        return values

    names = tuple(choices[i] for i in present)
    default = next((i for i, choice in enumerate(names) if choice.algorithm == "default"), None)
    per_node = head["ranks_per_node"]
    return Series(
        collective=str(head["collective"]),
        ranks=int(head["ranks"]),
        ranks_per_node=None if pd.isna(per_node) else int(per_node),
        sizes=sizes.astype(np.int64),
        choices=names,
        log_time=grid("log"),
        gain=grid("gain"),
        half=grid("half"),
        launches=np.nan_to_num(grid("n")).astype(np.int64),
        default=default,
    )
