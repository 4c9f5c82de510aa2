"""Is the result right? Runs a case once with known data, outside all timing.

Every rank can compute every rank's input: element i of rank r's buffer is a value of a table of prime period,
so the expected result needs no communication and a block in the wrong place is seen.
"""

from typing import Any

import numpy as np

from collbench.mpi.buffers import NUMPY_DTYPES, Array
from collbench.mpi.calls import Call, MpiCallError
from collbench.mpi.timed import block as run_block
from collbench.records import Case

PERIOD = 1021
_STRIDE = 389
_SEED = 20220509
_UNSET = 77
_LARGEST = {
    name: 2 ** (8 * np.dtype(kind).itemsize - np.issubdtype(kind, np.signedinteger)) - 1
    for name, kind in NUMPY_DTYPES.items()
}


def table(dtype: str, op: str | None, ranks: int) -> Array:
    """Return the table of input values: small integers that cannot overflow a sum, floats of mixed sizes.

    Args:
        dtype: element type.
        op: operator; prod takes values near one.
        ranks: how many are combined.
    """
    rng = np.random.default_rng(_SEED)
    kind = NUMPY_DTYPES[dtype]
    if np.issubdtype(kind, np.floating):
        values = rng.uniform(0.5, 2.0, PERIOD)
        if op == "prod":
            values = values ** (4.0 / max(4, ranks))
        else:
            values = values * 10.0 ** rng.uniform(-3, 3, PERIOD) * rng.choice([-1.0, 1.0], PERIOD)
        return values.astype(kind)
    if op == "prod":
        return np.where(rng.random(PERIOD) < min(0.5, 4.0 / ranks), 2, 1).astype(kind)
    top = max(2, min(100, _LARGEST[dtype] // max(ranks, 1)))
    return rng.integers(0, top, PERIOD).astype(kind)


def values(base: Array, rank: int, start: int, count: int) -> Array:
    """Return elements ``start`` … ``start + count`` of what ``rank`` puts in."""
    shift = (rank * _STRIDE + start) % PERIOD
    return np.resize(np.roll(base, -shift), count)


def combined(base: Array, ranks: int, op: str | None, start: int, count: int) -> tuple[Array, Array]:
    """Return the exact-as-possible result of an operator over all ranks and its error bound, per element.

    Floats are combined in extended precision. The bound for a sum of p terms in any order is
    (p − 1)·eps·Σ|x| (Higham, Accuracy and Stability, §4.2), doubled for the last rounding; for a product
    p·eps·|Π| likewise; for max and min, and for all integers, it is 0.
    """
    integer = np.issubdtype(base.dtype, np.integer)
    wide = base if integer else base.astype(np.longdouble)
    inputs = [np.roll(wide, -(rank * _STRIDE) % PERIOD) for rank in range(ranks)]
    function = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}[op or "sum"]
    result, size = inputs[0].copy(), np.abs(inputs[0])
    for other in inputs[1:]:
        result = function(result, other)
        size = size + np.abs(other)
    bound = np.zeros(PERIOD, dtype=np.longdouble)
    if not integer and (op or "sum") in ("sum", "prod"):
        magnitude = size if (op or "sum") == "sum" else np.abs(result)
        bound = 2 * ranks * np.longdouble(np.finfo(base.dtype).eps) * magnitude
    shift = start % PERIOD
    return np.resize(np.roll(result, -shift), count), np.resize(np.roll(bound, -shift), count)


def compare(found: Array, expected: Array, bound: Array | None = None) -> str | None:
    """Return None when all elements agree within the bound, else "expected … found … at element …"."""
    if bound is None or not np.any(bound):
        wrong = found != expected.astype(found.dtype)
    else:
        wrong = ~(np.abs(found.astype(np.longdouble) - expected) <= bound)
    if not wrong.any():
        return None
    at = int(np.argmax(wrong))
    share = f"{int(wrong.sum())} of {len(found)} wrong"
    return f"expected {expected[at]} but found {found[at]} at element {at} ({share})"


class _Layout:
    """Input and expected output of one rank for one case."""

    def __init__(self, case: Case, rank: int, size: int, root: int) -> None:
        self.case, self.rank, self.size, self.root = case, rank, size, root
        cell = case.cell
        self.base = table(cell.dtype, cell.op, size)
        self.count = cell.nbytes // self.base.itemsize
        self.block = self.count // size

    def fill(self, send: Array, recv: Array) -> None:
        """Put the known data in; whatever must be overwritten holds another value."""
        name, mine, b = self.case.cell.collective, self.rank * self.block, self.block
        recv.fill(_UNSET)
        send[:] = values(self.base, self.rank, 0, len(send))
        if name == "bcast" and self.rank != self.root:
            send.fill(_UNSET)
        if not self.case.cell.in_place:
            return
        if name in (
            "allreduce",
            "reduce",
            "reduce_scatter",
            "reduce_scatter_v",
            "alltoall",
            "alltoallv",
            "sendrecv",
        ):
            recv[:] = values(self.base, self.rank, 0, len(recv))
        elif name in ("allgather", "allgatherv") or (name == "gather" and self.rank == self.root):
            recv[mine : mine + b] = values(self.base, self.rank, 0, b)

    def expected(self) -> tuple[Array, Array | None] | None:
        """Return (result, bound) of this rank; None where the rank receives nothing."""
        name, cell, b = self.case.cell.collective, self.case.cell, self.block
        at_root = self.rank == self.root
        if name in ("allreduce", "reduce"):
            return (
                combined(self.base, self.size, cell.op, 0, self.count)
                if name == "allreduce" or at_root
                else None
            )
        if name in ("reduce_scatter", "reduce_scatter_v"):
            return combined(self.base, self.size, cell.op, self.rank * b, b)
        if name == "bcast":
            return values(self.base, self.root, 0, self.count), None
        if name in ("allgather", "allgatherv") or (name == "gather" and at_root):
            return np.concatenate([values(self.base, r, 0, b) for r in range(self.size)]), None
        if name in ("alltoall", "alltoallv"):
            return np.concatenate([values(self.base, r, self.rank * b, b) for r in range(self.size)]), None
        if name == "scatter" and not (cell.in_place and at_root):
            return values(self.base, self.root, self.rank * b, b), None
        if name == "sendrecv":
            return values(self.base, (self.rank - 1) % self.size, 0, self.count), None
        return None

    def result(self, send: Array, recv: Array) -> Array:
        """Return the part of the buffers that holds this rank's result."""
        name = self.case.cell.collective
        if name == "bcast":
            return send
        return recv[: self.block] if name in ("reduce_scatter", "reduce_scatter_v") else recv

    def untouched(self, send: Array) -> str | None:
        """Return a sentence when the call changed its send buffer."""
        if self.case.cell.collective == "bcast":
            return None
        wrong = compare(send, values(self.base, self.rank, 0, len(send)))
        return f"the send buffer was changed: {wrong}" if wrong else None


def validate(MPI: Any, comm: Any, call: Call, case: Case, timer: str | None = None) -> str | None:
    """Run the case once with known data and compare (collective; all ranks return the same).

    Returns:
        None when every rank's result is right, else one sentence naming the first wrong rank, what was expected
        and what was found.

    Raises:
        MpiCallError: the call itself failed.
    """
    if case.cell.collective == "barrier" or call.buffers is None:
        run_block(call, 1, timer=timer)
        return None
    layout = _Layout(case, comm.Get_rank(), comm.Get_size(), call.root)
    send, recv = call.buffers.send, call.buffers.recv
    layout.fill(send, recv)
    run_block(call, 1, timer=timer)
    wrong = layout.untouched(send)
    expected = layout.expected()
    if expected is not None:
        wrong = compare(layout.result(send, recv), *expected) or wrong
    send.fill(0)
    recv.fill(0)
    return _agree(MPI, comm, wrong)


def _agree(MPI: Any, comm: Any, wrong: str | None) -> str | None:
    """Return the first wrong rank's sentence on every rank. Only point-to-point based objects travel."""
    rank, size = comm.Get_rank(), comm.Get_size()
    first = comm.allreduce(size if wrong is None else rank, MPI.MIN)
    if first == size:
        return None
    return str(comm.bcast(f"rank {first}: {wrong}" if rank == first else None, first))


__all__ = ["MpiCallError", "combined", "compare", "table", "validate", "values"]
