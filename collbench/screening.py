"""Which rows may compete: one provider, one method and context, nothing failed, wrong or mislabelled."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from collbench import units
from collbench.collectives import COLLECTIVES
from collbench.errors import UnansweredError
from collbench.records import Case, algorithm_label
from collbench.results import CASE_COLUMNS, Run

METHOD = ("rank_reduction", "sync", "rotation", "thread_level", "library_version")
"""Columns that rows of one table share: rows that differ in them are never mixed."""
CONTEXT = ("dtype", "op", "in_place", "memory", "groups")
"""Columns of a cell that a table format has no key for: one combination per collective."""
NOT_A_LIBRARY = ("portable", "composition")
"""Providers whose algorithms live in application code and so never enter a library's table."""
BEYOND_COPY = 4.0
"""On one node in host memory a bus bandwidth above this many times the rate at which one core copies 8 MiB (the probe of the
same launch) is suspicious: a rank's core touches every byte that counts, from a near cache at best a few times as fast."""
CLIFF = 2 / 3
"""A time that falls below this share of the next smaller size's time is suspicious (facts: evidence §5)."""


@dataclass(frozen=True)
class Screened:
    """Rows that may compete, and what was kept out.

    Attributes:
        rows: the frame's rows of one provider and context.
        provider: whose rows these are.
        exclusions: one sentence for each kind of row kept out.
        warnings: one sentence for each suspicious cell, which stays in.
    """

    rows: pd.DataFrame
    provider: str
    exclusions: tuple[str, ...]
    warnings: tuple[str, ...]


def screen(
    frame: pd.DataFrame, provider: str | None = None, failed: Iterable[Mapping[str, Any]] = ()
) -> Screened:
    """Return the rows that may compete.

    Args:
        frame: ``results.frame`` of one or more runs.
        provider: the library to decide for; None = the one with most rows.
        failed: ``failed`` lines of the same runs; their cases never win, whatever other launches say.

    Raises:
        UnansweredError: no row is left.
    """
    chosen = provider or main_provider(frame)
    frame = frame.reset_index(drop=True)
    own = (frame["provider"] == chosen).to_numpy()
    rows = frame if own.all() else frame[own]
    exclusions: list[str] = []
    rows = _without_mislabelled(rows, exclusions)
    rows = _without_failed(rows, failed, chosen, exclusions)
    valid = np.isfinite(rows["time_s"].to_numpy(np.float64)) & (rows["time_s"].to_numpy(np.float64) > 0)
    if not valid.all():
        exclusions.append(f"{int((~valid).sum())} row(s) without a positive time")
        rows = rows[valid]
    rows = _majority(rows, METHOD, exclusions)
    parts = {
        name: _majority(rows.loc[index, [*CONTEXT, "nbytes"]], CONTEXT, exclusions, f"{name}: ")
        for name, index in rows.groupby("collective", sort=True).groups.items()
    }
    if sum(map(len, parts.values())) < len(rows):
        rows = rows.loc[np.concatenate([part.index.to_numpy() for part in parts.values()])]
    if rows.empty:
        raise UnansweredError(
            f"nothing to decide for provider {chosen!r}: no measured row is left"
            + (f" ({'; '.join(exclusions)})" if exclusions else "")
        )
    return Screened(rows, chosen, tuple(exclusions), tuple(suspicious(rows)))


def main_provider(frame: pd.DataFrame) -> str:
    """Return the library with most rows; raises UnansweredError where the runs hold none."""
    counts = frame["provider"].value_counts()
    libraries = [name for name in counts.index if name not in NOT_A_LIBRARY]
    if not libraries:
        raise UnansweredError(
            "the runs hold no library's algorithm to choose from: measure with 'collbench run'"
        )
    return str(libraries[0])


def first_environments(runs: Sequence[Run]) -> tuple[list[Run], list[str]]:
    """Return the runs without the rows of other environments than their first, and one sentence for each left out.

    ``ab`` and ``verify`` measure environments beside each other; a table is for the first, the untouched one. Rows of
    the others say what *their* default does, which would pass for this one's.
    """
    kept, remarks = [], []
    for run in runs:
        names = list(
            dict.fromkeys(x["variant"] for x in run.launches.values() if x.get("variant") is not None)
        )
        foreign = {n for n, x in run.launches.items() if x.get("variant") in names[1:]}
        rows = [c for c in run.cells if c["launch"] in foreign]
        if rows:
            others = ", ".join(names[1:])
            remarks.append(f"{run.name}: {len(rows)} row(s) of {others}, measured beside {names[0]}")
        kept.append(run.without(foreign) if foreign else run)
    return kept, remarks


def failed_lines(runs: Sequence[Run]) -> list[Mapping[str, Any]]:
    """Return the ``failed`` lines of runs."""
    return [line for run in runs for line in run.failed]


def _without_mislabelled(rows: pd.DataFrame, exclusions: list[str]) -> pd.DataFrame:
    bad = (rows["evidence_status"] == "contradicted") & (rows["algorithm"] != "default")
    shown = rows[bad].fillna({"effective": "something else"})
    for (name, algorithm, ran), part in shown.groupby(["collective", "algorithm", "effective"], sort=True):
        exclusions.append(
            f"{name} {algorithm}: {len(part)} row(s) where {ran} was shown to run instead (mislabelled)"
        )
    return rows[~bad] if bad.any() else rows


def _without_failed(
    rows: pd.DataFrame, failed: Iterable[Mapping[str, Any]], provider: str, exclusions: list[str]
) -> pd.DataFrame:
    keys: dict[tuple[Any, ...], str] = {}
    for line in failed:
        case = Case.from_json(line["case"])
        if case.provider == provider and case.algorithm != "default":
            keys[_failed_key(case)] = str(line.get("reason") or "failed")
    if not keys:
        return rows
    counted: dict[tuple[str, str, str], int] = {}
    for key, reason in keys.items():
        what = (key[0], algorithm_label(key[4], key[6]), reason)
        counted[what] = counted.get(what, 0) + 1
    exclusions.extend(
        f"{name} {algorithm}: {number} failed cell(s) ({reason})"
        for (name, algorithm, reason), number in sorted(counted.items())
    )
    columns = rows[list(CASE_COLUMNS)].to_dict("records")
    keep = [_failed_key(_case(record)) not in keys for record in columns]
    return rows[np.asarray(keep, bool)]


def _failed_key(case: Case) -> tuple[Any, ...]:
    c = case.cell
    return (c.collective, c.ranks, c.ranks_per_node, c.nbytes, case.algorithm, case.component, case.params)


def _case(record: Mapping[Any, Any]) -> Case:
    flat = {k: (None if isinstance(v, float) and np.isnan(v) else v) for k, v in record.items()}
    flat["ranks_per_node"] = None if flat["ranks_per_node"] is None else int(flat["ranks_per_node"])
    flat["params"] = json.loads(str(flat["params"]))
    return Case.from_json(flat)


def _majority(
    rows: pd.DataFrame, columns: Sequence[str], exclusions: list[str], about: str = ""
) -> pd.DataFrame:
    """Keep the most frequent combination of ``columns`` (the first measured among equals)."""
    if len(rows) < 2:
        return rows
    codes = rows.groupby(list(columns), dropna=False, sort=False).ngroup().to_numpy()
    counts = np.bincount(codes)
    if len(counts) == 1:
        return rows
    kept = int(np.argmax(counts))
    first = rows.iloc[[int(np.argmax(codes == kept))]]
    for code in range(len(counts)):
        if code == kept:
            continue
        other = rows.iloc[[int(np.argmax(codes == code))]]
        differs = [
            f"{c} {_word(other[c].iloc[0])} beside {_word(first[c].iloc[0])}"
            for c in columns
            if _word(other[c].iloc[0]) != _word(first[c].iloc[0])
        ]
        exclusions.append(f"{about}{counts[code]} row(s) of another context ({', '.join(differs)})")
    majority: pd.DataFrame = rows[codes == kept]
    return majority


def _word(value: Any) -> str:
    return "none" if value is None or (isinstance(value, float) and np.isnan(value)) else str(value)


def suspicious(rows: pd.DataFrame) -> list[str]:
    """Return a sentence for each (collective, ranks, algorithm) whose time falls steeply as the size grows.

    Such cells stay in the decision: real cliffs are where tuning gains most.
    """
    keys = ["collective", "ranks", "ranks_per_node", "algorithm", "component", "params"]
    coded = pd.DataFrame(
        {
            "code": rows.groupby(keys, dropna=False, sort=False).ngroup().to_numpy(),
            "nbytes": rows["nbytes"].to_numpy(),
            "time_s": rows["time_s"].to_numpy(),
            "row": np.arange(len(rows)),
        }
    )
    medians = coded.groupby(["code", "nbytes"], sort=True).agg(
        time_s=("time_s", "median"), row=("row", "first")
    )
    medians = medians.reset_index()
    same = medians["code"] == medians["code"].shift(1)
    falls = same & (medians["time_s"] < CLIFF * medians["time_s"].shift(1))
    found = []
    for index in np.flatnonzero(falls.to_numpy()):
        now, before = medians.iloc[index], medians.iloc[index - 1]
        head = rows.iloc[int(now["row"])]
        found.append(
            f"{head['collective']} {head['algorithm']}, {head['ranks']} ranks: {units.format_bytes(now['nbytes'])} takes "
            f"{units.format_time(now['time_s'])}, less than {units.format_bytes(before['nbytes'])} with "
            f"{units.format_time(before['time_s'])}; measure both again with 'collbench run --collectives "
            f"{head['collective']} --ranks {head['ranks']} --sizes {int(before['nbytes'])},{int(now['nbytes'])}'"
        )
    return found


def copy_rates(runs: Sequence[Run]) -> dict[tuple[str, int], float]:
    """Return (run, launch) → the probe's copy rate in bytes/s; launches without a probe are absent."""
    return {
        (run.name, number): float(rate) * 1e9
        for run in runs
        for number, launch in run.launches.items()
        if (rate := (launch.get("probe") or {}).get("copy_gbs"))
    }


def beyond_links(rows: pd.DataFrame, rates: Mapping[tuple[str, int], float]) -> list[str]:
    """Return a sentence for each (collective, ranks, algorithm) with a bandwidth that the machine can hardly carry.

    Such cells stay in the decision. Only rows of one node in host memory whose launch has a rate are judged: what carries
    other rows is not known from the run.

    Args:
        rows: screened rows.
        rates: ``copy_rates`` of the same runs.
    """
    near = rows[(rows["nodes"] == 1) & (rows["memory"] == "host")]
    if not rates or near.empty:
        return []
    launches = zip(near["run"], near["launch"], strict=True)
    rate = np.array([rates.get((str(run), int(launch)), np.nan) for run, launch in launches])
    found = []
    for at in near.groupby(["collective", "ranks"], sort=True).indices.values():
        part = near.iloc[at]
        name, ranks = str(part["collective"].iloc[0]), int(part["ranks"].iloc[0])
        factor = COLLECTIVES[name].busbw_factor
        if factor is None:
            continue
        times = part["nbytes"].to_numpy(np.float64) / part["time_s"].to_numpy() * factor(ranks) / rate[at]
        above = part.assign(times=times)[times > BEYOND_COPY]
        for algorithm, own in above.groupby("algorithm", sort=True):
            worst = own.loc[own["times"].idxmax()]
            found.append(
                f"{name} {algorithm}, {ranks} ranks: {units.format_bytes(int(worst['nbytes']))} in "
                f"{units.format_time(worst['time_s'])} is {worst['times']:.1f} times what one core copies "
                f"({len(own)} row(s) above {BEYOND_COPY:g}); measure again with 'collbench run --collectives {name} "
                f"--ranks {ranks} --sizes {int(worst['nbytes'])}'"
            )
    return found
