"""Who watches a run, and what it came to."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from collbench.plan import Launch
from collbench.refinement import AGREE

Line = Mapping[str, Any]


class Observer(Protocol):
    """Who wants to see the run: the progress display, or plain lines."""

    def launch(self, launch: Launch, number: int, total: int) -> None:
        """A launch starts (``number`` from 1)."""

    def line(self, line: Line) -> None:
        """A line was appended to the run file."""

    def tick(self, case: Line | None, left_s: float | None) -> None:
        """Called often: what is in flight and the estimated seconds left (None = unknown)."""


@dataclass
class Outcome:
    """What a run came to.

    Attributes:
        cells: cases measured; those of a repeated launch count once.
        skipped: cases left out for lack of time.
        agreed: cases of sizes that needed no measuring, since their neighbours agree.
        launches: process starts.
        repeated: of them, repeats of disturbed ones.
        confirming: of them, second ones of winners.
        failed: the failed lines.
    """

    cells: int = 0
    skipped: int = 0
    agreed: int = 0
    launches: int = 0
    repeated: int = 0
    confirming: int = 0
    failed: list[Line] = field(default_factory=list)

    def take(self, line: Line) -> None:
        """Count a cell, failed or skipped line."""
        if line["kind"] == "cell":
            self.cells += 1
        elif line["kind"] == "failed":
            self.failed.append(line)
        elif line.get("reason") == AGREE:
            self.agreed += 1
        else:
            self.skipped += 1

    @contextmanager
    def the_same_cases(self) -> Iterator[None]:
        """Let what is measured or left out meanwhile not count: the cases did already."""
        cells, skipped = self.cells, self.skipped
        yield
        self.cells, self.skipped = cells, skipped

    @property
    def is_empty(self) -> bool:
        """Say whether there was something to measure and nothing was; a complete run that goes on has nothing."""
        return self.launches > self.repeated + self.confirming and not self.cells and not self.agreed

    def words(self, impossible: int) -> str:
        """Return ``12 cases measured, 1 failed, 2 launches``; ``impossible`` cases cannot run here."""
        launches = "launches" + (f" ({self.confirming} to confirm winners)" if self.confirming else "")
        repeats = "launch" if self.repeated == 1 else "launches"
        parts = (
            (self.cells, "cases measured"),
            (len(self.failed), "failed"),
            (self.skipped, "left out (budget spent)"),
            (self.agreed, "not needed (neighbours agree)"),
            (impossible, "not possible here"),
            (self.repeated, f"disturbed {repeats} repeated"),
            (self.launches, launches),
        )
        always = ("cases measured", launches)
        return ", ".join(f"{count} {what}" for count, what in parts if count or what in always)

    def to_json(self, impossible: int) -> dict[str, Any]:
        """Return the counts and the failed lines for ``run --json``."""
        return {
            "cells": self.cells, "failed": [dict(x) for x in self.failed], "skipped": self.skipped + impossible,
            "agreed": self.agreed, "launches": self.launches, "repeated": self.repeated, "confirming": self.confirming,
        }  # fmt: skip
