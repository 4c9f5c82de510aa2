"""What must hold while calls are made on a communicator, and only then (MPICH's control variables)."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

Guard = Callable[[], AbstractContextManager[None]]

_guards: dict[int, tuple[Any, Guard]] = {}


def attach(comm: Any, guard: Guard) -> Any:
    """Let ``guard()`` be entered around every block of calls on ``comm``; returns ``comm``."""
    _guards[id(comm)] = (comm, guard)
    return comm


def held(comm: Any) -> AbstractContextManager[None]:
    """Return what must be entered around calls on ``comm``: the attached guard's context, else an empty one."""
    found = _guards.get(id(comm))
    return found[1]() if found else nullcontext()


def release(comm: Any) -> None:
    """Forget a communicator (before it is freed)."""
    _guards.pop(id(comm), None)
