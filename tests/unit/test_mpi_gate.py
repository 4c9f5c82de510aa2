"""Where ranks meet before a call: collbench's own barrier holds every rank until all have come."""

import pytest

from collbench.portable.patterns import powers as distances


@pytest.mark.parametrize("size", [*range(1, 34), 100, 257])
def test_no_rank_leaves_before_every_rank_has_come(size):
    """After the last round every rank has heard of every other, directly or through others."""
    heard = [{rank} for rank in range(size)]
    for distance in distances(size):
        heard = [heard[rank] | heard[(rank - distance) % size] for rank in range(size)]
    assert all(len(known) == size for known in heard)


def test_rounds_grow_with_the_logarithm_of_the_ranks():
    """One round fewer would leave someone out; a single rank waits for nobody."""
    assert distances(1) == []
    assert distances(2) == [1]
    assert distances(5) == [1, 2, 4]
    assert len(distances(1024)) == 10


@pytest.mark.parametrize("size", range(2, 70))
def test_each_round_has_partners_of_its_own(size):
    """No two rounds use one pair of ranks: messages of one tag cannot be taken for each other's."""
    assert len({distance % size for distance in distances(size)}) == len(distances(size))
