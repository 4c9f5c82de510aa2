"""One prepared call of a collective: buffers, C function with its arguments, and the same call in mpi4py."""

import ctypes
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from collbench.collectives import COLLECTIVES
from collbench.errors import UnansweredError, UsageError
from collbench.mpi.buffers import NUMPY_DTYPES, Buffers
from collbench.records import ITEMSIZE, Case

_INT_MAX = 2**31 - 1
_TAG = 77

_DATATYPES = {
    "int8": "INT8_T", "uint8": "UINT8_T", "int32": "INT32_T", "uint32": "UINT32_T", "int64": "INT64_T",
    "uint64": "UINT64_T", "float32": "FLOAT", "float64": "DOUBLE",
}  # fmt: skip
_OPS = {"sum": "SUM", "max": "MAX", "min": "MIN", "prod": "PROD"}


class MpiCallError(UnansweredError):
    """A measured call returned an error of the MPI library.

    Attributes:
        code: what the call returned.
        text: the library's words for it.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"the MPI call returned error {code}: {text}")
        self.code = code
        self.text = text


@dataclass(frozen=True)
class Call:
    """A call that can be repeated: by the C loop and by mpi4py.

    Attributes:
        function: name of the C function.
        comm: communicator of the call; None for a bare C function.
        sync_comm: communicator of the barriers between calls.
        address: of the C function.
        argument_sets: pointer-wide arguments for each buffer copy or root; iteration i takes set i mod n.
        callables: the same calls in mpi4py, in the same order.
        buffers: the memory used; None for a bare C function.
        root: root of the first set.
        keepalive: whatever the arguments point to.
    """

    function: str
    comm: Any
    sync_comm: Any
    address: int
    argument_sets: tuple[tuple[int, ...], ...]
    callables: tuple[Callable[[], object], ...]
    buffers: Buffers | None = None
    root: int = 0
    keepalive: tuple[Any, ...] = field(default=(), repr=False)

    @classmethod
    def from_pointer(
        cls,
        fn_address: int,
        state_address: int,
        keepalive: Any = None,
        *,
        sync_comm: Any = None,
        buffers: Buffers | None = None,
    ) -> "Call":
        """Return the call of a C function ``int fn(void *state)``, for example of a portable schedule.

        Args:
            fn_address: address of the function; it returns 0 or an MPI error code.
            state_address: its only argument.
            keepalive: whatever must live as long as the call.
            sync_comm: communicator of the barriers between calls.
            buffers: the memory it works on.
        """
        function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(fn_address)

        def once() -> None:
            code = function(state_address)
            if code:
                raise MpiCallError(code, "returned by a schedule")

        return cls(
            function="pointer",
            comm=sync_comm,
            sync_comm=sync_comm,
            address=fn_address,
            argument_sets=((state_address,),),
            callables=(once,),
            buffers=buffers,
            keepalive=(keepalive, function),
        )


def function_address(MPI: Any, name: str) -> int:
    """Return the address that a call of ``name`` reaches: what is preloaded first, then the library's own."""
    for library in (ctypes.CDLL(None), ctypes.CDLL(MPI.__file__)):
        try:
            address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
        except AttributeError:
            continue
        if address:
            return address
    raise UnansweredError(f"the loaded MPI library has no function {name}")


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
class _Setting:
    """What the argument builders need: elements, per-rank elements and the pieces of the call."""

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
        return int(self.MPI.IN_PLACE) if array is None else int(array.ctypes.data)

    def spec(self, array: Any, count: int) -> Any:
        return self.MPI.IN_PLACE if array is None else [array, count, self.datatype]

    def vector(self, array: Any, counts: Any, starts: Any) -> Any:
        return self.MPI.IN_PLACE if array is None else [array, (counts, starts), self.datatype]


def sizes(case: Case, *, rank: int, size: int, root: int) -> tuple[int, int]:
    """Return the bytes of the send and the receive buffer of one rank."""
    total = case.cell.nbytes
    part = total // size
    name = case.cell.collective
    if name == "barrier":
        return 0, 0
    if name in ("allgather", "allgatherv"):
        return part, total
    if name in ("reduce_scatter", "reduce_scatter_v"):
        return total, total if case.cell.in_place else part
    if name == "gather":
        return part, total if rank == root else 0
    if name == "scatter":
        return (total if rank == root else 0), part
    return total, total


def prepare(
    MPI: Any,
    comm: Any,
    case: Case,
    *,
    root: int = 0,
    sync_comm: Any = None,
    copies: int = 1,
    rotate_root: bool = False,
    op: Any = None,
) -> Call:
    """Return the call of a case on ``comm``, with fresh buffers.

    Args:
        MPI: the module ``mpi4py.MPI``.
        comm: communicator that the case's algorithm is forced on.
        case: collective, total bytes, dtype, operator and whether in place.
        root: root of rooted collectives.
        sync_comm: communicator of the barriers between calls; ``comm`` if None.
        copies: buffer pairs to rotate through (against cache effects).
        rotate_root: let the root go round, one rank further each iteration.
        op: an MPI operator instead of the cell's, for proofs.

    Raises:
        UsageError: a size that is no whole number of elements (per rank), or more than an MPI count holds.
    """
    setting = _setting(MPI, comm, case, op)
    rotate_root = rotate_root and COLLECTIVES[case.cell.collective].rooted
    sets = math.lcm(copies, setting.size) if rotate_root else copies
    roots = [(root + i) % setting.size if rotate_root else root for i in range(sets)]
    need = [sizes(case, rank=setting.rank, size=setting.size, root=r) for r in set(roots)]
    buffers = Buffers(max(s for s, _ in need), max(r for _, r in need), case.cell.dtype, copies)
    build = _BUILDERS[case.cell.collective]
    built = [
        build(setting, buffers.sends[i % copies], buffers.recvs[i % copies], r) for i, r in enumerate(roots)
    ]
    comm.Set_errhandler(MPI.ERRORS_RETURN)
    return Call(
        function=built[0][0],
        comm=comm,
        sync_comm=sync_comm or comm,
        address=function_address(MPI, built[0][0]),
        argument_sets=tuple(arguments for _, arguments, _, _ in built),
        callables=tuple(callable_ for _, _, callable_, _ in built),
        buffers=buffers,
        root=root,
        keepalive=tuple(keep for _, _, _, keep in built),
    )


def _setting(MPI: Any, comm: Any, case: Case, op: Any) -> _Setting:
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
    return _Setting(
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


def _h(s: _Setting, thing: Any) -> int:
    return handle(s.MPI, thing)


def _allreduce(s: _Setting, send: Any, recv: Any, _root: int) -> _Built:
    src = None if s.in_place else send
    arguments = (s.address(src), s.address(recv), s.count, _h(s, s.datatype), _h(s, s.op), _h(s, s.comm))
    return (
        "MPI_Allreduce",
        arguments,
        partial(s.comm.Allreduce, s.spec(src, s.count), s.spec(recv, s.count), s.op),
        None,
    )


def _bcast(s: _Setting, send: Any, _recv: Any, root: int) -> _Built:
    arguments = (s.address(send), s.count, _h(s, s.datatype), root, _h(s, s.comm))
    return "MPI_Bcast", arguments, partial(s.comm.Bcast, s.spec(send, s.count), root), None


def _allgather(s: _Setting, send: Any, recv: Any, _root: int) -> _Built:
    src, dt = (None if s.in_place else send), _h(s, s.datatype)
    arguments = (s.address(src), s.block, dt, s.address(recv), s.block, dt, _h(s, s.comm))
    return (
        "MPI_Allgather",
        arguments,
        partial(s.comm.Allgather, s.spec(src, s.block), [recv, s.block, s.datatype]),
        None,
    )


def _allgatherv(s: _Setting, send: Any, recv: Any, _root: int) -> _Built:
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


def _reduce_scatter(s: _Setting, send: Any, recv: Any, _root: int) -> _Built:
    src = None if s.in_place else send
    arguments = (s.address(src), s.address(recv), s.block, _h(s, s.datatype), _h(s, s.op), _h(s, s.comm))
    return (
        "MPI_Reduce_scatter_block",
        arguments,
        partial(s.comm.Reduce_scatter_block, s.spec(src, s.block), [recv, s.block, s.datatype], s.op),
        None,
    )


def _reduce_scatter_v(s: _Setting, send: Any, recv: Any, _root: int) -> _Built:
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


def _reduce(s: _Setting, send: Any, recv: Any, root: int) -> _Built:
    at_root = s.rank == root
    src = None if s.in_place and at_root else send
    arguments = (
        s.address(src), s.address(recv), s.count, _h(s, s.datatype), _h(s, s.op), root, _h(s, s.comm),
    )  # fmt: skip
    target = [recv, s.count, s.datatype] if at_root else None
    return "MPI_Reduce", arguments, partial(s.comm.Reduce, s.spec(src, s.count), target, s.op, root), None


def _alltoall(s: _Setting, send: Any, recv: Any, _root: int) -> _Built:
    src, dt = (None if s.in_place else send), _h(s, s.datatype)
    arguments = (s.address(src), s.block, dt, s.address(recv), s.block, dt, _h(s, s.comm))
    return (
        "MPI_Alltoall",
        arguments,
        partial(s.comm.Alltoall, s.spec(src, s.block), [recv, s.block, s.datatype]),
        None,
    )


def _alltoallv(s: _Setting, send: Any, recv: Any, _root: int) -> _Built:
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


def _gather(s: _Setting, send: Any, recv: Any, root: int) -> _Built:
    at_root, dt = s.rank == root, _h(s, s.datatype)
    src = None if s.in_place and at_root else send
    arguments = (s.address(src), s.block, dt, s.address(recv), s.block, dt, root, _h(s, s.comm))
    target = [recv, s.block, s.datatype] if at_root else None
    return "MPI_Gather", arguments, partial(s.comm.Gather, s.spec(src, s.block), target, root), None


def _scatter(s: _Setting, send: Any, recv: Any, root: int) -> _Built:
    at_root, dt = s.rank == root, _h(s, s.datatype)
    target = None if s.in_place and at_root else recv
    arguments = (s.address(send), s.block, dt, s.address(target), s.block, dt, root, _h(s, s.comm))
    source = [send, s.block, s.datatype] if at_root else None
    return "MPI_Scatter", arguments, partial(s.comm.Scatter, source, s.spec(target, s.block), root), None


def _barrier(s: _Setting, _send: Any, _recv: Any, _root: int) -> _Built:
    return "MPI_Barrier", (_h(s, s.comm),), s.comm.Barrier, None


def _sendrecv(s: _Setting, send: Any, recv: Any, _root: int) -> _Built:
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


def _vector(s: _Setting) -> tuple[Any, Any]:
    counts = np.full(s.size, s.block, dtype=np.intc)
    starts = np.arange(s.size, dtype=np.intc) * np.intc(s.block)
    return counts, starts


_BUILDERS: dict[str, Callable[[_Setting, Any, Any, int], _Built]] = {
    "allreduce": _allreduce, "bcast": _bcast, "allgather": _allgather, "allgatherv": _allgatherv,
    "reduce_scatter": _reduce_scatter, "reduce_scatter_v": _reduce_scatter_v, "reduce": _reduce,
    "alltoall": _alltoall, "alltoallv": _alltoallv, "gather": _gather, "scatter": _scatter,
    "barrier": _barrier, "sendrecv": _sendrecv,
}  # fmt: skip
