"""The error tree. Each class carries the exit status that the command line ends with.

Core code raises; only ``collbench.cli`` turns an error into one line on stderr and an exit.
"""

import difflib
from collections.abc import Iterable

EXIT_OK = 0
EXIT_NO = 1
EXIT_USAGE = 2
EXIT_UNANSWERED = 3
EXIT_INTERRUPTED = 130


class CollbenchError(Exception):
    """Base of all errors meant for the user: one sentence saying what, which value, what to do."""

    exit_status = EXIT_UNANSWERED


class UsageError(CollbenchError):
    """Wrong use: an unknown name, a broken file, options that contradict each other (exit 2)."""

    exit_status = EXIT_USAGE


class UnansweredError(CollbenchError):
    """The question cannot be answered: nothing measurable, library unusable, inconclusive (exit 3)."""

    exit_status = EXIT_UNANSWERED


class AnswerIsNoError(CollbenchError):
    """The answer is no: slower, below the floor (exit 1)."""

    exit_status = EXIT_NO


class InterruptedRunError(CollbenchError):
    """The user or the batch system ended the run; what was measured is kept (exit 130)."""

    exit_status = EXIT_INTERRUPTED


def unknown_name(kind: str, name: str, valid: Iterable[str]) -> UsageError:
    """Return the error for a name that does not exist, with the nearest valid ones.

    Args:
        kind: what the name stands for, for example "collective".
        name: what the user wrote.
        valid: all valid names.
    """
    names = sorted(valid)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if near:
        return UsageError(f"unknown {kind} {name!r}: did you mean {' or '.join(repr(n) for n in near)}?")
    return UsageError(f"unknown {kind} {name!r}: choose from {', '.join(names)}")
