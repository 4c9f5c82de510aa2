"""NCCL's algorithms and their protocols, per collective, with the versions that have them.

Source: facts table-formats §7 (validity table) and the selection code of NCCL 2.30–2.32; symmetric kernels as NCCL
2.32.3 names them. NCCL's other calls (alltoall, sendrecv, gather, scatter) have no choice of algorithm.
"""

from collbench.algorithms import Algorithm, Version
from collbench.records import Cell

PROTOCOLS = ("ll", "ll128", "simple")
"""NCCL's protocols in its own order of numbers (0, 1, 2)."""

TUNABLE = ("bcast", "reduce", "allgather", "reduce_scatter", "allreduce")
"""Collectives with a choice of algorithm, in NCCL's own order of numbers (0 … 4)."""

MEASURABLE = (*TUNABLE, "alltoall", "sendrecv")
"""Collectives that the NCCL back ends measure."""

NEWEST: Version = (2, 32)
"""The newest version this table was checked against; plans without NCCL are made for it."""

MAX_LOCAL_COLLNET = 8
MAX_LOCAL_NVLS = 32
"""NCCL_MAX_DIRECT_ARITY + 1 and NCCL_MAX_NVLS_ARITY: ranks on one node."""

_SOURCE = "NCCL 2.30-2.32 tuning.cc"

# name: (NCCL's number, spelling in NCCL_ALGO, family, since, limits, collectives → protocols)
_ALL = PROTOCOLS
_SIMPLE = ("simple",)
_TABLE: dict[str, tuple[int | None, str, str, Version, tuple[str, ...], dict[str, tuple[str, ...]]]] = {
    "tree": (0, "Tree", "double_tree", (2, 4), (), {"allreduce": _ALL}),
    "ring": (1, "Ring", "ring", (2, 0), (), dict.fromkeys(TUNABLE, _ALL)),
    "collnet_direct": (2, "CollnetDirect", "hierarchical", (2, 14), ("several_nodes",),
                       {"allreduce": _SIMPLE, "allgather": _SIMPLE, "reduce_scatter": _SIMPLE}),
    "collnet_chain": (3, "CollnetChain", "hierarchical", (2, 14), ("several_nodes",), {"allreduce": _SIMPLE}),
    "nvls": (4, "NVLS", "shared_memory", (2, 17), (),
             {"allreduce": _SIMPLE, "allgather": _SIMPLE, "reduce_scatter": _SIMPLE}),
    "nvls_tree": (5, "NVLSTree", "hierarchical", (2, 18), ("several_nodes",), {"allreduce": _SIMPLE}),
    "pat": (6, "PAT", "bruck", (2, 23), (), {"allgather": _SIMPLE, "reduce_scatter": _SIMPLE}),
    # Symmetric kernels: need windows registered as symmetric and one NVLink domain; chosen by NCCL among its kernels.
    "symmetric": (None, "symk", "shared_memory", (2, 27), (),
                  {"allreduce": (), "allgather": (), "reduce_scatter": ()}),
}  # fmt: skip
# Versions are those in which each algorithm (for any collective) first appears. NVLS and CollNet for allgather and
# reduce_scatter came later than for allreduce:
_LATER: dict[tuple[str, str], Version] = {
    ("collnet_direct", "allgather"): (2, 19), ("collnet_direct", "reduce_scatter"): (2, 19),
    ("nvls", "allgather"): (2, 19), ("nvls", "reduce_scatter"): (2, 19),
}  # fmt: skip

NATIVE_NAMES = {name: row[1] for name, row in _TABLE.items()}
"""Our word → NCCL's spelling in ``NCCL_ALGO`` and (lower case) in a per-call selection."""
NATIVE_NUMBERS = {name: row[0] for name, row in _TABLE.items() if row[0] is not None}
PER_CALL_SINCE: Version = (2, 31)
"""First version with a per-call choice of algorithm."""

ALGORITHMS = tuple(
    Algorithm(
        "nccl",
        collective,
        name,
        number,
        family,
        since=_LATER.get((name, collective), since),
        limits=limits,
        params=(("protocol", "simple"),) if row[collective] else (),
        source=_SOURCE,
    )
    for collective in TUNABLE
    for name, (number, _spelling, family, since, limits, row) in _TABLE.items()
    if collective in row
)


def protocols(collective: str, algorithm: str) -> tuple[str, ...]:
    """Return the protocols that an algorithm can run with; empty when NCCL has no such choice."""
    row = _TABLE.get(algorithm)
    return row[5].get(collective, ()) if row else ()


def impossible(cell: Cell, algorithm: str) -> str | None:
    """Return why an algorithm cannot run in ``cell`` whatever the machine; None when it may.

    What depends on the machine (NVSwitch, SHARP, link types) shows when NCCL creates the communicator.
    """
    if cell.ranks < 2:
        return "needs at least two ranks: NCCL copies on one"
    per_node = cell.ranks_per_node if cell.ranks_per_node is not None else cell.ranks
    if algorithm == "pat" and per_node > 1:
        return "needs one rank per node"
    if algorithm in ("collnet_direct", "collnet_chain") and per_node > MAX_LOCAL_COLLNET:
        return f"needs at most {MAX_LOCAL_COLLNET} ranks per node"
    if algorithm in ("nvls", "nvls_tree"):
        return _nvls(cell, per_node)
    if algorithm == "symmetric" and cell.collective != "allgather" and cell.op != "sum":
        return "symmetric kernels reduce by sum only"
    return None


def _nvls(cell: Cell, per_node: int) -> str | None:
    if cell.collective != "allreduce" and per_node > MAX_LOCAL_NVLS:
        return f"needs at most {MAX_LOCAL_NVLS} ranks per node"
    if cell.collective == "allgather":
        return None
    if cell.dtype in ("int32", "uint32", "int64", "uint64", "float16", "bfloat16"):
        return None if cell.op in ("sum", "min", "max") else f"NVLS cannot reduce by {cell.op}"
    if cell.dtype in ("float32", "float64"):
        return None if cell.op == "sum" else f"NVLS reduces {cell.dtype} by sum only"
    return f"NVLS cannot reduce {cell.dtype}"
