"""Clock offsets from round trips, without MPI."""

from hypothesis import given, settings
from hypothesis import strategies as st

from collbench.mpi import clock
from collbench.mpi.clock import Clock, Clocks, edges, relative


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


class Alone:
    """A communicator whose collectives change nothing: what this rank decides is what all do."""

    def __init__(self, rank):
        self.rank = rank

    def Bcast(self, message, root):  # noqa: N802 - as mpi4py spells it
        """Rank 0's word is this rank's own."""


@settings(deadline=None, derandomize=True, max_examples=100)
@given(
    st.integers(-(10**9), 10**9), st.floats(-5e-5, 5e-5), st.integers(1, 20_000),
    st.floats(-1, 1), st.floats(-1, 1), st.floats(0.1, 60), st.floats(0, 2),
)  # fmt: skip
def test_an_offset_between_estimates_is_within_its_stated_error(offset, rate, error, off1, off2, apart, age):
    """Two estimates, each wrong by up to its bound, give drift and offset whose growing error covers the truth."""
    now = [0]
    clocks = Clocks(Alone(1), (0, 1), clock_ns=lambda: now[0])
    first_ns, last_ns = 10**9, 10**9 + round(apart * 1e9)

    def true(at_ns):
        return offset + rate * at_ns

    for at_ns, wrong in ((first_ns, off1), (last_ns, off2)):
        clocks.learn(at_ns, Clock(round(true(at_ns) + wrong * (error - 1)), error))
    now[0] = last_ns + round(age * 1e9)
    found = clocks.now()
    assert abs(found.offset_ns - true(now[0])) <= found.error_ns + 2
    assert found.error_ns >= error


def test_until_a_second_estimate_the_error_grows_by_the_assumed_drift():
    """One estimate of 700 ns is 2700 ns uncertain after two seconds."""
    now = [0]
    clocks = Clocks(Alone(1), (0, 1), clock_ns=lambda: now[0])
    clocks.learn(0, Clock(-5000, 700))
    now[0] = 2 * 10**9
    assert clocks.now() == Clock(-5000, 2700)


def test_estimates_grow_old(monkeypatch):
    """The first look measures, the next one only when the estimate is older than its time."""
    asked = []
    now = [0]

    def measure(*args, **options):
        asked.append(now[0])
        return Clock(1, 1)

    clocks = Clocks(Alone(0), (0, 1), max_age_s=1.0, clock_ns=lambda: now[0])
    monkeypatch.setattr(clock, "synchronise", measure)
    for moment in (0, 0.5, 1.0, 1.1, 2.0, 2.2):
        now[0] = round(moment * 1e9)
        clocks.refresh()
    assert asked == [0, 1.1e9, 2.2e9]


def test_one_node_has_one_clock():
    """Nothing is sent and nothing is wrong."""
    clocks = Clocks(None, (0, 0, 0))
    assert not clocks.several
    assert clocks.refresh() is False
    assert clocks.now() == Clock(0, 0)
