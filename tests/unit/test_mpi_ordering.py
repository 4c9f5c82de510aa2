"""Orders of addition leave their mark in the bits of a float sum."""

import numpy as np
import pytest

from collbench.mpi import ordering


@pytest.mark.parametrize("ranks", [4, 8, 16])
def test_each_order_is_recognised_and_no_other(ranks):
    """Doubling, halving, ring (wherever it begins) and linear give different bits."""
    values = ordering.inputs(ranks, ordering.ELEMENTS_A_RANK * ranks)
    assert ordering.families(ordering.doubling(values)) == ("doubling",)
    assert ordering.families(ordering.halving(values)) == ("halving",)
    assert ordering.families(ordering.ring(values, 0)) == ("ring",)
    assert ordering.families(ordering.ring(values, ranks - 1)) == ("ring",)
    assert ordering.families(ordering.linear(values, backwards=True)) == ("linear",)


def test_all_orders_agree_up_to_rounding():
    """They are the same sum."""
    values = ordering.inputs(8, 256)
    exact = values.astype(np.longdouble).sum(axis=0)
    for result in (ordering.doubling(values), ordering.halving(values), ordering.ring(values, 3)):
        assert np.allclose(result.astype(float), exact.astype(float), rtol=1e-9, atol=1e-6)


def test_two_ranks_cannot_be_told_apart():
    """One addition has one order: all families fit."""
    values = ordering.inputs(2, 64)
    assert set(ordering.families(values[0] + values[1])) == {"doubling", "halving", "ring", "linear"}


def test_a_foreign_order_is_nobody_s():
    """One bit off fits no family."""
    result = ordering.doubling(ordering.inputs(8, 256)).copy()
    result[7] = np.nextafter(result[7], np.inf)
    assert ordering.families(result) == ()
