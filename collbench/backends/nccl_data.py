"""Test data of the NCCL back end, one pattern for every element type; pure numpy.

Every element of a reduction is 0 on all ranks but one, where it is 1, 2 or 3: so sums are exact in every type (8-bit
floats too) and on any number of ranks, and a misplaced element shows. Results are compared bit by bit.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from collbench.records import ITEMSIZE, Cell

Codes = npt.NDArray[Any]
Index = npt.NDArray[np.int64]

_BITS: dict[str, tuple[str, tuple[int, ...]]] = {
    "bfloat16": ("uint16", (0, 0x3F80, 0x4000, 0x4040)),
    "float8e4m3": ("uint8", (0, 0x38, 0x40, 0x44)),
    "float8e5m2": ("uint8", (0, 0x3C, 0x40, 0x42)),
}
"""Types that numpy lacks: the bits of 0, 1, 2 and 3."""


def codes(dtype: str) -> Codes:
    """Return 0, 1, 2 and 3 in an element type (as raw bits where numpy lacks it)."""
    if dtype in _BITS:
        kind, bits = _BITS[dtype]
        return np.array(bits, dtype=kind)
    return np.arange(4).astype(dtype)


def elements(cell: Cell) -> int:
    """Return the total number of elements."""
    return cell.nbytes // ITEMSIZE[cell.dtype]


def counts(cell: Cell) -> tuple[int, int]:
    """Return how many elements one rank sends and receives."""
    total, share = elements(cell), elements(cell) // cell.ranks
    return (
        share if cell.collective == "allgather" else total,
        share if cell.collective == "reduce_scatter" else total,
    )


def _reduction(index: Index, ranks: int, rank: int) -> Index:
    return np.where(index % ranks == rank, 1 + index // ranks % 3, 0)


def _copy(index: Index, rank: int) -> Index:
    return 1 + (index + rank) % 3


def sent(cell: Cell, rank: int, start: int, count: int) -> Codes:
    """Return ``count`` elements from ``start`` of what ``rank`` sends."""
    index = np.arange(start, start + count, dtype=np.int64)
    if cell.op is not None:
        return codes(cell.dtype)[_reduction(index, cell.ranks, rank)]
    return codes(cell.dtype)[_copy(index, rank)]


def expected(cell: Cell, rank: int, start: int, count: int) -> Codes | None:
    """Return what ``rank`` must hold afterwards; None where its buffer has no defined content (reduce, not the root)."""
    table, name, share = codes(cell.dtype), cell.collective, elements(cell) // cell.ranks
    index = np.arange(start, start + count, dtype=np.int64)
    if name == "reduce" and rank:
        return None
    if name in ("allreduce", "reduce", "reduce_scatter"):
        total = index + (rank * share if name == "reduce_scatter" else 0)
        values = 1 + total // cell.ranks % 3
        # With one rank every operator leaves the data alone; with more, another rank's 0 decides minimum and product.
        if cell.op in ("min", "prod") and cell.ranks > 1:
            values = np.zeros_like(values)
        return np.asarray(table[values])
    if name == "bcast":
        return np.asarray(table[_copy(index, 0)])
    if name == "allgather":
        return np.asarray(table[1 + (index % share + index // share) % 3])
    if name == "alltoall":
        return np.asarray(table[1 + (rank * share + index % share + index // share) % 3])
    return np.asarray(table[_copy(index, (rank - 1) % cell.ranks)])


def difference(found: Codes, wanted: Codes, start: int) -> str | None:
    """Return where two blocks first differ; None where they are the same bit by bit."""
    wrong = np.flatnonzero(
        found.view(np.uint8).reshape(len(found), -1) != wanted.view(np.uint8).reshape(len(wanted), -1)
    )
    if not len(wrong):
        return None
    first = int(wrong[0]) // found.itemsize
    return f"element {start + first} is {found[first]!r} where {wanted[first]!r} is right"
