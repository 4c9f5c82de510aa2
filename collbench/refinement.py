"""Sizes from coarse to fine: which ones need no race, since their neighbours agree. Needs only numpy.

A series is one collective, rank count, dtype, operator …; its sizes are split into levels. Those of level 0 are always
measured; at a finer one only the default and the leader are where the measured sizes around it have the same leader and
its curve is smooth.
"""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from collbench.records import Case, Cell, Params
from collbench.samplers import DROP_Z, median_error

AGREE = "its neighbours agree"
"""Reason of the ``skipped`` lines of cases that need no measuring."""
COARSE = 4
"""Level 0 holds every size of this step, and the last."""
UNDECIDED = 2
"""Where no launch can decide, sizes of levels below this are measured (every second one), and no others."""
TOLERANCE = 0.05
"""How far, as a natural log, a line drawn on from one side may lie above the chord. A jump by the factor f lifts it by
ln f / 2: from 11 % on a jump is seen. On real curves (Open MPI, 2 ranks, 18 sizes) this measured 3 % more cases than
every second size, at half its regret; with 4 and 8 ranks on 2 busy cores, where winners flicker, a quarter more."""

Name = tuple[str, str, Params]
"""Who runs in a cell: provider, algorithm, parameters."""


@dataclass(frozen=True, slots=True)
class Point:
    """One case at one size.

    Attributes:
        log_s: natural log of its time in seconds.
        error: standard error of it, from the spread of its blocks; 0 = unknown.
    """

    log_s: float
    error: float = 0.0


Curve = Mapping[int, Mapping[Name, Point]]
"""Measured sizes of one series → who ran → its time."""


def levels(sizes: Iterable[int]) -> dict[int, int]:
    """Return size → level: 0 for every ``COARSE``-th and both ends, then the middles of what lies between, and so on."""
    ordered = sorted(set(sizes))
    found = dict.fromkeys([*range(0, len(ordered), COARSE), len(ordered) - 1] if ordered else [], 0)
    level = 0
    while len(found) < len(ordered):
        level += 1
        known = sorted(found)
        for low, high in itertools.pairwise(known):
            if high - low > 1:
                found[(low + high) // 2] = level
    return {ordered[index]: level for index, level in found.items()}


def series_of(cell: Cell) -> Cell:
    """Return what the sizes of one series share: the cell without its size."""
    return replace(cell, nbytes=0)


def agrees(curve: Curve, nbytes: int, names: Iterable[Name], precision: float) -> bool:
    """Say whether the measured sizes next to ``nbytes`` leave nothing to be found there (``settled``)."""
    return bool(settled(curve, nbytes, names, precision))


def settled(curve: Curve, nbytes: int, names: Iterable[Name], precision: float) -> frozenset[Name]:
    """Return who leads next to ``nbytes`` where that leaves nothing to be found there; empty where it does.

    They do where (1) the same case leads at both, or the two leaders cannot be told apart at either, and (2) the
    leaders' log times are smooth: the slope between the two sizes lies within the slopes beside them, as it does on
    every curve that bends from latency to bandwidth. Beyond the ends of a curve a constant time (left) and one in
    proportion to the size (right) are assumed, so a jump next to an end may pass for that bend.

    Args:
        curve: measured so far.
        nbytes: a size that is not in it.
        names: who would run there; the leaders must be among them.
        precision: a lead by less, as a share, is a tie.
    """
    left = max((s for s in curve if s < nbytes), default=None)
    right = min((s for s in curve if s > nbytes), default=None)
    if left is None or right is None or not curve[left] or not curve[right]:
        return frozenset()
    leaders = frozenset((_leader(curve[left]), _leader(curve[right])))
    if not leaders <= {*names} & {*curve[left]} & {*curve[right]}:
        return frozenset()
    if len(leaders) > 1 and not all(_tied(curve[s], leaders, precision) for s in (left, right)):
        return frozenset()
    curves = ({s: row[name] for s, row in curve.items() if name in row} for name in leaders)
    return leaders if all(smooth(points, left, right, nbytes) for points in curves) else frozenset()


def _leader(row: Mapping[Name, Point]) -> Name:
    return min(row, key=lambda name: row[name].log_s)


def _tied(row: Mapping[Name, Point], leaders: Iterable[Name], precision: float) -> bool:
    one, other = (row[name] for name in leaders)
    return abs(one.log_s - other.log_s) <= precision + DROP_Z * math.hypot(one.error, other.error)


def smooth(points: Mapping[int, Point], left: int, right: int, nbytes: int) -> bool:
    """Say whether a curve has no jump between ``left`` and ``right``, and does not bend downwards there.

    It has none where neither side's line, drawn on to ``nbytes``, lies above the chord. Beyond the ends of the curve a
    constant time (left) and one in proportion to the size (right) are assumed.

    Args:
        points: sizes → times of one case; holds ``left`` and ``right``.
        left: the nearest measured size below ``nbytes``.
        right: the nearest above.
        nbytes: a size between them.
    """
    before = max((s for s in points if s < left), default=None)
    after = min((s for s in points if s > right), default=None)
    rising = 0.0 if before is None else _slope(points, before, left)
    falling = 1.0 if after is None else _slope(points, right, after)
    chord = _slope(points, left, right)
    to_left, to_right = math.log(nbytes / left), math.log(right / nbytes)
    limit = TOLERANCE + DROP_Z * math.hypot(points[left].error, points[right].error)
    return (rising - chord) * to_left <= limit and (chord - falling) * to_right <= limit


def _slope(points: Mapping[int, Point], low: int, high: int) -> float:
    return (points[high].log_s - points[low].log_s) / math.log(high / low)


class Refinement:
    """Decides for one launch which sizes need measuring, from the cells measured so far.

    Args:
        precision: a lead by less, as a share, is a tie.
    """

    def __init__(self, precision: float) -> None:
        self._precision = precision
        self._curves: dict[Cell, dict[int, dict[Name, Point]]] = {}

    def take(self, line: Mapping[str, Any]) -> None:
        """Take in a line; other kinds than ``cell`` are of no interest."""
        if line["kind"] != "cell" or not line["time_s"] > 0:
            return
        case = Case.from_json(line["case"])
        curve = self._curves.setdefault(series_of(case.cell), {})
        curve.setdefault(case.cell.nbytes, {})[_name(case)] = Point(
            math.log(line["time_s"]), _error(line.get("blocks_s") or ())
        )

    def wanted(self, cases: Sequence[Case]) -> tuple[Case, ...]:
        """Return which cases of a finer cell are to be measured: all, or where its neighbours agree a few.

        These few are the default, whose own cliffs show only where it is measured, and the leaders of the neighbours.
        """
        cell = cases[0].cell
        curve = self._curves.get(series_of(cell), {})
        leaders = settled(curve, cell.nbytes, map(_name, cases), self._precision)
        if not leaders:
            return tuple(cases)
        return tuple(c for c in cases if c.algorithm == "default" or _name(c) in leaders)


def _name(case: Case) -> Name:
    return (case.provider, case.algorithm, case.params)


def _error(blocks_s: Sequence[float]) -> float:
    """Return the standard error of the log of the median of blocks; 0 below three."""
    if len(blocks_s) < 3:
        return 0.0
    return median_error(np.log(np.asarray(blocks_s, dtype=float)))
