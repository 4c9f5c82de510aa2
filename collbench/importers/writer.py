"""From imported tables to a normal run file."""

import datetime as dt
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from collbench import __version__
from collbench.algorithms import algorithms
from collbench.importers.model import Imported, Row, Table
from collbench.records import Case, Cell, Measurement
from collbench.runfile import SCHEMA, RunWriter


def write(
    path: Path, files: Sequence[Imported], *, argv: Sequence[str], as_default: Sequence[str] = ()
) -> None:
    """Write a new run file with one launch for each table.

    Args:
        path: the run file; an existing one is never overwritten.
        files: what was imported, in order.
        argv: the command line, for the record.
        as_default: algorithm labels that become ``default``.

    Raises:
        UsageError: the file exists or cannot be written.
    """
    tables = [table for imported in files for table in imported.tables]
    tools = sorted({table.tool for table in tables})
    with RunWriter(path, create=True) as run:
        run.write(
            {
                "kind": "run", "schema": SCHEMA, "tool": f"collbench {__version__}", "profile": None, "seed": None,
                "argv": list(argv), "label": path.name.removesuffix(".jsonl"), "source": "+".join(tools),
                "started": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
                "files": [{"file": f.file, "format": f.format, "remarks": f.remarks} for f in files],
            }
        )  # fmt: skip
        seen: Counter[Any] = Counter()
        for number, table in enumerate(tables):
            key = _repetition_key(table)
            for line in _lines(number, table, seen[key], frozenset(as_default)):
                run.write(line)
            seen[key] += 1


def _repetition_key(table: Table) -> tuple[Any, ...]:
    what = frozenset((row.collective, row.algorithm, row.params) for row in table.rows)
    return (table.tool, table.provider, table.ranks, table.ranks_per_node, table.memory, what)


def _lines(
    number: int, table: Table, repetition: int, as_default: frozenset[str]
) -> Iterator[dict[str, Any]]:
    launch: dict[str, Any] = {
        "kind": "launch", "launch": number, "ranks": table.ranks, "nodes": table.nodes,
        "ranks_per_node": table.ranks_per_node, "node_sizes": list(table.node_sizes), "library": table.library,
        "thread_level": table.thread_level, "environment": table.environment, "probe": {"state": None},
        "oversubscribed": False, "emulated": False, "repetition": repetition, "variant": None, "settings": {},
        "gpu": table.gpu, "file": table.file, "line": table.line, "warnings": table.warnings,
    }  # fmt: skip
    launch.update(table.own)
    if table.label is not None:
        launch["label"] = table.label
    yield launch
    for row in table.rows:
        case, warnings = _case(table, row, as_default)
        if row.time_s is None:
            yield {
                "kind": "failed", "launch": number, "case": case.to_json(), "reason": row.reason, "detail": row.detail
            }  # fmt: skip
            continue
        yield Measurement(
            case=case, launch=number, time_s=row.time_s, percentiles_s=row.percentiles_s, iterations=row.iterations,
            rank_reduction=table.rank_reduction, sync=table.sync, timer=table.timer, evidence=row.evidence,
            warnings=warnings, extra=row.extra,
        ).to_json()  # fmt: skip


def _case(table: Table, row: Row, as_default: frozenset[str]) -> tuple[Case, tuple[Any, ...]]:
    cell = Cell(
        collective=row.collective, ranks=table.ranks, ranks_per_node=table.ranks_per_node, nbytes=row.nbytes,
        dtype=row.dtype, op=row.op, in_place=row.in_place, memory=row.memory or table.memory, groups=table.groups,
    )  # fmt: skip
    if row.algorithm in as_default:
        warning = {"kind": "label_is_request", "label": row.algorithm}
        return Case(cell, table.provider, "default", row.component), (*row.warnings, warning)
    return Case(cell, table.provider, row.algorithm, row.component, row.params), row.warnings


def unknown_algorithms(tables: Sequence[Table]) -> list[str]:
    """Return the algorithm names that the provider's table does not hold (they are kept as they are)."""
    unknown: set[str] = set()
    for table in tables:
        for name, algorithm in {(row.collective, row.algorithm) for row in table.rows}:
            if algorithm in ("default", "auto"):
                continue
            try:
                rows = algorithms(table.provider, name)
            except ModuleNotFoundError:
                continue
            if algorithm not in {row.name for row in rows}:
                unknown.add(algorithm)
    return sorted(unknown)
