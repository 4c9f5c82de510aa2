"""Open MPI's message counters (pml_monitoring, an MPI_T performance variable): messages and bytes per destination.

Only there when the launch set OMPI_MCA_pml_monitoring_enable=1.
"""

import ctypes
from collections.abc import Callable
from ctypes import byref, c_int, c_void_p
from typing import Any

import numpy as np
import numpy.typing as npt

from collbench.errors import UnansweredError
from collbench.mpi.cvars import load

Matrix = npt.NDArray[np.int64]

_COUNT = "pml_monitoring_messages_count"
_BYTES = "pml_monitoring_messages_size"
_CLASS_SIZE = {"openmpi": 2}
"""MPI_T_PVAR_CLASS_SIZE: the numbering is each library's own; only Open MPI has these variables."""


class MessageCounters:
    """Counts what this rank sends to each rank of a communicator.

    Args:
        MPI: the module ``mpi4py.MPI``.
        comm: the communicator whose ranks are the destinations; all ranks of it must make one.

    Raises:
        UnansweredError: the library does not count messages in this launch.
    """

    def __init__(self, MPI: Any, comm: Any) -> None:
        self._lib = load(MPI)
        self._comm = comm
        self._session = c_void_p()
        self._handles: list[tuple[c_void_p, int]] = []
        provided = c_int()
        self._check("MPI_T_init_thread", self._lib.MPI_T_init_thread(MPI.THREAD_SINGLE, byref(provided)))
        self._check("session", self._lib.MPI_T_pvar_session_create(byref(self._session)))
        world = MPI.COMM_WORLD  # Open MPI counts per rank of the world and refuses any other communicator
        self._object = c_void_p(MPI._handleof(world))  # noqa: SLF001 - mpi4py's documented handle access
        group = comm.Get_group()
        self._where = group.Translate_ranks(None, world.Get_group())
        for name in (_COUNT, _BYTES):
            self._open(name)

    def measure(self, call: Callable[[], object]) -> tuple[Matrix, Matrix]:
        """Run ``call`` and return (messages, bytes) sent, shape (ranks, ranks): row = sender (collective).

        What the gathering of the numbers itself sends is outside the two readings.
        """
        before = self._read()
        call()
        after = self._read()
        delta = after - before
        size = self._comm.Get_size()
        everyone = np.zeros((size, 2, size), dtype=np.int64)
        self._comm.Allgather(np.ascontiguousarray(delta), everyone)
        return everyone[:, 0, :], everyone[:, 1, :]

    def close(self) -> None:
        """Give the handles and the session back."""
        for handle, _ in self._handles:
            self._lib.MPI_T_pvar_handle_free(self._session, byref(handle))
        self._handles.clear()
        self._lib.MPI_T_pvar_session_free(byref(self._session))

    def _check(self, what: str, code: int) -> None:
        if code:
            raise UnansweredError(
                f"this launch does not count messages ({what}: code {code}): it needs Open MPI "
                "with OMPI_MCA_pml_monitoring_enable=1"
            )

    def _open(self, name: str) -> None:
        index, handle, count = c_int(), c_void_p(), c_int()
        found = self._lib.MPI_T_pvar_get_index(name.encode(), c_int(_CLASS_SIZE["openmpi"]), byref(index))
        self._check(name, found)
        code = self._lib.MPI_T_pvar_handle_alloc(
            self._session, index, byref(self._object), byref(handle), byref(count)
        )
        self._check(name, code)
        # 4.1 calls the counters continuous and refuses to start them; a counter that does not run fails in read.
        self._lib.MPI_T_pvar_start(self._session, handle)
        self._handles.append((handle, count.value))

    def _read(self) -> Matrix:
        rows = []
        for handle, count in self._handles:
            values = (ctypes.c_size_t * count)()
            self._check("read", self._lib.MPI_T_pvar_read(self._session, handle, values))
            rows.append([values[rank] for rank in self._where])
        return np.array(rows, dtype=np.int64)
