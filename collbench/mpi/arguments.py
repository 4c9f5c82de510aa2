"""The arguments of every collective: for the C function, pointer-wide, and the same call in mpi4py."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from collbench.collectives import COLLECTIVES
from collbench.errors import UsageError
from collbench.mpi.buffers import NUMPY_DTYPES
from collbench.records import ITEMSIZE, Case

_INT_MAX = 2**31 - 1
_TAG = 77

_DATATYPES = {
    "int8": "INT8_T", "uint8": "UINT8_T", "int32": "INT32_T", "uint32": "UINT32_T", "int64": "INT64_T",
    "uint64": "UINT64_T", "float32": "FLOAT", "float64": "DOUBLE",
}  # fmt: skip
_OPS = {"sum": "SUM", "max": "MAX", "min": "MIN", "prod": "PROD"}


def handle(MPI: Any, thing: Any) -> int:
    """Return a handle as a signed pointer-wide integer."""
    value = int(MPI._handleof(thing))  # noqa: SLF001 - mpi4py's documented handle access
    return value - (1 << 64) if value >= 1 << 63 else value


def datatype(MPI: Any, dtype: str) -> Any:
    """Return the MPI datatype of a dtype; raises UsageError where MPI has none."""
    if dtype not in _DATATYPES:
        raise UsageError(f"MPI has no portable type for {dtype!r}: choose from {', '.join(_DATATYPES)}")
    return getattr(MPI, _DATATYPES[dtype])


def operator(MPI: Any, op: str | None) -> Any:
    """Return the MPI operator of a cell (None means sum)."""
    name = op or "sum"
    if name not in _OPS:
        raise UsageError(f"MPI has no operator {name!r}: choose from {', '.join(_OPS)}")
    return getattr(MPI, _OPS[name])


@dataclass(frozen=True)
class Setting:
    """What the argument builders need of a case on a communicator.

    Attributes:
        MPI: the module ``mpi4py.MPI``.
        comm: where the call is made.
        datatype: MPI datatype.
        op: MPI operator; None where nothing is reduced.
        count: elements of the whole message S.
        block: elements of one rank's part.
        in_place: MPI_IN_PLACE form.
        size: ranks.
        rank: this one.
    """

    MPI: Any
    comm: Any
    datatype: Any
    op: Any
    count: int
    block: int
    in_place: bool
    size: int
    rank: int

    def address(self, array: Any) -> int:
        """Return an array's address; None stands for MPI_IN_PLACE."""
        return int(self.MPI.IN_PLACE) if array is None else int(array.ctypes.data)

    def spec(self, array: Any, count: int) -> Any:
        """Return mpi4py's description of a buffer."""
        return self.MPI.IN_PLACE if array is None else [array, count, self.datatype]

    def vector(self, array: Any, counts: Any, starts: Any) -> Any:
        """Return mpi4py's description of a buffer with counts and displacements."""
        return self.MPI.IN_PLACE if array is None else [array, (counts, starts), self.datatype]


def setting(MPI: Any, comm: Any, case: Case, op: Any) -> Setting:
    """Return what the builders need; raises UsageError where MPI cannot express the case."""
    cell = case.cell
    row = COLLECTIVES[cell.collective]
    size = comm.Get_size()
    unit = ITEMSIZE.get(cell.dtype, 1) * (size if row.per_rank else 1)
    if cell.dtype not in NUMPY_DTYPES:
        datatype(MPI, cell.dtype)
    if row.sized and (cell.nbytes <= 0 or cell.nbytes % unit):
        raise UsageError(
            f"{cell.collective} of {cell.nbytes} B is no whole number of {unit} B on {size} ranks"
        )
    count = cell.nbytes // ITEMSIZE[cell.dtype]
    if count > _INT_MAX:
        raise UsageError(
            f"{cell.nbytes} B of {cell.dtype} are more elements than an MPI count holds ({_INT_MAX})"
        )
    return Setting(
        MPI=MPI,
        comm=comm,
        datatype=datatype(MPI, cell.dtype),
        op=op or (operator(MPI, cell.op) if row.reduces else None),
        count=count,
        block=count // size,
        in_place=cell.in_place,
        size=size,
        rank=comm.Get_rank(),
    )


# --- one builder a collective: (C function, arguments, mpi4py callable, keepalive) ---------------------------

_Built = tuple[str, tuple[int, ...], Callable[[], object], Any]


def _h(s: Setting, thing: Any) -> int:
    return handle(s.MPI, thing)


def _allreduce(s: Setting, send: Any, recv: Any, _root: int) -> _Built:
    src = None if s.in_place else send
    arguments = (s.address(src), s.address(recv), s.count, _h(s, s.datatype), _h(s, s.op), _h(s, s.comm))
    return (
        "MPI_Allreduce",
        arguments,
        partial(s.comm.Allreduce, s.spec(src, s.count), s.spec(recv, s.count), s.op),
        None,
    )


def _bcast(s: Setting, send: Any, _recv: Any, root: int) -> _Built:
    arguments = (s.address(send), s.count, _h(s, s.datatype), root, _h(s, s.comm))
    return "MPI_Bcast", arguments, partial(s.comm.Bcast, s.spec(send, s.count), root), None


def _allgather(s: Setting, send: Any, recv: Any, _root: int) -> _Built:
    src, dt = (None if s.in_place else send), _h(s, s.datatype)
    arguments = (s.address(src), s.block, dt, s.address(recv), s.block, dt, _h(s, s.comm))
    return (
        "MPI_Allgather",
        arguments,
        partial(s.comm.Allgather, s.spec(src, s.block), [recv, s.block, s.datatype]),
        None,
    )


def _allgatherv(s: Setting, send: Any, recv: Any, _root: int) -> _Built:
    src, dt = (None if s.in_place else send), _h(s, s.datatype)
    counts, starts = _vector(s)
    arguments = (
        s.address(src), s.block, dt, s.address(recv), counts.ctypes.data, starts.ctypes.data, dt, _h(s, s.comm),
    )  # fmt: skip
    return (
        "MPI_Allgatherv",
        arguments,
        partial(s.comm.Allgatherv, s.spec(src, s.block), s.vector(recv, counts, starts)),
        (counts, starts),
    )


def _reduce_scatter(s: Setting, send: Any, recv: Any, _root: int) -> _Built:
    src = None if s.in_place else send
    arguments = (s.address(src), s.address(recv), s.block, _h(s, s.datatype), _h(s, s.op), _h(s, s.comm))
    return (
        "MPI_Reduce_scatter_block",
        arguments,
        partial(s.comm.Reduce_scatter_block, s.spec(src, s.block), [recv, s.block, s.datatype], s.op),
        None,
    )


def _reduce_scatter_v(s: Setting, send: Any, recv: Any, _root: int) -> _Built:
    src = None if s.in_place else send
    counts, _ = _vector(s)
    arguments = (
        s.address(src), s.address(recv), counts.ctypes.data, _h(s, s.datatype), _h(s, s.op), _h(s, s.comm),
    )  # fmt: skip
    whole = s.count if s.in_place else s.block
    return (
        "MPI_Reduce_scatter",
        arguments,
        partial(s.comm.Reduce_scatter, s.spec(src, s.count), [recv, whole, s.datatype], counts, s.op),
        counts,
    )


def _reduce(s: Setting, send: Any, recv: Any, root: int) -> _Built:
    at_root = s.rank == root
    src = None if s.in_place and at_root else send
    arguments = (
        s.address(src), s.address(recv), s.count, _h(s, s.datatype), _h(s, s.op), root, _h(s, s.comm),
    )  # fmt: skip
    target = [recv, s.count, s.datatype] if at_root else None
    return "MPI_Reduce", arguments, partial(s.comm.Reduce, s.spec(src, s.count), target, s.op, root), None


def _alltoall(s: Setting, send: Any, recv: Any, _root: int) -> _Built:
    src, dt = (None if s.in_place else send), _h(s, s.datatype)
    arguments = (s.address(src), s.block, dt, s.address(recv), s.block, dt, _h(s, s.comm))
    return (
        "MPI_Alltoall",
        arguments,
        partial(s.comm.Alltoall, s.spec(src, s.block), [recv, s.block, s.datatype]),
        None,
    )


def _alltoallv(s: Setting, send: Any, recv: Any, _root: int) -> _Built:
    src, dt = (None if s.in_place else send), _h(s, s.datatype)
    counts, starts = _vector(s)
    c, d = counts.ctypes.data, starts.ctypes.data
    arguments = (s.address(src), c, d, dt, s.address(recv), c, d, dt, _h(s, s.comm))
    return (
        "MPI_Alltoallv",
        arguments,
        partial(s.comm.Alltoallv, s.vector(src, counts, starts), s.vector(recv, counts, starts)),
        (counts, starts),
    )


def _gather(s: Setting, send: Any, recv: Any, root: int) -> _Built:
    at_root, dt = s.rank == root, _h(s, s.datatype)
    src = None if s.in_place and at_root else send
    arguments = (s.address(src), s.block, dt, s.address(recv), s.block, dt, root, _h(s, s.comm))
    target = [recv, s.block, s.datatype] if at_root else None
    return "MPI_Gather", arguments, partial(s.comm.Gather, s.spec(src, s.block), target, root), None


def _scatter(s: Setting, send: Any, recv: Any, root: int) -> _Built:
    at_root, dt = s.rank == root, _h(s, s.datatype)
    target = None if s.in_place and at_root else recv
    arguments = (s.address(send), s.block, dt, s.address(target), s.block, dt, root, _h(s, s.comm))
    source = [send, s.block, s.datatype] if at_root else None
    return "MPI_Scatter", arguments, partial(s.comm.Scatter, source, s.spec(target, s.block), root), None


def _barrier(s: Setting, _send: Any, _recv: Any, _root: int) -> _Built:
    return "MPI_Barrier", (_h(s, s.comm),), s.comm.Barrier, None


def _sendrecv(s: Setting, send: Any, recv: Any, _root: int) -> _Built:
    """Send to the next rank, receive from the one before, as nccl-tests' sendrecv_perf does."""
    to, source = (s.rank + 1) % s.size, (s.rank - 1) % s.size
    status, dt, comm = s.MPI.Status(), _h(s, s.datatype), _h(s, s.comm)
    at = int(s.MPI._addressof(status))  # noqa: SLF001
    if s.in_place:
        arguments: tuple[int, ...] = (s.address(recv), s.count, dt, to, _TAG, source, _TAG, comm, at)
        replace = partial(s.comm.Sendrecv_replace, s.spec(recv, s.count), to, _TAG, source, _TAG, status)
        return "MPI_Sendrecv_replace", arguments, replace, status
    arguments = (
        s.address(send), s.count, dt, to, _TAG, s.address(recv), s.count, dt, source, _TAG, comm, at,
    )  # fmt: skip
    both = partial(
        s.comm.Sendrecv, s.spec(send, s.count), to, _TAG, s.spec(recv, s.count), source, _TAG, status
    )
    return "MPI_Sendrecv", arguments, both, status


def _vector(s: Setting) -> tuple[Any, Any]:
    counts = np.full(s.size, s.block, dtype=np.intc)
    starts = np.arange(s.size, dtype=np.intc) * np.intc(s.block)
    return counts, starts


BUILDERS: dict[str, Callable[[Setting, Any, Any, int], _Built]] = {
    "allreduce": _allreduce, "bcast": _bcast, "allgather": _allgather, "allgatherv": _allgatherv,
    "reduce_scatter": _reduce_scatter, "reduce_scatter_v": _reduce_scatter_v, "reduce": _reduce,
    "alltoall": _alltoall, "alltoallv": _alltoallv, "gather": _gather, "scatter": _scatter,
    "barrier": _barrier, "sendrecv": _sendrecv,
}  # fmt: skip
"""Collective → (setting, send, receive, root) → (C function, arguments, mpi4py callable, what to keep alive)."""
