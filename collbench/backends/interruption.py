"""Ctrl-C and the batch system's signals during a run of an external back end: noted first, obeyed between two looks."""

import signal
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

from collbench.errors import InterruptedRunError

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)


class Interruption:
    """Notes signals while it is entered, so that none cuts a line in two or leaves a launch behind.

    Args:
        path: the run file, for the message.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._number = path, 0

    def __enter__(self) -> Self:
        self._before = {s: signal.signal(s, self._note) for s in SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._number = number

    def check(self) -> None:
        """End the run if a signal has come.

        Raises:
            InterruptedRunError: with what is kept, and how to go on.
        """
        if self._number:
            name = signal.Signals(self._number).name
            raise InterruptedRunError(
                f"interrupted by {name}: what was measured is kept in {self._path}; "
                f"go on with 'collbench run --resume {self._path}'"
            )
