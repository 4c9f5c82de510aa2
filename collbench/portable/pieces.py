"""Cutting a message into pieces of whole elements."""

import numpy as np

from collbench.portable.schedule import Longs


def partition(elements: int, parts: int, itemsize: int) -> tuple[Longs, Longs]:
    """Return first bytes and sizes of ``parts`` runs of whole elements, the first ones longer by one where needed."""
    small, longer = divmod(elements, parts)
    sizes = np.full(parts, small, np.int64)
    sizes[:longer] += 1
    sizes *= itemsize
    return np.cumsum(sizes) - sizes, sizes


def chunked(elements: int, chunk_bytes: int, itemsize: int, most: int = 4096) -> tuple[Longs, Longs]:
    """Return first bytes and sizes of chunks of ``chunk_bytes`` (0 = one chunk; at most ``most`` chunks)."""
    chunk = max(1, chunk_bytes // itemsize) if chunk_bytes else max(1, elements)
    chunk = max(chunk, -(-elements // most))
    starts = np.arange(0, max(elements, 1), chunk, dtype=np.int64)
    sizes = np.minimum(chunk, elements - starts)
    return starts * itemsize, sizes * itemsize
