"""NCCL's table of algorithms and what cannot run."""

import pytest

from collbench.algorithms import algorithms
from collbench.algorithms.nccl import NATIVE_NUMBERS, impossible, protocols
from collbench.records import Cell


def _names(collective, version=None):
    return {row.name for row in algorithms("nccl", collective, version)}


def test_the_rows_are_those_of_nccls_own_validity_table():
    """Broadcast and reduce know only the ring; PAT is never an allreduce; trees are nothing else."""
    assert _names("bcast") == _names("reduce") == {"ring"}
    assert _names("allreduce") == {
        "ring",
        "tree",
        "collnet_direct",
        "collnet_chain",
        "nvls",
        "nvls_tree",
        "symmetric",
    }
    assert (
        _names("allgather")
        == _names("reduce_scatter")
        == {"ring", "pat", "nvls", "collnet_direct", "symmetric"}
    )
    assert _names("alltoall") == _names("sendrecv") == set()


def test_only_ring_and_tree_have_the_low_latency_protocols():
    """Everything else runs with Simple, symmetric kernels with none of the three."""
    for row in algorithms("nccl"):
        expected = {"ring": 3, "tree": 3, "symmetric": 0}.get(row.name, 1)
        assert len(protocols(row.collective, row.name)) == expected


@pytest.mark.parametrize(("version", "absent"), [((2, 16), {"nvls", "nvls_tree", "pat", "symmetric"}),
                                                 ((2, 22), {"pat", "symmetric"}), ((2, 26), {"symmetric"})])  # fmt: skip
def test_older_versions_lack_the_newer_algorithms(version, absent):
    """By the version in which each first appeared."""
    names = _names("allreduce", version) | _names("allgather", version)
    assert not names & absent


def test_numbers_are_the_cost_tables_rows():
    """0 to 6, each once, as the plugin and older logs use them."""
    assert sorted(NATIVE_NUMBERS.values()) == list(range(7))


@pytest.mark.parametrize(
    ("cell", "algorithm", "words"),
    [
        (Cell("allgather", 8, 8, 1024), "pat", "one rank per node"),
        (Cell("allgather", 8, 1, 1024), "pat", None),
        (Cell("allreduce", 8, 8, 1024, "float32", "max"), "nvls", "sum only"),
        (Cell("allreduce", 8, 8, 1024, "bfloat16", "max"), "nvls", None),
        (Cell("allreduce", 8, 8, 1024, "int8", "sum"), "nvls", "cannot reduce int8"),
        (Cell("allreduce", 8, 8, 1024, "float16", "prod"), "nvls_tree", "cannot reduce by prod"),
        (Cell("allgather", 8, 8, 1024, "int8"), "nvls", None),
        (Cell("allreduce", 32, 16, 1024, "float32", "sum"), "collnet_chain", "at most 8"),
        (Cell("allreduce", 1, 1, 1024, "float32", "sum"), "ring", "at least two ranks"),
        (Cell("allreduce", 8, 8, 1024, "float32", "max"), "symmetric", "sum only"),
    ],
)
def test_impossible_cells_have_a_reason(cell, algorithm, words):
    """What no machine can run is known before anything starts."""
    reason = impossible(cell, algorithm)
    assert (reason is None) == (words is None)
    assert words is None or words in reason
