"""Around the launches: start, watch, end what hangs, go on with what is left. Never loses a finished cell."""

import json
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from collbench import budget, confirmation, environment, worker_status
from collbench.errors import InterruptedRunError, UnansweredError
from collbench.history import History
from collbench.installation import Installation
from collbench.launching import launch_command, worker_plan
from collbench.outcome import Line, Observer, Outcome
from collbench.plan import Group, Launch, Plan, proof_key, unplaced
from collbench.processes import Job
from collbench.records import Case
from collbench.request import RunOptions
from collbench.runfile import Follower, RunWriter, parse_lines
from collbench.watching import OVERDUE, Watch

POLL_S = 0.05
STARTUP_S = 2.0
"""First guess of a start; each launch replaces it by what was seen."""


class Runner:
    """Executes a plan, launch by launch.

    Args:
        plan: what to do.
        options: how.
        installation: whose mpiexec and Python.
        output: the run file; must exist with its ``run`` line.
        observer: sees every line and a frequent tick.
        budget_s: time for all of it, start-up included; None = no limit.
        first_launch: number of the next launch (after those of a resumed file).
        done: (repetition, variant, case) that the file already holds.
        probe: measures the machine's state between launches.
    """

    def __init__(
        self,
        plan: Plan,
        options: RunOptions,
        installation: Installation,
        output: Path,
        observer: Observer,
        *,
        budget_s: float | None = None,
        first_launch: int = 0,
        done: Iterable[tuple[int, str | None, Case]] = (),
        evidence: Mapping[str, Line] | None = None,
        probe: Callable[[], Mapping[str, Any]] | None = None,
        installations: Mapping[str, Installation] | None = None,
    ) -> None:
        self._plan, self._options, self._installation = plan, options, installation
        self._launches = list(plan.launches)
        self._to_confirm = options.confirm and confirmation.applies(plan)
        self._installations = installations or {}
        self._output, self._observer, self._budget_s = output, observer, budget_s
        self._number, self._done = first_launch, set(done)
        self._evidence = dict(evidence or {})
        self._probe = probe or dict
        self._writer = RunWriter(output)
        self._history = History(plan)
        for line in parse_lines(output.read_bytes(), output)[0]:
            self._history.take(line)
        self._appended = Follower(output, output.stat().st_size)
        self._started, self._startup_s = time.monotonic(), STARTUP_S
        self._names: dict[str, str] = {}
        self._signal: int | None = None
        self.outcome = Outcome()

    def run(self) -> Outcome:
        """Run all launches.

        Raises:
            InterruptedRunError: Ctrl-C, SIGTERM, SIGUSR1 or a lost terminal; what was measured is kept.
            UnansweredError: the launches cannot work at all, or the disk is full.
        """
        handled = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)
        previous = {s: signal.signal(s, self._on_signal) for s in handled}
        self._folder = Path(tempfile.mkdtemp(prefix="collbench-"))
        try:
            for index, launch in enumerate(self._launches):
                self._observer.launch(launch, index + 1, len(self._launches))
                self._complete(launch, index)
            self._confirm()
            self._repeat_disturbed()
        finally:
            self._writer.close()
            shutil.rmtree(self._folder, ignore_errors=True)
            for number, handler in previous.items():
                signal.signal(number, handler)
        return self.outcome

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._signal = number

    def _complete(self, launch: Launch, index: int) -> None:
        """Start ``launch`` as often as it takes: a hang or a crash costs the case in flight only."""
        idle = 0
        while True:
            left = self._remaining(launch)
            if not left:
                return
            before = self.outcome.cells + len(self.outcome.failed)
            reason = self._once(launch, left, index)
            if reason is None or launch.purpose == "proof":
                return
            idle = idle + 1 if self.outcome.cells + len(self.outcome.failed) == before else 0
            if idle >= 2:
                self._give_up(launch, reason)
                return

    def _confirm(self) -> None:
        """Measure the winners of single launches again in the time that is left, each rank count in a new launch."""
        if not self._to_confirm:
            return
        self._to_confirm = False
        first = len(self._launches)
        self._launches += confirmation.launches(self._plan, self._history.cells())
        for index, launch in enumerate(self._launches[first:], start=first):
            left = self._left()
            self._history.plan(launch)
            if self._remaining(launch) and (left is None or left > self._startup_s):
                self.outcome.confirming += 1
                self._observer.launch(launch, index + 1, len(self._launches))
                with self.outcome.the_same_cases():
                    self._complete(launch, index)

    def _repeat_disturbed(self) -> None:
        """Start disturbed launches again in the time that is left; each repeat once, whatever becomes of it."""
        while self._options.repeat and (launch := self._history.again(self._left(), self._startup_s)):
            self.outcome.repeated += 1
            number = len(self._launches) + self.outcome.repeated
            self._observer.launch(launch, number, number)
            with self.outcome.the_same_cases():
                self._once(launch, launch.groups, len(self._launches))

    def _remaining(self, launch: Launch) -> tuple[Group, ...]:
        if launch.purpose == "proof":
            return tuple(g for g in launch.groups if proof_key(g.cases[0]) not in self._evidence)
        groups = []
        for group in launch.groups:
            cases = tuple(
                c for c in group.cases if (launch.repetition, launch.variant, unplaced(c)) not in self._done
            )
            if cases:
                groups.append(Group(cases, group.level))
        return tuple(groups)

    def _give_up(self, launch: Launch, reason: str) -> None:
        for group in self._remaining(launch):
            for case in group.cases:
                self._fail(launch, case.to_json(), "launch_failed", reason)
        if not self.outcome.cells:
            raise UnansweredError(f"the launch fails again and again, nothing was measured: {reason}")

    def _fail(self, launch: Launch, case: Line, reason: str, detail: str) -> None:
        self._write(
            {"kind": "failed", "launch": self._number - 1, "case": case, "reason": reason, "detail": detail}
        )
        self._read_lines(launch)

    def _write(self, line: Line) -> None:
        """Append one line of the driver's own, without names and paths where the user asked for that."""
        self._writer.write(environment.redact(line, self._names) if self._options.redact else line)

    # One start -------------------------------------------------------------------------------------

    def _once(self, launch: Launch, groups: tuple[Group, ...], index: int) -> str | None:
        """Start once and watch until it ends; return None when it ended well, else what happened."""
        probe = dict(self._probe()) if launch.purpose == "measure" else None
        started = time.monotonic()
        number, self._number = self._number, self._number + 1
        self.outcome.launches += 1
        status = self._folder / f"status{number}"
        plan_file = self._folder / f"plan{number}.json"
        keys = {proof_key(c) for g in groups for c in g.cases}
        share_s = self._share(launch, groups, index)
        flat = worker_plan(
            launch, groups, self._options, self._plan.sampling, number=number, output=self._output, status=status,
            probe=probe, evidence={k: v for k, v in self._evidence.items() if k in keys},
            budget_s=share_s, known=self._history.known(launch),
        )  # fmt: skip
        plan_file.write_text(json.dumps(flat))
        command, env = self.command(launch, plan_file)
        job = Job(command, env, self._folder / f"log{number}")
        try:
            watch = Watch(job, status, launch.ranks, self._options.timeout_s, share_s)
            problem = self._watch(watch, launch)
        finally:
            job.end()
        self._read_lines(launch)
        after = dict(self._probe()) if launch.purpose == "measure" else None
        self._write(
            {
                "kind": "launch_end",
                "launch": number,
                "probe": after,
                "status": problem[0] if problem else "ok",
                "seconds": round(time.monotonic() - started, 3),
            }
        )
        self._read_lines(launch)
        if problem and problem[0] == OVERDUE:
            self._leave_out(launch)
        elif problem:
            return self._judge(problem, job, launch, status)
        return None

    def _leave_out(self, launch: Launch) -> None:
        """Say of each case that is left of a launch that there was no time for it."""
        for case in (c for group in self._remaining(launch) for c in group.cases):
            self._write(budget.skipped(self._number - 1, case))
        self._read_lines(launch)

    def command(self, launch: Launch, plan_file: Path) -> tuple[tuple[str, ...], dict[str, str]]:
        """Return the exact command and environment that start ``launch``."""
        installation = self._installations.get(launch.variant or "", self._installation)
        return launch_command(launch, self._options, installation, plan_file)

    def _share(self, launch: Launch, groups: tuple[Group, ...], index: int) -> float | None:
        """Return the measuring time of this launch; None = as long as it takes."""
        if self._budget_s is None or launch.purpose == "proof":
            return None
        left = self._budget_s - (time.monotonic() - self._started)
        later = self._launches[index + 1 :]
        confirming = self._plan.measuring if self._to_confirm else ()
        return budget.share(left, self._startup_s, launch, groups, later, confirming)

    def _watch(self, watch: Watch, launch: Launch) -> tuple[str, str] | None:
        """Wait for the launch; return None when it ended well, else (kind, detail)."""
        seen_start = False
        while True:
            self._read_lines(launch)
            if self._signal is not None:
                raise self._interrupted()
            ended = watch.ended()
            if watch.startup_s is not None and not seen_start:
                seen_start = True
                self._startup_s = 0.5 * (self._startup_s + watch.startup_s)
            if ended:
                return watch.problem
            self._observer.tick(watch.status.case if watch.status else None, self._left())
            time.sleep(POLL_S)

    def _interrupted(self) -> InterruptedRunError:
        assert self._signal is not None
        name = signal.Signals(self._signal).name
        return InterruptedRunError(
            f"interrupted by {name}: {self.outcome.cells} measured cells are kept in {self._output}; "
            f"go on with 'collbench run --resume {self._output}'"
        )

    def _left(self) -> float | None:
        if self._budget_s is None:
            return None
        return max(0.0, self._budget_s - (time.monotonic() - self._started))

    def _read_lines(self, launch: Launch) -> None:
        """Take in the whole lines that the worker has appended since the last look."""
        for raw in self._appended.lines():
            line = json.loads(raw)
            self._take(line, launch)
            self._observer.line(line)

    def _take(self, line: Line, launch: Launch) -> None:
        kind = line["kind"]
        self._history.take(line)
        if kind == "proof":
            self._evidence[line["key"]] = {**line["evidence"], "effective": line["effective"]}
        elif kind in ("cell", "failed", "skipped"):
            self._done.add((launch.repetition, launch.variant, unplaced(Case.from_json(line["case"]))))
            self.outcome.take(line)

    def _judge(self, problem: tuple[str, str], job: Job, launch: Launch, status: Path) -> str:
        """Turn a bad end into a failed cell, or into an error when no launch can work."""
        kind, detail = problem
        said = job.tail()
        worker_status.raise_for(said, launch, self._installation, self._output)
        now = worker_status.read(status)
        first_words = next((x.strip() for x in said.splitlines() if x.strip()), "")
        reason = f"{detail}; it said: {first_words[:200]}" if first_words else detail
        if now and now.case and launch.purpose == "measure":
            self._fail(launch, now.case, kind, reason)
        elif now and now.case:
            self._evidence[proof_key(Case.from_json(now.case))] = {"status": "unknown", "effective": None, "by": None,
                                                                    "detail": f"the proof ended: {reason}"}  # fmt: skip
        return f"{kind}: {reason}"
