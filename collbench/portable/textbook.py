"""What the textbooks say an algorithm sends, in units of S, and where the shorthand misleads."""

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Textbook:
    """What the textbook says of one algorithm, in units of S.

    Attributes:
        quantity: sent (by the busiest rank), received (by the busiest rank), moved (sent and received by the
            busiest rank) or total.
        formula: in words.
        value: ranks → units of S.
        powers_only: the formula is for powers of two.
    """

    quantity: str
    formula: str
    value: Callable[[int], float]
    powers_only: bool = False


_RING = Textbook("sent", "2(p−1)/p·S per rank", lambda p: 2 * (p - 1) / p)
_SHARE = Textbook("received", "(p−1)/p·S received per rank", lambda p: (p - 1) / p)
_HALF = Textbook("sent", "(p−1)/p·S per rank", lambda p: (p - 1) / p)
_FLAT = Textbook("moved", "2(p−1)·S at the root", lambda p: 2.0 * (p - 1))
_TO_ROOT = Textbook("received", "(p−1)·S at the root", lambda p: p - 1.0)
_TO_ALL = Textbook("received", "S per receiver", lambda p: float(p > 1))
_EDGES = Textbook("total", "2(p−1)·S", lambda p: 2.0 * (p - 1))
_LOG = Textbook("sent", "log₂p·S per rank", math.log2, powers_only=True)
_BRUCK = Textbook("sent", "log₂p·S/2 per rank", lambda p: math.log2(p) / 2, powers_only=True)

TEXTBOOK: dict[tuple[str, str], Textbook] = {
    ("allreduce", "flat"): _FLAT,
    ("allreduce", "binomial"): Textbook(
        "moved", "2·log₂p·S along the busiest path", lambda p: 2 * math.log2(p), powers_only=True
    ),
    ("allreduce", "double_binary_tree"): _EDGES,
    ("allreduce", "recursive_doubling"): _LOG,
    ("allreduce", "rabenseifner"): Textbook(_RING.quantity, _RING.formula, _RING.value, powers_only=True),
    ("allreduce", "ring"): _RING,
    ("allreduce", "segmented_ring"): _RING,
    ("allreduce", "reduce_scatter_allgather"): _RING,
    ("bcast", "flat"): _TO_ALL,
    ("bcast", "binomial"): _TO_ALL,
    ("bcast", "chain"): _TO_ALL,
    ("bcast", "pipeline"): _TO_ALL,
    ("bcast", "pipelined_binary_tree"): _TO_ALL,
    ("bcast", "hierarchical_leader"): _TO_ALL,
    ("allgather", "ring"): _SHARE,
    ("allgather", "recursive_doubling"): Textbook(
        _SHARE.quantity, _SHARE.formula, _SHARE.value, powers_only=True
    ),
    ("allgather", "bruck"): _SHARE,
    ("allgather", "neighbor_exchange"): _SHARE,
    ("reduce_scatter", "ring"): _HALF,
    ("reduce_scatter", "pairwise"): _HALF,
    ("reduce_scatter", "recursive_halving"): Textbook(
        _HALF.quantity, _HALF.formula, _HALF.value, powers_only=True
    ),
    ("reduce", "flat"): _TO_ROOT,
    ("reduce", "binomial"): Textbook("total", "(p−1)·S", lambda p: p - 1.0),
    ("alltoall", "linear"): _HALF,
    ("alltoall", "pairwise"): _HALF,
    ("alltoall", "bruck"): _BRUCK,
}
"""(collective, algorithm) → the textbook's volume; algorithms with no common formula are not in it."""

REMARKS: dict[tuple[str, str], str] = {
    ("allreduce", "reduce_scatter_allgather"): "moves exactly the bytes of the ring: composing saves none",
    ("allreduce", "binomial"): "2·log₂p·S is one rank's traffic; all ranks together send only 2(p−1)·S",
    (
        "allreduce",
        "double_binary_tree",
    ): "same total as a tree, spread so that no rank moves more than about 4·S",
    (
        "allgather",
        "ring",
    ): "S is the result and fixed: each rank receives nearly S, so the total grows with p",
    (
        "bcast",
        "scatter_allgather",
    ): "2(p−1)/p·S is the root's part: all ranks together move little more than a tree",
}
FOLDED = "the formula is for powers of two: other counts fold the ranks above one in and out"
