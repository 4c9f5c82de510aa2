"""Which launches may be compared: machine states by the probes, pairs of the same state.

A shared machine jumps between states 2–4 times apart that last for seconds to minutes; the cache-line probe before and
after each launch tells them apart (facts: timing-and-statistics §9).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

STATE_GAP = 1.3
"""Neighbouring probe values further apart than this ratio belong to two states (in one state: 77–100 ns)."""
STATE_SPAN = 2.0
"""No state spans more than this ratio (the known ones are 3.6 apart)."""
DISTURBED = 1.3
"""A launch whose probe moved by more than this ratio between before and after ran under foreign load."""


@dataclass(frozen=True, slots=True)
class LaunchState:
    """The machine around one launch.

    Attributes:
        state: number of the state, 0 = fastest; None = no probe was recorded.
        disturbed: the probe moved while the launch ran.
    """

    state: int | None
    disturbed: bool = False


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
    probes = [(_pingpong(x, "probe"), _pingpong(x, "probe_after")) for x in launches]
    levels = _levels(sorted({p for pair in probes for p in pair if p}))
    found = []
    for before, after in probes:
        value = before or after
        moved = bool(before and after and max(before, after) / min(before, after) > DISTURBED)
        found.append(LaunchState(levels[value] if value else None, moved))
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
    """Return the launches of two series that may be compared, in pairs where they were interleaved."""
    partners = {s.pair: s for s in base if s.pair is not None}
    pairs = [(partners[s.pair], s) for s in new if s.pair in partners]
    if pairs:
        return _pairs(pairs, len(base) + len(new))
    return _groups(base, new)


def _pairs(pairs: Sequence[tuple[Sample, Sample]], total: int) -> Matched:
    kept = [(b, n) for b, n in pairs if _comparable(b, n)]
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
    if base.machine.disturbed or new.machine.disturbed:
        return False
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
    """Return rank count → repetitions in which all variants ran undisturbed in one state.

    Args:
        launches: launch lines of one stage of an interleaved run.
        variants: all its environments.
    """
    found: dict[tuple[int, int], dict[str, LaunchState]] = {}
    for line, machine in zip(launches, classify(launches), strict=True):
        home = found.setdefault((line["ranks"], line["repetition"]), {})
        home[str(line["variant"])] = machine
    counts = dict.fromkeys((ranks for ranks, _ in found), 0)
    for (ranks, _), states in found.items():
        calm = len(states) == len(variants) and not any(s.disturbed for s in states.values())
        counts[ranks] += calm and len({s.state for s in states.values()}) == 1
    return counts
