"""Where ranks meet before a timed call: the library's barrier, or collbench's own over point-to-point messages.

How skewed ranks leave a barrier is part of what is measured after it: bcast of 876 B on 4 ranks took 4 or 9 µs, by the
algorithm of MPI_Barrier alone. A table or an environment that changes the library's barrier would pass for one that
changes every other collective; the own one is for comparisons across such a change. Where the library's is tight it adds
skew (MPICH, 2 ranks on one node: 0.4 µs), so it is not the rule.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from collbench.mpi.arguments import handle
from collbench.portable.patterns import powers

TAG = 30241
"""Below the least upper bound of tags that MPI grants, and no schedule's own."""
_NOTHING = np.zeros(1, np.uint8)


@dataclass(frozen=True)
class Gate:
    """One meeting of all ranks: MPI calls made in order.

    Attributes:
        function: name of the C function of every call.
        arguments: shape (calls, arity), pointer-wide.
        callables: the same calls in mpi4py.
        keepalive: what the arguments point to.
    """

    function: str
    arguments: npt.NDArray[np.int64]
    callables: tuple[Callable[[], object], ...]
    keepalive: tuple[Any, ...] = ()


def barrier(MPI: Any, comm: Any) -> Gate:
    """Return the library's own barrier."""
    return Gate("MPI_Barrier", np.array([[handle(MPI, comm)]], np.int64), (comm.Barrier,))


def dissemination(MPI: Any, comm: Any) -> Gate:
    """Return ceil(log2 ranks) rounds in which rank r sends to r + 2^k and receives from r − 2^k, empty messages.

    Source: Hensgen, Finkel, Manber, Two algorithms for barrier synchronization (1988).
    """
    size, rank = comm.Get_size(), comm.Get_rank()
    status, byte, own = MPI.Status(), handle(MPI, MPI.BYTE), handle(MPI, comm)
    at, empty = int(MPI._addressof(status)), int(_NOTHING.ctypes.data)  # noqa: SLF001
    arguments, callables = [], []
    for distance in powers(size):
        to, source = (rank + distance) % size, (rank - distance) % size
        arguments.append((empty, 0, byte, to, TAG, empty, 0, byte, source, TAG, own, at))
        callables.append(_exchange(comm, [_NOTHING, 0, MPI.BYTE], to, source))
    flat = np.array(arguments, np.int64).reshape(len(arguments), 12)
    return Gate("MPI_Sendrecv", flat, tuple(callables), (status,))


def _exchange(comm: Any, nothing: list[Any], to: int, source: int) -> Callable[[], object]:
    return lambda: comm.Sendrecv(nothing, to, TAG, nothing, source, TAG)


GATES: dict[str, Callable[[Any, Any], Gate]] = {"barrier": barrier, "dissemination": dissemination}
"""Synchronisation → (MPI, communicator) → what is called before each timed call."""
