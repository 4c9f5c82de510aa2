"""From one nccl-tests table as printed to the rows of one launch."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from collbench.collectives import COLLECTIVES
from collbench.importers import hints, nccl_log, nccl_resolve
from collbench.importers.model import NOTHING, UNKNOWN, Imported, Options, Row, Table, printable
from collbench.importers.nccl_log import NcclLog
from collbench.importers.nccl_resolve import RawTable, Shape
from collbench.importers.nccl_rows import Half, RawRow
from collbench.records import Evidence, Params

# What the first generation calls correct. Source: nccl-tests before 2.12, DeltaMaxValue.
_TOLERANCE = {"float16": 1e-2, "bfloat16": 1e-2, "float32": 1e-5, "float64": 1e-12}
_STATS = {"i_min": "min", "i_max": "max", "i_p99": "p99"}
_HEADING = {"ALGO": "NCCL_ALGO", "PROTO": "NCCL_PROTO"}


@dataclass(slots=True)
class Context:
    """What holds for the whole file.

    Attributes:
        tool: nccl-tests or rccl-tests.
        file: its name.
        options: what the user added.
        version: library version of the header line.
        tables: tables with rows seen.
        empty: tables without rows seen.
    """

    tool: str
    file: str
    options: Options
    version: str | None = None
    tables: int = 0
    empty: int = 0

    def header_version(self, words: list[str]) -> None:
        """Take ``nccl-tests version X nccl-headers=N nccl-library=N``."""
        for word in words:
            name, _, value = word.partition("=")
            if name == "nccl-library" and value.isdecimal():
                self.version = decode_version(int(value[:9]))

    def heading(self, log: NcclLog, found: dict[str, str]) -> None:
        """Take what a hand-written heading says was asked for; it replaces what the last one said."""
        for short, variable in _HEADING.items():
            value = found.get(short) or found.get(variable)
            if value:
                log.environment[variable] = value
            else:
                log.environment.pop(variable, None)

    def conclude(self, imported: Imported, rest: RawTable, aborted: str) -> None:
        """Say what is missing at the end of the file."""
        if aborted:
            imported.remarks.append(f"the run was aborted: {printable(aborted, 90)!r}")
        if not self.tables and not self.empty and (rest.devices or rest.iterations):
            imported.remarks.append("cut off or aborted before the table")
        elif not self.tables and not self.empty and not aborted:
            imported.remarks.append("only debug lines, no table")


def decode_version(code: int) -> str:
    """Return ``2.29.2`` for NCCL's 22902 (``2.8.4`` for the older 2804)."""
    major, rest = divmod(code, 10000) if code >= 10000 else divmod(code, 1000)
    return f"{major}.{rest // 100}.{rest % 100}"


def finish(raw: RawTable, log: NcclLog, context: Context, imported: Imported) -> None:
    """Add the table's rows to ``imported``; a table without rows or of one rank adds a remark.

    Raises:
        UsageError: ranks or collective are told nowhere.
    """
    if not raw.rows:
        context.empty += 1
        imported.remarks.append(f"line {raw.line}: a header without rows (cut off or aborted)")
        return
    shape = nccl_resolve.shape(raw, log, context.options, context.file)
    if shape.ranks == 1:
        imported.remarks.append(
            f"line {raw.line}: refused, a run of one rank measures no communication (was -np forgotten?)"
        )
        return
    name = nccl_resolve.name(raw, log, shape.ranks, context.options, context.file)
    context.tables += 1
    table = _table(raw, log, context, shape)
    table.rows = _rows(raw, name, shape.ranks, log, *nccl_log.requested(table.environment, name))
    if not raw.ended:
        imported.remarks.append(f"line {raw.line}: the table has no footer (cut off or an excerpt)")
    imported.tables.append(table)


def _both(row: RawRow) -> list[Half]:
    return [half for half in (row.out, row.inside) if half is not None]


def _table(raw: RawTable, log: NcclLog, context: Context, shape: Shape) -> Table:
    rccl = context.tool == "rccl-tests" or log.library == "rccl"
    provider = hints.gpu_provider(context.options, "rccl" if rccl else "nccl")
    version = log.version or context.version
    nodes, each = shape.nodes, shape.ranks_per_node
    if nodes is None:
        nodes, each = hints.per_node(shape.ranks, context.options)
    table = Table(
        tool=context.tool,
        provider=provider,
        ranks=shape.ranks,
        rows=[],
        rank_reduction=raw.reduction,
        sync="barrier" if raw.blocking else "none",
        timer=f"{context.tool}-cpu" if raw.cpu_time else context.tool,
        file=context.file,
        line=raw.line,
        nodes=nodes,
        ranks_per_node=each,
        node_sizes=shape.node_sizes,
        groups=shape.groups,
        memory="rocm" if provider == "rccl" else "cuda",
        library={"name": provider, "version": version, "string": f"{provider.upper()} {version or '?'}"},
        gpu=raw.gpu,
        environment=dict(log.environment),
    )
    if raw.cpu_time:
        table.warnings.append({"kind": "cpu_time"})
    if log.sockets and (nodes or 1) > 1:
        table.warnings.append({"kind": "sockets"})
    return table


def _rows(raw: RawTable, name: str, ranks: int, log: NcclLog, algorithm: str, params: Params) -> list[Row]:
    """Return a row for each half; what all share is looked up once."""
    reduces, rooted = COLLECTIVES[name].reduces, COLLECTIVES[name].rooted
    bounds = bool(raw.out_of_bounds) and not any(_wrong(h, r, raw.header) for r in raw.rows for h in _both(r))
    rows = []
    for row in raw.rows:
        found = UNKNOWN, NOTHING
        if log.tuning:
            found = nccl_log.evidence(log, name, row.size, ranks, algorithm)
        extra = (
            {**found[1], "root": row.root} if rooted and row.root is not None and row.root >= 0 else found[1]
        )
        op = (row.redop or "sum") if reduces else None
        ran, ran_with = _ran(found[0], found[1], algorithm, params)
        for half, in_place in ((row.out, False), (row.inside, True)):
            if half is None:
                continue
            reason = detail = ""
            if bounds or half.wrong or row.size == 0:
                reason, detail = _failure(row, half, raw.header, oob=bounds)
            stats = {_STATS[n]: v * 1e-6 for n, v in half.stats if n in _STATS} if half.stats else NOTHING
            time_s = None if reason else half.time_us * 1e-6
            rows.append(
                Row(
                    name, row.size, time_s, reason, detail, in_place, row.dtype, op, ran, None, ran_with, None,
                    found[0], raw.iterations, stats, (), extra,
                )
            )  # fmt: skip
    return rows


def _ran(
    evidence: Evidence, fields: Mapping[str, object], algorithm: str, params: Params
) -> tuple[str, Params]:
    """Return the algorithm of the case: the recorded request, else what NCCL's own lines show, else the default."""
    if evidence.effective is None or algorithm not in ("default", "auto"):
        return algorithm, params
    shown = fields.get("effective_params")
    protocol = shown.get("protocol") if isinstance(shown, dict) else None
    return evidence.effective, params or ((("protocol", str(protocol)),) if protocol else ())


def _failure(row: RawRow, half: Half, header: tuple[str, ...], *, oob: bool) -> tuple[str, str]:
    """Return (reason, detail) of a half that is no measurement; empty strings for a good one."""
    if row.size == 0:
        return "zero size", "the size was rounded down to nothing: an empty call was timed"
    if _wrong(half, row, header):
        return "wrong result", f"the tool counted {half.wrong:g} wrong"
    if oob:
        return "out of bounds", "the footer says FAILED and no row says which"
    return "", ""


def _wrong(half: Half, row: RawRow, header: tuple[str, ...]) -> bool:
    """Say whether the half is wrong; the first generation prints an error measure, the others a count."""
    if half.wrong is None:
        return False
    if math.isnan(half.wrong):
        return True
    if "error" in header or (not header and 0 < half.wrong < 1):
        return half.wrong > _TOLERANCE.get(row.dtype, 0.0)
    return half.wrong > 0
