"""Does an imported log look right? Doubts are data in the rows and launches, with a sentence that names the cause.

Nominal rates: facts of the vendors' data sheets, as collected in stas00/ml-engineering (network/README).
"""

import itertools
import re
from collections.abc import Iterable, Sequence
from typing import Any

from collbench import units
from collbench.collectives import busbw
from collbench.importers.model import Row, Table

FALL = 0.5
"""A time that falls to this share or less from one size to the next larger is suspicious."""
MAGNITUDE = 0.1
LARGE = 16 << 20
"""From this size on bandwidth, not latency, decides."""
SLOW_LATENCY_S = 50e-6
"""A small point-to-point message takes 1 to 4 µs over a fabric, over 100 µs through a socket stack."""

# (name pattern, GB/s of the links between GPUs of one node, GB/s of one GPU's share of the node's network)
_GPUS: tuple[tuple[re.Pattern[str], float, float], ...] = tuple(
    (re.compile(pattern), inside, outside)
    for pattern, inside, outside in (
        (r"PCI|RTX|\bL40|\bL4\b|\bA10\b|\bA30\b|\bT4\b|GeForce|Quadro", 10.0, 1.0),
        (r"V100", 150.0, 6.0),
        (r"A100|A800", 300.0, 12.5),
        (r"GH200", 450.0, 25.0),
        (r"H100|H200|H800|H20\b", 450.0, 50.0),
        (r"GB200|GB300|B200|B300", 900.0, 50.0),
        (r"MI300|MI325|MI350|MI355", 315.0, 50.0),
        (r"MI250|MI210|MI200", 100.0, 12.5),
    )
)
_PER_GPU = ("alltoall", "alltoallv", "sendrecv", "gather", "scatter")
Series = list[tuple[int, int]]


def check(tables: Sequence[Table]) -> list[str]:
    """Mark suspicious rows and launches, and return one sentence for each kind of doubt about each table."""
    sentences = []
    best = _best(tables)
    for table in tables:
        sentences += _falls(table)
        sentences += _links(table)
        sentences += _neighbours(table, best)
        sentences += _latency(table)
    return sentences


def _place(table: Table) -> str:
    return f"{table.file}:{table.line}"


def _series(rows: Sequence[Row]) -> Iterable[Series]:
    """Yield (nbytes, index) in ascending order for each curve of a table."""
    curves: dict[tuple[Any, ...], Series] = {}
    for index, row in enumerate(rows):
        if row.time_s is not None:
            key = (row.collective, row.in_place, row.dtype, row.op, row.algorithm, row.component, row.params)
            curves.setdefault(key, []).append((row.nbytes, index))
    return (sorted(curve) for curve in curves.values())


def _mark(table: Table, index: int, warning: dict[str, Any]) -> None:
    row = table.rows[index]
    table.rows[index] = row._replace(warnings=(*row.warnings, warning))


def _falls(table: Table) -> list[str]:
    found = []
    for curve in _series(table.rows):
        for (size, index), (larger, following) in itertools.pairwise(curve):
            slow, fast = table.rows[index].time_s, table.rows[following].time_s
            if slow and fast and size < larger and fast <= FALL * slow:
                warning = {
                    "kind": "time_falls",
                    "nbytes": size,
                    "larger": larger,
                    "ratio": round(slow / fast, 2),
                }
                _mark(table, index, warning)
                found.append((slow / fast, size, larger, slow, fast))
    if not found:
        return []
    _, size, larger, slow, fast = max(found)
    steps = "one such step" if len(found) == 1 else f"{len(found)} such steps"
    sentence = (
        f"{_place(table)}: the time falls from {units.format_time(slow)} to {units.format_time(fast)} while the size "
        f"grows from {units.format_bytes(size)} to {units.format_bytes(larger)} ({steps}): "
        "likely the library's automatic choice of protocol or algorithm, or a disturbed run"
    )
    return [sentence]


def _peak(table: Table) -> tuple[float, int] | None:
    """Return the highest bus bandwidth (bytes/s) of large messages and its row; None when there is none."""
    best: tuple[float, int] | None = None
    for index, row in enumerate(table.rows):
        if row.time_s and row.nbytes >= LARGE:
            rate = busbw(row.collective, table.ranks, row.nbytes, row.time_s) or 0.0
            best = max(best, (rate, index)) if best else (rate, index)
    return best


def _links(table: Table) -> list[str]:
    """Compare the peak with what the links of the named GPU carry."""
    found = next(((i, o) for pattern, i, o in _GPUS if table.gpu and pattern.search(table.gpu)), None)
    peak = _peak(table)
    if found is None or peak is None or table.nodes is None or table.ranks_per_node is None:
        return []
    inside, outside = found
    rate, index = peak
    name = table.rows[index].collective
    if table.nodes == 1:
        expected, cause = inside, "the GPUs do not reach each other directly (peer access off, or PCIe only)"
    else:
        share = 1 if name in _PER_GPU else table.ranks_per_node
        expected = min(outside * share, inside)
        cause = "sockets instead of the fabric (network plugin or GPUDirect missing)"
        if any(w["kind"] == "sockets" for w in table.warnings):
            cause = "sockets instead of the fabric, as NCCL's own line says"
    if rate >= MAGNITUDE * expected * 1e9:
        return []
    table.warnings.append({"kind": "below_links", "busbw": round(rate), "expected": round(expected * 1e9)})
    _mark(table, index, {"kind": "below_links", "busbw": round(rate), "expected": round(expected * 1e9)})
    sentence = (
        f"{_place(table)}: {name} peaks at {units.format_rate(rate)} busbw, an order of magnitude under the "
        f"{units.format_rate(expected * 1e9)} that {table.gpu} links carry: likely {cause}"
    )
    return [sentence]


def _key(table: Table, row: Row) -> tuple[Any, ...]:
    return (
        row.collective,
        table.ranks,
        table.ranks_per_node,
        table.provider,
        table.timer,
        table.memory,
        row.nbytes,
    )


def _best(tables: Sequence[Table]) -> dict[tuple[Any, ...], float]:
    """Return the shortest time of each size among all imported tables."""
    best: dict[tuple[Any, ...], float] = {}
    for table in tables:
        for row in table.rows:
            if row.time_s and row.nbytes >= LARGE:
                key = _key(table, row)
                best[key] = min(best.get(key, row.time_s), row.time_s)
    return best


def _neighbours(table: Table, best: dict[tuple[Any, ...], float]) -> list[str]:
    """Compare each size with the fastest log of the same ranks, tool and size."""
    slow = []
    for index, row in enumerate(table.rows):
        if row.time_s and row.nbytes >= LARGE and row.time_s * MAGNITUDE >= best[_key(table, row)]:
            ratio = row.time_s / best[_key(table, row)]
            _mark(table, index, {"kind": "below_neighbours", "ratio": round(ratio, 1)})
            slow.append((ratio, row))
    if not slow:
        return []
    ratio, row = max(slow, key=lambda pair: pair[0])
    cause = (
        "sockets instead of the fabric" if table.nodes != 1 else "a missing direct link between the devices"
    )
    sentence = (
        f"{_place(table)}: {row.collective} of {units.format_bytes(row.nbytes)} takes {ratio:.0f} times as long as in "
        f"the fastest imported log of {table.ranks} ranks: likely {cause}, or a forced algorithm that does not fit"
    )
    return [sentence]


def _latency(table: Table) -> list[str]:
    """Look at the smallest messages between two ranks."""
    if table.memory != "host" or table.provider in ("nccl", "rccl") or table.ranks != 2:
        return []
    small = [
        (row.nbytes, index, row.time_s)
        for index, row in enumerate(table.rows)
        if row.collective == "sendrecv" and row.time_s and row.nbytes <= 1024 and "window" not in row.extra
    ]
    if not small or min(small)[2] < SLOW_LATENCY_S:
        return []
    size, index, time_s = min(small)
    _mark(table, index, {"kind": "slow_latency", "time_s": time_s})
    sentence = (
        f"{_place(table)}: {units.format_bytes(size)} between two ranks takes {units.format_time(time_s)}: "
        "likely TCP sockets instead of the fabric"
    )
    return [sentence]
