"""OSU micro-benchmarks 5.x to 7.x: collectives (blocking or not) and point-to-point, several outputs in one file."""

import math
import re
from collections.abc import Mapping

from collbench.collectives import COLLECTIVES
from collbench.importers import Importer, hints
from collbench.importers.model import MAX_TIME_S, Imported, Options, Row, Table, printable
from collbench.importers.osu_title import Test, title
from collbench.importers.source import Source

_TITLE_START = re.compile(r"(?:^|[#\s])OSU (?:MPI|NCCL|XCCL|OpenSHMEM|UPC)[^\n]{0,200} Test\b")
_PER_RANK = frozenset(("allgather", "allgatherv", "alltoall", "alltoallv", "gather", "scatter"))
"""OSU prints the block of one rank or peer for these. Source: osu_allgather.c and others, ``size`` is sendcount."""
_TYPES = {
    "MPI_CHAR": "int8",
    "MPI_BYTE": "uint8",
    "MPI_INT": "int32",
    "MPI_FLOAT": "float32",
    "MPI_DOUBLE": "float64",
}
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?$")
_PERCENTILE = re.compile(r"P(\d{1,2}(?:\.\d+)?)", re.IGNORECASE)
_PAIRS = re.compile(r"pairs: (\d+)\D+window size: (\d+)")


def detect(head: str) -> bool:
    """Say whether a line is the title of an OSU test."""
    return "OSU " in head and _TITLE_START.search(head) is not None


def read(source: Source, options: Options) -> Imported:
    """Return one table for each OSU output in the file.

    Raises:
        UsageError: a row that cannot be read (unless skipped), or the number of ranks is told nowhere.
    """
    return _Reader(source, options).run()


class _Reader:
    """Goes through the lines once; rows belong to the title above them."""

    def __init__(self, source: Source, options: Options) -> None:
        self.source, self.options = source, options
        self.imported = Imported(source.name, "osu")
        self.test: Test | None = None
        self.processes: int | None = None
        self.per_node: int | None = None
        self.library: tuple[str, str | None] | None = None
        self.environment: dict[str, str] = {}

    def run(self) -> Imported:
        number = 0
        for batch in self.source.batches():
            for line in batch:
                number += 1
                tokens = line.split()
                if not tokens:
                    continue
                self.imported.go_on(skip=self.options.skip_bad_rows)
                if tokens[0][0].isdecimal() and self.test is not None:
                    self.numbers(number, line, tokens)
                else:
                    self.words(number, line, tokens)
        self.close()
        self.imported.end()
        return self.imported

    def words(self, number: int, line: str, tokens: list[str]) -> None:
        found = title(line, number) if "OSU" in line[:80] else None
        if found is not None:
            self.close()
            self.test = found
        elif self.test is not None and tokens[0].lstrip("#") in ("", "Size", "Avg", "Overall"):
            self.comment(line, tokens)
        else:
            self.noise(number, line, tokens)

    def comment(self, line: str, tokens: list[str]) -> None:
        """Take a comment line under the title."""
        assert self.test is not None
        words = line.strip(" #\t")
        if words.startswith("Datatype:"):
            self.test.dtype = _TYPES.get(words[9:].strip(" ."))
        elif "Buffer on DEVICE" in line and self.test.memory == "host":
            self.test.memory = "cuda" if "(D)" in line else "host"
        elif match := _PAIRS.search(line):
            self.test.pairs, self.test.window = max(1, int(match[1][:8])), int(match[2][:8])
        elif tokens[-1] != "#" and (
            words.startswith(("Size", "Avg Latency", "Overall(us)")) or "(us)" in words
        ):
            self.test.columns = re.split(r"\s{2,}|\t+|(?<=\))\s+", words)

    def noise(self, number: int, line: str, tokens: list[str]) -> None:
        """Take a line of a launcher, a shell or a library."""
        if self.test is not None and self.test.columns and len(tokens) == len(self.test.columns) > 2:
            numeric = sum(bool(_NUMBER.match(t)) for t in tokens)
            if numeric >= len(tokens) - 1:
                self.imported.reject(number, line, "its size is no number", skip=self.options.skip_bad_rows)
                return
        ranks = hints.command_ranks(line)
        if ranks is not None:
            self.close()
            self.processes, self.per_node = ranks, hints.command_per_node(line)
        self.library = hints.library_in(line) or self.library
        if "=" in line:
            self.environment.update(hints.variables(line))

    def numbers(self, number: int, line: str, tokens: list[str]) -> None:
        """Take a line that begins with a digit."""
        test = self.test
        assert test is not None
        if test.collective is None or (not test.columns and test.kind != "barrier"):
            return
        values = tokens[1:] if test.kind != "barrier" else tokens
        names = test.columns[1:] if test.kind != "barrier" else (test.columns or ["Avg Latency(us)"])
        size = tokens[0] if test.kind != "barrier" else "0"
        if not all(_NUMBER.match(t) or t in ("Pass", "Fail", "N/A") for t in tokens):
            if len(tokens) == len(names) + 1 and len(tokens) > 1:
                self.imported.reject(number, line, "a word is no number", skip=self.options.skip_bad_rows)
            return
        reason = f"it has {len(tokens)} words, not {len(names) + 1}"
        if len(values) < len(names):
            self.imported.short(number, line, reason)
            return
        if len(values) > len(names) or not size.isdecimal() or len(size) > 18:
            self.imported.reject(number, line, reason, skip=self.options.skip_bad_rows)
            return
        numbers = {n: float(v) for n, v in zip(names, values, strict=True) if _NUMBER.match(v)}
        verdict = "Fail" if "Fail" in values else ""
        if not _usable(test, int(size), numbers):
            self.imported.reject(number, line, "no positive time or rate", skip=self.options.skip_bad_rows)
            return
        test.rows.append((number, int(size), numbers, verdict))

    def close(self) -> None:
        """End the open test: everything known, it becomes a table."""
        test, self.test = self.test, None
        if test is None:
            return
        if test.collective is None:
            self.imported.remarks.append(
                f"line {test.line}: {printable(test.title, 70)!r} is no collective collbench knows, left out"
            )
        elif not test.rows:
            self.imported.remarks.append(f"line {test.line}: a header without rows (cut off or aborted)")
        else:
            self.table(test)

    def table(self, test: Test) -> None:
        ranks = self.ranks(test)
        if ranks == 1:
            self.imported.remarks.append(f"line {test.line}: refused, one rank measures no communication")
            return
        nodes, each = hints.per_node(ranks, self.options)
        if nodes is None and self.per_node:
            each = min(self.per_node, ranks)
            nodes = -(-ranks // each)
        provider, version = self.provider(test)
        self.imported.tables.append(
            Table(
                tool="osu", provider=provider, ranks=ranks, rows=[_row(test, r, ranks) for r in test.rows],
                rank_reduction="avg", sync="barrier" if test.timer in ("osu", "osu-nonblocking") else "none",
                timer=test.timer, file=self.source.name, line=test.line, nodes=nodes, ranks_per_node=each,
                memory=test.memory, environment=dict(self.environment),
                library={"name": provider, "version": version, "string": f"{provider} {version or '?'}"},
            )
        )  # fmt: skip

    def ranks(self, test: Test) -> int:
        if test.collective == "sendrecv" and test.timer not in ("osu-multi_lat", "osu-mbw_mr"):
            return 2
        if test.timer == "osu-mbw_mr":
            return 2 * test.pairs
        ranks = self.processes or self.options.ranks or hints.file_ranks(self.source.name)
        if ranks is None:
            raise hints.need("how many ranks took part", self.source.name, "OSU output", "--ranks N")
        return ranks

    def provider(self, test: Test) -> tuple[str, str | None]:
        if test.nccl:
            return hints.gpu_provider(self.options, "nccl"), None
        told = self.library or (None, None)
        if self.options.library:
            named = hints.provider_named(self.options.library)
            return named, told[1] if told[0] == named else None
        return told[0] or hints.library_of_file(self.source.name) or "mpi", told[1]


def _time_column(test: Test, numbers: Mapping[str, float]) -> float | None:
    """Return what the time follows from: a rate, pure communication, or the average latency."""
    if test.kind == "rate":
        return numbers.get("MB/s", next(iter(numbers.values()), None))
    if test.kind == "nonblocking":
        return next((v for n, v in numbers.items() if n.startswith("Pure")), None)
    return next((v for n, v in numbers.items() if "atency" in n or "(us)" in n), None)


def _seconds(test: Test, size: int, value: float) -> float:
    """Return one message's or call's time: from a rate over all pairs and directions, or from microseconds."""
    return size * test.pairs * test.directions / (value * 1e6) if test.kind == "rate" else value * 1e-6


def _usable(test: Test, size: int, numbers: Mapping[str, float]) -> bool:
    value = _time_column(test, numbers)
    if value is None or not (
        math.isfinite(value) and value > 0 and all(map(math.isfinite, numbers.values()))
    ):
        return False
    return _seconds(test, size, value) < MAX_TIME_S


def _row(test: Test, row: tuple[int, int, Mapping[str, float], str], ranks: int) -> Row:
    _, size, numbers, verdict = row
    name = test.collective or ""
    value = _time_column(test, numbers) or 1.0
    time_s = _seconds(test, size, value)
    reason = "wrong result" if verdict else ("zero size" if size == 0 and COLLECTIVES[name].sized else "")
    reduces = COLLECTIVES[name].reduces
    extra: dict[str, object] = {}
    for column, key in (
        ("Min Latency", "rank_min_s"),
        ("Max Latency", "rank_max_s"),
        ("Compute", "compute_s"),
    ):
        extra.update((key, v * 1e-6) for n, v in numbers.items() if n.startswith(column))
    if test.window:
        extra["window"] = test.window
    warning = {"rate": "derived_from_rate", "nonblocking": "nonblocking"}.get(test.kind)
    percentiles = {f"p{m[1]}": v * 1e-6 for n, v in numbers.items() if (m := _PERCENTILE.match(n))}
    iterations = next((int(v) for n, v in numbers.items() if n == "Iterations"), None)
    first = min(r[1] for r in test.rows)
    return Row(
        collective=name,
        nbytes=size * ranks if name in _PER_RANK else size,
        time_s=None if reason else time_s,
        reason=reason,
        detail={"wrong result": "the validation says Fail", "zero size": "no data was sent"}.get(reason, ""),
        dtype=test.dtype or ("float32" if reduces and first >= 4 else "int8"),
        op="sum" if reduces else None,
        memory=test.memory,
        iterations=iterations,
        percentiles_s=percentiles,
        warnings=({"kind": warning},) if warning else (),
        extra=extra,
    )


FORMAT = Importer("osu", "OSU micro-benchmarks 5.x to 7.x", detect, read)
