"""From a case to a call that can be timed: buffers, communicator, and the check that its results are right."""

import numpy as np

from collbench.backends.session import Session
from collbench.mpi import calls, check, timed
from collbench.mpi.buffers import Array
from collbench.mpi.calls import Call
from collbench.portable import run as portable
from collbench.records import Case

PATTERN = 97


def call(session: Session, case: Case) -> tuple[Call, tuple[portable.Prepared, ...]]:
    """Return the call of a case, and what collbench's own schedules prepared (one for each argument set; else none).

    Raises:
        CollbenchError: it cannot be forced, or cannot run.
    """
    comm = session.switch.select(case)
    copies, rotate_root = session.sampling.rotate_buffers, session.sampling.rotate_root
    if case.provider != "portable":
        return calls.prepare(session.MPI, comm, case, copies=copies, rotate_root=rotate_root), ()
    rank, size = comm.Get_rank(), comm.Get_size()
    roots = calls.rotated_roots(case, size, copies=copies, rotate_root=rotate_root)
    buffers = calls.rotated_buffers(case, rank, size, roots, copies)
    prepared = tuple(
        portable.prepare(session.MPI, comm, case, root=root, node_of=session.node_of, buffers=buffers.pair(i))
        for i, root in enumerate(roots)
    )
    made = Call.from_pointer(
        prepared[0].function_address, [one.state_address for one in prepared], prepared, sync_comm=comm, buffers=buffers,
        roots=roots,
    )  # fmt: skip
    return made, prepared


def validate(session: Session, case: Case, made: Call, prepared: tuple[portable.Prepared, ...]) -> str | None:
    """Run the case with known data; return None, or what was expected and found (the same on all ranks).

    Raises:
        MpiCallError: the call itself failed.
    """
    if prepared and case.cell.collective == "sendrecv":
        for index, one in enumerate(prepared):
            wrong = _validate_pair(session, made, one, index)
            if wrong:
                return wrong
        return None
    return check.validate(session.MPI, session.control, made, case)


def _validate_pair(session: Session, made: Call, prepared: portable.Prepared, index: int) -> str | None:
    """Check a point-to-point mode: the receiving rank must hold its partner's bytes (agreed over all ranks)."""
    _pattern(prepared.send, session.control.Get_rank())
    prepared.recv.fill(0)
    timed.block(made, 1, first=index)
    wrong = np.zeros(1, dtype=np.int64)
    if prepared.source is not None:
        wrong[0] = _pattern(prepared.recv, prepared.source, compare=True)
    total = np.zeros_like(wrong)
    session.control.Allreduce(wrong, total, op=session.MPI.MAX)
    return f"expected the partner's data but found {total[0]} other elements" if total[0] else None


def _pattern(buffer: Array, rank: int, *, compare: bool = False) -> int:
    """Put a rank's pattern into a buffer, or count the elements that differ from it; a bounded stretch at a time."""
    different = 0
    for start in range(0, buffer.size, check.SLICE):
        part = buffer[start : start + check.SLICE]
        pattern = ((np.arange(start, start + part.size) % PATTERN) + rank).astype(buffer.dtype)
        if compare:
            different += int(np.count_nonzero(part != pattern))
        else:
            part[:] = pattern
    return different
