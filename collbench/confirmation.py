"""Winners of a run with one launch a rank count: who is measured once more, in a launch of its own.

Blocks of one launch tell how its iterations scatter, not how launches differ (facts: timing-and-statistics §6): memory
placement, and with more ranks than cores the scheduler's habits, last as long as the process. Of many winners of one
launch some won by that alone. A second launch of the default and the winners shows which, for a fraction of the time.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from collbench.plan import Group, Launch, Plan, unplaced
from collbench.records import Case, Cell
from collbench.samplers import DROP_Z, log_ratio

LEAST_GAIN = 0.02
"""A lead over the default by less is no rule (``decision.MARGIN``) and needs no confirming."""
SURE_Z = 1.96
MOST = 3
"""Contenders of one cell that are measured again."""
SHARE = 0.2
"""Time kept for it, as a share of what all planned cases would take."""

Line = Mapping[str, Any]


def applies(plan: Plan) -> bool:
    """Say whether a plan has one launch a rank count, in one environment, with algorithms that race."""
    plain = all(x.variant is None for x in plan.measuring)
    return plain and len({x.repetition for x in plan.measuring}) == 1 and plan.sampling.mode != "fixed"


def launches(plan: Plan, cells: Iterable[Line]) -> list[Launch]:
    """Return the launches that measure default and contenders again, one for each planned launch that has any.

    Args:
        plan: of a run to which this ``applies``.
        cells: ``cell`` lines of the planned launches.
    """
    by_cell: dict[Cell, list[Line]] = {}
    for line in cells:
        by_cell.setdefault(unplaced(Case.from_json(line["case"])).cell, []).append(line)
    again = {case for lines in by_cell.values() for case in contenders(lines, plan.sampling.precision)}
    made = []
    for launch in plan.measuring:
        kept = [tuple(case for case in group.cases if unplaced(case) in again) for group in launch.groups]
        groups = tuple(Group(cases) for cases in kept if len(cases) > 1)
        if groups:
            made.append(replace(launch, repetition=launch.repetition + 1, groups=groups, confirms=True))
    return made


def contenders(lines: Sequence[Line], precision: float) -> list[Case]:
    """Return the default of a cell and those that beat it beyond noise and may be its fastest; empty where none does.

    Args:
        lines: ``cell`` lines of one cell from one launch.
        precision: a lead by less, as a share, is a tie.
    """
    cases = [(unplaced(Case.from_json(line["case"])), line.get("blocks_s") or ()) for line in lines]
    default = next(((case, blocks) for case, blocks in cases if case.algorithm == "default"), None)
    if default is None or default[0].cell.collective == "sendrecv":
        return []
    leads = []
    for case, blocks in cases:
        if case.provider == default[0].provider and case.algorithm != "default" and blocks and default[1]:
            gain, error = log_ratio(default[1], blocks)
            if gain >= math.log1p(LEAST_GAIN) and gain - SURE_Z * error > 0:
                leads.append((gain, error, case))
    if not leads:
        return []
    leads.sort(key=lambda lead: -lead[0])
    best, best_error, _ = leads[0]
    close = [
        case
        for gain, error, case in leads[:MOST]
        if best - gain <= precision + DROP_Z * math.hypot(error, best_error)
    ]
    return [default[0], *close]
