"""The timed loop: blocks of calls with a start and an end stamp each, in C where the extension was built."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from collbench.errors import UsageError
from collbench.mpi.calls import Call, MpiCallError, function_address, prepare
from collbench.mpi.gate import GATES
from collbench.mpi.guard import held
from collbench.mpi.start import loaded
from collbench.records import Case, Cell

Stamps = npt.NDArray[np.int64]

_SYNC = {"none": 0, **dict.fromkeys(GATES, 1), "window": 2}
_NO_ARGUMENTS = np.zeros((0, 1), np.int64)
_LEAD_NS = 200_000
"""Time between agreeing on the first window and its start: the broadcast must have arrived everywhere."""


def _extension() -> ModuleType | None:
    try:
        return import_module("collbench.mpi._timed")
    except ImportError:
        return None


_C = _extension()


def timer_name() -> str:
    """Return "c" where the extension was built, else "mpi4py"."""
    return "c" if _C else "mpi4py"


@dataclass(frozen=True)
class Block:
    """The stamps of one block; unpacks to (start_ns, end_ns).

    Attributes:
        start_ns: shape (iterations,), this rank's clock (CLOCK_MONOTONIC) just before each call.
        end_ns: shape (iterations,), just after it.
        late: shape (iterations,), True where this rank reached its window after the window's start.
    """

    start_ns: Stamps
    end_ns: Stamps
    late: npt.NDArray[np.bool_]

    def __iter__(self) -> Iterator[Stamps]:
        return iter((self.start_ns, self.end_ns))


def block(
    call: Call,
    iterations: int,
    *,
    sync: str = "barrier",
    window_s: float = 0.0,
    first: int = 0,
    offset_ns: int = 0,
    timer: str | None = None,
) -> Block:
    """Run ``iterations`` calls and return their stamps.

    Args:
        call: from ``calls.prepare`` or ``Call.from_pointer``.
        iterations: how many.
        sync: barrier (the library's, before each call), dissemination (collbench's own), window (all ranks start at
            agreed times) or none (back to back).
        window_s: distance of the windows' starts; must exceed one call's time.
        first: which argument set the first iteration takes (rotation goes on from block to block).
        offset_ns: this rank's clock minus rank 0's, for windows across nodes.
        timer: "c" or "mpi4py" instead of ``timer_name()``.

    Raises:
        MpiCallError: a call returned an error. Ranks whose calls succeeded return normally.
        UsageError: unknown sync, or windows without a length.
    """
    if sync not in _SYNC:
        raise UsageError(f"unknown synchronisation {sync!r}: choose from {', '.join(_SYNC)}")
    if sync == "window" and window_s <= 0:
        raise UsageError("the window scheme needs a window length above 0 s")
    window_ns = max(1, round(window_s * 1e9))
    base_ns = _agree(call.sync_comm, offset_ns) if sync == "window" else 0
    plan = _Plan(iterations, first, sync, base_ns, window_ns)
    run = _run_c if (timer or timer_name()) == "c" and _C else _run_mpi4py
    with held(call.comm):
        return run(call, plan)


def _agree(comm: Any, offset_ns: int) -> int:
    """Return the start of the first window on this rank's clock (collective)."""
    comm.Barrier()
    start = np.array([time.monotonic_ns() + _LEAD_NS], dtype=np.int64)
    comm.Bcast(start, 0)
    return int(start[0]) + offset_ns


@dataclass(frozen=True, slots=True)
class _Plan:
    iterations: int
    first: int
    sync: str
    base_ns: int
    window_ns: int

    def stamps(self) -> Block:
        n = self.iterations
        return Block(np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.bool_))


def _run_c(call: Call, plan: _Plan) -> Block:
    assert _C is not None
    stamps = plan.stamps()
    arguments = np.array(call.argument_sets, dtype=np.int64)
    gate = call.gate(loaded(), plan.sync) if plan.sync in GATES else None
    done, code = _C.block(
        call.address, arguments.shape[1], arguments, plan.iterations, plan.first, _SYNC[plan.sync],
        function_address(loaded(), gate.function) if gate else 0,
        gate.arguments.shape[1] if gate else 0, gate.arguments if gate else _NO_ARGUMENTS,
        plan.base_ns, plan.window_ns, stamps.start_ns, stamps.end_ns, stamps.late,
    )  # fmt: skip
    if code:
        raise MpiCallError(code, f"{_text(code)} (in iteration {done})")
    return stamps


def _text(code: int) -> str:
    MPI = loaded()
    try:
        return error_text(MPI.Get_error_string(code))
    except MPI.Exception:
        return "unknown error code"


def error_text(text: str) -> str:
    """Return a library's error text in one line: the first and, of an error stack, the innermost reason."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) < 2:
        return lines[0] if lines else "no text"
    first = lines[0].removesuffix("error stack:").strip().rstrip(",")
    return f"{first}: {lines[-1].partition(': ')[2] or lines[-1]}"


def _run_mpi4py(call: Call, plan: _Plan) -> Block:
    MPI, stamps = loaded(), plan.stamps()
    start, end, late = stamps.start_ns, stamps.end_ns, stamps.late
    gate = call.gate(MPI, plan.sync).callables if plan.sync in GATES else ()
    clock, functions, window = time.monotonic_ns, call.callables, plan.sync == "window"
    try:
        for i in range(plan.iterations):
            function = functions[(plan.first + i) % len(functions)]
            for meet in gate:
                meet()
            if window:
                target = plan.base_ns + i * plan.window_ns
                late[i] = clock() > target
                while clock() < target:
                    pass
            before = clock()
            function()
            end[i] = clock()
            start[i] = before
    except MPI.Exception as error:
        raise MpiCallError(error.Get_error_code(), error_text(error.Get_error_string())) from None
    return stamps


def warm_up(call: Call, iterations: int = 8) -> None:
    """Run untimed calls: connections are made, pages touched, and libraries that change state have done so.

    The default is above the call count after which single-threaded MPICH changes its algorithm.
    """
    block(call, max(iterations, len(call.argument_sets)))


def overhead_s(MPI: Any, rounds: int = 400) -> float:
    """Return what the mpi4py loop adds to each call in seconds: an 8 B allreduce of one rank, mpi4py against C.

    Without the extension the cost of the whole call on one rank is returned, an upper bound.
    """
    own = MPI.COMM_SELF.Dup()
    call = prepare(MPI, own, Case(Cell("allreduce", 1, 1, 8, "float64", "sum"), "any", "default"))
    costs = {}
    for timer in ("mpi4py", "c") if _C else ("mpi4py",):
        start, end = block(call, rounds, sync="none", timer=timer)
        costs[timer] = float(np.median(end - start)) * 1e-9
    own.Free()
    return max(0.0, costs["mpi4py"] - costs.get("c", 0.0))
