"""All calls into CUDA and NCCL, through NVIDIA's own bindings. The only module that imports them at its top.

Arguments are positional or named as in nccl4py 0.6 and cuda-core 1; a test binds every call below to the signatures of
the installed packages. Timed calls go through the low-level binding: it takes pointers, so nothing is resolved per call.
"""

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
from cuda.bindings import runtime
from cuda.core import Device, EventOptions
from nccl import core
from nccl.bindings import nccl as bindings

from collbench.algorithms import Version
from collbench.backends.nccl_data import Codes
from collbench.errors import UnansweredError
from collbench.records import Cell

Call = Callable[[], None]

DTYPES = {
    "int8": core.INT8, "uint8": core.UINT8, "int32": core.INT32, "uint32": core.UINT32, "int64": core.INT64,
    "uint64": core.UINT64, "float16": core.FLOAT16, "float32": core.FLOAT32, "float64": core.FLOAT64,
    "bfloat16": core.BFLOAT16, "float8e4m3": core.FLOAT8E4M3, "float8e5m2": core.FLOAT8E5M2,
}  # fmt: skip
OPS = {"sum": core.SUM, "prod": core.PROD, "max": core.MAX, "min": core.MIN}
_OWN = {name: os.environ.get(name) for name in ("NCCL_ALGO", "NCCL_PROTO")}
"""What the user had set: the default is the user's untouched stack."""
TO_DEVICE, TO_HOST = 1, 2
"""cudaMemcpyHostToDevice and cudaMemcpyDeviceToHost."""


def version() -> Version:
    """Return the version of the NCCL library that is loaded; needs no GPU."""
    found = core.get_version()
    return tuple(int(n) for n in str(found.libnccl.version).split("."))


def unique_id() -> bytes:
    """Return the identity of a communicator to be; needs no GPU."""
    return bytes(core.get_unique_id())


class Gpu:
    """This rank's GPU, its stream, and the communicators on it.

    Args:
        local_rank: which GPU of the node.
    """

    def __init__(self, local_rank: int) -> None:
        self.device = Device(local_rank)
        self.device.set_current()
        self.stream = self.device.create_stream()
        self._handle = int(self.stream.handle)
        self._number = local_rank
        self.arrays = _arrays(local_rank)

    def communicator(self, identity: bytes, ranks: int, rank: int, channels: int | None) -> Any:
        """Create a communicator; NCCL_ALGO and NCCL_PROTO are read now, channels are part of its configuration."""
        config = None if channels is None else core.NCCLConfig(min_ctas=channels, max_ctas=channels)
        return core.Communicator.init(ranks, rank, core.UniqueId.from_bytes(identity), config)

    def split(self, comm: Any, color: int, key: int) -> Any:
        """Return a part of a communicator."""
        return comm.split(color, key)

    def destroy(self, comm: Any) -> None:
        """End a communicator; every rank of it must."""
        comm.destroy()

    def buffer(self, nbytes: int) -> Any:
        """Return device memory from NCCL's own allocator (it can be registered); it lives as long as the object."""
        return core.mem_alloc(max(1, nbytes), self.device)

    def register(self, comm: Any, buffer: Any) -> Any:
        """Register a buffer as a symmetric window; collective, every rank must."""
        return comm.register_window(buffer, core.WindowFlag.COLL_SYMMETRIC)

    def put(self, address: int, data: Codes) -> None:
        """Copy from the host to a device address."""
        _checked(
            runtime.cudaMemcpy(address, data.ctypes.data, data.nbytes, runtime.cudaMemcpyKind(TO_DEVICE))
        )

    def get(self, address: int, data: Codes) -> None:
        """Copy from a device address to the host."""
        _checked(runtime.cudaMemcpy(data.ctypes.data, address, data.nbytes, runtime.cudaMemcpyKind(TO_HOST)))

    def view(self, address: int, count: int, kind: Any) -> Any:
        """Return device memory as an array of ``arrays`` (cupy), without a copy."""
        cuda = self.arrays.cuda
        memory = cuda.UnownedMemory(address, count * kind.itemsize, None, self._number)
        return self.arrays.ndarray((count,), kind, cuda.MemoryPointer(memory, 0))

    def free_scratch(self) -> None:
        """Give back what comparing on the device took."""
        if self.arrays is not None:
            self.arrays.get_default_memory_pool().free_all_blocks()

    def sync(self) -> None:
        """Wait for the stream."""
        self.stream.sync()

    def events(self, count: int) -> list[Any]:
        """Return events that record their time."""
        return [self.device.create_event(EventOptions(timing_enabled=True)) for _ in range(count)]

    def record(self, event: Any) -> None:
        """Put an event into the stream."""
        self.stream.record(event)

    def elapsed_s(self, first: Any, last: Any) -> float:
        """Return the seconds between two recorded events."""
        return float(last - first) * 1e-3

    def graph(self, calls: Call, count: int) -> Call:
        """Capture ``count`` calls into a CUDA graph and return what launches it."""
        builder = self.stream.create_graph_builder()
        builder.begin_building(mode="thread_local")
        outside, self._handle = self._handle, int(builder.stream.handle)
        try:
            for _ in range(count):
                calls()
        finally:
            self._handle = outside
            builder.end_building()
        graph = builder.complete()
        return lambda: graph.launch(self.stream)

    def call(
        self, comm: Any, cell: Cell, send: int, receive: int, count: int, select: str | None = None
    ) -> Call:
        """Return a function that issues the collective of ``cell`` once.

        Args:
            comm: communicator.
            cell: which collective, type and operator.
            send: device address.
            receive: device address.
            count: elements, as NCCL's call counts them (per rank where it says so).
            select: algorithm for a per-call choice (NCCL 2.31 and newer); None = the communicator's.
        """
        handle, dtype = bindings.Comm(comm.ptr), int(DTYPES[cell.dtype])
        op = int(OPS[cell.op]) if cell.op else 0
        if select is not None:
            return self._selected(handle, cell, (send, receive, count, dtype, op), select)
        # The stream is looked up at each call: a graph is captured on a stream of its own.
        calls: dict[str, Call] = {
            "allreduce": lambda: bindings.all_reduce(send, receive, count, dtype, op, handle, self._handle),
            "bcast": lambda: bindings.broadcast(send, receive, count, dtype, 0, handle, self._handle),
            "reduce": lambda: bindings.reduce(send, receive, count, dtype, op, 0, handle, self._handle),
            "allgather": lambda: bindings.all_gather(send, receive, count, dtype, handle, self._handle),
            "reduce_scatter": lambda: bindings.reduce_scatter(send, receive, count, dtype, op, handle, self._handle),
            "alltoall": lambda: bindings.allto_all(send, receive, count, dtype, handle, self._handle),
            "sendrecv": lambda: self._sendrecv(handle, comm.rank, comm.nranks, (send, receive, count, dtype)),
        }  # fmt: skip
        return calls[cell.collective]

    def _sendrecv(self, handle: Any, rank: int, ranks: int, what: tuple[int, int, int, int]) -> None:
        send, receive, count, dtype = what
        bindings.group_start()
        bindings.send(send, count, dtype, (rank + 1) % ranks, handle, self._handle)
        bindings.recv(receive, count, dtype, (rank - 1) % ranks, handle, self._handle)
        bindings.group_end()

    def _selected(self, handle: Any, cell: Cell, what: tuple[int, int, int, int, int], select: str) -> Call:
        send, receive, count, dtype, op = what
        config = bindings.CollConfig()
        config.alg_selection = select
        config.force_alg_selection = 1
        calls: dict[str, Call] = {
            "allreduce": lambda: bindings.all_reduce_config(
                send, receive, count, dtype, op, handle, self._handle, config.ptr
            ),
            "allgather": lambda: bindings.all_gather_config(
                send, receive, count, dtype, handle, self._handle, config.ptr
            ),
            "reduce_scatter": lambda: bindings.reduce_scatter_config(
                send, receive, count, dtype, op, handle, self._handle, config.ptr
            ),
        }
        return calls[cell.collective]


def choose(variables: dict[str, str]) -> None:
    """Set NCCL_ALGO and NCCL_PROTO for the next communicator; without any, the user's own settings come back."""
    for name, own in _OWN.items():
        value = variables.get(name) if variables else own
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _arrays(local_rank: int) -> Any:
    """Return cupy where it is installed and works (it compiles as it goes); None = results are compared on the host."""
    try:
        cupy = import_module("cupy")
        cupy.cuda.Device(local_rank).use()
        if int(cupy.flatnonzero(cupy.arange(3)).sum()) != 3:
            return None
    except (ImportError, RuntimeError, OSError):
        return None
    return cupy


def _checked(result: Any) -> None:
    status = result[0]
    if int(status) != 0:
        raise UnansweredError(f"CUDA copy failed: {status!s}")


def empty(count: int, like: Codes) -> Codes:
    """Return host memory for ``count`` elements of the same kind."""
    return np.empty(count, dtype=like.dtype)
