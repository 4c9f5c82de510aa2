"""In which order an allreduce added: the bits of a float sum tell families of algorithms apart (no MPI).

Works with built-in operators, where no user-defined operator can be traced. Two families that add in the same order
give the same bits, so this names families, never one member of them.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

ELEMENTS_A_RANK = 32
_SEED = 1

ORDERS: dict[tuple[str, str], dict[str, tuple[str, ...]]] = {
    ("mpich", "allreduce"): {
        "doubling": (
            "reduce_scatter_allgather", "k_reduce_scatter_allgather", "recursive_doubling", "recursive_multiplying",
            "recexch", "smp",
        ),
        "ring": ("ring",),
    },
    ("mpich", "reduce"): {
        "doubling": ("reduce_scatter_gather", "binomial", "smp"),
        "halving": ("reduce_scatter_gather",),
    },
}  # fmt: skip
"""(provider, collective) → order of additions → algorithms that add in it (seen at 2, 4 and 8 ranks)."""


def inputs(ranks: int, elements: int) -> Floats:
    """Return every rank's input, shape (ranks, elements): normal numbers times 10 to −6 … 6."""
    rng = np.random.default_rng(_SEED)
    shape = (ranks, elements)
    values: Floats = rng.standard_normal(shape) * 10.0 ** rng.integers(-6, 7, shape)
    return values


def doubling(values: Floats) -> Floats:
    """Neighbours first, then pairs of pairs (p a power of two): recursive doubling, halving from near to far."""
    while len(values) > 1:
        values = values[0::2] + values[1::2]
    result: Floats = values[0]
    return result


def halving(values: Floats) -> Floats:
    """Ranks half the size apart first (p a power of two): halving from far to near."""
    while len(values) > 1:
        half = len(values) // 2
        values = values[:half] + values[half:]
    result: Floats = values[0]
    return result


def ring(values: Floats, first: int) -> Floats:
    """Block b of p is added up once round, beginning at rank b + first."""
    ranks, elements = values.shape
    result: Floats = np.empty(elements)
    for block, part in enumerate(np.array_split(np.arange(elements), ranks)):
        order = [(block + first + step) % ranks for step in range(ranks)]
        total = values[order[0]][part]
        for rank in order[1:]:
            total = total + values[rank][part]
        result[part] = total
    return result


def linear(values: Floats, *, backwards: bool) -> Floats:
    """One rank after the other."""
    total: Floats = values[-1] if backwards else values[0]
    for row in values[-2::-1] if backwards else values[1:]:
        total = total + row
    return total


def families(result: npt.NDArray[Any]) -> tuple[str, ...]:
    """Return the families whose order of additions gives exactly these bits, for inputs of this many ranks.

    Args:
        result: the sum, shape (ELEMENTS_A_RANK × ranks,).
    """
    ranks = len(result) // ELEMENTS_A_RANK
    values = inputs(ranks, len(result))
    found = []
    if ranks & (ranks - 1) == 0:
        candidates = {"doubling": doubling(values), "halving": halving(values)}
        found += [name for name, sums in candidates.items() if np.array_equal(sums, result)]
    if any(np.array_equal(ring(values, first), result) for first in range(ranks)):
        found.append("ring")
    if any(np.array_equal(linear(values, backwards=b), result) for b in (False, True)):
        found.append("linear")
    return tuple(found)
