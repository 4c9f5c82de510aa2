"""Which launches may be compared: machine states by the probes, pairs of the same state.

A shared machine jumps between states 2–4 times apart that last for seconds to minutes; the cache-line probe before and
after each launch tells them apart (facts: timing-and-statistics §9).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from collbench.repeats import DISTURBED, movement

STATE_GAP = 1.3
"""Neighbouring probe values further apart than this ratio belong to two states."""
STATE_SPAN = DISTURBED
"""No state spans more than this ratio (the known ones are 3.6 to 4.5 apart).

Inside one state the probe scatters from 77 to 100 ns on one machine and from 26 to 70 on another, so a smaller limit
for a launch, or a pair, throws good ones away. Of 278 pairs of a machine against itself, ratios of the times: all four
probes within 1.3: 1.3 % apart in the middle cell, 9 cells in 10 below 4.9 %; within 1.3 to 2.2: 1.1 to 1.5 %, below
4.0 to 5.5 %; further apart (a change of state): 1.7 %, below 9.5 %.
"""
REPAIR_REACH = 2
"""Repetitions that a launch may be away from the one it is paired with, where its own partner cannot be used."""


@dataclass(frozen=True, slots=True)
class LaunchState:
    """The machine around one launch.

    Attributes:
        state: number of the state, 0 = fastest; None = no probe was recorded.
        disturbed: the probe moved while the launch ran, by more than a state spans.
        probes: what the probe read before and after, ns; empty = unknown.
    """

    state: int | None
    disturbed: bool = False
    probes: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Sample:
    """One launch's time of one case.

    Attributes:
        pair: what it is measured beside (ranks, repetition, stage); None = nothing.
        time_s: median of the launch, seconds.
        machine: state around it.
    """

    pair: tuple[Any, ...] | None
    time_s: float
    machine: LaunchState


@dataclass(frozen=True, slots=True)
class Matched:
    """What of two series may be compared.

    Attributes:
        base: times, seconds.
        new: times, seconds; partner by partner where ``paired``.
        paired: measured interleaved, in pairs.
        left_out: launches not used: disturbed, or of another state than their partners.
        state: "same", "unknown" (no probe on one side) or "different" (nothing is left to compare).
    """

    base: tuple[float, ...]
    new: tuple[float, ...]
    paired: bool
    left_out: int = 0
    state: str = "same"


def classify(launches: Iterable[Mapping[str, Any]]) -> list[LaunchState]:
    """Return the state of each launch line; the lines of both sides must be given together.

    Args:
        launches: ``launch`` lines with ``probe`` and ``probe_after``.
    """
    launches = list(launches)
    probes = [(_pingpong(x, "probe"), _pingpong(x, "probe_after")) for x in launches]
    levels = _levels(sorted({p for pair in probes for p in pair if p}))
    found = []
    for launch, (before, after) in zip(launches, probes, strict=True):
        value = before or after
        moved = (movement(launch) or 0.0) > STATE_SPAN
        seen = tuple(p for p in (before, after) if p)
        found.append(LaunchState(levels[value] if value else None, moved, seen))
    return found


def _pingpong(launch: Mapping[str, Any], key: str) -> float | None:
    value = (launch.get(key) or {}).get("pingpong_ns")
    return float(value) if isinstance(value, int | float) and value > 0 else None


def _levels(values: Sequence[float]) -> dict[float, int]:
    """Return value → state: a new state begins at a wide gap, or where one would span too much."""
    levels: dict[float, int] = {}
    state, first, last = -1, 0.0, 0.0
    for value in values:
        if state < 0 or value > last * STATE_GAP or value > first * STATE_SPAN:
            state, first = state + 1, value
        levels[value], last = state, value
    return levels


def match(base: Sequence[Sample], new: Sequence[Sample]) -> Matched:
    """Return the launches of two series that may be compared, in pairs where they were interleaved.

    A launch whose own partner was disturbed, or met another state, is paired with the nearest one of the other side
    that is left over for the same reason, at most REPAIR_REACH repetitions away. Which launches meet is decided by
    the probes alone, never by a time that was measured, and no launch is used twice. So if both sides are the same, a
    pair's difference is as often positive as negative, which is all that the signed-rank test asks; the longer way
    between the two can only add scatter, not a direction.
    """
    partners = {s.pair: s for s in base if s.pair is not None}
    pairs = [(partners[s.pair], s) for s in new if s.pair in partners]
    if pairs:
        good = [pair for pair in pairs if _comparable(*pair)]
        used = {id(sample) for pair in good for sample in pair}
        left = [[s for s in side if id(s) not in used] for side in (base, new)]
        good += _paired_again(*left)
        return _pairs(good, len(base) + len(new))
    return _groups(base, new)


def _paired_again(base: Sequence[Sample], new: Sequence[Sample]) -> list[tuple[Sample, Sample]]:
    """Return pairs of launches that lost their partners, the nearest first."""
    near = sorted(
        (distance, i, j)
        for i, b in enumerate(base)
        for j, n in enumerate(new)
        if (distance := _distance(b, n)) <= REPAIR_REACH and _comparable(b, n) and b.machine.probes
    )
    found: dict[int, int] = {}
    for _, i, j in near:
        if i not in found and j not in found.values():
            found[i] = j
    return [(base[i], new[j]) for i, j in sorted(found.items())]


def _distance(base: Sample, new: Sample) -> float:
    """Return how many repetitions lie between two launches of one rank count; infinite for what has no such order."""
    if base.pair is None or new.pair is None or len(base.pair) < 2 or base.pair[:-1] != new.pair[:-1]:
        return float("inf")
    return float(abs(base.pair[-1] - new.pair[-1]))


def _pairs(kept: Sequence[tuple[Sample, Sample]], total: int) -> Matched:
    state = "same" if kept else "different"
    if any(s.machine.state is None for pair in kept for s in pair):
        state = "unknown"
    return Matched(
        tuple(b.time_s for b, _ in kept),
        tuple(n.time_s for _, n in kept),
        paired=True,
        left_out=total - 2 * len(kept),
        state=state,
    )


def _comparable(base: Sample, new: Sample) -> bool:
    """Say whether two launches ran undisturbed in one state: all their probes lie within what one state spans.

    A pair looks at its own probes: a state found over all launches may end between two that are alike.
    """
    if base.machine.disturbed or new.machine.disturbed:
        return False
    seen = (*base.machine.probes, *new.machine.probes)
    if base.machine.probes and new.machine.probes:
        return max(seen) / min(seen) <= STATE_SPAN
    states = (base.machine.state, new.machine.state)
    return None in states or states[0] == states[1]


def _groups(base: Sequence[Sample], new: Sequence[Sample]) -> Matched:
    """Keep the state in which both sides have most launches; without probes all of them."""
    total = len(base) + len(new)
    if any(s.machine.state is None for s in (*base, *new)):
        return Matched(_times(base), _times(new), paired=False, state="unknown")
    calm = [[s for s in side if not s.machine.disturbed] for side in (base, new)]
    counts = {
        state: min(sum(s.machine.state == state for s in side) for side in calm)
        for state in {s.machine.state for side in calm for s in side}
    }
    best = max(counts, key=lambda state: (counts[state], -(state or 0)), default=None)
    if best is None or not counts[best]:
        return Matched((), (), paired=False, left_out=total, state="different")
    kept = [_times([s for s in side if s.machine.state == best]) for side in calm]
    return Matched(kept[0], kept[1], paired=False, left_out=total - len(kept[0]) - len(kept[1]))


def _times(samples: Iterable[Sample]) -> tuple[float, ...]:
    return tuple(s.time_s for s in samples)


def usable(launches: Sequence[Mapping[str, Any]], variants: Sequence[str]) -> dict[int, int]:
    """Return rank count → pairs that can be compared, the fewest that any environment has with the base.

    Args:
        launches: launch lines of one stage of an interleaved run.
        variants: all its environments, the base first.
    """
    timed = [line for line in launches if line.get("purpose", "measure") == "measure"]
    found: dict[int, dict[str, dict[Any, Sample]]] = {}
    for line, machine in zip(timed, classify(timed), strict=True):
        pair = (line["ranks"], line["repetition"])
        home = found.setdefault(line["ranks"], {}).setdefault(str(line["variant"]), {})
        home[pair] = Sample(pair, 0.0, machine)
    base, *others = variants
    return {
        ranks: min(
            len(matched.base) if (matched := match(_in(sides, base), _in(sides, other))).paired else 0
            for other in others
        )
        for ranks, sides in found.items()
    }


def _in(sides: Mapping[str, Mapping[Any, Sample]], variant: str) -> list[Sample]:
    return list(sides.get(variant, {}).values())
