"""Measuring NCCL in process, one rank a GPU: the driver's side, which starts the ranks and imports nothing of CUDA."""

import json
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from collbench.backends import nccl_presence, nccl_text
from collbench.backends.interruption import Interruption
from collbench.backends.nccl_model import call_s
from collbench.backends.nccl_plan import NcclPlan, forwarded, make_plan, of_repetition
from collbench.errors import UnansweredError, UsageError
from collbench.processes import MARKER, Job, new_marker
from collbench.profile import Profile
from collbench.records import Case
from collbench.request import RunOptions
from collbench.runfile import RunWriter, parse_lines

POLL_S = 0.1
SILENCE_S = 120.0
"""Least silence that counts as a hang: creating a communicator of hundreds of ranks is silent for long."""
SRUN = "srun -n {ranks} -N {nodes} --ntasks-per-node={ranks_per_node}"
_Done = set[tuple[int, Case]]


class Backend:
    """NCCL as a back end: plans without NCCL or a GPU, measures with both."""

    def dry_run(self, profile: Profile, options: RunOptions) -> str:
        """Return the plan in words: cases, wall time, GPU-hours, commands. Needs neither NCCL nor a GPU."""
        plan = make_plan(profile, options)
        return nccl_text.plan(plan, options, commands=[shlex.join(c) for c in _commands(plan, options)])

    def dry_run_json(self, profile: Profile, options: RunOptions) -> dict[str, Any]:
        """Return the plan as data, see ``nccl_text.plan_json``. Needs neither NCCL nor a GPU."""
        plan = make_plan(profile, options)
        return nccl_text.plan_json(plan, options, commands=_commands(plan, options))

    def check(self, profile: Profile, options: RunOptions) -> None:
        """Say what is missing before a run file is made.

        Raises:
            UnansweredError: no GPU, no NCCL, or too few GPUs.
        """
        plan = make_plan(profile, options)
        local = [r for r in plan.ranks if not _launcher(plan, r, options)]
        nccl_presence.require(max(local, default=0))

    def execute(self, profile: Profile, options: RunOptions, writer: RunWriter) -> None:
        """Measure, and append to the run file; what it already holds is not measured again.

        Raises:
            InterruptedRunError: Ctrl-C, SIGTERM, SIGUSR1 or a lost terminal; what was measured is kept.
            UnansweredError: something is missing (see ``check``), or nothing could be measured.
        """
        self.check(profile, options)
        plan = make_plan(profile, options, _live_version())
        with tempfile.TemporaryDirectory(prefix="collbench-") as folder, Interruption(writer.path) as stop:
            _Run(plan, profile, options, writer, Path(folder), stop).all()


def _live_version() -> tuple[int, ...]:
    from collbench.backends import nccl_bind  # noqa: PLC0415 - loads NCCL, and only once something is measured

    return nccl_bind.version()


def _launcher(plan: NcclPlan, ranks: int, options: RunOptions) -> str | None:
    """Return the launcher's template; None = our own start on this node."""
    if options.launcher:
        return options.launcher
    per_node = plan.of(ranks)[0].cell.ranks_per_node or ranks
    if per_node >= ranks:
        return None
    if "SLURM_JOB_ID" in os.environ:
        return SRUN
    return "mpirun -n {ranks} -N {ranks_per_node}"


def _command(plan: NcclPlan, ranks: int, options: RunOptions, plan_file: Path) -> list[str]:
    program = [sys.executable, "-m", "collbench.backends.nccl_worker", "--plan", str(plan_file)]
    template = _launcher(plan, ranks, options)
    if template is None:
        return [*program, "--spawn", str(ranks)]
    per_node = plan.of(ranks)[0].cell.ranks_per_node or ranks
    fields = {"ranks": ranks, "nodes": -(-ranks // per_node), "ranks_per_node": per_node,
              "hosts": ",".join(f"{h}:{per_node}" for h in options.hosts)}  # fmt: skip
    try:
        front = [word.format_map(fields) for word in shlex.split(template)]
    except (KeyError, IndexError, ValueError) as error:
        raise UsageError(
            f"launcher {template!r}: {error} is no field of it: use {', '.join(fields)}"
        ) from None
    own = [f"{name}={value}" for name, value in sorted(forwarded(os.environ).items())]
    return [*front, *options.launcher_args, *(("env", *own) if own else ()), *program]


def _commands(plan: NcclPlan, options: RunOptions) -> list[list[str]]:
    return [_command(plan, ranks, options, Path("PLAN.json")) for ranks in plan.ranks]


class _Run:
    """One execution: launches, what hangs, what is left."""

    def __init__(
        self, plan: NcclPlan, profile: Profile, options: RunOptions, writer: RunWriter, folder: Path,
        stop: Interruption,
    ) -> None:  # fmt: skip
        self._stop = stop
        self._plan, self._options, self._writer, self._folder = plan, options, writer, folder
        self._budget_s, self._sampling = profile.budget_s, asdict(profile.sampling)
        self._started, self._cells = time.monotonic(), 0
        self._number, self._done, self._evidence = 0, set[tuple[int, Case]](), dict[str, Any]()

    def all(self) -> None:
        """Run a proof and every repetition of each rank count."""
        self._take()
        if not self._number:
            for case, reason in self._plan.skipped:
                self._writer.write({"kind": "skipped", "case": case.to_json(), "reason": reason})
        for ranks in self._plan.ranks:
            if self._options.prove and not any(key.split("|")[1] == str(ranks) for key in self._evidence):
                self._launch(self._plan, ranks, 0, "proof")
                self._take()
            for repetition in range(self._plan.launches):
                self._complete(of_repetition(self._plan, repetition, self._options.seed), ranks, repetition)
        if not self._cells:
            raise UnansweredError(
                f"NCCL measured nothing: see the failed and skipped lines in {self._writer.path}"
            )

    def _complete(self, plan: NcclPlan, ranks: int, repetition: int) -> None:
        """Start until every case has a line: a hang or a crash costs the cell in flight only."""
        idle = 0
        while self._left(plan, ranks, repetition) and idle < 2:
            if self._budget_s is not None and time.monotonic() - self._started > self._budget_s:
                for case in self._left(plan, ranks, repetition):
                    self._writer.write(
                        {"kind": "skipped", "case": case.to_json(), "reason": "the time budget was spent"}
                    )
                return
            before = len(self._done)
            problem = self._launch(plan, ranks, repetition, "measure")
            self._take()
            if problem is None:
                return
            self._blame(ranks, repetition, problem)
            self._take()
            idle = idle + 1 if len(self._done) == before else 0

    def _left(self, plan: NcclPlan, ranks: int, repetition: int) -> list[Case]:
        return [c for c in plan.of(ranks) if (repetition, _bare(c)) not in self._done]

    def _blame(self, ranks: int, repetition: int, problem: str) -> None:
        """Fail the unfinished cases of the cell that was in flight."""
        status = self._folder / f"status{self._number}"
        flight = json.loads(status.read_text() or "[]") if status.exists() else []
        for flat in flight:
            if (repetition, _bare(Case.from_json(flat))) not in self._done and flat["ranks"] == ranks:
                self._writer.write({"kind": "failed", "launch": self._number, "case": flat,
                                    "reason": problem.split(":", 1)[0], "detail": problem})  # fmt: skip

    def _launch(self, plan: NcclPlan, ranks: int, repetition: int, purpose: str) -> str | None:
        """Start one launch and watch the run file grow; return what went wrong, None = nothing."""
        self._number += 1
        groups = []
        for group in plan.groups:
            cases = [c for c in group if c.cell.ranks == ranks and
                     (purpose == "proof" or (repetition, _bare(c)) not in self._done)]  # fmt: skip
            if cases:
                groups.append([c.to_json() for c in cases])
        plan_file, status = self._folder / f"plan{self._number}.json", self._folder / f"status{self._number}"
        plan_file.write_text(json.dumps({
            "launch": self._number, "purpose": purpose, "repetition": repetition, "ranks": ranks, "groups": groups,
            "ranks_per_node": plan.of(ranks)[0].cell.ranks_per_node or ranks, "timings": plan.request.timings,
            "iterations": self._options.iterations, "output": str(self._writer.path.resolve()), "status": str(status),
            "evidence": self._evidence, "sampling": self._sampling,
        }))  # fmt: skip
        marker = {MARKER: new_marker()}
        job = Job(_command(plan, ranks, self._options, plan_file), {**os.environ, **marker},
                  self._folder / f"log{self._number}")  # fmt: skip
        try:
            return self._watch(job, plan, ranks)
        finally:
            job.end()

    def _watch(self, job: Job, plan: NcclPlan, ranks: int) -> str | None:
        longest = max(call_s(c, plan.request.hardware) for c in plan.of(ranks))
        limit = max(self._options.timeout_s, SILENCE_S, 0.5 * ranks) + 50 * longest * 100
        size, since = self._writer.path.stat().st_size, time.monotonic()
        while (status := job.poll()) is None:
            time.sleep(POLL_S)
            self._stop.check()
            now = self._writer.path.stat().st_size
            if now != size:
                size, since = now, time.monotonic()
            elif time.monotonic() - since > limit:
                return f"timeout: no sign of life for {limit:.0f} s"
        return None if status == 0 else f"crashed: exit status {status}; it said: {job.tail(3)[-300:]}"

    def _take(self) -> None:
        """Read what the run file holds: finished cases, launch numbers, proofs."""
        repetition: dict[int, int] = {}
        path, self._cells = self._writer.path, 0
        for line in parse_lines(path.read_bytes(), path)[0]:
            kind = line["kind"]
            self._cells += kind == "cell"
            if kind == "launch":
                repetition[line["launch"]] = line.get("repetition", 0)
            elif kind == "proof":
                self._evidence[line["key"]] = _proof(line)
            elif kind in ("cell", "failed") or (kind == "skipped" and "NCCL refuses" in line["reason"]):
                case = _bare(Case.from_json(line["case"]))
                for number in (
                    range(self._plan.launches) if kind == "skipped" else (repetition.get(line["launch"], 0),)
                ):
                    self._done.add((number, case))
        self._number = max([self._number, *repetition])


def _proof(line: Mapping[str, Any]) -> dict[str, Any]:
    return {**line["evidence"], "effective": line["effective"], "params": line.get("params")}


def _bare(case: Case) -> Case:
    return replace(case, cell=replace(case.cell, ranks_per_node=None))
