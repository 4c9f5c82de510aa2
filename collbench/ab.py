"""Environments measured interleaved: what proves their algorithms, their launches in pairs, and the time for it."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from collbench import forcing, plan
from collbench.installation import Installation
from collbench.outcome import Line, Outcome
from collbench.plan import Group, Launch, Plan, proof_key
from collbench.profile import Profile
from collbench.records import Case
from collbench.refinement import UNDECIDED
from collbench.request import RunOptions
from collbench.runner import Runner
from collbench.variant import Variant, with_setup

PAIRS = 10
RECENT = 3
"""The next pair is taken to last as long as the longest of this many before it."""

Proofs = dict[str | None, dict[str, Line]]
"""Variant → proof key → evidence: the same request may run as something else in each environment."""


def make_plan(
    profile: Profile,
    options: RunOptions,
    variants: Sequence[Variant],
    installations: Mapping[str, Installation],
    *,
    pairs: int,
    first: int = 0,
    ranks_per_node: int | None = None,
    keep: Callable[[Case], bool] = lambda _case: True,
) -> Plan:
    """Return launches of all variants, alternating, each repetition started by another one.

    Args:
        profile: with the options applied; its own number of launches does not count.
        options: as for a run.
        variants: at least two.
        installations: variant → its MPI.
        pairs: repetitions.
        first: number of the first repetition (confirmation goes on counting).
        ranks_per_node: that one node takes.
        keep: which cases to measure.

    Raises:
        UsageError: nothing is left to measure.
    """
    plans = {v.name: _one(profile, options, installations[v.name], pairs, ranks_per_node) for v in variants}
    groups: dict[tuple[int, int], dict[str, list[Launch]]] = {}
    for variant in variants:
        for launch in plans[variant.name].launches:
            kept = _kept(launch, variant, first, keep)
            if kept.groups:
                home = groups.setdefault((kept.repetition, kept.ranks), {})
                home.setdefault(variant.name, []).append(kept)
    launches: list[Launch] = []
    for (repetition, _ranks), found in groups.items():
        turn = repetition % len(variants)
        for variant in (*variants[turn:], *variants[:turn]):
            launches += found.get(variant.name, [])
    skipped = plans[variants[0].name].skipped
    return Plan(tuple(launches), skipped, profile.sampling)


def proof_plan(
    profile: Profile,
    options: RunOptions,
    variants: Sequence[Variant],
    installations: Mapping[str, Installation],
    *,
    ranks_per_node: int | None = None,
) -> Plan:
    """Return untimed launches, one a variant and rank count, that show which algorithms run in its environment.

    Left out are portable cases, which are collbench's own code, and those that need a launch of their own to be forced.
    """
    launches = []
    for variant in variants:
        found = installations[variant.name]
        cases: dict[int, dict[str, Case]] = {}
        for launch in _one(profile, options, found, 1, ranks_per_node).launches:
            for case in launch.cases:
                if case.provider != "portable" and _switches(case, found):
                    cases.setdefault(launch.ranks, {}).setdefault(proof_key(case), case)
        settings = {
            **forcing.common_settings(found.library, found.version, options.virtual_nodes),
            **(forcing.proof_settings(found.library, found.version) or {}),
            **variant.env,
        }
        launches += [
            Launch(ranks, 0, "proof", settings, tuple(Group((c,)) for c in some.values()), variant.name)
            for ranks, some in cases.items()
        ]
    return Plan(tuple(launches))


def _switches(case: Case, found: Installation) -> bool:
    """Say whether the case can be forced inside the proof launch."""
    needed = dict(forcing.settings(case, found.library, found.version))
    return needed.items() <= (forcing.proof_settings(found.library, found.version) or {}).items()


def _one(
    profile: Profile, options: RunOptions, found: Installation, pairs: int, ranks_per_node: int | None
) -> Plan:
    return plan.make_plan(
        replace(profile, launches=pairs), replace(options, prove=False),
        library=found.library, version=found.version, ranks_per_node=ranks_per_node,
    )  # fmt: skip


def _kept(launch: Launch, variant: Variant, first: int, keep: Callable[[Case], bool]) -> Launch:
    # Both sides measure the same sizes, whatever either would find.
    both = [g for g in launch.groups if g.level < UNDECIDED]
    groups = tuple(Group(cases) for g in both if (cases := tuple(c for c in g.cases if keep(c))))
    return replace(
        launch, repetition=launch.repetition + first, variant=variant.name, groups=groups,
        settings={**launch.settings, **variant.env},
    )  # fmt: skip


@dataclass
class Clock:
    """The time for one stage; only whole pairs count, so it is asked before each.

    Attributes:
        deadline: when the stage must have ended, on ``time.monotonic``'s clock; None = whenever.
        pairs: seconds that each pair took.
        spent: another pair would not have ended in time.
        foretell: called once with the number of pairs that will fit, judged by the first.
    """

    deadline: float | None = None
    pairs: list[float] = field(default_factory=list)
    spent: bool = False
    foretell: Callable[[int], None] | None = None
    _since: float | None = None

    def begin(self) -> bool:
        """Say whether another pair fits, and count its time from now on. The first one fits until the deadline."""
        self.end()
        now = time.monotonic()
        if self.deadline is not None:
            longest = max(self.pairs[-RECENT:], default=0.0)
            if len(self.pairs) == 1 and self.foretell is not None:
                self.foretell(1 + int(max(0.0, self.deadline - now) / max(longest, 1e-9)))
            if now + longest > self.deadline:
                self.spent = True
                return False
        self._since = now
        return True

    def end(self) -> None:
        """Take note of how long the pair in progress took."""
        if self._since is not None:
            self.pairs.append(time.monotonic() - self._since)
            self._since = None


class _BudgetSpentError(Exception):
    """Ends the loop over launches before a pair that does not fit."""


class AbRunner(Runner):
    """A runner of several environments: each has its own evidence, and only whole pairs are measured.

    Args:
        arguments: as for ``Runner``.
        setups: variant → its set-up line.
        proofs: evidence by variant; grows.
        clock: the time for this stage.
        named: as for ``Runner``.
    """

    def __init__(
        self, *arguments: Any, setups: Mapping[str, str], proofs: Proofs, clock: Clock, **named: Any
    ) -> None:
        super().__init__(*arguments, **named)
        self._setups, self._proofs, self._clock = setups, proofs, clock
        self._repetition: int | None = None

    def run(self) -> Outcome:
        """Run launches until the plan or the time ends; raises as ``Runner.run``."""
        try:
            return super().run()
        except _BudgetSpentError:
            return self.outcome
        finally:
            self._clock.end()

    def command(self, launch: Launch, plan_file: Path) -> tuple[tuple[str, ...], dict[str, str]]:
        """Return the command, inside the login shell where the variant has a set-up line."""
        argv, env = super().command(launch, plan_file)
        setup = self._setups.get(launch.variant or "")
        return (with_setup(setup, argv) if setup else argv), env

    def _complete(self, launch: Launch, index: int) -> None:
        self._evidence = self._proofs.setdefault(launch.variant, {})
        if launch.purpose == "measure" and launch.repetition != self._repetition:
            self._repetition = launch.repetition
            if not self._clock.begin():
                raise _BudgetSpentError
        super()._complete(launch, index)
