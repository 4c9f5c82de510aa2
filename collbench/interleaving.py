"""An interleaved measurement: its proofs, its stages, the time for them, and going on after an interruption."""

import hashlib
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from collbench import ab, environment, launchers, launching, memory, ran, results, variant
from collbench.ab import AbRunner, Clock, Proofs
from collbench.errors import InterruptedRunError, UsageError
from collbench.installation import Installation
from collbench.mpi import probe
from collbench.outcome import Observer
from collbench.pairing import usable
from collbench.plan import Plan
from collbench.profile import Profile
from collbench.records import Case
from collbench.request import RunOptions
from collbench.results import Run
from collbench.resume import options_of, profile_of, repair
from collbench.runfile import RunWriter
from collbench.sides import CONFIRM_FROM
from collbench.units import format_duration
from collbench.variant import Variant

SCREENING_SHARE = 2 / 3
"""Share of the budget for the first stage where suspects are measured again afterwards."""
SUSPECT = ("collective", "ranks", "nbytes", "dtype", "op", "in_place", "algorithm")
"""What names a cell in every variant, whatever library serves it."""
_OF_A_JOB = frozenset({"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"})

Cells = set[tuple[Any, ...]]


@dataclass(frozen=True)
class Job:
    """One interleaved measurement: what, how, of which environments, into which file.

    Attributes:
        profile: with the options applied; its budget is that of the whole job.
        options: as for a run.
        variants: the environments, the base first; tables are turned into variables.
        installations: variant → its MPI.
        pairs: usable pairs that are wanted.
        path: the run file.
        observe: makes the progress display for a number of cases.
        say: tells the user a sentence.
        confirm: suspects will be measured again.
        allowed: fields of the method that may differ.
        proofs: evidence found so far, by variant.
        started: when the budget began, on the monotonic clock.
    """

    profile: Profile
    options: RunOptions
    variants: Sequence[Variant]
    installations: Mapping[str, Installation]
    pairs: int
    path: Path
    observe: Callable[[int], AbstractContextManager[Observer]]
    say: Callable[[str], None]
    confirm: bool = False
    allowed: Sequence[str] = ()
    proofs: Proofs = field(default_factory=dict)
    started: float = field(default_factory=time.monotonic)

    @property
    def names(self) -> list[str]:
        """Names of the variants, the base first."""
        return [v.name for v in self.variants]

    @property
    def per_node(self) -> int | None:
        """Ranks that one node takes; None = there is one node only."""
        if self.profile.ranks_per_node is not None:
            return self.profile.ranks_per_node
        allocation = launchers.allocation(os.environ, environment.usable_cores(physical=True))
        hosts = len(allocation.hosts)
        return max(1, allocation.slots // hosts) if hosts > 1 else None

    def plan(self, pairs: int, first: int, cells: Cells | None) -> Plan:
        """Return the launches of one stage; ``cells`` = only these (the suspects)."""
        return ab.make_plan(
            self.profile, self.options, self.variants, self.installations, pairs=pairs, first=first,
            ranks_per_node=self.per_node, keep=lambda case: cells is None or suspect_key(case) in cells,
        )  # fmt: skip


def suspect_key(case: Case) -> tuple[Any, ...]:
    """Return what names a cell in every variant."""
    c = case.cell
    return (c.collective, c.ranks, c.nbytes, c.dtype, c.op, c.in_place, case.algorithm)


def create(job: Job, tool: str, argv: Sequence[str], **facts: Any) -> None:
    """Write the first lines of the run file: what is compared, and all that going on with it needs.

    Raises:
        UsageError: the file exists.
        UnansweredError: the largest cell does not fit into memory.
    """
    line = launching.run_line(asdict(job.profile), job.options, tool, argv)
    line["ab"] = {
        "pairs": job.pairs, "variants": job.names, "confirm": job.confirm, **facts,
        "request": line.pop("request"),  # apart, so that ``collbench run --resume`` leaves it alone
        "environments": [_described(v, job.installations[v.name]) for v in job.variants],
        "around": _around(),
    }  # fmt: skip
    once = job.plan(1, 0, None)
    memory.check([c for x in once.launches for c in x.cases], job.options.ranks_per_node, once.sampling)
    with RunWriter(job.path, create=True) as writer:
        writer.write(environment.redact(line, {}) if job.options.redact else line)
        for case, reason in once.skipped:
            writer.write({"kind": "skipped", "case": case.to_json(), "reason": reason})


def _described(one: Variant, found: Installation) -> dict[str, Any]:
    return {
        "name": one.name, "env": dict(one.env), "mpi": one.mpi, "setup": one.setup,
        "library": found.library, "version": found.version_string, "libmpi": found.libmpi,
        "table": str(one.table) if one.table else None, "table_sha256": _sum(one.table),
        "after_setup": _settings(variant.environment_after(one.setup)) if one.setup else None,
    }  # fmt: skip


def _sum(path: Path | None) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() if path else None
    except OSError:
        return None


def _around() -> dict[str, Any]:
    """Return what of the surroundings all variants share and a later start could miss."""
    return {"host": socket.gethostname(), "variables": _settings(os.environ)}


def _settings(environ: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in environment.variables(environ).items() if k not in _OF_A_JOB}


def restore(run: Run, discover: Callable[[Variant], Installation] = variant.discover) -> dict[str, Any]:
    """Return the fields of the job that a run file holds, its environments checked to be what they were.

    A torn last line of the file is ended, so that it can be appended to.

    Raises:
        UsageError: the file holds no environments, or this is not the machine, the surroundings or a library that they
            were measured with.
    """
    facts = run.header.get("ab") or {}
    if "environments" not in facts:
        raise UsageError(
            f"{run.path} does not say which environments it compared: measure anew with 'collbench ab'"
        )
    options = options_of(facts["request"]["options"])
    if options.redact:
        raise UsageError(
            f"{run.path} is redacted, so its environments cannot be restored: measure anew with 'collbench ab'"
        )
    _same(run.path, "the machine and its variables", facts["around"], _around())
    variants = [
        Variant(e["name"], e["env"], e["mpi"], e["setup"], Path(e["table"]) if e["table"] else None)
        for e in facts["environments"]
    ]
    installations = {v.name: discover(v) for v in variants}
    for recorded, one in zip(facts["environments"], variants, strict=True):
        _same(run.path, f"variant {one.name}", recorded, _described(one, installations[one.name]))
    repair(run.path)
    proofs: Proofs = {}
    for line in run.proofs:
        home = proofs.setdefault(run.launches.get(line["launch"], {}).get("variant"), {})
        home[line["key"]] = {**line["evidence"], "effective": line["effective"]}
    return {"profile": profile_of(facts["request"]["profile"]), "options": options, "variants": variants,
            "installations": installations, "pairs": facts["pairs"], "proofs": proofs}  # fmt: skip


def _same(path: Path, what: str, then: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    for name in sorted(then.keys() | now.keys()):
        before, after = then.get(name), now.get(name)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            _same(path, what, before, after)
        elif before != after:
            raise UsageError(
                f"{path} cannot go on here: of {what}, {name} was {before!r} and is {after!r}: measure anew with "
                "'collbench ab'"
            )


def prove(job: Job) -> None:
    """Show once in each environment which algorithms run; refuse before any pair what could not be compared.

    Raises:
        UsageError: an algorithm that was asked for runs in one environment only.
    """
    whole = ab.proof_plan(
        job.profile, job.options, job.variants, job.installations, ranks_per_node=job.per_node
    )
    missing = tuple(x for x in whole.launches if x.variant not in job.proofs)
    if missing:
        _measure(job, replace(whole, launches=missing), Clock())
    if "effective" not in job.allowed:
        ran.check_proofs(job.proofs, job.names[0])


def stage(job: Job, first: int = 0, cells: Cells | None = None) -> None:
    """Measure until there are as many usable pairs as asked for: at most as many again, within the budget.

    A pair that was interrupted is not completed later but measured anew as a whole: its launches would not have met
    the same machine.
    """
    done, lacking = _state(job, first)

    def foretell(pairs: int) -> None:
        if pairs < lacking:
            job.say(f"{pairs} of {lacking} pairs will fit into the budget, judged by the first")

    clock = Clock(_deadline(job, first), foretell=foretell)
    while lacking > 0:
        if done >= job.pairs and done:
            job.say(
                f"pairs that were disturbed, met two machine states or are not complete: {lacking}; measuring as many more"
            )
        _measure(job, job.plan(lacking, first + done, cells), clock)
        if clock.spent:
            _say_spent(job, len(clock.pairs), first)
            return
        before, (done, lacking) = done, _state(job, first)
        if done == before:
            return  # no launch came up at all: the failed cells say why


def _deadline(job: Job, first: int) -> float | None:
    if job.profile.budget_s is None:
        return None
    share = SCREENING_SHARE if job.confirm and first < CONFIRM_FROM else 1.0
    return job.started + job.profile.budget_s * share


def _state(job: Job, first: int) -> tuple[int, int]:
    """Return how many repetitions of a stage the file holds, and how many to start now."""
    end = CONFIRM_FROM if first < CONFIRM_FROM else 2 * CONFIRM_FROM
    lines = [x for x in results.read(job.path).launches.values() if first <= x.get("repetition", -1) < end]
    lines = [x for x in lines if x.get("purpose", "measure") == "measure"]
    done = max((x["repetition"] - first + 1 for x in lines), default=0)
    lacking = job.pairs - min(usable(lines, job.names).values(), default=0)
    return done, min(lacking, 2 * job.pairs - done)


def _say_spent(job: Job, done: int, first: int) -> None:
    assert job.profile.budget_s is not None
    what = "measuring suspects again" if first >= CONFIRM_FROM else "screening"
    job.say(
        f"the budget of {format_duration(job.profile.budget_s)} leaves no time for another pair; measured now in {what}: "
        f"{done}, asked for: {job.pairs} (give more with --budget, or fewer cells)"
    )


def _measure(job: Job, work: Plan, clock: Clock) -> None:
    total = sum(len(x.cases) for x in work.measuring)
    first = max(results.read(job.path).launches, default=-1) + 1
    base = job.installations[job.names[0]]
    with job.observe(total) as observer:
        runner = AbRunner(
            work, job.options, base, job.path, observer, first_launch=first, probe=probe.probe,
            installations=job.installations, setups={v.name: v.setup for v in job.variants if v.setup},
            proofs=job.proofs, clock=clock,
        )  # fmt: skip
        try:
            runner.run()
        except InterruptedRunError:
            raise InterruptedRunError(
                f"interrupted: what was measured is kept; go on with 'collbench ab --resume {job.path}', or judge it as "
                f"it is with 'collbench compare {job.path} --by variant'"
            ) from None


def screened(run: Run) -> Run:
    """Return the run without the launches that measured suspects again."""
    late = {n for n, x in run.launches.items() if x.get("repetition", -1) >= CONFIRM_FROM}
    return run.without(late)
