"""Importers of other tools' results: one file a format, found by content. An importer is one file and one row here."""

import functools
from collections.abc import Callable
from dataclasses import dataclass

from collbench.errors import UnansweredError, UsageError
from collbench.importers.model import Imported, Options
from collbench.importers.source import Source
from collbench.registry import Registry


@dataclass(frozen=True, slots=True)
class Importer:
    """One format.

    Attributes:
        name: as ``--format`` takes it.
        summary: one line for ``collbench list formats``.
        detect: beginning of a file as text → is it this format?
        read: file and options → what it holds.
        magic: first bytes of a binary format; empty for text.
    """

    name: str
    summary: str
    detect: Callable[[str], bool]
    read: Callable[[Source, Options], Imported]
    magic: bytes = b""


FORMATS = Registry(
    "log format",
    {
        "collbench-export": "collbench.importers.export_file:FORMAT",
        "nccl-tests-json": "collbench.importers.nccl_json:FORMAT",
        "rccl-tests": "collbench.importers.nccl_tests:RCCL",
        "nccl-tests": "collbench.importers.nccl_tests:FORMAT",
        "all-reduce-bench": "collbench.importers.all_reduce_bench:FORMAT",
        "pico-log": "collbench.importers.pico_log:FORMAT",
        "imb": "collbench.importers.imb:FORMAT",
        "osu": "collbench.importers.osu:FORMAT",
        "csv": "collbench.importers.mapping:FORMAT",
    },
)
"""Format name → its ``Importer``, in the order in which they are tried."""


def detect(source: Source) -> Importer:
    """Return the importer for a file, by its first megabyte.

    Raises:
        UsageError: no importer knows it; the message names ``--format`` and ``--mapping``.
    """
    data = source.peek()
    head = source.head()
    for importer in _all():
        if (importer.magic and data.startswith(importer.magic)) or importer.detect(head):
            return importer
    if "\0" in head:
        raise UsageError(
            f"{source.name} is a binary file, not a log: unpack it, or give the text it was made from"
        )
    if not data.strip():
        raise UnansweredError(f"{source.name} is empty")
    raise UsageError(
        f"{source.name} is in no format that collbench knows ({', '.join(FORMATS)}): "
        "force one with --format, or describe a CSV or TSV file with --mapping"
    )


@functools.cache
def _all() -> tuple[Importer, ...]:
    return tuple(FORMATS[name] for name in FORMATS)


def read(source: Source, options: Options, form: str | None = None) -> Imported:
    """Return what one file holds.

    Args:
        source: the file.
        options: what the user adds to what it says.
        form: name of a format; None = found by content (a mapping means CSV).

    Raises:
        UsageError: unknown or broken format, a row that cannot be read (unless skipped), or an indispensable
            fact that nothing tells.
        UnansweredError: nothing usable in it; the message says why.
    """
    importer = _choose(source, options, form)
    imported = importer.read(source, options)
    if source.truncated:
        imported.remarks.append("the compressed file is cut off; what is whole was read")
    if not imported.tables:
        why = "; ".join(imported.remarks) or "no row of results in it"
        if imported.bad:
            why += f"; {len(imported.bad)} rows could not be read"
        raise UnansweredError(f"{source.name}: nothing to import from this {importer.name} file: {why}")
    return imported


def _choose(source: Source, options: Options, form: str | None) -> Importer:
    if form is not None:
        chosen: Importer = FORMATS[form]
        return chosen
    if options.mapping is not None:
        mapped: Importer = FORMATS["csv"]
        return mapped
    return detect(source)
