"""collbench's own CSV and Parquet export, read back."""

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from collbench.collectives import COLLECTIVES
from collbench.errors import UsageError
from collbench.importers import Importer
from collbench.importers.hints import MAX_RANKS
from collbench.importers.model import MAX_TIME_S, Imported, Options, Row, Table
from collbench.importers.source import MAX_LINE, Source
from collbench.records import ITEMSIZE, NO_ROTATION, Evidence

_NEEDED = ("collective", "ranks", "nbytes", "provider", "algorithm", "time_s")
_MAGIC = b"PAR1"


def detect(head: str) -> bool:
    """Say whether the first line names the columns of an export."""
    first = head.lstrip("\ufeff\r\n").partition("\n")[0]
    return len(first) < 10_000 and set(_NEEDED) <= {cell.strip().strip('"') for cell in first.split(",")}


def read(source: Source, options: Options) -> Imported:
    """Return the exported rows, one table for each run and launch in it.

    Raises:
        UsageError: columns are missing, or a row cannot be read (unless skipped).
    """
    imported = Imported(source.name, "collbench-export")
    tables: dict[tuple[Any, ...], Table] = {}
    rows = _parquet(source) if source.peek().startswith(_MAGIC) else _csv(source)
    for number, found in rows:
        try:
            row = _row(found)
            ranks = _ranks(found)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            text = ",".join(str(v) for v in list(found.values())[:12])
            imported.reject(number, text, str(error)[:120], skip=options.skip_bad_rows)
            continue
        launch = (found.get("run"), found.get("launch"), ranks, found.get("provider"), found.get("sync"))
        if launch not in tables:
            tables[launch] = _table(found, ranks, source.name, number)
        tables[launch].rows.append(row)
    imported.tables = list(tables.values())
    return imported


def _csv(source: Source) -> Iterator[tuple[int, Mapping[str, Any]]]:
    csv.field_size_limit(MAX_LINE)
    reader = csv.DictReader(source.lines(cleaned=False))
    try:
        if not set(_NEEDED) <= set(reader.fieldnames or ()):
            raise UsageError(
                f"{source.name} lacks columns of a collbench export: {', '.join(_NEEDED)} are needed"
            )
        for found in reader:
            yield reader.line_num, {k: v for k, v in found.items() if k is not None and v not in ("", None)}
    except csv.Error as error:
        raise UsageError(f"{source.name}: line {reader.line_num} is no CSV ({error})") from None


def _parquet(source: Source) -> Iterator[tuple[int, Mapping[str, Any]]]:
    try:
        from pyarrow import ArrowException, parquet  # noqa: PLC0415 - an extra
    except ImportError:
        raise UsageError(
            f"{source.name} is Parquet: install it with  pip install 'collbench[parquet]'"
        ) from None
    try:
        file = parquet.ParquetFile(io.BytesIO(source.whole()))
        if not set(_NEEDED) <= set(file.schema_arrow.names):
            raise UsageError(
                f"{source.name} lacks columns of a collbench export: {', '.join(_NEEDED)} are needed"
            )
        number = 0
        for batch in file.iter_batches(batch_size=16384):
            for found in batch.to_pylist():
                number += 1
                yield number, {k: v for k, v in found.items() if v is not None}
    except (ArrowException, OSError, ValueError) as error:
        raise UsageError(f"{source.name} is not a readable Parquet file: {str(error)[:100]}") from None


def _structured(found: Mapping[str, Any], name: str, kind: type) -> Any:
    """Return a list or object that the export holds as JSON text or as such; empty where there is none."""
    value = found.get(name)
    if isinstance(value, str):
        value = json.loads(value)
    if name == "percentiles_s" and isinstance(value, list):
        value = dict(value)
    return value if isinstance(value, kind) else kind()


def _whole(found: Mapping[str, Any], name: str, *, required: bool = False) -> int:
    value = found.get(name)
    if value is None and not required:
        return 0
    number = float(value) if value is not None else math.nan
    if not math.isfinite(number) or number != int(number) or number < 0:
        raise ValueError(f"{name} {value!r} is no whole number")
    return int(number)


def _ranks(found: Mapping[str, Any]) -> int:
    ranks = _whole(found, "ranks", required=True)
    if not 1 < ranks <= MAX_RANKS:
        raise ValueError(f"{ranks} ranks measure no communication")
    return ranks


def _truth(value: Any) -> bool:
    return str(value).lower() in ("true", "1")


def _row(found: Mapping[str, Any]) -> Row:
    name, dtype = str(found["collective"]), str(found.get("dtype", "float32"))
    if name not in COLLECTIVES or dtype not in ITEMSIZE:
        raise ValueError(f"unknown collective or element type {name!r}, {dtype!r}")
    time_s = float(found["time_s"])
    if not 0 < time_s < MAX_TIME_S:
        raise ValueError("the time is not positive")
    params = {str(k): v for k, v in _structured(found, "params", dict).items() if isinstance(v, int | str)}
    effective = found.get("effective")
    by = found.get("evidence_by")
    evidence = Evidence(
        str(found.get("evidence_status", "unknown")), None if by is None else str(by),
        None if effective is None else str(effective),
    )  # fmt: skip
    blocks = [float(b) for b in _structured(found, "blocks_s", list)]
    component, op = found.get("component"), found.get("op")
    return Row(
        collective=name,
        nbytes=_whole(found, "nbytes", required=True),
        time_s=time_s,
        in_place=_truth(found.get("in_place", False)),
        dtype=dtype,
        op=None if op is None else str(op),
        algorithm=str(found["algorithm"]),
        component=None if component is None else str(component),
        params=tuple(sorted(params.items())),
        memory=str(found.get("memory", "host")),
        evidence=evidence,
        iterations=_whole(found, "iterations") or None,
        percentiles_s={str(k): float(v) for k, v in _structured(found, "percentiles_s", dict).items()},
        warnings=tuple(w for w in _structured(found, "warnings", list) if isinstance(w, dict)),
        extra={**({"blocks_s": blocks} if blocks else {}), **_rotation(found)},
    )


def _rotation(found: Mapping[str, Any]) -> dict[str, str]:
    rotation = str(found.get("rotation", NO_ROTATION))
    return {} if rotation == NO_ROTATION else {"rotation": rotation}


def _table(found: Mapping[str, Any], ranks: int, file: str, line: int) -> Table:
    name, version = str(found.get("library", found["provider"])), found.get("library_version")
    own = {key: _truth(found[key]) for key in ("oversubscribed", "emulated") if key in found}
    level = found.get("thread_level")
    label = " ".join(str(found[k]) for k in ("run", "launch") if k in found)
    return Table(
        tool="collbench-export", provider=str(found["provider"]), ranks=ranks, rows=[],
        rank_reduction=str(found.get("rank_reduction", "unknown")), sync=str(found.get("sync", "unknown")),
        timer=str(found.get("timer", "unknown")), file=file, line=line, nodes=_whole(found, "nodes") or None,
        ranks_per_node=_whole(found, "ranks_per_node") or None, groups=_whole(found, "groups") or 1,
        thread_level=None if level is None else str(level), label=label or None, own=own,
        library={"name": name, "version": None if version is None else str(version), "string": name},
    )  # fmt: skip


FORMAT = Importer("collbench-export", "collbench's own CSV and Parquet export", detect, read, _MAGIC)
