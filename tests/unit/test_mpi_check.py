"""Known data, expected results and their error bounds, without MPI."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collbench.mpi.buffers import NUMPY_DTYPES
from collbench.mpi.check import PERIOD, SLICE, Part, combined, compare, compare_parts, put, table, values

OPS = ("sum", "prod", "max", "min")


@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
@pytest.mark.parametrize("op", OPS)
def test_expected_results_equal_a_direct_computation(dtype, op):
    """The periodic shortcut gives what combining every rank's whole vector gives, within the stated bound."""
    ranks, start, count = 7, 5000, 3000
    base = table(dtype, op, ranks)
    function = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}[op]
    direct = values(base, 0, start, count)
    for rank in range(1, ranks):
        direct = function(direct, values(base, rank, start, count))
    expected, bound = combined(base, ranks, op, start, count)
    assert compare(direct, expected, bound) is None


@pytest.mark.parametrize("ranks", [2, 8, 100])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32"])
def test_integer_sums_cannot_overflow(dtype, ranks):
    """The table's values leave room for every rank, up to 63 ranks in int8."""
    base = table(dtype, "sum", ranks)
    if ranks * 2 <= np.iinfo(base.dtype).max:
        assert int(base.max()) * ranks <= np.iinfo(base.dtype).max


@settings(deadline=None, derandomize=True, max_examples=60)
@given(st.integers(0, 63), st.integers(0, 10**6), st.integers(1, 5000))
def test_values_depend_only_on_rank_and_position(rank, start, count):
    """A part of a vector holds what the whole vector holds there."""
    base = table("int32", "sum", 64)
    assert np.array_equal(
        values(base, rank, start, count), values(base, rank, 0, start % PERIOD + count)[-count:]
    )


@pytest.mark.parametrize("shift", [1, 64, 1024, 4096])
def test_a_shifted_or_foreign_block_is_seen(shift):
    """A block from the wrong place or the wrong rank differs from the expected one."""
    base = table("float32", None, 4)
    assert compare(values(base, 1, shift, 512), values(base, 1, 0, 512)) is not None
    assert compare(values(base, 2, 0, 512), values(base, 1, 0, 512)) is not None


def test_a_lost_summand_exceeds_the_float_bound():
    """Leaving one rank out is no rounding error: the bound is far below a summand."""
    base = table("float32", "sum", 8)
    right, bound = combined(base, 8, "sum", 0, PERIOD)
    wrong, _ = combined(base, 7, "sum", 0, PERIOD)
    assert compare(wrong.astype(np.float32), right, bound) is not None
    assert compare(right.astype(np.float32), right, bound) is None


def test_any_summation_order_is_within_the_bound():
    """Reversed and pairwise orders of 8 ranks' floats stay inside."""
    base = table("float32", "sum", 8)
    expected, bound = combined(base, 8, "sum", 0, PERIOD)
    parts = [values(base, r, 0, PERIOD) for r in range(8)]
    backwards = parts[7]
    for part in reversed(parts[:7]):
        backwards = backwards + part
    pairs = ((parts[0] + parts[1]) + (parts[2] + parts[3])) + ((parts[4] + parts[5]) + (parts[6] + parts[7]))
    assert compare(backwards, expected, bound) is None
    assert compare(pairs, expected, bound) is None


def test_the_sentence_names_place_and_values():
    """Expected, found, where, and how many."""
    found = np.array([1, 2, 9, 4], np.int32)
    assert compare(found, np.array([1, 2, 3, 4], np.int32)) == (
        "expected 3 but found 9 at element 2 (1 of 4 wrong)"
    )


def test_not_a_number_is_wrong():
    """NaN never counts as within a bound."""
    one = np.ones(3, np.float32)
    broken = np.array([1, np.nan, 1], np.float32)
    assert "element 1" in compare(broken, one.astype(np.longdouble), np.full(3, 0.1, np.longdouble))


def test_a_fault_beyond_the_first_stretch_is_named_by_its_place_in_the_result():
    """Parts and stretches are counted together; the first fault speaks, all are counted."""
    base = table("int32", None, 4)
    count = 2 * SLICE + 10
    found = np.concatenate([values(base, 0, 0, count), values(base, 1, 0, count)])
    right = found.copy()
    parts = [Part(r * count, count, lambda o, n, r=r: (values(base, r, o, n), None)) for r in (0, 1)]
    assert compare_parts(found, parts) is None
    for at in (SLICE + 3, count + 2 * SLICE + 1):
        found[at] += 1
    assert compare_parts(found, parts) == (
        f"expected {right[SLICE + 3]} but found {found[SLICE + 3]} at element {SLICE + 3} (2 of {2 * count} wrong)"
    )


def test_a_stretch_at_a_time_puts_and_compares_what_the_whole_would():
    """Filling by stretches gives the vector that one call gives."""
    base = table("float32", "sum", 3)
    target = np.zeros(SLICE + 77, np.float32)
    put(target, base, 2)
    assert np.array_equal(target, values(base, 2, 0, len(target)))


def test_comparing_takes_the_same_memory_for_any_size():
    """Extended precision costs 16 bytes an element five times over, but only for one stretch (8 MiB are planned for)."""
    base = table("float32", "sum", 4)
    result, bound = combined(base, 4, "sum", 0, PERIOD)

    def peak(count):
        found = np.resize(result.astype(np.float32), count)
        part = Part(
            0, count, lambda o, n: (np.resize(np.roll(result, -o), n), np.resize(np.roll(bound, -o), n))
        )
        tracemalloc.start()
        assert compare_parts(found, [part]) is None
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return used

    assert peak(20 * SLICE) < 1.1 * peak(2 * SLICE) < 8 << 20
