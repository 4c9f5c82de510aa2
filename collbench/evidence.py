"""Whether a library uses a table: what runs with it and what runs without."""

from collections.abc import Mapping, Sequence
from enum import StrEnum

from collbench.records import Cell
from collbench.results import Run

READS_STRICTLY = {
    "mpich": "MPICH aborts in MPI_Init on a table that it cannot read, and it started with this one",
}
"""Library → why a launch that started is evidence that the table was read. Open MPI and Intel MPI start with any table."""


class Evidence(StrEnum):
    """What shows that a library uses a table; the value is what is printed."""

    ACTS = "loaded: its algorithms were shown to run"
    READ = "read by the library"
    IGNORED = "IGNORED by the library"
    UNKNOWN = "no cell tells whether it is loaded"

    @property
    def loaded(self) -> bool | None:
        """True where the table is in use, False where it is not, None where nothing tells."""
        return None if self is Evidence.UNKNOWN else self is not Evidence.IGNORED


def judge(acts: bool | None, library: str, *, started: bool) -> Evidence:
    """Return what is known of a table.

    Args:
        acts: what ``loaded`` found.
        library: that loads the table.
        started: whether ranks came up with the table in their environment.
    """
    if acts is not None:
        return Evidence.ACTS if acts else Evidence.IGNORED
    return Evidence.READ if started and library in READS_STRICTLY else Evidence.UNKNOWN


Shown = Mapping[tuple[str, int, int], frozenset[str]]
"""(collective, ranks, nbytes) → the algorithms that the proof cannot tell from what ran."""


def effective(run: Run, first_launch: int) -> dict[tuple[str, int, int], frozenset[str]]:
    """Return what was shown to run, from proof lines of launches from a number on; cells without proof are absent."""
    return {
        (p["case"]["collective"], p["case"]["ranks"], p["case"]["nbytes"]): frozenset(
            [p["effective"], *((p.get("evidence") or {}).get("candidates") or ())]
        )
        for p in run.proofs
        if p["launch"] >= first_launch and p.get("effective")
    }


def loaded(wanted: Sequence[tuple[Cell, str | None]], before: Shown, after: Shown) -> bool | None:
    """Say whether the library acts on the table: True shown, False shown not to, None cannot be told.

    A cell shows it where the table's algorithm ran with the table and something else without; it shows the contrary
    where something else runs with the table too. Cells in which the proof cannot tell the two apart say nothing.
    """
    contrary = False
    for cell, algorithm in wanted:
        key = (cell.collective, cell.ranks, cell.nbytes)
        if algorithm in (None, "default") or key not in before or key not in after:
            continue
        if algorithm in after[key] and algorithm not in before[key]:
            return True
        contrary = contrary or (algorithm not in after[key] and after[key] == before[key])
    return False if contrary else None
