"""The tables of algorithms: every row is sound, whatever library it belongs to."""

import pytest

from collbench import algorithms
from collbench.algorithms import FAMILIES, LIMITS, TABLES, find, intelmpi, mpich, openmpi
from collbench.collectives import COLLECTIVES
from collbench.errors import UsageError
from collbench.records import Cell

LIBRARIES = ("openmpi", "mpich", "intelmpi")
ROWS = [row for provider in LIBRARIES for row in TABLES[provider]]


def _cell(
    ranks: int = 8, nbytes: int = 1024, collective: str = "allreduce", per_node: int | None = None, **more
) -> Cell:
    return Cell(collective, ranks, ranks if per_node is None else per_node, nbytes, **more)


@pytest.mark.parametrize("provider", LIBRARIES)
def test_names_and_numbers_are_unique(provider):
    """One name and one number mean one algorithm of a collective and component."""
    rows = TABLES[provider]
    names = [(r.collective, r.name) for r in rows]
    numbers = [(r.collective, r.component, r.native_id) for r in rows]
    assert len(names) == len(set(names))
    assert len(numbers) == len(set(numbers))


@pytest.mark.parametrize("row", ROWS, ids=lambda r: f"{r.provider}-{r.collective}-{r.component}-{r.name}")
def test_every_row_speaks_the_common_words(row):
    """Known provider, collective, family and limits; a number from 1 up; a source; parameters sorted."""
    assert row.provider in LIBRARIES
    assert row.collective in COLLECTIVES
    assert row.family in FAMILIES
    assert set(row.limits) <= set(LIMITS)
    assert row.native_id >= 1
    assert row.name != "default"
    assert row.source
    assert list(row.params) == sorted(row.params)


@pytest.mark.parametrize(
    "row", [r for r in ROWS if r.same_trace_as], ids=lambda r: f"{r.provider}-{r.collective}-{r.name}"
)
def test_what_no_proof_can_tell_apart_is_told_by_both(row):
    """Indistinguishable is mutual and names real rows of the same collective."""
    for other in row.same_trace_as:
        assert row.name in find(row.provider, row.collective, other).same_trace_as


@pytest.mark.parametrize("provider", LIBRARIES)
def test_every_collective_of_the_main_job_has_algorithms(provider):
    """All that ``collbench run`` sweeps, sendrecv apart."""
    swept = {
        "allreduce",
        "bcast",
        "allgather",
        "reduce_scatter",
        "reduce",
        "alltoall",
        "gather",
        "scatter",
        "barrier",
    }
    assert swept <= {row.collective for row in TABLES[provider]}


@pytest.mark.parametrize(
    ("provider", "collective", "name", "cell", "reason"),
    [
        ("mpich", "allgather", "recursive_doubling", _cell(6), "needs a power of two"),
        ("mpich", "allgather", "recursive_doubling", _cell(8), None),
        ("mpich", "reduce_scatter_v", "noncommutative", _cell(3), "needs a power of two"),
        ("mpich", "allreduce", "reduce_scatter_allgather", _cell(8, 28), "largest power of two"),
        ("mpich", "allreduce", "reduce_scatter_allgather", _cell(6, 16), None),
        ("mpich", "allreduce", "release_gather", _cell(8, per_node=4), "needs a single node"),
        ("mpich", "alltoall", "pairwise_sendrecv_replace", _cell(8), "in place only"),
        ("mpich", "alltoall", "k_brucks", _cell(8, in_place=True), "cannot run in place"),
        ("openmpi", "barrier", "two_proc", _cell(4), "exactly two ranks"),
        ("openmpi", "allreduce", "ring", _cell(8, 16), "one element per rank"),
        ("intelmpi", "allreduce", "ring", _cell(7, 4), None),
    ],
)
def test_an_impossible_case_has_its_reason(provider, collective, name, cell, reason):
    """What cannot run is said beforehand, in words."""
    found = find(provider, collective, name).impossible(cell)
    assert (found is None) == (reason is None)
    assert reason is None or reason in found


def test_versions_select_rows():
    """sparbit came with Open MPI 5; MPICH's numbers hold from 5.0 on; an unknown version gets all."""
    assert "sparbit" not in {r.name for r in algorithms.algorithms("openmpi", "allgather", (4, 1, 4))}
    assert "sparbit" in {r.name for r in algorithms.algorithms("openmpi", "allgather", (5, 0, 11))}
    assert algorithms.algorithms("mpich", None, (4, 3)) == []
    assert algorithms.algorithms("mpich", None, None)


def test_an_unknown_library_has_no_rows_and_no_family():
    """A derived library is measured with default and portable algorithms only."""
    assert algorithms.algorithms("cray_mpich") == []
    assert algorithms.family("cray_mpich", "allreduce", "ring") == "other"
    assert algorithms.family("mpich", "allreduce", "default") == "default"


def test_a_wrong_name_ends_in_the_nearest():
    """The provider and the collective are in the sentence."""
    with pytest.raises(UsageError, match="unknown mpich allreduce algorithm 'rign': did you mean 'ring'"):
        find("mpich", "allreduce", "rign")


def test_names_of_variables():
    """reduce_scatter is MPI_Reduce_scatter_block everywhere."""
    assert openmpi.cvar("reduce_scatter") == "coll_tuned_reduce_scatter_block_algorithm"
    assert mpich.cvar("reduce_scatter") == "MPIR_CVAR_REDUCE_SCATTER_BLOCK_INTRA_ALGORITHM"
    assert mpich.cvar("reduce_scatter_v") == "MPIR_CVAR_REDUCE_SCATTER_INTRA_ALGORITHM"
    assert mpich.cvar("allreduce", "POSIX_INTRA") == "MPIR_CVAR_ALLREDUCE_POSIX_INTRA_ALGORITHM"
    assert intelmpi.variable("reduce_scatter") == "I_MPI_ADJUST_REDUCE_SCATTER_BLOCK"
    assert intelmpi.cvar("bcast") == "MPIR_CVAR_USE_BCAST"


def test_only_confirmed_presets_have_names():
    """A name of the reference manual that no trace confirms is no name here."""
    named = {
        (r.collective, r.native_id): r.name for r in TABLES["intelmpi"] if not r.name.startswith("preset_")
    }
    assert named == {
        ("allreduce", 1): "recursive_doubling", ("allreduce", 2): "rabenseifner",
        ("allreduce", 3): "reduce_bcast", ("allreduce", 8): "ring",
    }  # fmt: skip
    assert {r.family for r in TABLES["intelmpi"] if r.name.startswith("preset_")} == {"other"}
