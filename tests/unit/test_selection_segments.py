"""Segments: few intervals with little loss, held against brute force."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collbench import segments


def brute_force(cost, allowance):
    """Return (intervals, cost) of the best cover by trying every one."""
    n = len(cost)
    covers = []
    for cuts in itertools.product((False, True), repeat=n - 1):
        edges = [0, *(i + 1 for i, cut in enumerate(cuts) if cut), n]
        total = sum(cost[a, b - 1] for a, b in itertools.pairwise(edges))
        covers.append((len(edges) - 1, total))
    within = [c for c in covers if c[1] <= allowance + 1e-12]
    return min(within) if within else min(covers, key=lambda c: (round(c[1], 9), c[0]))


LOSSES = st.integers(1, 6).flatmap(
    lambda n: st.lists(
        st.lists(st.one_of(st.just(0.0), st.floats(0, 0.5), st.just(math.inf)), min_size=3, max_size=3),
        min_size=n, max_size=n,
    )
)  # fmt: skip


@settings(deadline=None, derandomize=True, max_examples=100)
@given(losses=LOSSES, allowance=st.floats(0, 1))
def test_no_cover_within_the_allowance_has_fewer_intervals(losses, allowance):
    """The dynamic programme finds the number of intervals, and their cost, that trying all covers finds."""
    loss = np.array([[0.0, *row] for row in losses])
    n, k = loss.shape
    cost, _ = segments.interval_costs(loss, np.ones((n, n, k), bool))
    front = segments.frontier(cost)
    (count,) = segments.share([front], allowance)
    spans = front.spans(count)
    total = sum(cost[i, j] for i, j in spans)
    best = brute_force(cost, allowance)
    assert best[0] == len(spans)
    assert total <= allowance + 1e-9
    assert total == pytest.approx(best[1], abs=1e-9)
    assert list(range(n)) == [x for i, j in spans for x in range(i, j + 1)]


@settings(deadline=None, derandomize=True, max_examples=60)
@given(st.lists(LOSSES, min_size=2, max_size=3), st.floats(0, 1))
def test_series_together_stay_within_their_common_allowance(many, allowance):
    fronts = []
    for losses in many:
        loss = np.array([[0.05, *row] for row in losses])
        cost, _ = segments.interval_costs(loss, np.ones((len(loss), *loss.shape), bool))
        fronts.append(segments.frontier(cost))
    counts = segments.share(fronts, allowance)
    spent = sum(f.totals[c] for f, c in zip(fronts, counts, strict=True))
    cheapest = sum(f.totals[-1] for f in fronts)
    assert spent <= max(allowance, cheapest) + 1e-9


def test_among_equals_the_first_column_is_taken():
    cost, choice = segments.interval_costs(np.zeros((2, 3)), np.ones((2, 2, 3), bool))
    assert choice[0, 1] == 0
    assert cost[0, 1] == 0.0


def test_no_permitted_cover_is_an_error():
    with pytest.raises(ValueError, match="no cover"):
        segments.frontier(np.full((2, 2), np.inf))


TIME = st.floats(-14, -6)


@settings(deadline=None, derandomize=True, max_examples=100)
@given(st.integers(0, 10**6), st.integers(1, 10**6), TIME, TIME, TIME, TIME)
def test_a_border_lies_between_its_sizes_and_where_the_curves_cross(low, gap, a0, a1, b0, b1):
    """Left of the border the lower rule's curve is not above the upper's, and the reverse right of it."""
    sizes = (low, low + gap)
    at = segments.boundary(sizes, (a0, a1), (b0, b1))
    assert low < at <= low + gap
    if b0 > a0 and b1 < a1:
        share = (math.log(at) - math.log(max(low, 1))) / (math.log(low + gap) - math.log(max(low, 1)))
        lower, upper = a0 + share * (a1 - a0), b0 + share * (b1 - b0)
        before = (math.log(max(at - 1, 1)) - math.log(max(low, 1))) / (
            math.log(low + gap) - math.log(max(low, 1))
        )
        assert at in (low + 1, low + gap) or upper <= lower + 1e-9
        assert at == low + 1 or a0 + before * (a1 - a0) <= b0 + before * (b1 - b0) + 1e-9


def test_a_choice_without_a_time_at_the_far_end_is_not_extended():
    assert segments.boundary((100, 200), (1.0, 1.0), (math.nan, 0.5)) == 200
    assert segments.boundary((100, 200), (1.0, math.nan), (2.0, 0.5)) == 101
