"""Intel MPI Benchmarks (IMB-MPI1): blocks of several benchmarks and group sizes in one file."""

import math
import re
from dataclasses import dataclass, field

from collbench.collectives import COLLECTIVES
from collbench.importers import Importer, hints
from collbench.importers.model import MAX_TIME_S, Imported, Options, Row, Table
from collbench.importers.source import Source

_NAMES = {
    "allreduce": "allreduce", "allgather": "allgather", "allgatherv": "allgatherv", "alltoall": "alltoall",
    "alltoallv": "alltoallv", "bcast": "bcast", "reduce": "reduce", "reduce_scatter": "reduce_scatter_v",
    "reduce_scatter_block": "reduce_scatter", "gather": "gather", "scatter": "scatter", "barrier": "barrier",
    "pingpong": "sendrecv", "pingping": "sendrecv", "sendrecv": "sendrecv", "uniband": "sendrecv",
    "biband": "sendrecv",
}  # fmt: skip
_PER_RANK = frozenset(("allgather", "allgatherv", "alltoall", "alltoallv", "gather", "scatter"))
"""IMB prints the block of one rank or peer for these. Source: IMB user guide, "Classification of Benchmarks"."""
_RATES = {"uniband": 1, "biband": 2}
_BLOCK = re.compile(r"^\s*#\s*Benchmarking\s+(\S+)")
_PROCESSES = re.compile(r"#processes = (\d+)")
_GROUPS = re.compile(r"\(\s*(\d+) groups? of (\d+) processes")
_SIGN = re.compile(r"#bytes[ \t]+#repetitions|#\s*Benchmarking\s+\w+\s*\n|#\s+Intel ?\(R\) MPI Benchmarks")
_TYPES = {
    "MPI_BYTE": "uint8",
    "MPI_CHAR": "int8",
    "MPI_FLOAT": "float32",
    "MPI_DOUBLE": "float64",
    "MPI_INT": "int32",
}
_TIMES = ("t_max[usec]", "t[usec]", "t_avg[usec]")


@dataclass(slots=True)
class _Block:
    """One benchmark at one group size."""

    line: int
    benchmark: str
    ranks: int | None = None
    groups: int = 1
    waiting: bool = False
    columns: list[str] = field(default_factory=list)
    rows: list[tuple[int, list[float]]] = field(default_factory=list)


def detect(head: str) -> bool:
    """Say whether the text is IMB output."""
    signs = ("#bytes", "# Benchmarking ", "MPI Benchmarks")
    return any(sign in head for sign in signs) and _SIGN.search(head) is not None


def read(source: Source, options: Options) -> Imported:
    """Return one table for each block (benchmark and group size); a repeated block is another launch.

    Raises:
        UsageError: a row that cannot be read (unless skipped).
    """
    return _Reader(source, options).run()


class _Reader:
    """Goes through the lines once; rows belong to the block above them."""

    def __init__(self, source: Source, options: Options) -> None:
        self.source, self.options = source, options
        self.imported = Imported(source.name, "imb")
        self.block: _Block | None = None
        self.types = {"plain": "uint8", "reductions": "float32"}
        self.version: str | None = None
        self.library: tuple[str, str | None] | None = None
        self.per_node: int | None = None
        self.environment: dict[str, str] = {}

    def run(self) -> Imported:
        number = 0
        for batch in self.source.batches():
            for line in batch:
                number += 1
                tokens = line.split()
                if tokens:
                    self.imported.go_on(skip=self.options.skip_bad_rows)
                    self.feed(number, line, tokens)
        self.close()
        self.imported.end()
        return self.imported

    def feed(self, number: int, line: str, tokens: list[str]) -> None:
        first = tokens[0]
        if first[0].isdecimal():
            if self.block is not None and self.block.columns:
                self.numbers(number, line, tokens)
        elif first in ("#bytes", "#repetitions"):
            self.header(number, tokens)
        elif first[0] == "#":
            self.comment(number, line)
        else:
            self.noise(number, line, tokens)

    def header(self, number: int, tokens: list[str]) -> None:
        """Take a column line; a second one in a block means that the next block's title is lost."""
        if self.block is not None and self.block.rows and tokens != self.block.columns:
            self.close()
            self.block = _Block(number, "a table without its title")
        if self.block is not None:
            self.block.columns = tokens if "#repetitions" in tokens else []

    def comment(self, number: int, line: str) -> None:
        """Take a comment line: a block's beginning, its group size, or a line of the header box."""
        if match := _BLOCK.match(line):
            self.close()
            self.block = _Block(number, match[1])
        elif self.block is not None and (match := _PROCESSES.search(line)):
            self.block.ranks = int(match[1][:9])
        elif self.block is not None and (match := _GROUPS.search(line)):
            self.block.groups, self.block.ranks = int(match[1][:9]), int(match[2][:9])
        elif self.block is not None and "waiting in MPI_Barrier" in line:
            self.block.waiting = True
        elif "MPI_Datatype" in line:
            key = "reductions" if "reductions" in line else "plain"
            self.types[key] = _TYPES.get(line.rpartition(":")[2].strip(), self.types[key])
        elif "MPI Benchmarks" in line:
            self.version = " ".join(line.strip(" #").split(",")[0].split()[-3:])

    def noise(self, number: int, line: str, tokens: list[str]) -> None:
        """Take a line of a launcher or shell; inside a block one that should be a row is an error."""
        block = self.block
        if block is not None and len(block.columns) == len(tokens) > 2 and _numbers(tokens[1:]) is not None:
            self.imported.reject(number, line, "its size is no number", skip=self.options.skip_bad_rows)
            return
        self.library = hints.library_in(line) or self.library
        self.per_node = hints.command_per_node(line) or self.per_node
        if "=" in line:
            self.environment.update(hints.variables(line))

    def numbers(self, number: int, line: str, tokens: list[str]) -> None:
        """Take a row."""
        block = self.block
        assert block is not None
        if len(tokens) != len(block.columns):
            if len(tokens) < len(block.columns) and tokens[0].isdecimal() and _numbers(tokens) is not None:
                self.imported.short(number, line, f"it has {len(tokens)} words, not {len(block.columns)}")
            elif _numbers(tokens) is not None and len(tokens) > 1:
                reason = f"it has {len(tokens)} words, not {len(block.columns)}"
                self.imported.reject(number, line, reason, skip=self.options.skip_bad_rows)
            return
        values = _numbers(tokens)
        whole = tokens[0].isdecimal() and len(tokens[0]) < 19
        if values is None or not whole or (block.columns[0] == "#bytes" and _time(block, values) is None):
            reason = "a word is no number, or there is no positive time"
            self.imported.reject(number, line, reason, skip=self.options.skip_bad_rows)
            return
        block.rows.append((number, values))

    def close(self) -> None:
        """End the open block: it becomes a table, or a remark that says why not."""
        block, self.block = self.block, None
        if block is None:
            return
        name = _NAMES.get(block.benchmark.lower())
        remark = None
        if name is None:
            remark = f"{block.benchmark!r} is no collective collbench knows, left out"
        elif not block.rows:
            remark = "a block without rows (cut off or aborted)"
        elif block.ranks == 1:
            remark = "refused, one process measures no communication (was -np forgotten?)"
        ranks = block.ranks or self.options.ranks
        if remark is None and ranks is None:
            raise hints.need("how many ranks took part", self.source.name, "the block", "--ranks N")
        if remark is not None or name is None or ranks is None:
            self.imported.remarks.append(f"line {block.line}: {remark}")
            return
        self.imported.tables.append(self.table(block, name, ranks))

    def table(self, block: _Block, name: str, ranks: int) -> Table:
        nodes, each = hints.per_node(ranks, self.options)
        if nodes is None and self.per_node and not block.waiting:
            each = min(self.per_node, ranks)
            nodes = -(-ranks // each)
        told = self.library or (None, None)
        provider = told[0] or hints.library_of_file(self.source.name) or "mpi"
        if self.options.library:
            provider = hints.provider_named(self.options.library)
        dtype = self.types["reductions" if COLLECTIVES[name].reduces else "plain"]
        averaged = not any(c == "t_max[usec]" for c in block.columns)
        return Table(
            tool="imb", provider=provider, ranks=ranks, rows=[_row(block, r, name, ranks, dtype) for r in block.rows],
            rank_reduction="avg" if averaged else "max", sync="none",
            timer="imb" if name != "sendrecv" else f"imb-{block.benchmark.lower()}",
            file=self.source.name, line=block.line, nodes=nodes, ranks_per_node=each, groups=block.groups,
            environment=dict(self.environment),
            library={"name": provider, "version": told[1] if told[0] == provider else None, "string": provider},
        )  # fmt: skip


def _numbers(tokens: list[str]) -> list[float] | None:
    try:
        values = [float(t) for t in tokens]
    except ValueError:
        return None
    return values if all(map(math.isfinite, values)) else None


def _time(block: _Block, values: list[float]) -> float | None:
    """Return seconds of one call; None where the row has no positive time or rate."""
    columns = block.columns
    directions = _RATES.get(block.benchmark.lower())
    if directions is not None and "Msg/sec" in columns:
        rate = values[columns.index("Msg/sec")]
        pairs = max(1, (block.ranks or 2) // 2)
        return pairs * directions / rate if rate > 1 / MAX_TIME_S else None
    for name in _TIMES:
        if name in columns:
            time_us = values[columns.index(name)]
            # Microseconds are printed with two decimals: 0.00 is a time below 5 ns, which no transfer has.
            valid = 0 < time_us < MAX_TIME_S * 1e6 or values[0] == 0
            return time_us * 1e-6 if valid else None
    return None


def _row(block: _Block, row: tuple[int, list[float]], name: str, ranks: int, dtype: str) -> Row:
    _, values = row
    columns = block.columns
    sized = COLLECTIVES[name].sized
    size = int(values[0]) if columns[0] == "#bytes" else 0
    time_s = _time(block, values)
    defects = values[columns.index("defects")] if "defects" in columns else 0.0
    reason, detail = "", ""
    if size == 0 and sized:
        reason, detail = "zero size", "no data was sent: the call does nothing"
    elif defects:
        reason, detail = "wrong result", f"the tool reports defects of {defects:g}"
    elif not time_s:
        reason, detail = "no time", "the printed time is 0"
    extra = {
        key: values[columns.index(c)] * 1e-6
        for c, key in (("t_min[usec]", "rank_min_s"), ("t_avg[usec]", "rank_avg_s"))
        if c in columns
    }
    at = columns.index("#repetitions")
    return Row(
        collective=name,
        nbytes=size * ranks if name in _PER_RANK else size,
        time_s=None if reason else time_s,
        reason=reason,
        detail=detail,
        dtype=dtype,
        op="sum" if COLLECTIVES[name].reduces else None,
        iterations=int(values[at]),
        warnings=({"kind": "derived_from_rate"},) if block.benchmark.lower() in _RATES else (),
        extra=extra,
    )


FORMAT = Importer("imb", "Intel MPI Benchmarks, IMB-MPI1", detect, read)
