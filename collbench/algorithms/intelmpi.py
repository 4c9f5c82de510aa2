"""Intel MPI's algorithms: presets of I_MPI_ADJUST_*, numbers from 1 (0 is the library's own decision).

The library publishes ranges but no names. A preset goes by a name only where operator traces and result bits at
8 ranks confirm what it does; all others are ``preset_<number>`` of the family "other". Presets also differ in how
they compose node and network parts, so the family is that of the whole only on one node.

Source: ranges from the control variables' descriptions of 2021.18.1 (a test reads them from the live library).
``reduce_scatter`` here is MPI_Reduce_scatter_block.
"""

from collbench.algorithms import Algorithm

PRESETS = {
    "allgather": 6, "allgatherv": 5, "allreduce": 32, "alltoall": 18, "alltoallv": 9, "barrier": 11, "bcast": 22,
    "gather": 5, "reduce": 19, "reduce_scatter_v": 6, "reduce_scatter": 4, "scatter": 5,
}  # fmt: skip
"""Collective → highest preset."""

# (collective, preset) → (name, family): 1 agrees with its documented name, 2 and 8 are confirmed by their traces.
_NAMED: dict[tuple[str, int], tuple[str, str]] = {
    ("allreduce", 1): ("recursive_doubling", "recursive_doubling"),
    ("allreduce", 2): ("rabenseifner", "rabenseifner"),
    ("allreduce", 3): ("reduce_bcast", "reduce_bcast"),
    ("allreduce", 8): ("ring", "ring"),
}

# Knomial by the reference manual, but its trace and result bits are those of recursive doubling.
_SAME: dict[tuple[str, int], tuple[str, ...]] = {
    ("allreduce", 1): ("preset_9",),
    ("allreduce", 9): ("recursive_doubling",),
}

WORDS = {"reduce_scatter": "REDUCE_SCATTER_BLOCK", "reduce_scatter_v": "REDUCE_SCATTER"}
"""Collective → its part of a variable's name where the two differ."""


def variable(collective: str) -> str:
    """Return the variable that selects a preset, for example ``I_MPI_ADJUST_ALLREDUCE``."""
    return f"I_MPI_ADJUST_{WORDS.get(collective, collective.upper())}"


def cvar(collective: str) -> str:
    """Return the control variable whose description states the presets (writing it has no effect)."""
    return f"MPIR_CVAR_USE_{WORDS.get(collective, collective.upper())}"


def _row(collective: str, preset: int) -> Algorithm:
    name, family = _NAMED.get((collective, preset), (f"preset_{preset}", "other"))
    return Algorithm(
        provider="intelmpi",
        collective=collective,
        name=name,
        native_id=preset,
        family=family,
        since=(2021,),
        same_trace_as=_SAME.get((collective, preset), ()),
        source="MPI_T descriptions of 2021.18.1; traces at 8 ranks",
    )


ALGORITHMS: tuple[Algorithm, ...] = tuple(
    _row(collective, preset) for collective, highest in PRESETS.items() for preset in range(1, highest + 1)
)
"""Rows by collective and preset."""
