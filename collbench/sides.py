"""The two sides of a comparison: rows of a run that stand for BASE and for NEW, as samples per cell."""

import fnmatch
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from collbench import results
from collbench.errors import UnansweredError, unknown_name
from collbench.pairing import LaunchState, Sample, classify
from collbench.ran import Shown, shown
from collbench.records import algorithm_label
from collbench.refinement import AGREE
from collbench.results import CASE_COLUMNS, Run

MIN_LAUNCHES = 6
"""With fewer pairs of launches no exact 95 % statement is possible; algorithms of one process then pair their blocks."""
CONFIRM_FROM = 10_000
"""Repetitions of ``collbench ab`` from this number on re-measure suspects."""
WHO = ("provider", "algorithm", "component", "params")

Key = tuple[Any, ...]


@dataclass(frozen=True)
class Side:
    """One side.

    Attributes:
        label: how people call it: a run's name, a variant, an algorithm.
        rows: its rows of ``results.frame``.
        launches: launch number → launch line, those of this side.
        failed: (case, reason) of failed cells.
        samples: key of a cell → its samples.
        confirm: the same from launches that re-measure suspects.
        ran: key of a cell → the algorithms that were shown to run.
        started: when its run began, ISO 8601 in UTC; empty = unknown.
        agreed: keys of cells that some launch did not measure, since their neighbours agree.
    """

    label: str
    rows: pd.DataFrame
    launches: Mapping[int, Mapping[str, Any]]
    failed: Sequence[tuple[Key, str]] = ()
    samples: Mapping[Key, Sequence[Sample]] = field(default_factory=dict)
    confirm: Mapping[Key, Sequence[Sample]] = field(default_factory=dict)
    ran: Shown = field(default_factory=dict)
    started: str = ""
    agreed: frozenset[Key] = frozenset()


def key_names(*, ignore: Iterable[str] = (), by: str | None = None) -> tuple[str, ...]:
    """Return the columns that make a key: the cell and who runs in it, less what may differ.

    Args:
        ignore: columns of method fields that the user allows to differ.
        by: "algorithm" or "library": what is compared, and so no part of the key.
    """
    dropped = {*ignore, *{"algorithm": WHO, "library": ("provider", "component")}.get(by or "", ())}
    return tuple(name for name in CASE_COLUMNS if name not in dropped)


def of_runs(
    base: Run, new: Run, names: Sequence[str], *, only: Mapping[str, Sequence[Any]] | None = None
) -> tuple[Side, Side]:
    """Return both sides of two run files that were measured one after the other (never in pairs)."""
    states = classify([*base.launches.values(), *new.launches.values()])
    split = len(base.launches)
    return (
        _side(base.name, base, _filtered(results.frame(base), only), names, states[:split], paired=False),
        _side(new.name, new, _filtered(results.frame(new), only), names, states[split:], paired=False),
    )


def of_variants(run: Run, base: str, new: str, names: Sequence[str]) -> tuple[Side, Side]:
    """Return two variants of one interleaved run, paired by repetition.

    Raises:
        UsageError: no such variant.
        UnansweredError: the run has no variants.
    """
    known = variants(run)
    for name in (base, new):
        if name not in known:
            raise unknown_name("variant", name, known)
    states = classify(list(run.launches.values()))
    frame = results.frame(run)
    found = []
    for name in (base, new):
        mine = {n for n, line in run.launches.items() if line.get("variant") == name}
        found.append(_side(name, run, frame[frame["launch"].isin(mine)], names, states, paired=True))
    return found[0], found[1]


def variants(run: Run) -> tuple[str, ...]:
    """Return the names of the environments measured in a run, the base first.

    Raises:
        UnansweredError: the run has none.
    """
    found = tuple(
        dict.fromkeys(str(x["variant"]) for x in run.launches.values() if x.get("variant") is not None)
    )
    declared = tuple((run.header.get("ab") or {}).get("variants", ()))
    if not found and not declared:
        raise UnansweredError(
            f"{run.name} holds no variants: measure environments with 'collbench ab', or name two runs"
        )
    return tuple(dict.fromkeys((*declared, *found)))


def of_algorithms(run: Run, base: str, names: Sequence[str]) -> list[tuple[Side, Side]]:
    """Return the base algorithm against each other one of a run, paired by launch (by block where those are few).

    Raises:
        UsageError: the run has no such algorithm.
    """
    frame = results.frame(run)
    labels = [
        algorithm_label(a, tuple(sorted(json.loads(p).items())))
        for a, p in frame[["algorithm", "params"]].itertuples(index=False)
    ]
    labels = [
        name if p != "portable" else f"portable:{name}"
        for name, p in zip(labels, frame["provider"], strict=True)
    ]
    frame = frame.assign(label=labels)
    if base not in labels:
        raise unknown_name("algorithm of this run", base, set(labels))
    states = classify(list(run.launches.values()))
    sides = {
        name: _side(name, run, frame[frame["label"] == name], names, states, paired=True, inside=True)
        for name in dict.fromkeys(labels)
    }
    return [(sides[base], side) for name, side in sides.items() if name != base]


def _filtered(frame: pd.DataFrame, only: Mapping[str, Sequence[Any]] | None) -> pd.DataFrame:
    for name, values in (only or {}).items():
        if values:
            frame = frame[frame[name].isin(list(values))]
    return frame


def _side(
    label: str,
    run: Run,
    rows: pd.DataFrame,
    names: Sequence[str],
    states: Sequence[LaunchState],
    *,
    paired: bool,
    inside: bool = False,
) -> Side:
    machine = dict(zip(run.launches, states, strict=True))
    samples: dict[Key, dict[Any, Sample]] = {}
    confirm: dict[Key, dict[Any, Sample]] = {}
    keys = [_key(row, names) for row in rows[list(names)].to_dict("records")]
    blocks = inside and rows.groupby(list(names), dropna=False)["launch"].nunique().max() < MIN_LAUNCHES
    for row, key in zip(rows.to_dict("records"), keys, strict=True):
        line = run.launches.get(row["launch"], {})
        repetition = line.get("repetition", row["launch"])
        stage = confirm if "ab" in run.header and repetition >= CONFIRM_FROM else samples
        home = stage.setdefault(key, {})
        state = machine.get(row["launch"], LaunchState(None))
        if blocks and row["blocks_s"]:
            for index, block in enumerate(row["blocks_s"]):
                home[row["launch"], index] = Sample((row["launch"], index), float(block), state)
        else:
            pair = (row["launch"],) if inside else (row["ranks"], repetition)
            # a launch that crashed and was started again: its last time of a cell stands
            sample = Sample(pair if paired else None, float(row["time_s"]), state)
            home[pair if paired else (row["launch"],)] = sample
    used = {n: x for n, x in run.launches.items() if n in set(rows["launch"])}
    return Side(label, rows, used, failures(run, names, label if paired and not inside else None),
                _listed(samples), _listed(confirm), shown(run, rows, keys),
                str(run.header.get("started") or ""), agreed(run, names))  # fmt: skip


def _listed(samples: Mapping[Key, Mapping[Any, Sample]]) -> dict[Key, list[Sample]]:
    return {key: list(found.values()) for key, found in samples.items()}


def _key(row: Mapping[Any, Any], names: Sequence[str]) -> Key:
    return tuple(None if pd.isna(row[name]) else row[name] for name in names)


def failures(
    run: Run, names: Sequence[str] = CASE_COLUMNS, variant: str | None = None
) -> list[tuple[Key, str]]:
    """Return key and reason of the failed cells of a run, or of one of its variants."""
    found = []
    for line in run.failed:
        launch = run.launches.get(line.get("launch", -1), {})
        if variant is not None and launch.get("variant") != variant:
            continue
        found.append((_line_key(line, names), str(line.get("reason", "failed"))))
    return found


def agreed(run: Run, names: Sequence[str]) -> frozenset[Key]:
    """Return the keys of cells that some launch did not measure, since their neighbours agree (``refinement``)."""
    return frozenset(_line_key(line, names) for line in run.skipped if line.get("reason") == AGREE)


def _line_key(line: Mapping[str, Any], names: Sequence[str]) -> Key:
    case = line["case"]
    flat = {"dtype": "float32", "in_place": False, "memory": "host", "groups": 1, **case}
    flat["params"] = json.dumps(case.get("params") or {}, sort_keys=True)
    return tuple(flat.get(name) for name in names)


def cell_id(key: Key, names: Sequence[str], who: str | None = None) -> str:
    """Return the name of a cell that patterns match: ``allreduce/4/65536/ring``.

    Several nodes are ranks x ranks per node (``8x4``); what differs from float32, sum, out of place, host follows.
    """
    fact = dict(zip(names, key, strict=True))
    ranks = str(fact["ranks"])
    per_node = fact.get("ranks_per_node")
    if per_node is not None and per_node < fact["ranks"]:
        ranks += f"x{int(per_node)}"
    params = tuple(sorted(json.loads(fact.get("params") or "{}").items()))
    label = who or algorithm_label(str(fact.get("algorithm") or "best"), params)
    if who is None and fact.get("provider") == "portable":
        label = f"portable:{label}"
    usual = {"dtype": "float32", "op": "sum", "in_place": False, "memory": "host", "groups": 1}
    rest = [
        f"{name}={fact[name]}"
        for name, value in usual.items()
        if name in fact and fact[name] not in (value, None)
    ]
    return "/".join([str(fact["collective"]), ranks, str(fact["nbytes"]), label, *rest])


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Say whether a cell's name matches one of the shell patterns (``allreduce/*``)."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
