"""Reading run files: from JSON lines to a table, one row a cell and launch."""

import gc
import json
import os
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from collbench.errors import UnansweredError, UsageError
from collbench.records import NO_ROTATION
from collbench.repeats import outdone
from collbench.runfile import CHUNK, parse_lines

RESULTS_DIR = Path("results")

CASE_COLUMNS = (
    "collective", "ranks", "ranks_per_node", "nbytes", "dtype", "op", "in_place", "memory", "groups",
    "provider", "algorithm", "component", "params",
)  # fmt: skip
CELL_COLUMNS = CASE_COLUMNS[:9]
"""The columns that make a cell; ``CASE_COLUMNS`` adds who runs in it. ``params`` is canonical JSON text."""

METHOD_COLUMNS = ("rank_reduction", "sync", "rotation", "thread_level", "timer")

COLUMNS = (
    "run", "launch", *CASE_COLUMNS, "nodes", "effective", "evidence_status", "evidence_by",
    "rank_reduction", "sync", "rotation", "timer", "thread_level", "library", "library_version",
    "time_s", "iterations", "blocks_s", "percentiles_s", "warnings", "oversubscribed", "emulated", "state", "source",
)  # fmt: skip

_NO_LIST: list[Any] = []
_NO_DICT: dict[str, Any] = {}
"""One empty object of each kind for all rows of a frame, which nobody changes: one a row costs more than its times."""


@dataclass(frozen=True)
class Run:
    """One run file in memory.

    Attributes:
        path: where it was read from.
        header: the ``run`` line.
        launches: launch number → its ``launch`` line (with ``probe_after`` from ``launch_end`` if there was one).
        cells: the ``cell`` lines, in order.
        failed: the ``failed`` lines.
        skipped: the ``skipped`` lines.
        proofs: the ``proof`` lines.
        remarks: what could not be read.
        replaced: ``cell`` lines of disturbed launches that a repeat replaces (``repeats.outdone``); not in ``cells``.
    """

    path: Path
    header: Mapping[str, Any]
    launches: Mapping[int, Mapping[str, Any]]
    cells: Sequence[Mapping[str, Any]]
    failed: Sequence[Mapping[str, Any]]
    skipped: Sequence[Mapping[str, Any]]
    proofs: Sequence[Mapping[str, Any]] = ()
    remarks: Sequence[str] = field(default_factory=tuple)
    replaced: Sequence[Mapping[str, Any]] = ()

    @property
    def name(self) -> str:
        """The run's name: the file name without its extension."""
        return self.path.name.removesuffix(".jsonl")

    def without(self, numbers: Collection[int]) -> "Run":
        """Return the run without some launches, their cells and their failed cells."""
        return replace(
            self,
            launches={n: x for n, x in self.launches.items() if n not in numbers},
            cells=[c for c in self.cells if c["launch"] not in numbers],
            failed=[c for c in self.failed if c.get("launch") not in numbers],
        )

    def only(self, ranks: Collection[int] | None = None, collectives: Collection[str] | None = None) -> "Run":
        """Return the run with the cells and failed cells of these rank counts and collectives; None = of all."""
        if ranks is None and collectives is None:
            return self

        def wanted(lines: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
            return [
                line
                for line in lines
                if (ranks is None or line["case"]["ranks"] in ranks)
                and (collectives is None or line["case"]["collective"] in collectives)
            ]

        return replace(
            self, cells=wanted(self.cells), failed=wanted(self.failed), replaced=wanted(self.replaced)
        )


def find(reference: str | None = None, folder: Path | None = None) -> Path:
    """Return the path of a run given as a path, a name, ``last``, ``last~2`` or None (the newest).

    Raises:
        UsageError: no such run; the message lists the nearest.
        UnansweredError: there is no run at all yet.
    """
    folder = folder or Path(os.environ.get("COLLBENCH_RESULTS", str(RESULTS_DIR)))
    text = reference or "last"
    if text == "last" or text.startswith("last~"):
        return _nth_newest(text, folder)
    for candidate in (Path(text), folder / text, folder / f"{text}.jsonl"):
        if candidate.is_file():
            return candidate
    known = ", ".join(p.stem for p in _newest_first(folder)[:5]) or f"none in {folder}/"
    raise UsageError(f"no run {text!r}: give a path, or one of the newest: {known}")


def new_path(name: str) -> Path:
    """Return where a new run called ``name`` goes: the results folder, date and time in the name, never an old file."""
    folder = Path(os.environ.get("COLLBENCH_RESULTS", str(RESULTS_DIR)))
    stem = f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    path, number = folder / f"{stem}.jsonl", 1
    while path.exists():
        number += 1
        path = folder / f"{stem}-{number}.jsonl"
    return path


def _newest_first(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.jsonl"), key=lambda p: (p.stat().st_mtime_ns, p.name), reverse=True)


def _nth_newest(text: str, folder: Path) -> Path:
    back = text.removeprefix("last").removeprefix("~") or "0"
    if not back.isdigit():
        raise UsageError(f"{text!r} is not a run: write last or last~1")
    runs = _newest_first(folder)
    if not runs:
        raise UnansweredError(f"there is no run in {folder}/ yet: measure with 'collbench run'")
    if int(back) >= len(runs):
        raise UsageError(f"{text!r} goes back further than the {len(runs)} run(s) in {folder}/")
    return runs[int(back)]


@contextmanager
def _no_collection() -> Iterator[None]:
    """Build many small objects without the garbage collector, which would walk through all of them again and again."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


_REPEATED = ("kind", "rank_reduction", "sync", "timer")
_REPEATED_IN_CASE = ("collective", "dtype", "op", "memory", "provider", "algorithm")


def _share_words(line: dict[str, Any]) -> None:
    """Let equal words of all lines be one object: a long run repeats a dozen of them in each cell."""
    for part, keys in ((line, _REPEATED), (line.get("case"), _REPEATED_IN_CASE)):
        if isinstance(part, dict):
            for key in keys:
                value = part.get(key)
                if type(value) is str:
                    part[key] = sys.intern(value)


def read(path: Path) -> Run:
    """Read one run file.

    Raises:
        UsageError: not a run file, unreadable, or of a newer schema.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    with _no_collection():
        lines, remarks = parse_lines(data, path)
    launches: dict[int, dict[str, Any]] = {}
    kinds: dict[str, list[dict[str, Any]]] = {"cell": [], "failed": [], "skipped": [], "proof": []}
    for line in lines:
        kind = line["kind"]
        if kind == "launch":
            launches[int(line["launch"])] = line
        elif kind == "launch_end":
            launches.setdefault(int(line["launch"]), {})["probe_after"] = line.get("probe")
        elif kind in kinds:
            _share_words(line)
            kinds[kind].append(line)
    left_out = outdone(launches, kinds["cell"])
    return Run(
        path,
        lines[0],
        launches,
        [cell for cell, out in zip(kinds["cell"], left_out, strict=True) if not out],
        kinds["failed"],
        kinds["skipped"],
        kinds["proof"],
        tuple(remarks),
        [cell for cell, out in zip(kinds["cell"], left_out, strict=True) if out],
    )


def frame(runs: Run | Iterable[Run], *, replaced: bool = False) -> pd.DataFrame:
    """Return one row per ``cell`` line with the columns ``COLUMNS``; failed and skipped cells are not in it.

    Missing facts are None. ``params`` is JSON text with sorted keys, so that rows can be grouped.

    Args:
        runs: one or more.
        replaced: keep the rows of disturbed launches beside those of the repeats that replace them (after all others).
    """
    each = [runs] if isinstance(runs, Run) else list(runs)
    if replaced:
        each = [replace(run, cells=[*run.cells, *run.replaced]) for run in each]
    rows = (_row(run, name, cell) for run, name in ((r, r.name) for r in each) for cell in run.cells)
    columns = [np.empty(sum(len(run.cells) for run in each), object) for _ in COLUMNS]
    start = 0
    with _no_collection():
        while chunk := list(islice(rows, CHUNK)):
            for column, values in zip(columns, zip(*chunk, strict=True), strict=True):
                column[start : start + len(chunk)] = np.fromiter(values, object, len(chunk))
            start += len(chunk)
        columns.reverse()
        # Each column gives way to its typed form: tuples of all rows beside their table would double the memory.
        return pd.DataFrame({name: pd.Series(columns.pop()).infer_objects() for name in COLUMNS}, copy=False)


def _row(run: Run, name: str, cell: Mapping[str, Any]) -> tuple[Any, ...]:
    case, launch = cell["case"], run.launches.get(cell["launch"], {})
    library = launch.get("library") or {}
    evidence = cell.get("evidence") or {}
    probe = launch.get("probe") or {}
    params = case.get("params")
    return (
        name, cell["launch"],
        case["collective"], case["ranks"], case.get("ranks_per_node"), case["nbytes"],
        case.get("dtype") or "float32", case.get("op"), bool(case.get("in_place")), case.get("memory") or "host",
        case.get("groups", 1), case["provider"], case["algorithm"], case.get("component"),
        json.dumps(params, sort_keys=True) if params else "{}",
        launch.get("nodes"), cell.get("effective"), evidence.get("status", "unknown"), evidence.get("by"),
        cell.get("rank_reduction"), cell.get("sync"), cell.get("rotation") or NO_ROTATION, cell.get("timer"),
        launch.get("thread_level"), library.get("name"), library.get("version"), cell["time_s"], cell.get("iterations"),
        cell.get("blocks_s") or _NO_LIST, cell.get("percentiles_s") or _NO_DICT, cell.get("warnings") or _NO_LIST,
        bool(launch.get("oversubscribed", False)), bool(launch.get("emulated", False)),
        probe.get("state"), run.header.get("source", "collbench"),
    )  # fmt: skip
