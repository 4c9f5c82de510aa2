"""Open MPI's algorithms (``coll_tuned``): numbers as the library's own MPI_T enumeration gives them.

Source: ompi_info --param coll tuned --level 9 of 4.1.4 and 5.0.11 and the selection code of both versions.
``reduce_scatter`` here is MPI_Reduce_scatter_block.
"""

from collbench.algorithms import Algorithm

_FAMILY = {
    "linear": "flat", "basic_linear": "flat", "linear_nb": "flat", "linear_sync": "flat",
    "non-overlapping": "reduce_bcast", "nonoverlapping": "reduce_bcast", "bruck": "bruck", "modified_bruck": "bruck",
    "recursive_doubling": "recursive_doubling", "recursive_halving": "rabenseifner", "butterfly": "rabenseifner",
    "ring": "ring", "segmented_ring": "ring", "double_ring": "ring", "rabenseifner": "rabenseifner",
    "neighbor": "neighbor_exchange", "two_proc": "pairwise", "pairwise": "pairwise", "sparbit": "other",
    "tree": "recursive_doubling", "chain": "chain", "pipeline": "chain", "split_binary_tree": "binary_tree",
    "binary_tree": "binary_tree", "binary": "binary_tree", "in-order_binary": "binary_tree",
    "binomial": "binomial_tree", "knomial": "knomial", "scatter_allgather": "scatter_allgather",
    "scatter_allgather_ring": "scatter_allgather",
}  # fmt: skip

_NAMES: dict[str, tuple[str, ...]] = {
    "allgather": ("linear", "bruck", "recursive_doubling", "ring", "neighbor", "two_proc", "sparbit"),
    "allreduce": (
        "basic_linear", "nonoverlapping", "recursive_doubling", "ring", "segmented_ring", "rabenseifner",
    ),
    "alltoall": ("linear", "pairwise", "modified_bruck", "linear_sync", "two_proc"),
    "barrier": ("linear", "double_ring", "recursive_doubling", "bruck", "two_proc", "tree"),
    "bcast": (
        "basic_linear", "chain", "pipeline", "split_binary_tree", "binary_tree", "binomial", "knomial",
        "scatter_allgather", "scatter_allgather_ring",
    ),
    "gather": ("basic_linear", "binomial", "linear_sync"),
    "reduce": ("linear", "chain", "pipeline", "binary", "binomial", "in-order_binary", "rabenseifner"),
    "reduce_scatter_v": ("non-overlapping", "recursive_halving", "ring", "butterfly"),
    "reduce_scatter": ("basic_linear", "recursive_doubling", "recursive_halving", "butterfly"),
    "scatter": ("basic_linear", "binomial", "linear_nb"),
}  # fmt: skip

# Limits: two_proc returns an error on other rank counts; below one element per rank ring,
# rabenseifner and the scattering broadcasts quietly run something else (proven by traces), neighbor needs pairs.
_LIMITS: dict[tuple[str, str], tuple[str, ...]] = {
    ("allgather", "two_proc"): ("two_ranks",),
    ("allgather", "neighbor"): ("even_ranks",),
    ("allgather", "recursive_doubling"): ("power_of_two",),
    ("alltoall", "two_proc"): ("two_ranks",),
    ("alltoall", "modified_bruck"): ("not_in_place",),
    ("barrier", "two_proc"): ("two_ranks",),
    ("bcast", "scatter_allgather"): ("count_at_least_ranks",),
    ("bcast", "scatter_allgather_ring"): ("count_at_least_ranks",),
    ("allreduce", "ring"): ("count_at_least_ranks",),
    ("allreduce", "segmented_ring"): ("count_at_least_ranks",),
    ("allreduce", "rabenseifner"): ("count_at_least_ranks",),
    ("reduce", "rabenseifner"): ("count_at_least_pow2",),
}

_SAME: dict[tuple[str, str], tuple[str, ...]] = {
    ("alltoall", "linear"): ("pairwise", "linear_sync"),
    ("alltoall", "pairwise"): ("linear", "linear_sync"),
    ("alltoall", "linear_sync"): ("linear", "pairwise"),
    ("scatter", "basic_linear"): ("linear_nb",),
    ("scatter", "linear_nb"): ("basic_linear",),
    ("allreduce", "ring"): ("segmented_ring",),
    ("allreduce", "segmented_ring"): ("ring",),
}

RULES_FILE_IDS = {
    "allgather": 0, "allgatherv": 1, "allreduce": 2, "alltoall": 3, "alltoallv": 4, "barrier": 6, "bcast": 7,
    "gather": 9, "reduce": 11, "reduce_scatter_v": 12, "reduce_scatter": 13, "scatter": 15,
}  # fmt: skip
"""Collective → number in a rules file. Source: coll_base_functions.h (COLLTYPE order), 4.1 and 5.0."""

CVAR_NAMES = {
    "reduce_scatter": "reduce_scatter_block",
    "reduce_scatter_v": "reduce_scatter",
}
"""Collective → its part of the control variable's name where the two differ."""


def cvar(collective: str, what: str = "algorithm") -> str:
    """Return the name of a tuned control variable, for example ``coll_tuned_allreduce_algorithm``."""
    return f"coll_tuned_{CVAR_NAMES.get(collective, collective)}_{what}"


ALGORITHMS: tuple[Algorithm, ...] = tuple(
    Algorithm(
        provider="openmpi",
        collective=collective,
        name=name,
        native_id=number,
        family=_FAMILY[name],
        component="tuned",
        since=(5, 0) if name == "sparbit" else None,
        limits=_LIMITS.get((collective, name), ()),
        same_trace_as=_SAME.get((collective, name), ()),
        source="ompi_info, coll_tuned_*_decision.c",
    )
    for collective, names in _NAMES.items()
    for number, name in enumerate(names, start=1)
)
"""Rows in the library's order; the number is the position, from 1 (0 is "ignore")."""
