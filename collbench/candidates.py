"""What competes in each cell: screened rows, and every algorithm's gain over the default with its interval."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from collbench import gains
from collbench.records import Params, algorithm_label

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_SERIES = ["collective", "ranks", "ranks_per_node"]


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
    defaults = [i for i, choice in enumerate(choices[1]) if choice.algorithm == "default"]
    entries = gains.entries_of(table, rows["blocks_s"].tolist(), defaults)
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
