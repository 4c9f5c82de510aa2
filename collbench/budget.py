"""How the time of a run is spread over its launches."""

import os
from collections.abc import Sequence
from typing import Any

from collbench import confirmation
from collbench.plan import Group, Launch
from collbench.records import Case

SPENT = "the time budget was spent"
"""Reason of the ``skipped`` lines of cases for which no time was left."""
LEAST_S = 0.2
"""Measuring time that a launch gets in any case."""


def share(
    left_s: float,
    startup_s: float,
    launch: Launch,
    groups: Sequence[Group],
    later: Sequence[Launch],
    confirming: Sequence[Launch] = (),
) -> float:
    """Return the measuring time of a launch: what is left, less the starts to come, by weight of its cases.

    Args:
        left_s: of the whole budget.
        startup_s: what one start takes.
        launch: that comes next.
        groups: its cells that are still to be measured.
        later: planned launches after it.
        confirming: launches whose winners will be measured once more, in as many launches again.
    """
    free_s = left_s - startup_s * (1 + len(later) + len(confirming))
    own = _weight(launch.ranks, sum(len(g.cases) for g in groups))
    rest = sum(_weight(x.ranks, len(x.cases)) for x in later if x.purpose == "measure")
    rest += confirmation.SHARE * sum(_weight(x.ranks, len(x.cases)) for x in confirming)
    return max(LEAST_S, free_s * own / (own + rest))


def skipped(launch: int, case: Case, reason: str = SPENT) -> dict[str, Any]:
    """Return the line of a run file that says why a launch left a case out."""
    return {"kind": "skipped", "launch": launch, "case": case.to_json(), "reason": reason}


def _weight(ranks: int, cases: int) -> float:
    cores = len(os.sched_getaffinity(0))
    return cases * max(1.0, ranks / cores)
