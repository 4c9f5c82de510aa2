"""What a comparison says: the rules, the verdict of a cell, the answer over all and its exit status."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from collbench.errors import EXIT_NO, EXIT_OK, EXIT_UNANSWERED
from collbench.method import Difference
from collbench.sides import matches
from collbench.stats import Ratio

SLOWER, FASTER, SAME, INCONCLUSIVE = "slower", "faster", "same", "inconclusive"
MISSING, FAILED, ADDED = "missing", "failed", "added"
VERDICTS = (SLOWER, FASTER, SAME, INCONCLUSIVE, MISSING, FAILED, ADDED)
FAIL_ON = (SLOWER, INCONCLUSIVE, MISSING)


@dataclass(frozen=True, slots=True)
class Rules:
    """When a cell and a comparison pass.

    Attributes:
        threshold: smallest change that matters (0.05 = 5 %).
        alpha: level of the exact test; "same" needs the 1 − 2·alpha interval inside the threshold.
        max_inconclusive: share of inconclusive cells that is borne.
        required: patterns of cells that must have an answer.
        fail_on: which of slower, inconclusive, missing (failed ones with them) change the exit status.
    """

    threshold: float = 0.05
    alpha: float = 0.05
    max_inconclusive: float = 0.10
    required: tuple[str, ...] = ()
    fail_on: tuple[str, ...] = FAIL_ON


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer for one cell.

    Attributes:
        cell: its name, ``allreduce/4/65536/ring``.
        key: its columns.
        verdict: one of VERDICTS.
        reason: why, where the numbers alone do not say it.
        base_s: median of the launch medians used, seconds; None = not measured.
        new_s: the same of the other side.
        ratio: new / base with its interval and exact p; None = not comparable.
        paired: launches were measured interleaved.
        state: machine state of the launches: same, unknown (no probe), different.
        left_out: launches not used (disturbed, another state).
        detectable: smallest slow-down that would have been seen 8 times in 10; None = unknown or none.
        confirmed: found again on fresh launches; None = not a change.
        spread: standard deviation of the log-ratio of one pair (launch against launch); None = too few.
        base_ran: the algorithm that the base was shown to run; None = unknown.
        new_ran: the same of the other side.
    """

    cell: str
    key: Mapping[str, Any]
    verdict: str
    reason: str = ""
    base_s: float | None = None
    new_s: float | None = None
    ratio: Ratio | None = None
    paired: bool = False
    state: str = "same"
    left_out: int = 0
    detectable: float | None = None
    confirmed: bool | None = None
    spread: float | None = None
    base_ran: str | None = None
    new_ran: str | None = None


@dataclass(frozen=True)
class Comparison:
    """All verdicts of two sides.

    Attributes:
        base: label of the base.
        new: label of the other side.
        cells: verdicts in the order of the base.
        rules: that were applied.
        differences: facts in which the sides differ.
        remarks: sentences to read with the verdict.
        advisory: the base belongs to other hardware: a slow-down is no failure of this machine.
        gate: False where slower cells are an answer, not a fault (algorithms).
        started: when the other side's run began, ISO 8601 in UTC; empty = unknown.
        host: first host of the other side; empty = unknown.
    """

    base: str
    new: str
    cells: Sequence[Verdict]
    rules: Rules
    differences: Sequence[Difference] = ()
    remarks: Sequence[str] = field(default_factory=tuple)
    advisory: bool = False
    gate: bool = True
    started: str = ""
    host: str = ""

    def count(self, verdict: str) -> int:
        """Return the number of cells with this verdict."""
        return sum(c.verdict == verdict for c in self.cells)

    @property
    def compared(self) -> int:
        """Number of cells that both sides measured."""
        return sum(self.count(v) for v in (SLOWER, FASTER, SAME, INCONCLUSIVE))

    @property
    def status(self) -> int:
        """Exit status: 1 slower; 3 cannot be answered; else 0."""
        if not self.compared:
            return EXIT_UNANSWERED
        if self.gate and self.count(SLOWER) and SLOWER in self.rules.fail_on:
            return EXIT_UNANSWERED if self.advisory else EXIT_NO
        return EXIT_UNANSWERED if self.doubts() else EXIT_OK

    def doubts(self) -> list[str]:
        """Return why the answer cannot be "fine", where no cell is slower."""
        found = []
        lost = self.count(MISSING) + self.count(FAILED)
        if lost and MISSING in self.rules.fail_on:
            found.append(f"{lost} cells are missing or failed in {self.new}")
        if INCONCLUSIVE in self.rules.fail_on:
            share = self.count(INCONCLUSIVE) / self.compared if self.compared else 1.0
            if share > self.rules.max_inconclusive:
                most = self.rules.max_inconclusive
                found.append(f"{share:.0%} of the cells are inconclusive (at most {most:.0%})")
        found += self._required()
        return found

    def _required(self) -> list[str]:
        found = []
        for pattern in self.rules.required:
            named = [c for c in self.cells if matches(c.cell, [pattern]) and c.verdict != ADDED]
            if not named:
                found.append(f"no cell matches the required {pattern}")
            found += [f"the required {c.cell} is {c.verdict}" for c in named
                      if c.verdict in (INCONCLUSIVE, MISSING, FAILED)]  # fmt: skip
        return found
