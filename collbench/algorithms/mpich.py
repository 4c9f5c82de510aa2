"""MPICH's algorithms: the number is the position in the list that the library's own description prints (0 is auto).

Source: descriptions of MPIR_CVAR_<COLLECTIVE>_INTRA_ALGORITHM and _POSIX_INTRA_ALGORITHM in 5.0.2, restrictions from
its coll_algorithms.txt. ``reduce_scatter`` here is MPI_Reduce_scatter_block. The nonblocking forms (nb) schedule the
same transfers as the library's automatic choice and are left out; ccl needs a vendor's library.
"""

from collbench.algorithms import Algorithm
from collbench.records import Params

_FAMILY = {
    "smp": "hierarchical", "k_dissemination": "dissemination", "recexch": "recursive_doubling",
    "binomial": "binomial_tree", "scatter_recursive_doubling_allgather": "scatter_allgather",
    "scatter_ring_allgather": "scatter_allgather", "pipelined_tree": "binary_tree", "brucks": "bruck",
    "k_brucks": "bruck", "recursive_doubling": "recursive_doubling", "ring": "ring",
    "recexch_doubling": "recursive_doubling", "recexch_halving": "recursive_doubling", "pairwise": "pairwise",
    "pairwise_sendrecv_replace": "pairwise", "scattered": "flat", "linear": "flat",
    "reduce_scatter_gather": "rabenseifner", "recursive_multiplying": "recursive_doubling",
    "reduce_scatter_allgather": "rabenseifner", "k_reduce_scatter_allgather": "rabenseifner",
    "noncommutative": "rabenseifner", "recursive_halving": "rabenseifner", "release_gather": "shared_memory",
    "ipc_read": "shared_memory",
}  # fmt: skip

# Trees are what they are with their default type and k = 2: kary for bcast, knomial_1 for allreduce.
_FAMILY_IN = {("bcast", "tree"): "binary_tree", ("allreduce", "tree"): "binomial_tree"}

# Defaults as the library reports them.
_PARAMS: dict[tuple[str, str], Params] = {
    ("allgather", "k_brucks"): (("radix", 2),),
    ("allgather", "recexch_doubling"): (("radix", 2),),
    ("allgather", "recexch_halving"): (("radix", 2),),
    ("allreduce", "recursive_multiplying"): (("radix", 2),),
    ("allreduce", "recexch"): (("radix", 2),),
    ("allreduce", "k_reduce_scatter_allgather"): (("radix", 2),),
    ("allreduce", "tree"): (("chunk_bytes", 0), ("radix", 2), ("tree_type", "knomial_1")),
    ("alltoall", "k_brucks"): (("radix", 2),),
    ("alltoall", "scattered"): (("throttle", 32),),
    ("barrier", "k_dissemination"): (("radix", 2),),
    ("barrier", "recexch"): (("radix", 2),),
    ("bcast", "pipelined_tree"): (("chunk_bytes", 8192), ("radix", 2), ("tree_type", "kary")),
    ("bcast", "tree"): (("radix", 2), ("tree_type", "kary")),
}

# None holds the place of an algorithm that is not offered (see above).
_INTRA: dict[str, tuple[str | None, ...]] = {
    "barrier": (None, "smp", "k_dissemination", "recexch"),
    "bcast": (
        "binomial", None, "smp", "scatter_recursive_doubling_allgather", "scatter_ring_allgather", "pipelined_tree",
        "tree",
    ),
    "gather": ("binomial", None),
    "scatter": ("binomial", None),
    "allgather": (
        "brucks", "k_brucks", None, "recursive_doubling", "ring", "recexch_doubling", "recexch_halving",
    ),
    "allgatherv": ("brucks", None, "recursive_doubling", "ring"),
    "alltoall": ("brucks", "k_brucks", None, "pairwise", "pairwise_sendrecv_replace", "scattered"),
    "alltoallv": (None, "pairwise_sendrecv_replace", "scattered"),
    "reduce": ("binomial", None, "smp", "reduce_scatter_gather"),
    "allreduce": (
        None, "smp", "recursive_doubling", "recursive_multiplying", "reduce_scatter_allgather", "tree", "recexch",
        "ring", "k_reduce_scatter_allgather",
    ),
    "reduce_scatter_v": (None, "noncommutative", "pairwise", "recursive_doubling", "recursive_halving"),
    "reduce_scatter": ("noncommutative", "recursive_doubling", "pairwise", "recursive_halving", None),
}  # fmt: skip

_POSIX: dict[str, tuple[tuple[int, str], ...]] = {
    "allreduce": ((1, "release_gather"),),
    "reduce": ((1, "release_gather"),),
    "barrier": ((1, "release_gather"),),
    "bcast": ((1, "release_gather"),),
}

_LIMITS: dict[tuple[str, str], tuple[str, ...]] = {
    ("allgather", "recursive_doubling"): ("power_of_two",),
    ("allgatherv", "recursive_doubling"): ("power_of_two",),
    ("alltoall", "brucks"): ("not_in_place",),
    ("alltoall", "k_brucks"): ("not_in_place",),
    ("alltoall", "pairwise"): ("not_in_place",),
    ("alltoall", "scattered"): ("not_in_place",),
    ("alltoall", "pairwise_sendrecv_replace"): ("only_in_place",),
    ("alltoallv", "pairwise_sendrecv_replace"): ("only_in_place",),
    ("alltoallv", "scattered"): ("not_in_place",),
    ("reduce", "reduce_scatter_gather"): ("count_at_least_pow2",),
    ("allreduce", "reduce_scatter_allgather"): ("count_at_least_pow2",),
    ("reduce_scatter", "noncommutative"): ("power_of_two",),
    ("reduce_scatter_v", "noncommutative"): ("power_of_two",),  # elsewhere it aborts the job by assertion
}

_DOUBLING = ("recursive_doubling", "recursive_multiplying", "recexch")
_SAME: dict[tuple[str, str], tuple[str, ...]] = {
    **{("allreduce", name): tuple(n for n in _DOUBLING if n != name) for name in _DOUBLING},
    ("allreduce", "smp"): ("tree",),
    ("allreduce", "tree"): ("smp",),
    ("reduce", "smp"): ("binomial",),
    ("reduce", "binomial"): ("smp",),
}


WORDS = {"reduce_scatter": "REDUCE_SCATTER_BLOCK", "reduce_scatter_v": "REDUCE_SCATTER"}
"""Collective → its part of a control variable's name where the two differ."""


def cvar(collective: str, layer: str = "INTRA") -> str:
    """Return the name of a control variable, for example ``MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM``.

    Args:
        collective: name.
        layer: INTRA, or POSIX_INTRA for the shared-memory layer.
    """
    return f"MPIR_CVAR_{WORDS.get(collective, collective.upper())}_{layer}_ALGORITHM"


def _row(collective: str, number: int, name: str, component: str) -> Algorithm:
    limits = _LIMITS.get((collective, name), ()) if component == "mpir" else ("one_node",)
    return Algorithm(
        provider="mpich",
        collective=collective,
        name=name,
        native_id=number,
        family=_FAMILY_IN.get((collective, name)) or _FAMILY[name],
        component=component,
        since=(5, 0),
        limits=limits,
        params=_PARAMS.get((collective, name), ()),
        same_trace_as=_SAME.get((collective, name), ()),
        source="MPI_T descriptions of 5.0.2, coll_algorithms.txt",
    )


ALGORITHMS: tuple[Algorithm, ...] = tuple(
    _row(collective, number, name, "mpir")
    for collective, names in _INTRA.items()
    for number, name in enumerate(names, start=1)
    if name is not None
) + tuple(
    _row(collective, number, name, "posix") for collective, rows in _POSIX.items() for number, name in rows
)
"""MPIR algorithms (component mpir), then the device layer's shared-memory ones (component posix)."""
