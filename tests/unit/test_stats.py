"""Statistics of launches: exact tests, intervals, corrections."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as reference

from collbench import results, stats

times = st.lists(st.floats(1e-7, 1.0), min_size=1, max_size=12)


@pytest.mark.parametrize("n", [5, 8, 10, 17])
def test_signed_rank_p_is_scipys_exact_one(n: int):
    """Without ties the exact p is that of scipy."""
    values = np.random.default_rng(n).normal(0.3, 1, n)
    assert stats.signed_rank_p(values.tolist()) == pytest.approx(
        reference.wilcoxon(values, method="exact").pvalue
    )


def test_signed_rank_p_of_equal_series_is_one():
    """A run against itself shows no difference at all."""
    assert stats.signed_rank_p([0.0] * 8) == 1.0


@pytest.mark.parametrize(("n", "least"), [(5, 0.0625), (6, 0.03125), (8, 0.0078125), (10, 0.001953125)])
def test_few_pairs_cannot_reach_small_p(n: int, least: float):
    """All pairs one way: the least p that so many pairs can reach."""
    assert stats.signed_rank_p([1.0 + i for i in range(n)]) == pytest.approx(least)


@pytest.mark.parametrize("shape", [(4, 4), (5, 8), (10, 10)])
def test_rank_sum_p_is_scipys_exact_one(shape: tuple[int, int]):
    """Without ties the unpaired exact p is that of Mann and Whitney in scipy."""
    source = np.random.default_rng(sum(shape))
    new, base = np.exp(source.normal(0.5, 1, shape[0])), np.exp(source.normal(0, 1, shape[1]))
    assert stats.unpaired_ratio(new, base).p == pytest.approx(
        reference.mannwhitneyu(new, base, method="exact").pvalue
    )


def test_tied_rank_sum_p_is_the_permutation_one():
    """With ties the p is that of all assignments of the pooled values."""
    from itertools import combinations

    new, base = [2.0, 2.0, 3.0, 5.0], [1.0, 2.0, 2.0, 3.0]
    ranks = reference.rankdata([*new, *base])
    sums = np.array([sum(c) for c in combinations(ranks, 4)])
    seen = ranks[:4].sum()
    expected = min(1, 2 * min((sums <= seen).mean(), (sums >= seen).mean()))
    assert stats.unpaired_ratio(new, base).p == pytest.approx(expected)


def test_intervals_do_not_exist_with_too_few_launches():
    """Five pairs cannot give a 95 % interval, six can; three launches a side cannot, four can."""
    assert stats.paired_ratio([1.1] * 5, [1.0] * 5).low is None
    assert stats.paired_ratio([1.1] * 6, [1.0] * 6).low == pytest.approx(1.1)
    assert stats.unpaired_ratio([1.1, 1.2, 1.3], [1.0, 1.05, 0.9]).low is None
    assert stats.unpaired_ratio([1.1, 1.2, 1.3, 1.2], [1.0, 1.05, 0.9, 0.95]).low is not None


@pytest.mark.parametrize("ratio", [stats.paired_ratio, stats.unpaired_ratio])
def test_interval_covers_as_often_as_it_says(ratio):
    """The exact intervals cover the true ratio in at least the stated share of normal samples."""
    source = np.random.default_rng(7)
    inside = 0
    for _ in range(400):
        new, base = np.exp(source.normal(0.1, 0.05, 8)), np.exp(source.normal(0, 0.05, 8))
        found = ratio(new, base)
        inside += found.low <= np.exp(0.1) <= found.high
    assert 0.92 <= inside / 400 <= 0.99


@settings(deadline=None, derandomize=True, max_examples=60)
@given(times, st.floats(0.5, 2.0))
def test_ratio_scales_with_the_times(series: list[float], factor: float):
    """A side that is slower by a factor has that ratio, whatever the times are."""
    found = stats.paired_ratio([t * factor for t in series], series)
    assert found.value == pytest.approx(factor)
    assert found.low is None or found.low == pytest.approx(factor)


@settings(deadline=None, derandomize=True, max_examples=60)
@given(times, times)
def test_swapping_the_sides_inverts_the_ratio(a: list[float], b: list[float]):
    """What is slower one way round is faster the other way round, with the same p."""
    there, back = stats.unpaired_ratio(a, b), stats.unpaired_ratio(b, a)
    assert there.value == pytest.approx(1 / back.value)
    assert there.p == pytest.approx(back.p)
    if there.low is not None:
        assert there.low == pytest.approx(1 / back.high)


@pytest.mark.parametrize("p", [[0.01, 0.04, 0.03, 0.2], [0.5], [0.002] * 40, []])
def test_benjamini_hochberg_is_scipys(p: list[float]):
    """The adjusted values equal scipy's; forty equal p values stay what they are."""
    expected = reference.false_discovery_control(p).tolist() if p else []
    assert stats.benjamini_hochberg(p) == pytest.approx(expected)


def test_paired_log_median_needs_three_blocks_for_an_interval():
    """Two blocks give a ratio without an interval."""
    assert stats.paired_log_median([2.0, 2.2], [1.0, 1.1]).low is None
    assert stats.paired_log_median([2.0, 2.2, 2.1], [1.0, 1.1, 1.0]).low is not None


def test_summarise_takes_the_median_of_launches():
    """One row a case: median, smallest and largest launch."""
    row = dict.fromkeys(results.COLUMNS) | {
        "collective": "bcast", "ranks": 2, "nbytes": 8, "algorithm": "ring", "provider": "openmpi", "iterations": 10,
    }  # fmt: skip
    frame = pd.DataFrame([row | {"launch": i, "time_s": t} for i, t in enumerate([3.0, 1.0, 2.0])])
    (found,) = stats.summarise(frame).to_dict("records")
    assert (found["time_s"], found["min_s"], found["max_s"], found["launches"]) == (2.0, 1.0, 3.0, 3)
