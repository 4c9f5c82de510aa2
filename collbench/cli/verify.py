"""``collbench verify``: prove a table on the live library."""

import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import rich.box
from rich.console import Console
from rich.table import Table

from collbench import __version__, algorithms, evidence, installation, results, runner, units, verify
from collbench.cli import options as opt
from collbench.errors import AnswerIsNoError, UnansweredError
from collbench.evidence import Evidence
from collbench.installation import Installation
from collbench.mpi import probe
from collbench.plan import Plan
from collbench.records import Case, Cell
from collbench.reports.progress import PlainProgress
from collbench.request import RunOptions
from collbench.runfile import RunWriter
from collbench.tables import reading
from collbench.tables.reading import LoadedTable
from collbench.verify import Speedup

Wanted = list[tuple[Cell, str | None]]


@click.command()
@click.argument("table", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--ranks", type=opt.RANKS, help="Rank counts (default: the table's, up to twice the cores).")
@click.option("--sizes", type=opt.SIZES, help="Total bytes (default: one inside each stretch of the table).")
@click.option("--collectives", type=opt.COLLECTIVES, help="Only these.")
@click.option(
    "--launches",
    type=click.IntRange(min=3),
    default=verify.LAUNCHES,
    show_default=True,
    help="Launches of each side.",
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Keep the measurements in this run file."
)
@click.option("--mpi", metavar="PATH", help="An mpiexec, a prefix, or a virtual environment of another MPI.")
@click.option(
    "--thread-level",
    type=click.Choice(["single", "funneled", "serialized", "multiple"]),
    default="single",
    show_default=True,
    help="As the table was measured.",
)
@opt.json_option
def command(
    table: Path,
    ranks: tuple[int, ...] | None,
    sizes: tuple[int, ...] | None,
    collectives: tuple[str, ...] | None,
    launches: int,
    output: Path | None,
    mpi: str | None,
    thread_level: str,
    as_json: bool,
) -> None:
    """Prove TABLE on the live library: with it against the untouched stack, interleaved, on fresh samples.

    Exit status: 0 loaded and nowhere proven slower, 1 proven slower, 3 ignored, or nothing tells, or too noisy to say.
    """
    found = installation.discover(mpi)
    loaded = reading.load(table, found)
    if all(s.algorithm == "default" for s in loaded.stretches):
        if as_json:
            click.echo(json.dumps(_to_json(loaded, Evidence.UNKNOWN, [], []), ensure_ascii=False))
        raise UnansweredError(f"{table} leaves every size to the library: there is nothing to prove")
    most = 2 * len(os.sched_getaffinity(0))
    wanted = verify.cells(loaded, ranks=ranks, sizes=sizes, collectives=collectives, most_ranks=most)
    words = Console(stderr=as_json)
    with tempfile.TemporaryDirectory(prefix="collbench-verify-") as folder:
        path = output or Path(folder) / "verify.jsonl"
        session = Session(
            found, loaded, path, RunOptions(mpi=mpi, thread_level=thread_level), Console(stderr=True)
        )
        shown = session.prove(wanted)
        speedups = session.measure(wanted, launches)
        speedups, confirmed = session.confirm(speedups, launches)
    if as_json:
        click.echo(json.dumps(_to_json(loaded, shown, speedups, confirmed), ensure_ascii=False))
    _show(words, loaded, speedups, shown, found.library)
    _conclude(loaded, shown, found.library, speedups, confirmed, output)


class Session:
    """The launches of one verification, all in one run file.

    Args:
        found: the MPI.
        table: what to prove.
        path: the run file.
        options: of the launches.
        console: for progress.
    """

    def __init__(
        self, found: Installation, table: LoadedTable, path: Path, options: RunOptions, console: Console
    ) -> None:
        self.found, self.table, self.path, self.options, self.console = found, table, path, options, console
        self._next = 0
        with RunWriter(path, create=True) as writer:
            writer.write({"kind": "run", "schema": 1, "tool": f"collbench {__version__}", "profile": "verify",
                          "seed": options.seed, "argv": ["collbench", "verify"], "label": str(table.path.name)})  # fmt: skip

    def _run(self, plan: Plan, sync: str = "barrier") -> int:
        """Run a plan and return the number of its first launch."""
        first = self._next
        options = replace(self.options, sync=sync)
        total = sum(len(x.cases) for x in plan.measuring)
        with PlainProgress(total, self.console, quiet=True) as progress:
            work = runner.Runner(plan, options, self.found, self.path, progress, first_launch=first,
                                 probe=probe.probe)  # fmt: skip
            outcome = work.run()
        self._next += outcome.launches
        return first

    def prove(self, wanted: Wanted) -> Evidence:
        """Return what shows that the library uses the table."""
        before = self._run(verify.proof_plan(wanted, self.found, {}))
        old = evidence.effective(results.read(self.path), before)
        after = self._run(verify.proof_plan(wanted, self.found, self.table.environment))
        run = results.read(self.path)
        acts = evidence.loaded(wanted, old, evidence.effective(run, after))
        started = any(number >= after and "library" in line for number, line in run.launches.items())
        return evidence.judge(acts, self.found.library, started=started)

    def measure(self, wanted: Wanted, launches: int, first: int = 0, suspects: int = 1) -> list[Speedup]:
        """Return the speed-ups on interleaved launches from repetition ``first`` on."""
        sides_plan = verify.measure_plan(wanted, self.found, self.table.environment, launches, first=first)
        self._run(sides_plan, verify.synchronisation(self.table))
        rivals = {cell: own for cell, _ in wanted if (own := self._rivals(cell))}
        if rivals:
            self._run(verify.rivals_plan(rivals, self.found, first))
        run = results.read(self.path)
        sides = {n: str(x.get("variant")) for n, x in run.launches.items() if x.get("variant")}
        pairs = {n: int(x["repetition"]) for n, x in run.launches.items() if x.get("purpose") == "measure"}
        return verify.judge(results.frame(run), sides, wanted, pairs, first, suspects=suspects)

    def _rivals(self, cell: Cell) -> Sequence[Case]:
        if self.found.library not in ("openmpi", "mpich"):
            return ()
        rows = algorithms.algorithms(self.found.library, cell.collective, self.found.version)
        return [
            Case(cell, self.found.library, r.name, r.component, r.params)
            for r in rows
            if not r.impossible(cell)
        ]

    def confirm(self, found: list[Speedup], launches: int) -> tuple[list[Speedup], list[Speedup]]:
        """Measure suspects again on fresh launches and judge them on those alone; return (all, proven slower)."""
        suspects = [s for s in found if s.slower]
        if not suspects:
            return found, []
        cells = [(s.cell, s.algorithm) for s in suspects]
        again = self.measure(cells, launches + 2, first=launches, suspects=len(cells))
        fresh = {s.cell: s for s in again}
        merged = [fresh.get(s.cell, s) for s in found]
        return merged, [s for s in again if s.slower]


def _show(
    words: Console, table: LoadedTable, found: Sequence[Speedup], shown: Evidence, library: str
) -> None:
    why = f": {evidence.READS_STRICTLY[library]}" if shown is Evidence.READ else ""
    words.print(f"{table.path} ({table.format}): {shown}{why}", markup=False)
    grid = Table(
        "collective",
        "ranks",
        "size",
        "table says",
        "speed-up",
        "95 % interval",
        "regret",
        box=rich.box.SIMPLE,
    )
    for s in found:
        regret = "–" if s.regret is None else f"{100 * s.regret:+.0f} %"
        grid.add_row(s.cell.collective, str(s.cell.ranks), units.format_bytes(s.cell.nbytes), s.algorithm or "?",
                     f"{s.ratio:.2f}×", f"{s.low:.2f} … {s.high:.2f}", regret)  # fmt: skip
    # At 80 columns names and intervals stay whole; a long algorithm takes a second line.
    grid.padding, grid.pad_edge = (0, 1, 0, 0), False
    for number, column in enumerate(grid.columns):
        column.no_wrap, column.overflow = (False, "fold") if number == 3 else (True, column.overflow)
    words.print(grid)
    if found:
        mean, low, high = verify.overall(found)
        worst = min(found, key=lambda s: s.ratio)
        words.print(
            f"overall {mean:.2f}× ({low:.2f} … {high:.2f}) over {len(found)} cells; worst {worst.ratio:.2f}× at "
            f"{worst.cell.collective}, {worst.cell.ranks} ranks, {units.format_bytes(worst.cell.nbytes)}"
        )


def _conclude(
    table: LoadedTable,
    shown: Evidence,
    library: str,
    found: Sequence[Speedup],
    slower: Sequence[Speedup],
    kept: Path | None,
) -> None:
    if shown is Evidence.IGNORED:
        raise UnansweredError(
            f"{table.path} is ignored: the library still runs its own choices; check that its version matches the table"
        )
    if slower:
        worst = min(slower, key=lambda s: s.ratio)
        rule = worst.algorithm or "cannot be told from the file"
        raise AnswerIsNoError(
            f"{table.path} is slower for {worst.cell.collective} at {worst.cell.ranks} ranks, "
            f"{units.format_bytes(worst.cell.nbytes)} (rule: {rule}): {worst.ratio:.2f}× "
            f"({worst.low:.2f} … {worst.high:.2f}) on fresh launches; to decide again with these samples, "
            + (
                f"run 'collbench recommend RUN {kept}'"
                if kept
                else "keep them with -o and give them to recommend"
            )
        )
    if shown is Evidence.UNKNOWN:
        raise UnansweredError(
            f"nothing tells whether {table.path} is loaded: {library} starts with any table, and in no cell "
            "a proof tells what runs with it from what runs without; choose other --sizes, --ranks or --collectives"
        )
    if not found or sum(s.says_nothing for s in found) * 2 > len(found):
        raise UnansweredError(
            "too noisy to say: more than half of the cells cannot exclude ±25 %; use more --launches"
        )


def _to_json(
    table: LoadedTable, shown: Evidence, found: Sequence[Speedup], slower: Sequence[Speedup]
) -> dict[str, Any]:
    mean = verify.overall(found) if found else None
    return {
        "table": str(table.path),
        "format": table.format,
        "loaded": shown.loaded,
        "evidence": shown.name.lower(),
        "overall": None if mean is None else dict(zip(("speedup", "low", "high"), mean, strict=True)),
        "cells": [s.to_json() for s in found],
        "slower": [s.to_json() for s in slower],
    }
