"""What the launches of a run have done so far, from the lines of its file; which of them are started again."""

from collections.abc import Mapping
from typing import Any

from collbench.plan import Group, Launch, Plan, unplaced
from collbench.records import Case, Cell
from collbench.repeats import DISTURBED, first_try, movement

MOST_PER_LAUNCH = 2
"""How often one launch is started again at most."""

Line = Mapping[str, Any]


class History:
    """The measuring launches of a run without variants, and its cells.

    Launches of environments under comparison are left alone: their partners would have to be repeated with them.

    Args:
        plan: of the run.

    Attributes:
        allowed: how many repeats the run may have: half as many as the plan has measuring launches, at least one.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = tuple(x for x in plan.measuring if x.variant is None)
        self.allowed = max(1, len(self._plan) // 2) if self._plan else 0
        self._launches: dict[int, dict[str, Any]] = {}
        self._cells: dict[int, list[Line]] = {}

    def take(self, line: Line) -> None:
        """Take in a line of the run file, in the order of the file."""
        kind, number = line["kind"], line.get("launch")
        if kind == "launch" and line.get("purpose") == "measure" and line.get("variant") is None:
            facts = ("ranks", "repetition", "probe", "replaces")
            self._launches[line["launch"]] = {key: line[key] for key in facts if key in line}
        elif kind == "cell" and number in self._launches:
            kept = {key: line.get(key) for key in ("kind", "case", "time_s", "blocks_s")}
            self._cells.setdefault(line["launch"], []).append(kept)
        elif kind == "launch_end" and number in self._launches:
            end = {"probe_after": line.get("probe"), "seconds": line.get("seconds")}
            self._launches[line["launch"]].update(end)

    def plan(self, launch: Launch) -> None:
        """Take in a launch that was planned later."""
        self._plan = (*self._plan, launch)

    def cells(self) -> list[Line]:
        """Return the ``cell`` lines of the launches that were planned from the start."""
        planned = {(x.ranks, x.repetition) for x in self._plan}
        return [
            cell
            for number, line in self._launches.items()
            if (line["ranks"], line["repetition"]) in planned and "replaces" not in line
            for cell in self._cells.get(number, ())
        ]

    def known(self, launch: Launch) -> list[Line]:
        """Return the cells that earlier starts of a planned launch measured, where it has sizes to leave out."""
        if not any(group.level for group in launch.groups):
            return []
        place = (launch.ranks, launch.repetition)
        return [
            cell
            for number, line in self._launches.items()
            if (line["ranks"], line["repetition"]) == place
            for cell in self._cells.get(number, ())
        ]

    def again(self, left_s: float | None, startup_s: float) -> Launch | None:
        """Return the disturbed launch to start again now; None = there is none, or no time for it.

        Least repeated first, then most disturbed. One that took longer than what is left is not begun: it would be
        measured worse than before. A launch whose repeat was calm is done with.

        Args:
            left_s: what is left of the budget; None = no limit.
            startup_s: what a start takes, where a launch's own time is not known.
        """
        tries: dict[int, list[int]] = {}
        for number, line in self._launches.items():
            tries.setdefault(first_try(number, line), []).append(number)
        if sum(map(len, tries.values())) - len(tries) >= self.allowed:
            return None
        waiting = []
        for first, numbers in tries.items():
            known = [moved for n in numbers if (moved := movement(self._launches[n]))]
            if first not in self._cells or not known or min(known) <= DISTURBED:
                continue
            needs = self._launches[first].get("seconds") or startup_s
            if len(numbers) <= MOST_PER_LAUNCH and (left_s is None or needs <= left_s):
                waiting.append((len(numbers), -min(known), first))
        return self._repeat(min(waiting)[2]) if waiting else None

    def _repeat(self, first: int) -> Launch | None:
        """Return the launch that measures the cases of launch ``first`` again, with the settings planned for it."""
        line = self._launches[first]
        cases = [unplaced(Case.from_json(cell["case"])) for cell in self._cells[first]]
        cells: dict[Cell, list[Case]] = {}
        for case in cases:
            cells.setdefault(case.cell, []).append(case)
        groups = tuple(Group(tuple(own)) for own in cells.values())
        for planned in self._plan:
            same = (planned.ranks, planned.repetition) == (line["ranks"], line["repetition"])
            if same and cases[0] in map(unplaced, planned.cases):
                return Launch(
                    planned.ranks, planned.repetition, "measure", planned.settings, groups, replaces=first
                )
        return None
