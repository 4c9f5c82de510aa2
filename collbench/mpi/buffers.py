"""Page-aligned buffers for the timed calls."""

import mmap
from typing import Any

import numpy as np

from collbench.errors import UsageError
from collbench.records import ITEMSIZE

NUMPY_DTYPES = {
    "int8": np.int8, "uint8": np.uint8, "int32": np.int32, "uint32": np.uint32, "int64": np.int64,
    "uint64": np.uint64, "float32": np.float32, "float64": np.float64,
}  # fmt: skip
"""The dtypes that MPI measures."""

Array = np.ndarray[Any, np.dtype[Any]]


def aligned(nbytes: int, dtype: str) -> Array:
    """Return a page-aligned array of ``nbytes``, every page touched, filled with zeros."""
    if dtype not in NUMPY_DTYPES:
        known = ", ".join(NUMPY_DTYPES)
        raise UsageError(f"MPI has no portable type for {dtype!r}: choose from {known}")
    itemsize = ITEMSIZE[dtype]
    memory = mmap.mmap(-1, max(nbytes, mmap.PAGESIZE))
    array: Array = np.frombuffer(memory, dtype=NUMPY_DTYPES[dtype], count=nbytes // itemsize)
    array.fill(0)
    return array


class Buffers:
    """Send and receive buffers, page aligned, in one or more copies to rotate through.

    Page alignment is worth 4 % at 64 KiB (an offset of 16 B costs that much).

    Args:
        nbytes_send: bytes of each send buffer.
        nbytes_recv: bytes of each receive buffer.
        dtype: element type.
        copies: how many pairs.
    """

    def __init__(self, nbytes_send: int, nbytes_recv: int, dtype: str, copies: int = 1) -> None:
        self.sends: tuple[Array, ...] = tuple(aligned(nbytes_send, dtype) for _ in range(copies))
        self.recvs: tuple[Array, ...] = tuple(aligned(nbytes_recv, dtype) for _ in range(copies))

    def __len__(self) -> int:
        return len(self.sends)

    def pair(self, index: int) -> "Buffers":
        """Return pair ``index`` (counted round) as buffers of one copy: the same memory."""
        one = object.__new__(Buffers)
        one.sends, one.recvs = (self.sends[index % len(self)],), (self.recvs[index % len(self)],)
        return one

    @property
    def send(self) -> Array:
        """The first send buffer."""
        return self.sends[0]

    @property
    def recv(self) -> Array:
        """The first receive buffer."""
        return self.recvs[0]
