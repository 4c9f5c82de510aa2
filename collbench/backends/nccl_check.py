"""Is this rank's result right? Compared bit by bit, on the GPU where cupy is installed, else on the host."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from collbench.backends import nccl_data as data
from collbench.records import Cell

CHUNK = 1 << 24
"""Elements copied to or from the host at a time."""
CHECKED_CHUNKS = 8
"""On the host, of a long buffer the first and the last chunks are compared, half as many each."""


def checked_starts(count: int) -> list[int]:
    """Return where the compared chunks of ``count`` elements start."""
    starts = list(range(0, count, CHUNK))
    half = CHECKED_CHUNKS // 2
    return starts if len(starts) <= CHECKED_CHUNKS else [*starts[:half], *starts[-half:]]


def compare(gpu: Any, cell: Cell, rank: int, receive: int) -> tuple[str | None, bool]:
    """Compare this rank's result; return (what is wrong or None, whether the host had to do it).

    The GPU compares everything where cupy is installed and has memory to spare; the host compares the rest.
    """
    count = data.counts(cell)[1]
    if gpu.arrays is not None:
        try:
            return _differs(gpu, cell, rank, receive, range(0, count, CHUNK), gpu.arrays), False
        except MemoryError:
            pass  # the buffers fill the GPU: then chunks go to the host
        finally:
            gpu.free_scratch()
    return _differs(gpu, cell, rank, receive, checked_starts(count), np), True


def _differs(gpu: Any, cell: Cell, rank: int, receive: int, starts: Iterable[int], arrays: Any) -> str | None:
    count, kind = data.counts(cell)[1], data.kind(cell.dtype)
    for start in starts:
        size = min(CHUNK, count - start)
        wanted = data.expected(cell, rank, start, size, arrays)
        if wanted is None:
            return None
        address = receive + start * kind.itemsize
        if arrays is np:
            found = np.empty_like(wanted)
            gpu.get(address, found)
        else:
            found = gpu.view(address, size, kind)
        wrong = data.difference(found, wanted, start, arrays)
        if wrong:
            return wrong
    return None
