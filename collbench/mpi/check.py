"""Is the result right? Runs a case once with known data, outside all timing.

Every rank can compute every rank's input: element i of rank r's buffer is a value of a table of prime period,
so the expected result needs no communication and a block in the wrong place is seen.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
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
SLICE = 1 << 16
"""Elements that are computed and compared at a time: in extended precision about 6 MiB."""
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
    result, bound = _one_period(base, ranks, op)
    return _repeated(result, start, count), _repeated(bound, start, count)


def _one_period(base: Array, ranks: int, op: str | None) -> tuple[Array, Array]:
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
    return result, bound


def _repeated(period: Array, start: int, count: int) -> Array:
    """Return elements ``start`` … ``start + count`` of a vector that repeats ``period``."""
    return np.resize(np.roll(period, -(start % PERIOD)), count)


def compare(found: Array, expected: Array, bound: Array | None = None) -> str | None:
    """Return None when all elements agree within the bound, else "expected … found … at element …"."""
    return compare_parts(found, [Part(0, len(found), lambda o, n: (expected[o : o + n], _cut(bound, o, n)))])


def _cut(bound: Array | None, start: int, count: int) -> Array | None:
    return None if bound is None else bound[start : start + count]


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of a result and what belongs there.

    Attributes:
        at: first element in the result.
        count: elements.
        expected: (offset in the part, count) → (values, bound of their error or None).
    """

    at: int
    count: int
    expected: Callable[[int, int], tuple[Array, Array | None]]


def compare_parts(found: Array, parts: Iterable[Part]) -> str | None:
    """Return None when every part holds what belongs there, else one sentence with the first fault.

    Whatever the size, SLICE elements at a time are computed and compared: the memory is bounded.
    """
    first, wrong = "", 0
    for part in parts:
        for offset in range(0, part.count, SLICE):
            here = found[part.at + offset : part.at + min(part.count, offset + SLICE)]
            expected, bound = part.expected(offset, len(here))
            bad = _differs(here, expected, bound)
            count = int(np.count_nonzero(bad))
            if count and not wrong:
                at = int(np.argmax(bad))
                first = f"expected {expected[at]} but found {here[at]} at element {part.at + offset + at}"
            wrong += count
    return f"{first} ({wrong} of {len(found)} wrong)" if wrong else None


def _differs(found: Array, expected: Array, bound: Array | None) -> Array:
    if bound is None or not np.any(bound):
        return np.asarray(found != expected.astype(found.dtype))
    return ~(np.abs(found.astype(np.longdouble) - expected) <= bound)


def put(target: Array, base: Array, rank: int) -> None:
    """Fill a buffer with what ``rank`` puts in, SLICE elements at a time."""
    for start in range(0, len(target), SLICE):
        part = target[start : start + SLICE]
        part[:] = values(base, rank, start, len(part))


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
        put(send, self.base, self.rank)
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
            put(recv, self.base, self.rank)
        elif name in ("allgather", "allgatherv") or (name == "gather" and self.rank == self.root):
            put(recv[mine : mine + b], self.base, self.rank)

    def _from(self, at: int, rank: int, start: int, count: int) -> Part:
        """Return the part that holds ``rank``'s elements from ``start`` on."""
        return Part(at, count, lambda o, n: (values(self.base, rank, start + o, n), None))

    def _combined(self, start: int, count: int) -> Part:
        result, bound = _one_period(self.base, self.size, self.case.cell.op)
        return Part(0, count, lambda o, n: (_repeated(result, start + o, n), _repeated(bound, start + o, n)))

    def expected(self) -> list[Part]:
        """Return what belongs into this rank's result; nothing where the rank receives nothing."""
        name, b = self.case.cell.collective, self.block
        at_root, everyone = self.rank == self.root, range(self.size)
        if name == "allreduce" or (name == "reduce" and at_root):
            return [self._combined(0, self.count)]
        if name in ("reduce_scatter", "reduce_scatter_v"):
            return [self._combined(self.rank * b, b)]
        if name == "bcast":
            return [self._from(0, self.root, 0, self.count)]
        if name in ("allgather", "allgatherv") or (name == "gather" and at_root):
            return [self._from(r * b, r, 0, b) for r in everyone]
        if name in ("alltoall", "alltoallv"):
            return [self._from(r * b, r, self.rank * b, b) for r in everyone]
        if name == "scatter" and not (self.case.cell.in_place and at_root):
            return [self._from(0, self.root, self.rank * b, b)]
        if name == "sendrecv":
            return [self._from(0, (self.rank - 1) % self.size, 0, self.count)]
        return []

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
        wrong = compare_parts(send, [self._from(0, self.rank, 0, len(send))])
        return f"the send buffer was changed: {wrong}" if wrong else None


def validate(MPI: Any, comm: Any, call: Call, case: Case, timer: str | None = None) -> str | None:
    """Run the case once with known data and compare (collective; all ranks return the same).

    Where buffers or roots go round, each pair of buffers and each root is tried.

    Returns:
        None when every rank's result is right, else one sentence naming the first wrong rank, what was expected
        and what was found.

    Raises:
        MpiCallError: the call itself failed.
    """
    if case.cell.collective == "barrier" or call.buffers is None:
        run_block(call, 1, timer=timer)
        return None
    for index in range(max(len(call.buffers), len(set(call.roots)))):
        wrong = _agree(MPI, comm, _once(comm, call, case, index, timer))
        if wrong:
            return wrong if not call.rotation else f"{wrong} in call {index} of the rotation"
    return None


def _once(comm: Any, call: Call, case: Case, index: int, timer: str | None) -> str | None:
    """Run argument set ``index`` once and return what is wrong on this rank."""
    assert call.buffers is not None
    layout = _Layout(case, comm.Get_rank(), comm.Get_size(), call.roots[index % len(call.roots)])
    pair = call.buffers.pair(index)
    layout.fill(pair.send, pair.recv)
    run_block(call, 1, first=index, timer=timer)
    wrong = compare_parts(layout.result(pair.send, pair.recv), layout.expected())
    wrong = wrong or layout.untouched(pair.send)
    pair.send.fill(0)
    pair.recv.fill(0)
    return wrong


def _agree(MPI: Any, comm: Any, wrong: str | None) -> str | None:
    """Return the first wrong rank's sentence on every rank. Only point-to-point based objects travel."""
    rank, size = comm.Get_rank(), comm.Get_size()
    first = comm.allreduce(size if wrong is None else rank, MPI.MIN)
    if first == size:
        return None
    return str(comm.bcast(f"rank {first}: {wrong}" if rank == first else None, first))


__all__ = [
    "SLICE",
    "MpiCallError",
    "Part",
    "combined",
    "compare",
    "compare_parts",
    "put",
    "table",
    "validate",
    "values",
]
