"""``collbench import``: logs of other tools, or any CSV, become a run file."""

import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from collbench import collectives, importers, results
from collbench.cli.options import WORDS, json_option
from collbench.errors import CollbenchError, UnansweredError, UsageError
from collbench.importers import mapping as column_map
from collbench.importers import plausibility, writer
from collbench.importers.model import Imported, Options, printable
from collbench.importers.source import Source, find_files

SHOWN = 20
"""So many remarks, rows and warnings of one kind are printed; all are in the JSON and in the run file."""


@click.command("import")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path))
@click.option("-o", "--output", metavar="NAME", help="Run to write: a name under results/, or a path.")
@click.option("--format", "form", metavar="FORMAT", help="Force the format instead of finding it by content.")
@click.option(
    "--mapping", type=click.Path(path_type=Path), help="TOML table that names a CSV file's columns."
)
@click.option("--collective", help="Collective, where the log names none.")
@click.option("--ranks", type=click.IntRange(2), help="Number of ranks, where the log does not say.")
@click.option("--ranks-per-node", type=click.IntRange(1), help="Ranks on a node, where the log does not say.")
@click.option("--library", help="MPI (or collective) library, for example openmpi, mpich, intelmpi.")
@click.option(
    "--skip-bad-rows", is_flag=True, help="Count and list rows that cannot be read, instead of stopping."
)
@click.option(
    "--as-default", type=WORDS, default=(), help="Algorithm labels that are mere requests: nvls,pat,…"
)
@json_option
def command(
    files: tuple[Path, ...], output: str | None, form: str | None, mapping: Path | None, collective: str | None,
    ranks: int | None, ranks_per_node: int | None, library: str | None, skip_bad_rows: bool,
    as_default: tuple[str, ...], as_json: bool,
) -> None:  # fmt: skip
    """Import nccl-tests, rccl-tests, OSU, IMB logs, or any CSV, into one run file.

    FILE may be a file, a folder (recursively), a gzip file, or - for standard input. Exit status 0 as soon as one
    row was kept; what was left out and why is listed.
    """
    options = Options(
        collective=collectives.collective(collective).name if collective else None,
        ranks=ranks,
        ranks_per_node=ranks_per_node,
        library=library,
        skip_bad_rows=skip_bad_rows,
        mapping=column_map.load(mapping) if mapping else None,
        as_default=as_default,
    )
    words = Console(stderr=True, highlight=False)
    path = run_path(output, files)
    imported, refused = read_all(find_files(list(files)), options, form, words)
    doubts = plausibility.check([table for one in imported for table in one.tables])
    if imported:
        writer.write(path, imported, argv=["collbench", *sys.argv[1:]], as_default=as_default)
    report(words, imported, refused, doubts, alone=len(imported) + len(refused) == 1)
    if as_json:
        click.echo(
            json.dumps(to_json(path if imported else None, imported, refused, doubts), ensure_ascii=False)
        )
    conclude(path, imported, refused, words)


def run_path(output: str | None, files: tuple[Path, ...]) -> Path:
    """Return the run file to write; a bare name lies in the results folder.

    Raises:
        UsageError: it exists.
    """
    folder = Path(os.environ.get("COLLBENCH_RESULTS", str(results.RESULTS_DIR)))
    if output is None:
        stem = files[0].resolve().name.split(".")[0] if str(files[0]) != "-" else "imported"
        path = folder / f"{re.sub(r'[^A-Za-z0-9_-]+', '-', stem).strip('-') or 'imported'}.jsonl"
    elif "/" in output or output.endswith(".jsonl"):
        path = Path(output)
    else:
        path = folder / f"{output}.jsonl"
    if path.exists():
        raise UsageError(f"{path} exists and is never overwritten: choose another name with -o NAME")
    return path


def read_all(
    paths: list[Path], options: Options, form: str | None, words: Console
) -> tuple[list[Imported], list[tuple[str, CollbenchError]]]:
    """Return what every file holds, and the files that were refused, with the reason."""
    imported, refused = [], []
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), console=words, transient=True,
        disable=len(paths) < 2 or not words.is_terminal,
    )  # fmt: skip
    with bar:
        task = bar.add_task("importing", total=len(paths))
        for path in paths:
            bar.update(task, description=printable(path.name, 40))
            try:
                with opened(path) as handle:
                    imported.append(importers.read(Source(handle, shown(path)), options, form))
            except CollbenchError as error:
                refused.append((shown(path), error))
            bar.advance(task)
    return imported, refused


def shown(path: Path) -> str:
    """Return the name of a file in messages."""
    return "standard input" if str(path) == "-" else printable(str(path))


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a file, or standard input for ``-``; raises UsageError when it cannot be read."""
    if str(path) == "-":
        yield sys.stdin.buffer
        return
    try:
        with path.open("rb") as handle:
            yield handle
    except OSError as error:
        raise UsageError(f"cannot read {printable(str(path))}: {error.strerror}") from None


def report(
    words: Console,
    imported: list[Imported],
    refused: list[tuple[str, CollbenchError]],
    doubts: list[str],
    *,
    alone: bool,
) -> None:
    """Print a verdict for each file (a single file's refusal is the command's error), then doubts and unknown names."""
    for one in imported:
        tail = f", {len(one.bad)} rows unreadable" if one.bad else ""
        launches = f"{len(one.tables)} launch" + ("es" if len(one.tables) != 1 else "")
        say(words, f"{one.file}: {one.format}, {one.cells} cells, {one.failed} failed, {launches}{tail}")
        listed(words, [f"  {remark}" for remark in one.remarks])
        listed(words, [f"  line {row.line}: {row.reason}: {row.text!r}" for row in one.bad])
    for name, error in () if alone else refused:
        say(words, f"{name}: refused: {str(error).removeprefix(f'{name}: ')}")
    listed(words, [f"suspicious: {doubt}" for doubt in doubts])
    unknown = writer.unknown_algorithms([table for one in imported for table in one.tables])
    if unknown:
        say(words, f"warning: algorithm names that collbench does not know were kept: {', '.join(unknown)}")


def listed(words: Console, lines: list[str]) -> None:
    """Print the first lines and how many more there are."""
    for line in lines[:SHOWN]:
        say(words, line)
    if len(lines) > SHOWN:
        say(words, f"  … and {len(lines) - SHOWN} more")


def say(words: Console, line: str) -> None:
    """Print one line as it is."""
    words.print(line, markup=False, soft_wrap=True)


def to_json(
    path: Path | None, imported: list[Imported], refused: list[tuple[str, CollbenchError]], doubts: list[str]
) -> dict[str, object]:
    """Return the machine form of the report."""
    return {
        "run": None if path is None else str(path),
        "files": [
            {
                "file": one.file, "format": one.format, "cells": one.cells, "failed": one.failed,
                "launches": len(one.tables), "remarks": one.remarks,
                "bad_rows": [{"line": r.line, "reason": r.reason, "text": r.text} for r in one.bad],
            }
            for one in imported
        ],
        "refused": [{"file": name, "reason": str(error)} for name, error in refused],
        "doubts": doubts,
    }  # fmt: skip


def conclude(
    path: Path, imported: list[Imported], refused: list[tuple[str, CollbenchError]], words: Console
) -> None:
    """Say where the run is; raise when no row was kept.

    Raises:
        UsageError, UnansweredError: nothing was imported; the only file's own reason, or a summary.
    """
    cells = sum(one.cells for one in imported)
    failed = sum(one.failed for one in imported)
    if imported:
        say(words, f"wrote {path}: {cells} cells, {failed} failed, {len(refused)} files refused")
        say(words, "imported rows have no samples: no intervals, and no confidence beyond repeated launches")
    if cells:
        return
    if len(refused) == 1 and not imported:
        raise refused[0][1]
    what = f"none of {len(imported) + len(refused)} files holds a row with a time"
    if any(isinstance(error, UsageError) for _, error in refused):
        raise UsageError(f"{what}: the reasons stand above")
    raise UnansweredError(f"{what}: the reasons stand above")
