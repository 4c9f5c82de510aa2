"""What an importer returns: tables of rows (one a launch), remarks, and the rows it could not read."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from collbench.errors import UsageError
from collbench.records import Evidence, Params

UNKNOWN = Evidence()
MAX_TIME_S = 1e6
"""Longer than any call takes (eleven days): such a number is damage."""
NOTHING: Mapping[str, Any] = MappingProxyType({})
"""The empty mapping that rows share."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the user adds to what a log says.

    Attributes:
        collective: used where the log names none.
        ranks: used where the log does not say.
        ranks_per_node: used where the log does not say.
        library: provider of MPI logs, or the library's exact name.
        skip_bad_rows: count and list rows that cannot be read instead of stopping.
        mapping: field table of a CSV or TSV file (``mapping.ColumnMap``); None = not given.
        as_default: algorithm labels that are known to be mere requests and become ``default``.
    """

    collective: str | None = None
    ranks: int | None = None
    ranks_per_node: int | None = None
    library: str | None = None
    skip_bad_rows: bool = False
    mapping: Any = None
    as_default: tuple[str, ...] = ()


class Row(NamedTuple):
    """One cell of one launch, with its time or with the reason why it has none.

    Attributes:
        collective: name in ``collectives.COLLECTIVES``.
        nbytes: total bytes S.
        time_s: seconds; None when ``reason`` says why.
        reason: why the cell failed; empty = it did not.
        detail: what the log printed about it.
        in_place: same-buffer form.
        dtype: element type.
        op: reduction operator; None where nothing is reduced.
        algorithm: what was asked for; ``default`` where nothing was.
        component: serving component; None = not applicable.
        params: sorted (name, value) pairs.
        memory: where the buffers are; None = as the table says.
        evidence: what shows which algorithm ran.
        iterations: timed calls; None when unknown.
        percentiles_s: name → seconds over iterations; may be empty.
        warnings: doubts as data.
        extra: further fields of the line.
    """

    collective: str
    nbytes: int
    time_s: float | None
    reason: str = ""
    detail: str = ""
    in_place: bool = False
    dtype: str = "float32"
    op: str | None = None
    algorithm: str = "default"
    component: str | None = None
    params: Params = ()
    memory: str | None = None
    evidence: Evidence = UNKNOWN
    iterations: int | None = None
    percentiles_s: Mapping[str, float] = NOTHING
    warnings: tuple[Mapping[str, Any], ...] = ()
    extra: Mapping[str, Any] = NOTHING


@dataclass(slots=True)
class Table:
    """The rows of one launch: one process start, or one repetition of it.

    Attributes:
        tool: which program timed.
        provider: whose algorithms (``openmpi``, ``nccl``, ``rccl``, ``mpi`` when unknown …).
        ranks: number of ranks.
        rows: in the order of the file.
        rank_reduction: max, avg, min, rank0 … as the tool does it.
        sync: barrier, none (back to back), unknown.
        timer: the tool's name, with the kind of test where one tool times several things.
        file: name of the file.
        line: first line of the table.
        nodes: None when unknown.
        ranks_per_node: None when unknown.
        node_sizes: ranks of each node; empty when unknown.
        groups: communicators that ran at once.
        memory: host, cuda, rocm …
        library: {"name", "version", "string"}.
        gpu: device name; None when unknown.
        environment: recorded variables, from an allow-list.
        thread_level: None when unknown.
        label: launch label of the file (CSV); None = none.
        warnings: doubts about the whole launch, as data.
        own: fields of collbench's own launch lines (a re-imported export).
    """

    tool: str
    provider: str
    ranks: int
    rows: list[Row]
    rank_reduction: str
    sync: str
    timer: str
    file: str = ""
    line: int = 0
    nodes: int | None = None
    ranks_per_node: int | None = None
    node_sizes: tuple[int, ...] = ()
    groups: int = 1
    memory: str = "host"
    library: dict[str, Any] = field(default_factory=dict)
    gpu: str | None = None
    environment: dict[str, str] = field(default_factory=dict)
    thread_level: str | None = None
    label: str | None = None
    warnings: list[dict[str, Any]] = field(default_factory=list)
    own: dict[str, Any] = field(default_factory=dict)


class BadRow(NamedTuple):
    """A line that looks like a row and cannot be read.

    Attributes:
        file: name of the file.
        line: line number, from 1.
        text: the line, shortened.
        reason: what is wrong with it.
    """

    file: str
    line: int
    text: str
    reason: str


@dataclass(slots=True)
class Imported:
    """What one file yielded.

    Attributes:
        file: name of the file.
        format: importer that read it.
        tables: one a launch.
        remarks: sentences on what is missing or was left out.
        bad: rows that could not be read and were skipped.
        pending: a row with too few words: an error if anything follows it, a cut-off end if nothing does.
    """

    file: str
    format: str
    tables: list[Table] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    bad: list[BadRow] = field(default_factory=list)
    pending: tuple[int, str, str] | None = None

    @property
    def cells(self) -> int:
        """Number of rows with a time."""
        return sum(row.time_s is not None for table in self.tables for row in table.rows)

    @property
    def failed(self) -> int:
        """Number of rows kept as failed cells."""
        return sum(row.time_s is None for table in self.tables for row in table.rows)

    def reject(self, line: int, text: str, reason: str, *, skip: bool) -> None:
        """Note a row that cannot be read.

        Raises:
            UsageError: unless such rows are skipped.
        """
        shown = printable(text.strip(), 120)
        if not skip:
            raise UsageError(
                f"{self.file}:{line}: cannot read this row ({reason}): {shown!r}; "
                "leave such rows out with --skip-bad-rows"
            )
        self.bad.append(BadRow(self.file, line, shown, reason))

    def short(self, line: int, text: str, reason: str) -> None:
        """Note a row that has too few words, which the end of the file would excuse."""
        self.pending = (line, text, reason)

    def go_on(self, *, skip: bool) -> None:
        """Say that another line follows: the short row before it was no cut-off end.

        Raises:
            UsageError: there was one, unless such rows are skipped.
        """
        if self.pending is not None:
            (line, text, reason), self.pending = self.pending, None
            self.reject(line, text, reason, skip=skip)

    def end(self) -> None:
        """Say that the file has ended: a short last row was cut off."""
        if self.pending is not None:
            self.remarks.append(f"line {self.pending[0]}: the last row is cut off and was left out")
            self.pending = None


def printable(text: str, width: int = 200) -> str:
    """Return ``text`` without control characters and not longer than ``width``."""
    shown = "".join(c if c.isprintable() else "?" for c in text[: width + 1])
    return shown if len(shown) <= width else shown[: width - 1] + "…"
