"""A run in three lines, and a run as JSON."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from collbench.reports.notes import Group, agreed, counted, grouped, skipped
from collbench.reports.panels import Panel
from collbench.reports.samples import Filter, Sample, Samples
from collbench.results import Run


def overview(run: Run, found: Samples, only: Filter) -> list[str]:
    """Return what a run is: name, profile, date; libraries and thread level; how much there is."""
    header = run.header
    first = [f"run {run.name}"]
    first += [f"{key} {header[key]}" for key in ("profile", "label", "started") if header.get(key)]
    if header.get("source"):
        first.append(f"imported from {header['source']}")
    measured = _measured(run)
    levels = sorted({str(launch["thread_level"]) for launch in measured if launch.get("thread_level")})
    timers = sorted({str(s.line["timer"]) for s in found.usable if s.line.get("timer")})
    second = [" and ".join(libraries(measured)) or "library unknown"]
    second += [f"thread level {'/'.join(levels)}"] if levels else []
    second += [f"timed by {'/'.join(timers)}"] if timers else []
    ranks = sorted({s.case.cell.ranks for s in found.usable})
    launches = {s.launch for s in found.usable}
    where = ", ".join(map(str, ranks)) or "no"
    third = [f"{counted(len(found.usable), 'cell')} on {where} ranks in {counted(len(launches), 'launch')}"]
    for word, lines in (("failed", run.failed), ("skipped", skipped(run))):
        lost = sum(group.count for group in grouped(lines, only))
        third += [f"{lost} {word}"] if lost else []
    return [" · ".join(first), " · ".join(second), ", ".join(third)]


def _measured(run: Run) -> list[Mapping[str, Any]]:
    """Return the launches that measured; those made for proofs alone are not counted."""
    return [launch for launch in run.launches.values() if launch.get("purpose", "measure") == "measure"]


def libraries(launches: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return ``openmpi 5.0.11`` … of some launches, each once."""
    named = (launch.get("library") or {} for launch in launches)
    return [
        t
        for t in dict.fromkeys(" ".join(str(x[k]) for k in ("name", "version") if x.get(k)) for x in named)
        if t
    ]


def to_json(
    run: Run, found: Samples, panels: Sequence[Panel], only: Filter, notes: Sequence[str]
) -> dict[str, Any]:
    """Return everything ``show`` knows of a run; times in seconds, bandwidths in bytes per second."""
    header = {key: value for key, value in run.header.items() if key not in ("kind", "request")}
    return {
        "run": {
            "name": run.name,
            **header,
            "libraries": libraries(_measured(run)),
            "launches": len(_measured(run)),
        },
        "cells": [cell for panel in panels for cell in _cells(panel)],
        "winners": [winner for panel in panels for winner in _winners(panel)],
        "contradicted": [_contradicted(sample) for sample in found.contradicted],
        "failed": [_group(group) for group in grouped(run.failed, only)],
        "skipped": [_group(group) for group in grouped(skipped(run), only)],
        "agreed": agreed(run, only),
        "replaced": len(run.replaced),
        "notes": list(notes),
    }


def _cells(panel: Panel) -> list[dict[str, Any]]:
    rows = []
    for (_, label), entry in sorted(panel.entries.items(), key=lambda item: item[0][0]):
        rows.append({
            **entry.case.to_json(), "variant": panel.key.variant, "rank_reduction": panel.key.rank_reduction,
            "sync": panel.key.sync, "label": label, "time_s": entry.time_s, "low_s": entry.low_s,
            "high_s": entry.high_s, "algbw": entry.algbw,
            "busbw": entry.busbw, "launches": entry.launches, "blocks": entry.blocks,
            "state": panel.state, "fastest": entry.fastest, "tied": entry.tied,
        })  # fmt: skip
    return rows


def _winners(panel: Panel) -> list[dict[str, Any]]:
    rows = []
    for nbytes in panel.sizes:
        label = panel.winner(nbytes)
        if label is not None:
            case = panel.entries[nbytes, label].case
            rows.append({**asdict(panel.key), "nbytes": nbytes, "provider": case.provider, "algorithm": case.algorithm,
                         "params": dict(case.params), "gain": panel.gain(nbytes)})  # fmt: skip
    return rows


def _contradicted(sample: Sample) -> dict[str, Any]:
    return {"case": sample.case.to_json(), "effective": sample.line.get("effective"), "time_s": sample.time_s}


def _group(group: Group) -> dict[str, Any]:
    return {"reason": group.reason, "count": group.count, "cases": list(group.cases), "detail": group.detail}
