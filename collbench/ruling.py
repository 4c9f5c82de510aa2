"""From segments of a series to rules: every size from 0 up exactly once, boundaries where the curves cross.

Where a curve jumps between two sizes at most ``STEP`` apart, it does so at the upper one as a rule: protocols change at
powers of two less a header, so 4 KiB is the first size beyond a limit of 4 KiB. There the lower rule goes on up to it, or
the default, if it is one of the two. Farther apart the limit may lie anywhere, and the crossing is the best guess.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from collbench import segments
from collbench.candidates import Series
from collbench.collectives import COLLECTIVES
from collbench.decision import Policy
from collbench.records import Rule
from collbench.refinement import Point, smooth

STEP = 2
UNBOUNDED = float(np.log(10))
"""Half-width of a log gain's interval beyond which its ends are not stated."""


def rules_of(series: Series, chosen: Sequence[segments.Segment], policy: Policy, provider: str) -> list[Rule]:
    """Return the rules of one series: every size from 0 up exactly once, boundaries where the curves cross."""
    rules: list[Rule] = []
    start = 0
    for number, (first, last, column) in enumerate(chosen):
        end: int | None = None
        if number + 1 < len(chosen):
            below, above = column, chosen[number + 1][2]
            end = _first_above(series, last, below, above) - 1
        rules.append(_rule(series, provider, (first, last, column), start, end))
        start = (end or 0) + 1
    return _with_tail(series, policy, rules)


def _first_above(series: Series, last: int, below: int, above: int) -> int:
    """Return the first size that the choice ``above`` serves, in (sizes[last], sizes[last + 1]]."""
    low, high = int(series.sizes[last]), int(series.sizes[last + 1])
    rows = series.log_time[last : last + 2]
    known = np.isfinite(rows[1, below]) and np.isfinite(rows[0, above])
    near = high <= STEP * low
    if not (known and near) or all(_smooth(series, last, c) for c in (below, above)):
        return segments.boundary((low, high), rows[:, below].tolist(), rows[:, above].tolist())
    return low + 1 if series.default == above else high


def _smooth(series: Series, last: int, column: int) -> bool:
    """Say whether a choice's curve goes smoothly from one measured size to the next; True for sizes from 0 B."""
    times = series.log_time[:, column]
    known = zip(series.sizes.tolist(), times.tolist(), strict=True)
    points = {size: Point(log_s) for size, log_s in known if size > 0 and np.isfinite(log_s)}
    low, high = int(series.sizes[last]), int(series.sizes[last + 1])
    if low not in points or high not in points:
        return True
    return smooth(points, low, high, max(low + 1, int(np.sqrt(low * high))))


def _rule(series: Series, provider: str, segment: segments.Segment, start: int, end: int | None) -> Rule:
    first, last, column = segment
    choice = series.choices[column]
    inside = slice(first, last + 1)
    gain, half = series.gain[inside, column], series.half[inside, column]
    known = np.isfinite(gain)
    mean = float(gain[known].mean()) if known.any() and choice.algorithm != "default" else None
    spread = float(half[known].mean()) if known.any() and np.isfinite(half[known]).all() else None
    notes = []
    if mean is not None and spread is not None and spread > UNBOUNDED:
        spread = None
        notes.append("no interval: it would span more than a factor of ten either way")
    bounded = mean is not None and spread is not None
    if choice.algorithm != "default" and not known.any():
        notes.append("the default was not measured")
    elif mean is not None and not bounded and not notes:
        notes.append("one repetition: no interval")
    return Rule(
        collective=series.collective, ranks=series.ranks, ranks_per_node=series.ranks_per_node,
        min_bytes=start, max_bytes=end, provider=provider, algorithm=choice.algorithm,
        component=choice.component, params=choice.params, basis="measured",
        gain=None if mean is None else float(np.expm1(mean)),
        gain_low=float(np.expm1(mean - spread)) if mean is not None and spread is not None else None,
        gain_high=float(np.expm1(mean + spread)) if mean is not None and spread is not None else None,
        sizes=last - first + 1, launches=_fewest_launches(series, inside, column), note="; ".join(notes),
    )  # fmt: skip


def _fewest_launches(series: Series, inside: slice, column: int) -> int:
    known = np.isfinite(series.log_time[inside, column])
    return int(series.launches[inside, column][known].min()) if known.any() else 0


def _with_tail(series: Series, policy: Policy, rules: list[Rule]) -> list[Rule]:
    """Leave sizes above the largest measured one to the library, where that is possible."""
    last = rules[-1]
    if last.algorithm == "default" or not COLLECTIVES[series.collective].sized:
        return rules
    largest = int(series.sizes[-1])
    if series.default is None or not policy.keep_default or series.collective in policy.uniform:
        note = f"above {largest} B extended from the largest measured size"
        return [*rules[:-1], replace(last, note="; ".join(filter(None, (last.note, note))))]
    tail = Rule(
        collective=series.collective, ranks=series.ranks, ranks_per_node=series.ranks_per_node,
        min_bytes=largest + 1, max_bytes=None, provider=last.provider, algorithm="default",
        basis="unmeasured", note="larger than any measured size: left to the library",
    )  # fmt: skip
    return [*rules[:-1], replace(last, max_bytes=largest), tail]
