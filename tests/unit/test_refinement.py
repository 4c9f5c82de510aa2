"""Sizes from coarse to fine: what must be measured is, what need not be is left out."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collbench.records import Case, Cell
from collbench.refinement import Point, Refinement, agrees, levels

SIZES = [8 << n for n in range(18)]
"""8 B to 1 MiB, doubling."""
A, B, C = (("openmpi", name, ()) for name in "abc")


def walk(curves, sizes=SIZES, precision=0.02):
    """Return the sizes that are measured when the curves (name → size → seconds) are walked through level by level."""
    found = levels(sizes)
    measured = {}
    for size in sorted(sizes, key=lambda s: (found[s], s)):
        if not found[size] or not agrees(measured, size, list(curves), precision):
            measured[size] = {name: Point(math.log(curve(size))) for name, curve in curves.items()}
    return measured


def hockney(latency_s, rate):
    """Return the time of latency plus bandwidth."""
    return lambda size: latency_s + size / rate


def power(factor, slope):
    """Return a time that is a power of the size."""
    return lambda size: factor * (size / 8) ** slope


def regret(curves, measured):
    """Return the mean loss of choosing by the measured sizes, in between by straight lines in log size and time."""
    logs = np.log(sorted(measured))
    lines = {
        name: np.interp(np.log(SIZES), logs, [measured[s][name].log_s for s in sorted(measured)])
        for name in curves
    }
    losses = []
    for index, size in enumerate(SIZES):
        chosen = min(curves, key=lambda name, at=index: lines[name][at])
        losses.append(curves[chosen](size) / min(curve(size) for curve in curves.values()) - 1)
    return float(np.mean(losses))


@given(st.sets(st.integers(1, 1 << 30), min_size=1, max_size=60))
@settings(deadline=None, derandomize=True, max_examples=50)
def test_each_finer_size_lies_between_two_coarser_ones(sizes):
    """Both ends and every fourth size are level 0; a finer one has coarser ones on both sides, at most four apart."""
    found = levels(sizes)
    ordered = sorted(sizes)
    assert sorted(found) == ordered
    assert found[ordered[0]] == found[ordered[-1]] == 0
    assert all(found[size] == 0 for size in ordered[::4])
    for size in ordered:
        if found[size]:
            assert any(found[s] < found[size] for s in ordered if s < size)
            assert any(found[s] < found[size] for s in ordered if s > size)


def test_few_sizes_are_all_measured():
    """Two sizes have no middle, and of three the middle one is finer."""
    assert levels([8, 1024]) == {8: 0, 1024: 0}
    assert levels([8, 64, 1024]) == {8: 0, 64: 1, 1024: 0}
    assert levels([]) == {}


def test_a_smooth_curve_with_one_winner_needs_the_coarse_sizes_only():
    """A knee from latency to bandwidth is what every curve has; it is no reason to look closer."""
    curves = {A: hockney(1e-6, 1e9), B: hockney(3e-6, 0.8e9)}
    assert sorted(walk(curves)) == [s for s, level in levels(SIZES).items() if level == 0]


@given(st.integers(5, 12), st.floats(1.15, 8), st.floats(0, 1), st.booleans())
@settings(deadline=None, derandomize=True, max_examples=100)
def test_a_cliff_is_closed_in_wherever_it_stands(at, factor, slope, falls):
    """A jump of 15 % or more leaves no unmeasured size beside it on a curve that is straight otherwise.

    (Before the second and after the last but one coarse size it may look like the knee of any curve.)
    """
    jump = 1 / factor if falls else factor
    measured = walk({A: lambda s: power(1e-6, slope)(s) * (jump if s >= SIZES[at] else 1)})
    assert SIZES[at] in measured
    assert SIZES[at - 1] in measured


@given(st.integers(0, len(SIZES) - 2), st.floats(0.1, 1.5))
@settings(deadline=None, derandomize=True, max_examples=100)
def test_where_the_winner_changes_both_sides_are_measured(at, slope):
    """The last size of one winner and the first of the next are measured, wherever they are."""
    crossing = math.sqrt(SIZES[at] * SIZES[at + 1])
    curves = {A: power(1e-6, 0.5), B: lambda s: power(1e-6, 0.5)(s) * (crossing / s) ** slope}
    measured = walk(curves)
    assert {SIZES[at], SIZES[at + 1]} <= set(measured)


@given(st.lists(st.tuples(st.floats(1e-7, 1e-4), st.floats(1e8, 1e11)), min_size=2, max_size=6))
@settings(deadline=None, derandomize=True, max_examples=100)
def test_what_is_left_out_costs_nothing(cases):
    """On planted curves the choice by the measured sizes loses next to nothing, and no more than every second size."""
    curves = {("p", str(i), ()): hockney(*case) for i, case in enumerate(cases)}
    measured = walk(curves)
    assert regret(curves, measured) < 0.005


def test_fewer_sizes_than_all_and_less_regret_than_every_second_one():
    """Many random pairs of curves with cliffs: fewer sizes than all of them, less loss than with every second size."""
    random = np.random.default_rng(5)
    counts, own, coarse = [], [], []
    for _ in range(200):
        curves = {}
        for name in (A, B, C):
            base = hockney(*10 ** random.uniform((-6.3, 9), (-5.7, 9.6)))
            cliff, jump = SIZES[random.integers(1, 17)], random.choice([1, 1, 1.5, 0.7])
            curves[name] = lambda s, b=base, c=cliff, j=jump: b(s) * (j if s >= c else 1)
        measured = walk(curves)
        counts.append(len(measured))
        own.append(regret(curves, measured))
        coarse.append(regret(curves, {s: {n: Point(math.log(c(s))) for n, c in curves.items()}
                                      for s in [*SIZES[::2], SIZES[-1]]}))  # fmt: skip
    assert np.mean(counts) < 13
    assert np.mean(own) < 0.7 * np.mean(coarse)


def test_leaders_within_the_precision_at_both_ends_agree():
    """1 % apart at both ends is a tie; 5 % at one end is a change of winner, unless the blocks cannot tell."""
    near = {8: {A: Point(0.0), B: Point(0.01)}, 128: {A: Point(0.01), B: Point(0.0)}}
    assert agrees(near, 32, [A, B], 0.02)
    wide = {8: {A: Point(0.0), B: Point(0.05)}, 128: near[128]}
    assert not agrees(wide, 32, [A, B], 0.02)
    noisy = {8: {A: Point(0.0, 0.02), B: Point(0.05, 0.02)}, 128: near[128]}
    assert agrees(noisy, 32, [A, B], 0.02)


def test_without_neighbours_or_leaders_a_size_is_measured():
    """A neighbour that was not measured, failed as a whole, or has a leader that cannot run here settles nothing."""
    assert not agrees({8: {A: Point(0)}}, 32, [A], 0.02)
    assert not agrees({8: {A: Point(0)}, 128: {}}, 32, [A], 0.02)
    both = {8: {A: Point(0)}, 128: {A: Point(0)}}
    assert agrees(both, 32, [A], 0.02)
    assert not agrees(both, 32, [B], 0.02)


def line(nbytes, algorithm, time_s, ranks=2):
    case = Case(Cell("allreduce", ranks, ranks, nbytes, op="sum"), "openmpi", algorithm)
    return {"kind": "cell", "case": case.to_json(), "time_s": time_s, "blocks_s": [time_s] * 5}


def test_each_series_has_its_own_neighbours():
    """What is known of 2 ranks settles nothing at 4; failed and skipped lines are of no interest."""
    refined = Refinement(0.02)
    for nbytes in (8, 128):
        refined.take(line(nbytes, "default", 1e-6))
        refined.take({"kind": "failed", "case": line(nbytes, "ring", 1)["case"], "reason": "timeout"})
    two, four = (
        tuple(Case(Cell("allreduce", n, n, 32, op="sum"), "openmpi", word) for word in ("ring", "default"))
        for n in (2, 4)
    )
    assert refined.wanted(two) == two[1:]
    assert refined.wanted(four) == four


@pytest.mark.parametrize(("right", "needed"), [("ring", False), ("tree", True)])
def test_lines_of_the_run_file_decide(right, needed):
    """The leader of both neighbours settles a size: only it and the default are measured there."""
    refined = Refinement(0.02)
    for nbytes, best in ((8, "ring"), (128, right)):
        for name in ("ring", "tree", "default"):
            refined.take(line(nbytes, name, 1e-6 if name == best else 2e-6))
    cases = [
        Case(Cell("allreduce", 2, 2, 32, op="sum"), "openmpi", name) for name in ("ring", "tree", "default")
    ]
    wanted = {c.algorithm for c in refined.wanted(cases)}
    assert wanted == ({"ring", "tree", "default"} if needed else {"ring", "default"})
