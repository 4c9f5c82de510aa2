"""Within a launch: which cell comes next, for how long, and whether it needs measuring at all; agreed by all ranks."""

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from collbench.backends.mpi import measure_group
from collbench.backends.session import Session
from collbench.budget import SPENT, skipped
from collbench.records import Case
from collbench.refinement import AGREE, Refinement

FINER_WEIGHT = 0.5
"""A finer size takes this share of a coarse one's time in the estimate: about every other one is left out."""
LIMITLESS_S = 1e9
_GONE = -1.0


def measure(
    session: Session,
    groups: Sequence[Sequence[Case]],
    levels: Sequence[int],
    *,
    budget_s: float | None,
    driver: int | None,
    known: Iterable[Mapping[str, Any]] = (),
) -> None:
    """Measure cells in order; the time left is spread over what is left, by number of cases.

    Args:
        session: of the launch.
        groups: the cases of each cell.
        levels: of each cell; above 0 only the default and the leaders are measured where the neighbours agree.
        budget_s: time for all; None = no limit.
        driver: process that watches on this node: when it is gone, nothing more is begun; None = nobody watches.
        known: ``cell`` lines of an earlier start of the same launch.
    """
    refined = Refinement(session.sampling.precision)
    for line in known:
        refined.take(line)
    emit = session.emit

    def listen(line: Mapping[str, Any]) -> None:
        refined.take(line)
        emit(line)

    listening = replace(session, emit=listen) if any(levels) and session.first else session
    deadline = time.monotonic() + budget_s if budget_s else None
    weights = [len(g) * (FINER_WEIGHT if level else 1.0) for g, level in zip(groups, levels, strict=True)]
    for at, group in enumerate(groups):
        share, wanted = 0.0, tuple(group)
        if session.first:
            left_s = _left(deadline, driver)
            share = left_s if left_s < 0 else left_s * weights[at] / sum(weights[at:])
            wanted = refined.wanted(group) if levels[at] else wanted
        share, wanted = _agreed(session, share, group, wanted)
        if share == _GONE:
            return
        _skip(session, [c for c in group if c not in wanted], AGREE)
        if share == 0 and deadline is not None:
            _skip(session, wanted, SPENT)
        else:
            measure_group(listening, wanted, share)


def _skip(session: Session, cases: Sequence[Case], reason: str) -> None:
    for case in cases:
        session.emit(skipped(session.launch, case, reason))


def _left(deadline: float | None, driver: int | None) -> float:
    if driver is not None and not _alive(driver):
        return _GONE
    return LIMITLESS_S if deadline is None else max(0.0, deadline - time.monotonic())


def _agreed(
    session: Session, share: float, group: Sequence[Case], wanted: Sequence[Case]
) -> tuple[float, tuple[Case, ...]]:
    """Return rank 0's decision on every rank: seconds for this cell, and which of its cases are measured."""
    message = np.array([share, *(float(case in wanted) for case in group)])
    session.control.Bcast(message, root=0)
    return float(message[0]), tuple(case for case, on in zip(group, message[1:], strict=True) if on)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
