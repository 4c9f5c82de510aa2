"""One prepared call of a collective: buffers, C function with its arguments, and the same call in mpi4py."""

import ctypes
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from collbench.collectives import COLLECTIVES
from collbench.errors import UnansweredError
from collbench.mpi.arguments import BUILDERS, datatype, handle, operator
from collbench.mpi.arguments import setting as argument_setting
from collbench.mpi.buffers import Buffers
from collbench.mpi.gate import GATES, Gate
from collbench.records import Case

__all__ = ["Call", "MpiCallError", "datatype", "function_address", "handle", "operator", "prepare", "sizes"]


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
        buffers: the memory used, set i works on pair i mod pairs; None for a bare C function.
        roots: root of each set.
        keepalive: whatever the arguments point to.
    """

    function: str
    comm: Any
    sync_comm: Any
    address: int
    argument_sets: tuple[tuple[int, ...], ...]
    callables: tuple[Callable[[], object], ...]
    buffers: Buffers | None = None
    roots: tuple[int, ...] = (0,)
    keepalive: tuple[Any, ...] = field(default=(), repr=False)
    _gates: dict[str, Gate] = field(default_factory=dict, repr=False, compare=False)

    def gate(self, MPI: Any, sync: str) -> Gate:
        """Return where ranks meet before each call; ``sync`` is a key of ``gate.GATES``."""
        if sync not in self._gates:
            self._gates[sync] = GATES[sync](MPI, self.sync_comm)
        return self._gates[sync]

    @property
    def root(self) -> int:
        """The root of the first set."""
        return self.roots[0]

    @property
    def rotation(self) -> str | None:
        """What goes round from call to call, in words that a row holds; None where nothing does."""
        pairs = (
            len(self.buffers)
            if self.buffers is not None and self.buffers.send.size + self.buffers.recv.size
            else 1
        )
        words = [f"{pairs} buffers"] if pairs > 1 else []
        return ", ".join([*words, *(["root"] if len(set(self.roots)) > 1 else [])]) or None

    @classmethod
    def from_pointer(
        cls,
        fn_address: int,
        state_address: int | Sequence[int],
        keepalive: Any = None,
        *,
        sync_comm: Any = None,
        buffers: Buffers | None = None,
        roots: tuple[int, ...] = (0,),
    ) -> "Call":
        """Return the call of a C function ``int fn(void *state)``, for example of a portable schedule.

        Args:
            fn_address: address of the function; it returns 0 or an MPI error code.
            state_address: its only argument, or one for each set.
            keepalive: whatever must live as long as the call.
            sync_comm: communicator of the barriers between calls.
            buffers: the memory it works on.
            roots: root of each set.
        """
        states = (state_address,) if isinstance(state_address, int) else tuple(state_address)
        function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(fn_address)

        def once(state: int) -> None:
            code = function(state)
            if code:
                raise MpiCallError(code, "returned by a schedule")

        return cls(
            function="pointer",
            comm=sync_comm,
            sync_comm=sync_comm,
            address=fn_address,
            argument_sets=tuple((state,) for state in states),
            callables=tuple(partial(once, state) for state in states),
            buffers=buffers,
            roots=roots,
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


def rotated_roots(
    case: Case, size: int, *, root: int = 0, copies: int = 1, rotate_root: bool = False
) -> tuple[int, ...]:
    """Return the root of each argument set; every pair of buffers and every root comes equally often."""
    if not (rotate_root and COLLECTIVES[case.cell.collective].rooted):
        return (root,) * copies
    return tuple((root + i) % size for i in range(math.lcm(copies, size)))


def rotated_buffers(case: Case, rank: int, size: int, roots: Sequence[int], copies: int) -> Buffers:
    """Return ``copies`` pairs of buffers, each large enough for this rank under every root."""
    need = [sizes(case, rank=rank, size=size, root=r) for r in set(roots)]
    return Buffers(max(s for s, _ in need), max(r for _, r in need), case.cell.dtype, copies)


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
    setting = argument_setting(MPI, comm, case, op)
    roots = rotated_roots(case, setting.size, root=root, copies=copies, rotate_root=rotate_root)
    buffers = rotated_buffers(case, setting.rank, setting.size, roots, copies)
    build = BUILDERS[case.cell.collective]
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
        roots=roots,
        keepalive=tuple(keep for _, _, _, keep in built),
    )
