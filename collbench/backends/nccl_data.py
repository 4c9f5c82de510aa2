"""Test data of the NCCL back end, one pattern for every element type; pure numpy (or cupy, for the comparison).

All values are small whole numbers, and every partial result is one too that the type holds exactly, 8-bit floats
included: so results are exact in any order of combining, on any number of ranks, and are compared bit by bit. The
patterns repeat with a prime period: a block in the wrong place shows, and what is right is known without communication.

In each element of a reduction one rank decides (rank ≡ element, by turns): its value alone is the maximum or the
minimum, or a factor above 1; a sum adds several ranks' values, as many as the type can hold. A rank that is left out,
counted twice or combined by another operator is therefore seen on every rank that has a result.
"""

import math
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from collbench.records import ITEMSIZE, Cell

Codes = npt.NDArray[Any]
Values = npt.NDArray[np.int64]

PERIOD = 4093
"""Prime, and above any number of ranks that one launch has."""
_STRIDE, _SEED, _LARGEST = 389, 20220509, 64
_FLOAT8 = {"float8e4m3": (3, 7), "float8e5m2": (2, 15)}
"""(bits of the mantissa, bias of the exponent) of the types that numpy lacks."""
_EXACT = {
    "int8": 127, "uint8": 255, "float8e4m3": 16, "float8e5m2": 8, "bfloat16": 256, "float16": 2048,
}  # fmt: skip
"""Up to where every whole number is exact; 2^24 and more in all other types."""


def kind(dtype: str) -> np.dtype[Any]:
    """Return the numpy type that holds an element (raw bits where numpy lacks the type)."""
    return np.dtype({"bfloat16": "uint16", **dict.fromkeys(_FLOAT8, "uint8")}.get(dtype, dtype))


def exact(dtype: str) -> int:
    """Return the number up to which an element type holds every whole number."""
    return _EXACT.get(dtype, 1 << 24)


def encode(values: Values, dtype: str) -> Codes:
    """Return whole numbers from 0 to ``exact(dtype)`` as elements."""
    if dtype == "bfloat16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    if dtype not in _FLOAT8:
        return values.astype(dtype)
    mantissa, bias = _FLOAT8[dtype]
    exponent = np.log2(np.maximum(values, 1)).astype(np.int64)
    bits = ((exponent + bias) << mantissa) + ((values << mantissa) >> exponent) - (1 << mantissa)
    return np.where(values == 0, 0, bits).astype(np.uint8)


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


def _noise(rank: int) -> Values:
    table = np.random.default_rng(_SEED).integers(0, 1 << 30, PERIOD)
    return np.roll(table, -rank * _STRIDE % PERIOD)


def operand(op: str, dtype: str, ranks: int, rank: int) -> Values:
    """Return one period of what a rank puts into a reduction."""
    noise, most = _noise(rank), exact(dtype)
    turn = (rank - np.arange(PERIOD)) % ranks
    if op == "sum":
        several = min(ranks, max(1, most // 3))
        return np.where(turn < several, 1 + noise % min(_LARGEST, most // several), 0)
    if op == "prod":
        several = min(ranks, 8, 1 + int(math.log2(most / 3)))
        return np.where(turn == 0, 2 + noise % 2, np.where(turn < several, 1 + noise % 2, 1))
    half = min(_LARGEST, most // 2)
    low, high = 1 + noise % half, 1 + half + noise % half
    return np.where((turn == 0) == (op == "max"), high, low)


@lru_cache(maxsize=64)
def combined(op: str, dtype: str, ranks: int) -> Values:
    """Return one period of the result of a reduction."""
    function = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}[op]
    result = operand(op, dtype, ranks, 0)
    for rank in range(1, ranks):
        result = function(result, operand(op, dtype, ranks, rank))
    return result


def _copied(dtype: str) -> Values:
    return 1 + _noise(0) % min(2 * _LARGEST - 1, exact(dtype))


def sent(cell: Cell, rank: int, start: int, count: int) -> Codes:
    """Return ``count`` elements from ``start`` of what ``rank`` sends."""
    if cell.op is not None:
        pattern = operand(cell.op, cell.dtype, cell.ranks, rank)
    else:
        pattern = np.roll(_copied(cell.dtype), -rank * _STRIDE % PERIOD)
    return np.resize(np.roll(encode(pattern, cell.dtype), -start % PERIOD), count)


def expected(cell: Cell, rank: int, start: int, count: int, arrays: Any = np) -> Any:
    """Return what ``rank`` must hold afterwards; None where its buffer has no defined content (reduce, not the root).

    Args:
        cell: the collective.
        rank: whose result.
        start: first element.
        count: elements.
        arrays: numpy, or cupy: then the answer lies on the GPU.
    """
    name, share = cell.collective, elements(cell) // cell.ranks
    if name == "reduce" and rank:
        return None
    index = arrays.arange(start, start + count, dtype=np.int64)
    if cell.op is not None:
        pattern = combined(cell.op, cell.dtype, cell.ranks)
        place = index + (rank * share if name == "reduce_scatter" else 0)
    else:
        pattern = _copied(cell.dtype)
        if name in ("allgather", "alltoall"):
            own = rank * share if name == "alltoall" else 0
            place = own + index % share + index // share * _STRIDE
        else:
            place = index + ((rank - 1) % cell.ranks * _STRIDE if name == "sendrecv" else 0)
    return arrays.asarray(encode(pattern, cell.dtype))[place % PERIOD]


def difference(found: Any, wanted: Any, start: int, arrays: Any = np) -> str | None:
    """Return where two blocks first differ; None where they are the same bit by bit."""
    bits = f"uint{8 * found.dtype.itemsize}"
    wrong = arrays.flatnonzero(found.view(bits) != wanted.view(bits))
    if not len(wrong):
        return None
    first = int(wrong[0])
    return (
        f"element {start + first} is {found[first].item()!r} where {wanted[first].item()!r} is right "
        f"({len(wrong)} of {len(found)} wrong)"
    )
