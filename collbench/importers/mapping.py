"""Any CSV or TSV file, through a small TOML table that names its columns."""

import csv
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from collbench.collectives import COLLECTIVES
from collbench.errors import UsageError, unknown_name
from collbench.importers import Importer, hints
from collbench.importers.mapped_row import Fields, Group, convert
from collbench.importers.model import MAX_TIME_S, Imported, Options, Row, Table, printable
from collbench.importers.source import Source

FIELDS = (
    "collective", "ranks", "ranks_per_node", "nodes", "nbytes", "algorithm", "provider", "protocol", "channels",
    "segment_bytes", "dtype", "op", "in_place", "launch", "time", "memory", "component", "iterations", "library",
    "library_version", "rank_reduction", "sync",
)  # fmt: skip
_TABLES = ("columns", "constants", "units", "values", "where")
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_INDISPENSABLE = {"collective": "--collective NAME", "ranks": "--ranks N", "nbytes": "", "time": ""}
_MAX_MAPPING = 1 << 20


@dataclass(frozen=True, slots=True)
class ColumnMap:
    """What the file's columns mean.

    Attributes:
        columns: field → name of the file's column.
        constants: field → value that no column holds.
        second: seconds of one unit of the time column.
        per_rank: sizes are one rank's share where the collective has shares.
        values: field → word in the file → word here.
        where: column → values of the rows to take; empty = all rows.
    """

    columns: Mapping[str, str]
    constants: Mapping[str, str] = field(default_factory=dict)
    second: float = 1e-6
    per_rank: bool = False
    values: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    where: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def load(path: Path) -> ColumnMap:
    """Read a mapping file.

    Raises:
        UsageError: not TOML, an unknown table, field or unit.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_MAPPING + 1)
        if len(data) > _MAX_MAPPING:
            raise UsageError(f"{path} is no mapping: it has more than {_MAX_MAPPING >> 20} MiB")
        document = tomllib.loads(data.decode())
    except OSError as error:
        raise UsageError(f"cannot read the mapping {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"the mapping {path} is not valid TOML: {error}") from None
    return parse(document, str(path))


def parse(document: Mapping[str, Any], name: str) -> ColumnMap:
    """Return the mapping of a TOML document.

    Raises:
        UsageError: an unknown table, field or unit.
    """
    for table, content in document.items():
        if table not in _TABLES:
            raise unknown_name(f"table in {name}", table, _TABLES)
        if not isinstance(content, dict):
            raise UsageError(f"{name}: [{table}] must be a table")
    columns = {k: str(v) for k, v in document.get("columns", {}).items()}
    constants = {k: _text(v) for k, v in document.get("constants", {}).items()}
    values = document.get("values", {})
    for key in (*columns, *constants, *values):
        if key not in FIELDS:
            raise unknown_name(f"field in {name}", key, FIELDS)
    for key, words in values.items():
        if not isinstance(words, dict):
            raise UsageError(f"{name}: [values.{key}] must be a table of words")
    if "time" not in columns:
        raise UsageError(f'{name} names no column with the time: add  time = "…"  to [columns]')
    second, per_rank = _units(document.get("units", {}), name)
    translated = {k: {str(a): _text(b) for a, b in words.items()} for k, words in values.items()}
    where = {
        k: tuple(map(_text, v)) if isinstance(v, list) else (_text(v),)
        for k, v in document.get("where", {}).items()
    }
    return ColumnMap(columns, constants, second, per_rank, translated, where)


def _units(units: Mapping[str, Any], name: str) -> tuple[float, bool]:
    for key in units:
        if key not in ("time", "size"):
            raise unknown_name(f"unit in {name}", key, ("time", "size"))
    time, size = str(units.get("time", "us")), str(units.get("size", "total"))
    if time not in _SECONDS:
        raise unknown_name(f"unit of time in {name}", time, _SECONDS)
    if size not in ("total", "per-rank"):
        raise unknown_name(f"unit of size in {name}", size, ("total", "per-rank"))
    return _SECONDS[time], size == "per-rank"


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def detect(_head: str) -> bool:
    """Say no: a CSV file is only read with a mapping."""
    return False


def read(source: Source, options: Options) -> Imported:
    """Return the rows of a CSV or TSV file, one table a launch, repetition and place.

    Raises:
        UsageError: no mapping, a column that is not there, something indispensable that nothing tells, or a row
            that cannot be read (unless skipped).
    """
    mapping = options.mapping
    if mapping is None:
        raise UsageError(f"{source.name}: a CSV or TSV file needs --mapping map.toml that names its columns")
    imported = Imported(source.name, "csv")
    rows = _rows(source)
    header = next(rows, None)
    if header is None:
        return imported
    names = [clean_cell(cell) for cell in header[1]]
    _check(mapping, names, options, source.name)
    tables: dict[tuple[Group, int], Table] = {}
    seen: dict[tuple[Any, ...], int] = {}
    take = _Taker(mapping, names, options)
    for number, cells in rows:
        if len(cells) < 2 or not any(cells):
            continue
        imported.go_on(skip=options.skip_bad_rows)
        if len(cells) < len(names):
            imported.short(number, ",".join(cells)[:300], f"it has {len(cells)} cells, not {len(names)}")
            continue
        try:
            taken = take(cells)
        except ValueError as error:
            imported.reject(number, ",".join(cells)[:300], str(error), skip=options.skip_bad_rows)
            continue
        if taken is not None:
            _place(tables, seen, *taken, source.name, number)
    imported.end()
    imported.tables = [t for t in tables.values() if t.ranks > 1]
    if len(imported.tables) < len(tables):
        imported.remarks.append("rows of a single rank measure no communication and were left out")
    return imported


def _rows(source: Source) -> Iterator[tuple[int, list[str]]]:
    lines = source.lines(cleaned=False)
    numbered = enumerate(lines)
    before, first = next(((n, t) for n, t in numbered if t.strip() and not t.startswith("#")), (0, ""))
    if not first:
        return
    delimiter = max(",\t;|", key=first.count)
    reader = csv.reader(_chain(first, lines), delimiter=delimiter)
    try:
        for cells in reader:
            yield before + reader.line_num, cells
    except csv.Error as error:
        raise UsageError(f"{source.name}: line {before + reader.line_num} is no CSV ({error})") from None


def _chain(first: str, rest: Iterator[str]) -> Iterator[str]:
    yield first
    yield from rest


def clean_cell(cell: str) -> str:
    """Return the cell without blanks and without the remains of Windows line ends (also as the two letters ``^M``)."""
    return cell.strip().removesuffix("^M").strip().lstrip("\ufeff")


def _check(mapping: ColumnMap, names: Sequence[str], options: Options, file: str) -> None:
    for column in (*mapping.columns.values(), *mapping.where):
        if column not in names:
            shown = ", ".join(printable(n, 30) for n in names[:25])
            raise UsageError(f"{file} has no column {column!r}: it has {shown}")
    told = {**mapping.columns, **mapping.constants}
    given = {"collective": options.collective, "ranks": options.ranks}
    for name, option in _INDISPENSABLE.items():
        if name not in told and given.get(name) is None:
            also = f", or {option}" if option else ""
            raise UsageError(
                f"{file}: the mapping does not say {name}: add it to [columns] or [constants]{also}"
            )


class _Taker:
    """Turns the cells of a line into (group, row); None where ``where`` leaves the line out."""

    def __init__(self, mapping: ColumnMap, names: Sequence[str], options: Options) -> None:
        self.mapping = mapping
        self.options = options
        self.width = len(names)
        self.places = {f: names.index(c) for f, c in mapping.columns.items()}
        self.where = [(names.index(c), v) for c, v in mapping.where.items()]
        self.constants = dict(mapping.constants)
        for name in ("collective", "ranks", "ranks_per_node"):
            value = getattr(options, name)
            if value is not None and name not in mapping.columns:
                self.constants.setdefault(name, str(value))
        if options.library and "provider" not in mapping.columns:
            self.constants.setdefault("provider", hints.provider_named(options.library))

    def __call__(self, cells: Sequence[str]) -> tuple[Group, Row] | None:
        """Return the group (launch) and the row; raises ValueError with the reason when there is none."""
        if len(cells) != self.width:
            raise ValueError(f"it has {len(cells)} cells, not {self.width}")
        if any(clean_cell(cells[at]) not in values for at, values in self.where):
            return None
        found = dict(self.constants)
        for name, at in self.places.items():
            cell = clean_cell(cells[at])
            if cell and cell.lower() not in ("null", "none", "nan", "n/a", "na"):
                found[name] = cell
            elif name in self.constants and name != "time":
                continue
        for name, words in self.mapping.values.items():
            if name in found:
                found[name] = words.get(found[name], found[name])
        return self.finish(Fields(found))

    def finish(self, fields: Fields) -> tuple[Group, Row]:
        group, row = convert(fields)
        time = fields.text("time")
        if time is None:
            return group, row._replace(reason="no time", detail="the column of times is empty here")
        seconds = fields.number("time") * self.mapping.second
        if not 0 < seconds < MAX_TIME_S:
            raise ValueError(f"the time {time!r} is not positive, or longer than any call")
        if self.mapping.per_rank and COLLECTIVES[row.collective].per_rank:
            row = row._replace(nbytes=row.nbytes * group.ranks)
        if row.nbytes == 0 and COLLECTIVES[row.collective].sized:
            return group, row._replace(reason="zero size", detail="no data was sent")
        return group, row._replace(time_s=seconds)


def _place(
    tables: dict[tuple[Group, int], Table], seen: dict[tuple[Any, ...], int], group: Group, row: Row,
    file: str, line: int,
) -> None:  # fmt: skip
    """Put the row into the launch it belongs to: a repeated row of one cell is another repetition."""
    case = (group, row.collective, row.nbytes, row.dtype, row.op, row.in_place, row.algorithm, row.component,
            row.params, row.memory)  # fmt: skip
    repetition = seen[case] = seen.get(case, -1) + 1
    table = tables.get((group, repetition))
    if table is None:
        table = tables[group, repetition] = group.table(file, line)
    table.rows.append(row)


FORMAT = Importer("csv", "any CSV or TSV file, with --mapping", detect, read)
