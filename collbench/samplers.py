"""When to measure what, and when to stop: the race between the algorithms of one cell. Needs only numpy.

Source of the rule: facts timing-and-statistics §9 (blocks of about 300 µs in rotated order; drop a case when its
paired median log-ratio to the leader minus 2.6 standard errors is above 0; stop when no other can lead by 2 %).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.float64]

DROP_Z = 2.6
MEDIAN_EFFICIENCY = 1.2533
MAD_TO_SIGMA = 1.4826
MIN_BLOCK, MAX_BLOCK = 3, 200
LEAST_ROUNDS = 3
"""Blocks below which nothing is decided, whatever the budget."""


@dataclass
class Series:
    """What one case has collected: per-block medians and all per-iteration times, seconds (max over ranks).

    ``spans`` holds the block medians of last end − first start over all ranks, where they share a clock.
    """

    block_iterations: int = MIN_BLOCK
    blocks: list[float] = field(default_factory=list)
    times: list[Times] = field(default_factory=list)
    spans: list[float] = field(default_factory=list)
    alive: bool = True

    def add(self, times: Times) -> None:
        """Add one block's iterations, shape (iterations,)."""
        self.blocks.append(float(np.median(times)))
        self.times.append(times)

    @property
    def iterations(self) -> int:
        """Timed calls so far."""
        return sum(len(t) for t in self.times)


def block_length(call_s: float, block_s: float) -> int:
    """Return how many calls make one block of about ``block_s`` seconds."""
    if call_s <= 0 or not math.isfinite(call_s):
        return MAX_BLOCK
    return int(min(MAX_BLOCK, max(MIN_BLOCK, round(block_s / call_s))))


def fixed_blocks(iterations: int, max_rounds: int) -> tuple[int, int]:
    """Return (blocks, calls in each) that make at least ``iterations`` calls, in at most ``max_rounds`` blocks."""
    length = math.ceil(iterations / max_rounds)
    return math.ceil(iterations / length), length


def median_error(logs: Times) -> float:
    """Return the standard error of the median of logs, from their MAD (normal efficiency)."""
    mad = float(np.median(np.abs(logs - np.median(logs))))
    return MEDIAN_EFFICIENCY * MAD_TO_SIGMA * mad / math.sqrt(len(logs))


def log_ratio(series: Sequence[float], leader: Sequence[float]) -> tuple[float, float]:
    """Return the paired median log-ratio of two block series and its standard error (infinite below 3 pairs)."""
    n = min(len(series), len(leader))
    logs = np.log(np.asarray(series[:n])) - np.log(np.asarray(leader[:n]))
    centre = float(np.median(logs))
    if n < LEAST_ROUNDS:
        return centre, math.inf
    return centre, median_error(logs)


class Race:
    """Decides, for one cell, which cases get another block.

    Args:
        cases: number of cases.
        min_rounds: blocks per case before any is dropped.
        max_rounds: blocks per case at most.
        precision: stop when no other case can be faster than the leader by more than this share.
        protected: indices that are never dropped (the default: its gain is what a rule is judged by).
        race: False keeps every case to ``max_rounds``.
    """

    def __init__(
        self,
        cases: int,
        *,
        min_rounds: int,
        max_rounds: int,
        precision: float,
        protected: frozenset[int] = frozenset(),
        race: bool = True,
    ) -> None:
        self.series = [Series() for _ in range(cases)]
        self._min, self._max = min_rounds, max_rounds
        self._precision = precision
        self._protected = protected
        self._race = race
        self.rounds = 0
        self.stopped_by = ""

    def retire(self, index: int) -> None:
        """Take a case out for good (it failed)."""
        self.series[index].alive = False

    def order(self) -> list[int]:
        """Return the cases of the next round, rotated so that each comes first in turn."""
        alive = [i for i, s in enumerate(self.series) if s.alive]
        if not alive:
            return []
        shift = self.rounds % len(alive)
        return alive[shift:] + alive[:shift]

    def end_round(self, *, out_of_time: bool = False) -> bool:
        """Close a round; drop clear losers; say whether the cell is finished."""
        self.rounds += 1
        # A case whose first blocks all missed their window has no block yet, but has not failed.
        alive = [i for i, s in enumerate(self.series) if s.alive and s.blocks]
        if not any(s.alive for s in self.series):
            self.stopped_by = "failed"
        elif self.rounds >= self._max:
            self.stopped_by = "rounds"
        elif out_of_time and self.rounds >= LEAST_ROUNDS:
            self.stopped_by = "budget"
        elif self._race and self.rounds >= self._min and alive:
            self._decide(alive)
        return bool(self.stopped_by)

    def _decide(self, alive: list[int]) -> None:
        leader = min(alive, key=lambda i: float(np.median(self.series[i].blocks)))
        others_settled = all(s.blocks for s in self.series if s.alive)
        for index in alive:
            if index == leader:
                continue
            centre, error = log_ratio(self.series[index].blocks, self.series[leader].blocks)
            if centre - DROP_Z * error > 0 and index not in self._protected:
                self.series[index].alive = False
            elif centre - DROP_Z * error <= -self._precision:
                others_settled = False
        if others_settled and self._leader_settled(leader):
            self.stopped_by = "precision"

    def _leader_settled(self, leader: int) -> bool:
        if len([s for s in self.series if s.blocks]) > 1:
            return True
        blocks = np.asarray(self.series[leader].blocks)
        if len(blocks) < LEAST_ROUNDS:
            return False
        return DROP_Z * median_error(np.log(blocks)) <= self._precision


PERCENTILES = {"min": 0.0, "p10": 10.0, "p50": 50.0, "p90": 90.0, "p99": 99.0, "max": 100.0}


def percentiles(times: Times) -> dict[str, float]:
    """Return the percentiles kept in a row, seconds, over all iterations of shape (iterations,)."""
    values = np.percentile(times, list(PERCENTILES.values()))
    return {name: float(v) for name, v in zip(PERCENTILES, values, strict=True)}


def doubts(series: Series, step_s: float | None) -> list[dict[str, Any]]:
    """Return what spoils a series as data: bimodal, drifting, coarse_clock, preempted.

    Args:
        series: one case's blocks and iterations.
        step_s: observed step of the clock, seconds; None = not measured.
    """
    found: list[dict[str, Any]] = []
    times = np.concatenate(series.times)
    median = float(np.median(times))
    if step_s and median < 20 * step_s:
        found.append({"kind": "coarse_clock", "step_s": step_s, "share": step_s / median})
    blocks = np.asarray(series.blocks)
    if len(blocks) >= 8:
        found.extend(_bimodal(blocks))
        half = len(blocks) // 2
        first, second = float(np.median(blocks[:half])), float(np.median(blocks[half:]))
        spread = 1.4826 * float(np.median(np.abs(blocks - np.median(blocks))))
        if abs(second - first) > max(3 * spread / math.sqrt(half), 0.05 * first):
            found.append({"kind": "drifting", "ratio": second / first})
    mean = float(np.mean(times))
    if mean > 2 * median:
        found.append({"kind": "preempted", "mean_over_median": mean / median})
    return found


def _bimodal(blocks: Times) -> list[dict[str, Any]]:
    """Two groups of blocks whose gap is much larger than the spread inside both."""
    ordered = np.sort(np.log(blocks))
    gaps = np.diff(ordered)
    cut = int(np.argmax(gaps))
    low, high = ordered[: cut + 1], ordered[cut + 1 :]
    if min(len(low), len(high)) < max(2, len(ordered) // 5):
        return []
    inside = max(float(np.ptp(low)), float(np.ptp(high)), 1e-9)
    if gaps[cut] > max(0.2, 2 * inside):
        ratio = math.exp(float(np.median(high) - np.median(low)))
        return [{"kind": "bimodal", "ratio": ratio, "share_slow": len(high) / len(ordered)}]
    return []
