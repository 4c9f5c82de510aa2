"""What a person sees while a run goes on: a live display on a terminal, plain lines elsewhere."""

import time
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from collbench.plan import Launch
from collbench.records import Case
from collbench.units import format_bytes, format_duration, format_time

Line = Mapping[str, Any]
PLAIN_EVERY_S = 5.0


class Tally:
    """Counts lines and keeps the best case of each cell seen so far."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.ended = 0
        self.failed = 0
        self.oversubscribed = False
        self.best = ""
        self._fastest: dict[Any, tuple[float, str, float | None]] = {}

    def begin(self, launch: Launch) -> str:
        """Return what the launch does in one word; cases of a repeat or a second launch come on top of the plan's."""
        if launch.replaces is not None or launch.confirms:
            self.total += len(launch.cases)
            return "confirming" if launch.confirms else "repeating"
        return "proving" if launch.purpose == "proof" else "measuring"

    def take(self, line: Line) -> None:
        """Count one line of the run file."""
        kind = line["kind"]
        if kind == "launch" and line.get("oversubscribed"):
            self.oversubscribed = True
        if kind not in ("cell", "failed", "skipped"):
            return
        self.ended += 1
        if kind == "failed":
            self.failed += 1
        if kind == "cell":
            self._rank(line)

    def _rank(self, line: Line) -> None:
        case = Case.from_json(line["case"])
        time_s, default = line["time_s"], None
        old = self._fastest.get(case.cell)
        default = time_s if case.algorithm == "default" else (old[2] if old else None)
        if old is None or time_s < old[0]:
            old = (time_s, case.label, default)
        self._fastest[case.cell] = (old[0], old[1], default)
        best, name, reference = self._fastest[case.cell]
        where = f"{case.cell.collective} {format_bytes(case.cell.nbytes)} × {case.cell.ranks}"
        beside = f", default {format_time(reference)}" if reference and name != "default" else ""
        self.best = f"{where}: {name} {format_time(best)}{beside}"


def _in_flight(case: Line | None) -> str:
    if case is None:
        return "starting"
    return f"{case['collective']} {format_bytes(case['nbytes'])} × {case['ranks']} {case['algorithm']}"


class LiveProgress:
    """A rich progress bar: what runs, cases done, time left, best so far."""

    def __init__(self, total: int, console: Console) -> None:
        self._tally = Tally(total)
        self._started = time.monotonic()
        self._progress = Progress(
            TextColumn("{task.description}", table_column=None),
            BarColumn(bar_width=None),
            TextColumn("{task.completed}/{task.total} · {task.fields[left]}"),
            console=console,
            transient=True,
        )
        self._task: TaskID = self._progress.add_task("starting", total=total, left="")
        self._best: TaskID = self._progress.add_task("", total=None, left="", visible=False)

    def __enter__(self) -> "LiveProgress":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def launch(self, launch: Launch, number: int, total: int) -> None:
        """Show which launch starts."""
        word = self._tally.begin(launch)
        self._progress.update(self._task, total=self._tally.total)
        self._progress.update(
            self._task, description=f"launch {number}/{total}: {word} at {launch.ranks} ranks"
        )

    def line(self, line: Line) -> None:
        """Count a line."""
        was = self._tally.oversubscribed
        self._tally.take(line)
        if self._tally.oversubscribed and not was:
            self._progress.console.print(OVERSUBSCRIBED)
        self._progress.update(self._task, completed=self._tally.ended)

    def tick(self, case: Line | None, left_s: float | None) -> None:
        """Show what is in flight and what is left."""
        elapsed = time.monotonic() - self._started
        if left_s is None and self._tally.ended:
            left_s = elapsed * (self._tally.total / self._tally.ended - 1)
        left = f"{format_duration(left_s)} left" if left_s is not None else format_duration(elapsed)
        shown = _in_flight(case)
        if self._tally.best:
            shown = f"{shown}\n[dim]{self._tally.best}[/dim]"
        self._progress.update(self._task, description=shown, left=left)


class PlainProgress:
    """One line a launch and one every few seconds, for logs."""

    def __init__(self, total: int, console: Console, *, quiet: bool = False) -> None:
        self._tally = Tally(total)
        self._console = console
        self._quiet = quiet
        self._last = time.monotonic()

    def __enter__(self) -> "PlainProgress":
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to put back."""

    def launch(self, launch: Launch, number: int, total: int) -> None:
        """Print which launch starts."""
        word = self._tally.begin(launch)
        variant = f" [{launch.variant}]" if launch.variant else ""
        self._say(
            f"launch {number}/{total}: {word} {len(launch.cases)} cases at {launch.ranks} ranks{variant}"
        )

    def line(self, line: Line) -> None:
        """Count a line."""
        was = self._tally.oversubscribed
        self._tally.take(line)
        if self._tally.oversubscribed and not was:
            self._say(OVERSUBSCRIBED)

    def tick(self, case: Line | None, left_s: float | None) -> None:
        """Print a line every few seconds."""
        if time.monotonic() - self._last < PLAIN_EVERY_S:
            return
        self._last = time.monotonic()
        left = f", {format_duration(left_s)} left" if left_s is not None else ""
        best = f"; {self._tally.best}" if self._tally.best else ""
        self._say(f"  {self._tally.ended}/{self._tally.total} cases, {_in_flight(case)}{left}{best}")

    def _say(self, text: str) -> None:
        if not self._quiet:
            self._console.print(text, highlight=False, markup=False, soft_wrap=True)


OVERSUBSCRIBED = "more ranks than cores: these times show ranks that share cores, not what a cluster would do"
