"""The table of collectives: names, what S means, the busbw factor."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collbench.collectives import COLLECTIVES, busbw, collective, round_nbytes
from collbench.errors import UsageError


@pytest.mark.parametrize(
    ("spelling", "name"),
    [("allreduce", "allreduce"), ("All_Reduce", "allreduce"), ("all-gather", "allgather"), ("broadcast", "bcast"),
     ("reduce_scatter_block", "reduce_scatter"), ("all_to_all", "alltoall"), (" pingpong ", "sendrecv")],
)  # fmt: skip
def test_other_spellings_lead_to_mpis_name(spelling, name):
    """Case, hyphens and NCCL's spellings do not matter."""
    assert collective(spelling).name == name


def test_a_wrong_name_is_answered_with_the_nearest():
    """A typing error is wrong use."""
    with pytest.raises(UsageError, match="did you mean 'allreduce'"):
        collective("alreduce")


def test_no_alias_hides_a_name():
    """An alias is no other collective's name and belongs to one collective only."""
    aliases = [alias for row in COLLECTIVES.values() for alias in row.aliases]
    assert len(aliases) == len(set(aliases))
    assert not set(aliases) & set(COLLECTIVES)


@pytest.mark.parametrize(
    ("name", "factor"),
    [
        ("allreduce", 1.75),
        ("allgather", 0.875),
        ("reduce_scatter", 0.875),
        ("alltoall", 0.875),
        ("bcast", 1),
        ("reduce", 1),
    ],
)
def test_busbw_factors_on_eight_ranks(name, factor):
    """As nccl-tests' PERFORMANCE.md states them: 2(p−1)/p, (p−1)/p, 1."""
    assert busbw(name, 8, 1000, 1e-6) == pytest.approx(1e9 * factor)


def test_no_bandwidth_where_there_is_none():
    """A barrier, an empty message and a zero time have no bandwidth, rather than 0."""
    assert busbw("barrier", 8, 0, 1e-6) is busbw("bcast", 8, 0, 1e-6) is busbw("bcast", 8, 8, 0.0) is None


@settings(deadline=None, derandomize=True, max_examples=100)
@given(
    st.sampled_from(sorted(COLLECTIVES)),
    st.integers(0, 1 << 30),
    st.integers(1, 4096),
    st.sampled_from([1, 2, 4, 8]),
)
def test_sizes_round_down_to_whole_elements_per_rank(name, nbytes, ranks, itemsize):
    """The real size is at most what was asked for, less than one unit below it, and rounding again changes nothing."""
    real = round_nbytes(name, nbytes, ranks, itemsize)
    row = COLLECTIVES[name]
    if not row.sized:
        assert real == 0
        return
    unit = itemsize * (ranks if row.per_rank else 1)
    assert real % unit == 0
    assert 0 <= nbytes - real < unit
    assert round_nbytes(name, real, ranks, itemsize) == real
