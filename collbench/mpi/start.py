"""Starting MPI in a worker at a chosen thread level."""

import sys
from importlib import import_module
from typing import Any

from collbench.errors import UsageError, unknown_name

LEVELS = ("single", "funneled", "serialized", "multiple")


def start(thread_level: str = "single") -> Any:
    """Initialise MPI at ``thread_level`` and return the module ``mpi4py.MPI``.

    Args:
        thread_level: single (what C programs get, and the fastest), funneled, serialized or multiple.

    Raises:
        UsageError: no such level, or MPI was already initialised at another one.
    """
    if thread_level not in LEVELS:
        raise unknown_name("thread level", thread_level, LEVELS)
    mpi4py = import_module("mpi4py")
    mpi4py.rc.thread_level = thread_level
    # mpi4py ignores the level while rc.threads is False.
    mpi4py.rc.threads = True
    MPI = import_module("mpi4py.MPI")
    level = provided(MPI)
    if LEVELS.index(level) < LEVELS.index(thread_level):
        raise UsageError(f"the MPI library gives thread level {level}, not {thread_level}: ask for {level}")
    return MPI


def provided(MPI: Any) -> str:
    """Return the thread level that the library provides: one of LEVELS."""
    names = {
        MPI.THREAD_SINGLE: "single",
        MPI.THREAD_FUNNELED: "funneled",
        MPI.THREAD_SERIALIZED: "serialized",
        MPI.THREAD_MULTIPLE: "multiple",
    }
    return names[MPI.Query_thread()]


def loaded() -> Any:
    """Return the module ``mpi4py.MPI`` that ``start`` (or the program itself) has imported.

    Raises:
        UsageError: nobody has.
    """
    module = sys.modules.get("mpi4py.MPI")
    if module is None:
        raise UsageError("MPI is not started in this process: call collbench.mpi.start.start() first")
    return module
