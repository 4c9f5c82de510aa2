"""Running a portable algorithm: a C function and its state for the timed loop, with buffers and scratch memory."""

import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from collbench.errors import UnansweredError
from collbench.mpi.buffers import Array, Buffers
from collbench.mpi.calls import datatype, function_address, handle, sizes
from collbench.portable import program, sendrecv
from collbench.portable.catalogue import schedule
from collbench.portable.schedule import Rows, Schedule, ShapeError
from collbench.records import ITEMSIZE, Case

__all__ = ["Prepared", "available", "prepare", "schedule"]

TYPES = ("int32", "int64", "float32", "float64")
OPERATORS = ("sum", "max", "min", "prod")
"""The order of the C reductions: kind = 4 · type + operator."""
REASON = (
    "portable algorithms run in a compiled extension that is missing here: "
    "install a C compiler and reinstall collbench"
)
_TAG = 5
_INT_MAX = 2**31 - 1
_OWN_COMM: dict[str, int] = {}


def _extension() -> ModuleType | None:
    try:
        return import_module("collbench.portable._schedule")
    except ImportError:
        return None


def available() -> str | None:
    """Return None when portable algorithms can run here, else the reason why not."""
    return None if _extension() else REASON


@dataclass(frozen=True)
class Prepared:
    """One rank's part of a case, ready to be called again and again: ``int fn(void *state)``.

    Attributes:
        function_address: of the C function.
        state_address: its argument.
        buffers: the caller's memory, page aligned, as ``mpi.calls.prepare`` lays it out.
        schedule: what is run.
        source: sendrecv: rank whose data this rank receives, None where it receives nothing.
        messages: messages one after the other that one call's time stands for (sendrecv; otherwise 1).
        keepalive: whatever the state points to.
    """

    function_address: int
    state_address: int
    buffers: Buffers
    schedule: Schedule
    source: int | None
    messages: int
    keepalive: tuple[Any, ...]

    @property
    def send(self) -> Array:
        """The send buffer; a broadcast's data on every rank."""
        return self.buffers.send

    @property
    def recv(self) -> Array:
        """The receive buffer."""
        return self.buffers.recv


def prepare(
    MPI: Any,
    comm: Any,
    case: Case,
    *,
    root: int = 0,
    node_of: Sequence[int] | None = None,
    buffers: Buffers | None = None,
) -> Prepared:
    """Return a case of provider ``portable`` ready to run on ``comm`` (collective: the first call duplicates it).

    Args:
        MPI: the module ``mpi4py.MPI``.
        comm: the ranks; messages travel on a private duplicate.
        case: what to run.
        root: root of rooted collectives.
        node_of: node index of each rank, for hierarchical algorithms and pairs; None = one node.
        buffers: memory to work on, at least as large as ``mpi.calls.sizes`` says; None = fresh.

    Raises:
        UnansweredError: the extension is missing, or a message has more elements than an MPI count holds.
        UsageError: the algorithm does not exist for this case; the message is the reason.
    """
    module = _extension()
    if module is None:
        raise UnansweredError(REASON)
    cell = case.cell
    kind = _kind(case)
    rank, size = comm.Get_rank(), comm.Get_size()
    plan = schedule(
        cell.collective, case.algorithm, size, cell.nbytes, ITEMSIZE[cell.dtype],
        node_of=node_of, params=case.params, root=root, in_place=cell.in_place,
    )  # fmt: skip
    rows = plan.rows(rank)
    if rows.nbytes.max(initial=0) // plan.itemsize > _INT_MAX:
        raise UnansweredError(f"a message of {rows.nbytes.max()} B has more elements than an MPI count holds")
    buffers = buffers or Buffers(*sizes(case, rank=rank, size=size, root=root), cell.dtype)
    ops, memory = _operations(plan, rows, rank, buffers)
    state, keep = _state(MPI, _private(MPI, comm), datatype(MPI, cell.dtype), ops, kind, plan.itemsize)
    params = dict(case.params)
    pair = cell.collective == "sendrecv"
    nodes = node_of if node_of is not None else (0,) * size
    return Prepared(
        function_address=module.address(),
        state_address=state.ctypes.data,
        buffers=buffers,
        schedule=plan,
        source=sendrecv.source_of(rank, plan.algorithm, nodes, params) if pair else None,
        messages=sendrecv.messages(plan.algorithm, cell.nbytes, params) if pair else 1,
        keepalive=(state, *keep, memory, buffers),
    )


def _operations(
    plan: Schedule, rows: Rows, rank: int, buffers: Buffers
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Return a rank's operations and the scratch memory that they use, every page touched."""
    need = program.needs(plan, rows, rank)
    memory = np.frombuffer(mmap.mmap(-1, max(program.scratch_bytes(need), mmap.PAGESIZE)), dtype=np.uint8)
    memory.fill(0)
    send, recv = buffers.send.ctypes.data, buffers.recv.ctypes.data
    where = program.layout(plan, rank, need, send, recv, memory.ctypes.data)
    return program.program(plan, rows, rank, where), memory


def _kind(case: Case) -> int:
    """Return the number of the C reduction (0 where nothing is combined)."""
    cell = case.cell
    if cell.op is None and cell.collective not in ("allreduce", "reduce", "reduce_scatter"):
        return 0
    op = cell.op or "sum"
    if cell.dtype not in TYPES or op not in OPERATORS:
        raise ShapeError(
            f"portable algorithms combine {', '.join(TYPES)} by {', '.join(OPERATORS)} only, not {cell.dtype} by {op}"
        )
    return 4 * TYPES.index(cell.dtype) + OPERATORS.index(op)


def _state(
    MPI: Any,
    comm: Any,
    kind_of_data: Any,
    ops: npt.NDArray[np.int64],
    kind: int,
    itemsize: int,
) -> tuple[npt.NDArray[np.int64], tuple[Any, ...]]:
    """Return the interpreter's state and what it points to."""
    most = _most_posted(ops)
    size = int(MPI._sizeof(MPI.Request))  # noqa: SLF001 - mpi4py's documented access to handles
    requests = np.zeros(max(1, most) * size, np.uint8)
    statuses = np.zeros(max(1, most) * int(MPI._sizeof(MPI.Status)), np.uint8)  # noqa: SLF001
    state = np.array(
        [
            function_address(MPI, "MPI_Isend"), function_address(MPI, "MPI_Irecv"),
            function_address(MPI, "MPI_Waitall"), handle(MPI, comm), handle(MPI, kind_of_data), _TAG, itemsize,
            size, requests.ctypes.data, statuses.ctypes.data, ops.ctypes.data, len(ops), kind,
        ],
        dtype=np.int64,
    )  # fmt: skip
    return state, (requests, statuses, ops, comm)


def _most_posted(ops: npt.NDArray[np.int64]) -> int:
    """Return the most requests that are open before any wait."""
    posted = np.isin(ops[:, 0], (program.RECEIVE, program.SEND))
    before = np.cumsum(posted)
    at_waits = before[ops[:, 0] == program.WAIT]
    ends = np.append(np.append(0, at_waits), before[-1:])
    return int(np.diff(ends).max(initial=0))


def _private(MPI: Any, comm: Any) -> Any:
    """Return the duplicate of ``comm`` that portable messages travel on, made at the first call (collective)."""
    if "key" not in _OWN_COMM:
        _OWN_COMM["key"] = MPI.Comm.Create_keyval()
    own = comm.Get_attr(_OWN_COMM["key"])
    if own is None:
        own = comm.Dup()
        own.Set_errhandler(MPI.ERRORS_RETURN)
        comm.Set_attr(_OWN_COMM["key"], own)
    return own
