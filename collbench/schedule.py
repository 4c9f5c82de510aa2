"""Within a launch: which cell comes next, for how long, and whether it needs measuring at all; agreed by all ranks."""

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from collbench.backends.mpi import measure_group
from collbench.backends.session import Session
from collbench.records import Case
from collbench.refinement import AGREE, Refinement

FINER_WEIGHT = 0.5
"""A finer size takes this share of a coarse one's time in the estimate: about every other one is left out."""
SPENT = "the time budget was spent"
LIMITLESS_S = 1e9
_GONE, _NOT_NEEDED = -1.0, -2.0


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
        levels: of each cell; those above 0 are left out where their neighbours agree.
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
        share = 0.0
        if session.first:
            left_s = _left(deadline, driver)
            share = left_s if left_s < 0 else left_s * weights[at] / sum(weights[at:])
            if share >= 0 and levels[at] and not refined.needed(group):
                share = _NOT_NEEDED
        share = _agreed(session, share)
        if share == _GONE:
            return
        if share == _NOT_NEEDED:
            _skip(session, group, AGREE)
        elif share == 0 and deadline is not None:
            _skip(session, group, SPENT)
        else:
            measure_group(listening, group, share)


def _skip(session: Session, cases: Sequence[Case], reason: str) -> None:
    for case in cases:
        session.emit({"kind": "skipped", "launch": session.launch, "case": case.to_json(), "reason": reason})


def _left(deadline: float | None, driver: int | None) -> float:
    if driver is not None and not _alive(driver):
        return _GONE
    return LIMITLESS_S if deadline is None else max(0.0, deadline - time.monotonic())


def _agreed(session: Session, share: float) -> float:
    """Return rank 0's decision on every rank: seconds for this cell, or why it is not measured."""
    message = np.array([share])
    session.control.Bcast(message, root=0)
    return float(message[0])


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
