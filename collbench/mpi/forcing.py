"""Which control variables force a case, for each library. What must be set at launch: ``collbench.forcing``."""

from collbench.algorithms import find
from collbench.algorithms.openmpi import cvar
from collbench.errors import UsageError
from collbench.records import Case

DEVICE = "MPIR_CVAR_DEVICE_COLLECTIVES"
DEVICE_ALL, DEVICE_BY_COLLECTIVE = 0, 2
FALLBACK = "MPIR_CVAR_COLLECTIVE_FALLBACK"
FALLBACK_ERROR = 0
THRESHOLD = "MPIR_CVAR_POSIX_NUM_COLLS_THRESHOLD"

_WORDS = {"reduce_scatter": "reduce_scatter_block", "reduce_scatter_v": "reduce_scatter"}

_OPENMPI_PARAMS = {
    "segment_bytes": "algorithm_segmentsize",
    "tree_fanout": "algorithm_tree_fanout",
    "chain_fanout": "algorithm_chain_fanout",
    "radix": "algorithm_knomial_radix",
    "max_requests": "algorithm_max_requests",
}

_MPICH_RADIX = {
    ("barrier", "k_dissemination"): "BARRIER_DISSEM_KVAL",
    ("barrier", "recexch"): "BARRIER_RECEXCH_KVAL",
    ("bcast", "tree"): "BCAST_TREE_KVAL",
    ("bcast", "pipelined_tree"): "BCAST_TREE_KVAL",
    ("allgather", "k_brucks"): "ALLGATHER_BRUCKS_KVAL",
    ("allgather", "recexch_doubling"): "ALLGATHER_RECEXCH_KVAL",
    ("allgather", "recexch_halving"): "ALLGATHER_RECEXCH_KVAL",
    ("alltoall", "k_brucks"): "ALLTOALL_BRUCKS_KVAL",
    ("allreduce", "tree"): "ALLREDUCE_TREE_KVAL",
    ("allreduce", "recexch"): "ALLREDUCE_RECEXCH_KVAL",
    ("allreduce", "recursive_multiplying"): "ALLREDUCE_RECURSIVE_MULTIPLYING_KVAL",
    ("allreduce", "k_reduce_scatter_allgather"): "ALLREDUCE_RECEXCH_KVAL",
}
_MPICH_OTHER = {
    ("bcast", "tree_type"): "BCAST_TREE_TYPE",
    ("allreduce", "tree_type"): "ALLREDUCE_TREE_TYPE",
    ("bcast", "chunk_bytes"): "BCAST_TREE_PIPELINE_CHUNK_SIZE",
    ("allreduce", "chunk_bytes"): "ALLREDUCE_TREE_PIPELINE_CHUNK_SIZE",
    ("alltoall", "throttle"): "ALLTOALL_THROTTLE",
}


def openmpi_writes(case: Case) -> dict[str, int | str]:
    """Return the tuned control variables and values that force a case, parameters first.

    Raises:
        UsageError: no such algorithm, or a parameter that Open MPI does not have.
    """
    collective = case.cell.collective
    writes: dict[str, int | str] = {}
    for name, value in case.params:
        if name not in _OPENMPI_PARAMS:
            raise UsageError(f"Open MPI's {collective} has no parameter {name!r}: drop it from the case")
        writes[cvar(collective, _OPENMPI_PARAMS[name])] = value
    number = find("openmpi", collective, case.algorithm).native_id
    assert number is not None
    writes[cvar(collective)] = number
    return writes


def mpich_writes(case: Case) -> dict[str, int | str]:
    """Return MPICH's control variables and values that force a case, in the order to write them.

    The collective's device layer is switched off for MPIR algorithms: single-threaded MPICH would put release_gather in
    their place after a few calls. That of MPI_Barrier stays, as it does under a table: ranks leave MPIR's barriers with
    more skew, which would count against every forced algorithm (0.4 µs at 2 ranks, twice what an allreduce of 8 B takes).
    An algorithm that cannot serve the call must fail instead of running another.

    Raises:
        UsageError: no such algorithm, or a parameter that MPICH does not have.
    """
    collective, writes = case.cell.collective, dict[str, int | str]()
    word = _WORDS.get(collective, collective).upper()
    row = find("mpich", collective, case.algorithm)
    assert row.native_id is not None
    for name, value in case.params:
        variable = _mpich_parameter(collective, case.algorithm, name)
        writes[f"MPIR_CVAR_{variable}"] = value
    if row.component == "posix":
        writes |= {DEVICE: DEVICE_ALL, THRESHOLD: 0}
        writes[f"MPIR_CVAR_{word}_POSIX_INTRA_ALGORITHM"] = row.native_id
    else:
        writes |= {DEVICE: DEVICE_BY_COLLECTIVE, f"MPIR_CVAR_{word}_DEVICE_COLLECTIVE": 0}
        writes[f"MPIR_CVAR_{word}_INTRA_ALGORITHM"] = row.native_id
    # smp calls itself on its sub-communicators, where it is never usable: there the fall-back is part of it.
    return writes if case.algorithm == "smp" else writes | {FALLBACK: FALLBACK_ERROR}


def _mpich_parameter(collective: str, algorithm: str, name: str) -> str:
    radix, other = _MPICH_RADIX.get((collective, algorithm)), _MPICH_OTHER.get((collective, name))
    variable = radix if name == "radix" else other
    if variable is None:
        raise UsageError(f"MPICH's {collective} {algorithm} has no parameter {name!r}: drop it from the case")
    return variable
