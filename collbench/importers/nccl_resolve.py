"""Which collective and how many ranks an nccl-tests table is about, from everything that a log may tell."""

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from collbench.collectives import collective
from collbench.importers import hints
from collbench.importers.model import Options
from collbench.importers.nccl_log import NcclLog
from collbench.importers.nccl_rows import Half, RawRow
from collbench.records import ITEMSIZE

Device = tuple[str, str, str]


@dataclass(slots=True)
class RawTable:
    """One table as printed, with what stood around it.

    Attributes:
        line: line of the header, or of the first row.
        header: column names; empty where there is no header line.
        name: collective by the test's own name; None when unknown.
        devices: (rank, host, group) of the device lines as printed, in order.
        gpu: device name.
        processes: number of processes from a command line.
        per_node: processes per node from a command line.
        per_process: GPUs a process drives (threads × GPUs).
        stated_ranks: number of GPUs from a hand-written heading.
        iterations: timed calls.
        cpu_time: the column is ``cputime``.
        blocking: a barrier after each call.
        reduction: over ranks (option ``-a``).
        out_of_bounds: number of failed checks by the footer; None when there is no such line.
        ended: a footer was seen.
        rows: the rows.
    """

    line: int = 0
    header: tuple[str, ...] = ()
    name: str | None = None
    devices: list[Device] = field(default_factory=list)
    gpu: str | None = None
    processes: int | None = None
    per_node: int | None = None
    per_process: int = 1
    stated_ranks: int | None = None
    iterations: int | None = None
    cpu_time: bool = False
    blocking: bool = False
    reduction: str = "avg"
    out_of_bounds: int | None = None
    ended: bool = False
    rows: list[RawRow] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Shape:
    """Ranks and where they sit; None and empty where unknown."""

    ranks: int
    nodes: int | None = None
    ranks_per_node: int | None = None
    node_sizes: tuple[int, ...] = ()
    groups: int = 1


def shape(raw: RawTable, log: NcclLog, options: Options, file: str) -> Shape:
    """Return the number of ranks and their places.

    In this order: complete device list, NCCL's communicator line, abridged device list, command line, a heading,
    counts of the rows, busbw/algbw, ``--ranks``, the file's name.

    Raises:
        UsageError: nothing tells; the message names ``--ranks``.
    """
    listed = _devices(raw.devices, raw.rows)
    started = raw.processes * raw.per_process if raw.processes else None
    # A list that shows only the first ranks looks complete: the rows or the command line then tell of more.
    told = shares(raw.rows) or ranks_by_ratio(raw.rows) or started or 0
    if listed is not None and told <= listed.ranks * listed.groups:
        return listed
    if log.ranks:
        even = log.nodes and log.local_ranks and log.nodes * log.local_ranks == log.ranks
        return Shape(log.ranks, log.nodes, log.local_ranks if even else None)
    ranks = (
        started or raw.stated_ranks or shares(raw.rows) or ranks_by_ratio(raw.rows) or options.ranks
        or hints.file_ranks(file)
    )  # fmt: skip
    if ranks is None:
        raise hints.need("how many ranks took part", file, "the log", "--ranks N")
    nodes, each = hints.per_node(ranks, options)
    if nodes is None and raw.per_node:
        each = min(raw.per_node * raw.per_process, ranks)
        nodes = -(-ranks // each)
    return Shape(ranks, nodes, each)


def _devices(devices: Sequence[Device], rows: Sequence[RawRow]) -> Shape | None:
    """Return what the device lines tell; None when they are missing, damaged, or at odds with the rows."""
    try:
        ranks = [int(rank) for rank, _, _ in devices]
    except ValueError:
        return None
    if not ranks or not 0 <= min(ranks) <= max(ranks) < hints.MAX_RANKS:
        return None
    groups = Counter([group for _, _, group in devices])
    if len(groups) == 1 and ranks == list(range(len(ranks))):
        return _placed([host for _, host, _ in devices])
    ordered = sorted({(rank, host) for rank, (_, host, _) in zip(ranks, devices, strict=True)})
    highest = ordered[-1][0] + 1
    if len(ordered) == highest == len({rank for rank, _ in ordered}):
        if len(groups) > 1 and len(set(groups.values())) == 1:
            own = devices[0][2]
            first = sorted((r, host) for r, (_, host, g) in zip(ranks, devices, strict=True) if g == own)
            return _placed([host for _, host in first], len(groups))
        return _placed([host for _, host in ordered])
    told = shares(rows) or ranks_by_ratio(rows)
    if highest < 2 or (told is not None and told != highest):
        return None
    borders = _borders(ordered)
    if borders is None:
        return Shape(highest)
    return Shape(highest, len(borders), max(borders), borders)


def _placed(hosts: Sequence[str], groups: int = 1) -> Shape:
    sizes = tuple(Counter(hosts).values())
    return Shape(len(hosts), len(sizes), max(sizes), sizes, groups)


def _borders(ordered: Sequence[tuple[int, str]]) -> tuple[int, ...] | None:
    """Return the node sizes of an abridged list that shows each node's first and last rank; else None."""
    if ordered[0][0] != 0:
        return None
    sizes, start = [], 0
    for (rank, host), (following, other) in itertools.pairwise(ordered):
        if other != host:
            if following != rank + 1:
                return None
            sizes.append(following - start)
            start = following
    return (*sizes, ordered[-1][0] + 1 - start)


def shares(rows: Sequence[RawRow]) -> int | None:
    """Return size ÷ (count × element size) where it is above 1: the ranks of a collective with shares per rank."""
    found = {
        row.size // (row.elements * ITEMSIZE[row.dtype])
        for row in rows
        if row.elements and row.size % (row.elements * ITEMSIZE[row.dtype]) == 0
    }
    ranks = found.pop() if len(found) == 1 else None
    return ranks if ranks is not None and 1 < ranks <= hints.MAX_RANKS else None


def _ratio(rows: Sequence[RawRow]) -> tuple[float, float] | None:
    """Return the interval of busbw/algbw that rounding leaves, over all halves; None when it is empty."""
    low, high = 0.0, math.inf
    for half in _halves(rows):
        if half.algbw < 0.5:
            continue
        lost = 0.0051 if half.busbw < 999 else 0.051
        low = max(low, (half.busbw - lost) / (half.algbw + lost))
        high = min(high, (half.busbw + lost) / (half.algbw - lost))
    return (low, high) if low <= high < math.inf else None


def _halves(rows: Sequence[RawRow]) -> list[Half]:
    return [half for row in rows for half in (row.out, row.inside) if half is not None]


def ranks_by_ratio(rows: Sequence[RawRow], name: str | None = None) -> int | None:
    """Return the one rank count that busbw/algbw allows: 2(n−1)/n of an allreduce, (n−1)/n of shares; else None.

    Source: nccl-tests doc/PERFORMANCE.md.
    """
    interval = _ratio(rows)
    if interval is None:
        return None
    low, high = interval
    if name == "allreduce" or (name is None and low > 1):
        return _whole(2 / (2 - low), 2 / (2 - high)) if high < 2 else None
    if high < 1:
        return _whole(1 / (1 - low), 1 / (1 - high))
    return None


def _whole(low: float, high: float) -> int | None:
    first = math.ceil(low - 1e-9)
    return first if first == math.floor(high + 1e-9) and first > 1 else None


def name(raw: RawTable, log: NcclLog, ranks: int, options: Options, file: str) -> str:
    """Return the collective: the log's own word, ``--collective``, the file's name, NCCL's lines, or the numbers.

    Raises:
        UsageError: nothing tells; the message names ``--collective``.
    """
    given = collective(options.collective).name if options.collective else None
    found = raw.name or given or hints.name_in(file.rsplit("/", 1)[-1])
    if found is None and len(log.functions) == 1:
        found = next(iter(log.functions))
    found = found or by_numbers(raw, ranks)
    if found is None:
        raise hints.need(
            "which collective it timed", file, f"the table at line {raw.line}", "--collective NAME"
        )
    return found


def by_numbers(raw: RawTable, ranks: int) -> str | None:
    """Return the collective that columns, counts and busbw/algbw leave as the only one; else None."""
    rows = [row for row in raw.rows if row.elements]
    if not rows or ranks < 2:
        return None
    redop = rows[0].redop if rows[0].redop not in (None, "none") else None
    rooted = rows[0].root is not None and rows[0].root >= 0
    unchecked = [row.inside is not None and row.inside.wrong is None for row in rows]
    checked = any(row.out is not None and row.out.wrong is not None for row in rows)
    if shares(rows) == ranks:
        return _with_shares(raw.header, redop, rooted=rooted, checked=checked, unchecked=all(unchecked))
    if rooted:
        return "reduce" if redop else "bcast"
    interval = _ratio(rows)
    if redop is None or interval is None:
        return None
    low, high = interval
    if low <= 2 * (ranks - 1) / ranks <= high and (ranks > 2 or (checked and not all(unchecked))):
        return "allreduce"
    if low <= 1 <= high and checked and all(unchecked):
        return "sendrecv"
    return None


def _with_shares(
    header: Sequence[str], redop: str | None, *, rooted: bool, checked: bool, unchecked: bool
) -> str | None:
    if redop:
        return "reduce_scatter"
    if rooted:
        return None
    if "error" in header:
        return "alltoall" if "redop" in header else "allgather"
    if not checked:
        return None
    return "alltoall" if unchecked else "allgather"
