"""Which control variables force a case."""

import pytest

from collbench.algorithms import algorithms
from collbench.errors import UsageError
from collbench.mpi import forcing
from collbench.records import Case, Cell


def case(provider, collective, algorithm, params=()):
    return Case(Cell(collective, 8, 8, 8192, op="sum"), provider, algorithm, None, params)


def test_open_mpi_takes_the_table_s_number():
    """reduce_scatter is Open MPI's reduce_scatter_block."""
    assert forcing.openmpi_writes(case("openmpi", "allreduce", "ring")) == {
        "coll_tuned_allreduce_algorithm": 4
    }
    writes = forcing.openmpi_writes(case("openmpi", "reduce_scatter", "butterfly"))
    assert writes == {"coll_tuned_reduce_scatter_block_algorithm": 4}


def test_open_mpi_parameters_become_variables():
    """Segment size and radix."""
    writes = forcing.openmpi_writes(
        case("openmpi", "bcast", "knomial", (("radix", 8), ("segment_bytes", 4096)))
    )
    assert writes == {
        "coll_tuned_bcast_algorithm_knomial_radix": 8,
        "coll_tuned_bcast_algorithm_segmentsize": 4096,
        "coll_tuned_bcast_algorithm": 7,
    }


def test_mpich_switches_the_collective_s_device_layer_off_and_fallbacks_to_errors():
    """Otherwise single-threaded MPICH runs release_gather, or another algorithm in silence; others keep theirs."""
    writes = forcing.mpich_writes(case("mpich", "allreduce", "ring"))
    assert writes == {
        "MPIR_CVAR_DEVICE_COLLECTIVES": 2,
        "MPIR_CVAR_ALLREDUCE_DEVICE_COLLECTIVE": 0,
        "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM": 8,
        "MPIR_CVAR_COLLECTIVE_FALLBACK": 0,
    }


def test_mpich_s_shared_memory_algorithms_need_the_device_layer():
    """release_gather is a candidate like others."""
    writes = forcing.mpich_writes(case("mpich", "allreduce", "release_gather"))
    assert writes["MPIR_CVAR_DEVICE_COLLECTIVES"] == 0
    assert writes["MPIR_CVAR_ALLREDUCE_POSIX_INTRA_ALGORITHM"] == 1


def test_a_foreign_parameter_is_refused():
    """A parameter that nobody reads must not be measured."""
    for provider, algorithm in (("openmpi", "ring"), ("mpich", "ring")):
        writes = getattr(forcing, f"{provider}_writes")
        with pytest.raises(UsageError, match="has no parameter 'colour'"):
            writes(case(provider, "allreduce", algorithm, (("colour", 1),)))


@pytest.mark.parametrize("provider", ["openmpi", "mpich"])
def test_every_row_can_be_forced(provider):
    """Each algorithm of the tables yields its own set of writes."""
    seen = {}
    for row in algorithms(provider):
        writes = getattr(forcing, f"{provider}_writes")(case(provider, row.collective, row.name))
        key = (row.collective, tuple(sorted(writes.items())))
        assert key not in seen, (row.name, seen.get(key))
        seen[key] = row.name
