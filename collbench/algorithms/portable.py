"""collbench's own algorithms over point-to-point; each runs on any MPI and its messages are known and checked.

``tree`` is accepted for ``binomial`` where a schedule is asked for by name.
"""

from collbench.algorithms import Algorithm
from collbench.records import Params

CHUNK: Params = (("chunk_bytes", 65536),)
CHUNK_SWEEP = (0, 8192, 32768, 131072, 524288)
"""Chunk sizes worth trying for an algorithm with ``chunk_bytes``; 0 = the message in one piece."""
_WINDOW: Params = (("pair", "auto"), ("window", 64))
_SEVERAL = ("several_nodes",)

# name, family, limits, parameters with defaults
_Row = tuple[str, str, tuple[str, ...], Params]
_NAMES: dict[str, tuple[_Row, ...]] = {
    "allreduce": (
        ("flat", "flat", (), ()),
        ("binomial", "binomial_tree", (), ()),
        ("double_binary_tree", "double_tree", (), CHUNK),
        ("recursive_doubling", "recursive_doubling", (), ()),
        ("rabenseifner", "rabenseifner", (), ()),
        ("ring", "ring", (), ()),
        ("segmented_ring", "ring", (), (("segment_bytes", 131072),)),
        ("hierarchical_leader", "hierarchical", _SEVERAL, ()),
        ("hierarchical_sharded", "hierarchical", _SEVERAL, ()),
        ("reduce_scatter_allgather", "other", (), ()),
    ),
    "bcast": (
        ("flat", "flat", (), ()),
        ("binomial", "binomial_tree", (), ()),
        ("chain", "chain", (), ()),
        ("pipeline", "chain", (), CHUNK),
        ("pipelined_binary_tree", "binary_tree", (), CHUNK),
        ("scatter_allgather", "scatter_allgather", (), ()),
        ("hierarchical_leader", "hierarchical", _SEVERAL, ()),
    ),
    "allgather": (
        ("ring", "ring", (), ()),
        ("recursive_doubling", "recursive_doubling", (), ()),
        ("bruck", "bruck", (), ()),
        ("neighbor_exchange", "neighbor_exchange", ("even_ranks",), ()),
        ("hierarchical_leader", "hierarchical", _SEVERAL, ()),
    ),
    "reduce_scatter": (
        ("ring", "ring", (), ()),
        ("recursive_halving", "rabenseifner", (), ()),
        ("pairwise", "pairwise", (), ()),
    ),
    "reduce": (
        ("flat", "flat", (), ()),
        ("binomial", "binomial_tree", (), ()),
        ("rabenseifner", "rabenseifner", (), ()),
    ),
    "alltoall": (
        ("linear", "flat", (), ()),
        ("pairwise", "pairwise", (), ()),
        ("bruck", "bruck", (), ()),
    ),
    "barrier": (("dissemination", "dissemination", (), ()),),
    "sendrecv": (
        ("pingpong", "other", (), (("pair", "auto"),)),
        ("bandwidth", "other", (), _WINDOW),
        ("bidirectional_bandwidth", "other", (), _WINDOW),
        ("message_rate", "other", (), _WINDOW),
    ),
}

_REDUCING = ("allreduce", "reduce", "reduce_scatter")

ALGORITHMS: tuple[Algorithm, ...] = tuple(
    Algorithm(
        provider="portable",
        collective=collective,
        name=name,
        native_id=None,
        family=family,
        limits=(*limits, *(("portable_reduction",) if collective in _REDUCING else ())),
        params=params,
        source="collbench/portable",
    )
    for collective, rows in _NAMES.items()
    for name, family, limits, params in rows
)
"""Rows in the order of the collectives' table of names above."""
