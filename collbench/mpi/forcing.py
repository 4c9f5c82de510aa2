"""How each library is told which algorithm to use: launch variables, control variables. Needs no MPI."""

from collections.abc import Sequence

from collbench.algorithms import find
from collbench.algorithms.openmpi import cvar
from collbench.errors import UsageError
from collbench.records import Case

Version = tuple[int, ...]

PURPOSES = ("default", "force", "proof")

INTEL_NAMES = {
    "allreduce": "ALLREDUCE", "bcast": "BCAST", "allgather": "ALLGATHER", "allgatherv": "ALLGATHERV",
    "reduce_scatter": "REDUCE_SCATTER_BLOCK", "reduce_scatter_v": "REDUCE_SCATTER", "reduce": "REDUCE",
    "alltoall": "ALLTOALL", "alltoallv": "ALLTOALLV", "gather": "GATHER", "scatter": "SCATTER",
    "barrier": "BARRIER",
}  # fmt: skip
"""Collective → its word in I_MPI_ADJUST_<word>; MPICH's control variables use the same words."""

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
    """Return MPICH's control variables and values that force a case, parameters first.

    Raises:
        UsageError: no such algorithm, or a parameter that MPICH does not have.
    """
    collective, writes = case.cell.collective, dict[str, int | str]()
    for name, value in case.params:
        variable = (
            _MPICH_RADIX.get((collective, case.algorithm))
            if name == "radix"
            else _MPICH_OTHER.get((collective, name))
        )
        if variable is None:
            raise UsageError(
                f"MPICH's {collective} {case.algorithm} has no parameter {name!r}: drop it from the case"
            )
        writes[f"MPIR_CVAR_{variable}"] = value
    row = find("mpich", collective, case.algorithm)
    layer = "POSIX_INTRA" if row.component == "posix" else "INTRA"
    assert row.native_id is not None
    writes[f"MPIR_CVAR_{INTEL_NAMES[collective]}_{layer}_ALGORITHM"] = row.native_id
    return writes


def launch_environment(
    library_name: str,
    version: Version | None,
    purpose: str,
    threads: str = "single",
    forced: Sequence[Case] = (),
) -> dict[str, str]:
    """Return the variables that a launch needs beyond the user's own.

    Args:
        library_name: openmpi, mpich, intelmpi or another library's exact name.
        version: of the library; None when unknown.
        purpose: default (the user's untouched stack: always empty), force, or proof (of forced cases).
        threads: thread level of the launch.
        forced: intelmpi only: at most one case a collective, forced for the whole launch.
    """
    if purpose not in PURPOSES:
        raise UsageError(f"unknown purpose {purpose!r} of a launch: choose from {', '.join(PURPOSES)}")
    if purpose == "default":
        return {}
    environment: dict[str, str] = {}
    if library_name == "openmpi":
        if version is not None and version < (5,):
            environment["OMPI_MCA_coll_tuned_use_dynamic_rules"] = "1"
        if purpose == "proof":
            environment["OMPI_MCA_pml_monitoring_enable"] = "1"
    elif library_name == "mpich" and threads == "single":
        environment["MPIR_CVAR_DEVICE_COLLECTIVES"] = "none"
    elif library_name == "intelmpi":
        environment |= _intel_presets(forced)
    return environment


def _intel_presets(forced: Sequence[Case]) -> dict[str, str]:
    presets: dict[str, str] = {}
    for case in forced:
        row = find("intelmpi", case.cell.collective, case.algorithm)
        name = f"I_MPI_ADJUST_{INTEL_NAMES[case.cell.collective]}"
        if presets.setdefault(name, str(row.native_id)) != str(row.native_id):
            raise UsageError(f"one launch of Intel MPI takes one preset a collective: {name} is asked twice")
    return presets


def needs_own_launch(library_name: str, version: Version | None = None, threads: str = "single") -> bool:
    """Say whether forced algorithms need launch settings that ``default`` must not have."""
    if library_name == "intelmpi":
        return True
    return bool(launch_environment(library_name, version, "force", threads))


def one_launch_per_algorithm(library_name: str) -> bool:
    """Say whether an algorithm is fixed for a whole launch (Intel MPI: control variables have no effect)."""
    return library_name == "intelmpi"
