"""Who watches a run, and what it came to."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from collbench.plan import Launch

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
    """What a run came to: how many lines of each kind, and the failed ones."""

    cells: int = 0
    skipped: int = 0
    launches: int = 0
    failed: list[Line] = field(default_factory=list)
