"""Clock offsets from round trips, without MPI."""

from hypothesis import given, settings
from hypothesis import strategies as st

from collbench.mpi.clock import edges, relative


@settings(deadline=None, derandomize=True, max_examples=100)
@given(st.integers(-(10**12), 10**12), st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**15))
def test_the_true_offset_lies_within_the_error_bound(offset, out, back, start):
    """Whatever the two ways take, the stated error covers the asymmetry."""
    found, error = relative(start + out + offset, start, start + out + back)
    assert abs(found - offset) <= error


def test_a_symmetric_trip_gives_the_offset_exactly():
    """Equal ways cancel."""
    assert relative(1_000_000 + 500, 1_000_000 - 500 + 500, 1_000_000 + 1000) == (0, 500)


@given(st.integers(1, 300))
@settings(deadline=None, derandomize=True, max_examples=60)
def test_every_node_is_measured_once_against_one_measured_before(nodes):
    """A tree with at most log2(nodes) edges to node 0."""
    depth = {0: 0}
    for reference, client in edges(nodes):
        assert client not in depth
        depth[client] = depth[reference] + 1
    assert set(depth) == set(range(nodes))
    assert max(depth.values()) <= max(0, (nodes - 1).bit_length())
