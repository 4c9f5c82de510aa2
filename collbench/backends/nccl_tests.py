"""Measuring with the user's nccl-tests or rccl-tests binaries: a process for each setting, started from the driver."""

import os
import re
import shlex
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from collbench.backends import nccl_text
from collbench.backends.interruption import Interruption
from collbench.backends.nccl_model import call_s
from collbench.backends.nccl_plan import NcclPlan, make_plan
from collbench.backends.nccl_tests_command import REDUCTION, Batch, Tool, command, knows_json, read_tool
from collbench.backends.nccl_tests_plan import batches, prove, read_output, refusal, without
from collbench.errors import UnansweredError
from collbench.importers.model import Row, Table
from collbench.processes import MARKER, Job, new_marker
from collbench.profile import Profile
from collbench.records import Case, Evidence, Measurement
from collbench.request import RunOptions
from collbench.runfile import RunWriter, parse_lines

POLL_S = 0.02
SLOWER_THAN_ESTIMATED = 50.0
"""A process may take this many times its estimate before its silence counts as a hang."""
_Proofs = dict[tuple[Any, ...], dict[int, tuple[Evidence, dict[str, object]]]]


class Backend:
    """nccl-tests as a back end: plans without any binary, measures with the user's."""

    def dry_run(self, profile: Profile, options: RunOptions) -> str:
        """Return the plan in words: every command, wall time and GPU-hours. Needs neither NCCL nor a GPU."""
        plan, commands = _planned(profile, options)
        return nccl_text.plan(plan, options, external=True, commands=[shlex.join(c) for c in commands])

    def dry_run_json(self, profile: Profile, options: RunOptions) -> dict[str, Any]:
        """Return the plan as data, see ``nccl_text.plan_json``. Needs neither NCCL nor a GPU."""
        plan, commands = _planned(profile, options)
        return nccl_text.plan_json(plan, options, external=True, commands=commands)

    def check(self, profile: Profile, options: RunOptions) -> None:
        """Say what is missing before a run file is made.

        Raises:
            UnansweredError: no binaries.
        """
        tool = _tool(profile, options)
        for name in sorted({g[0].cell.collective for g in _plan(tool, profile, options).groups}):
            tool.binary(name)

    def execute(self, profile: Profile, options: RunOptions, writer: RunWriter) -> None:
        """Measure, and append to the run file; what it already holds is not measured again.

        Raises:
            InterruptedRunError: Ctrl-C, SIGTERM, SIGUSR1 or a lost terminal; what was measured is kept.
            UnansweredError: no binaries, or nothing could be measured.
        """
        self.check(profile, options)
        tool = _tool(profile, options)
        with Interruption(writer.path) as stop:
            _Run(tool, _plan(tool, profile, options), profile, options, writer, stop).all()


def _tool(profile: Profile, options: RunOptions) -> Tool:
    return read_tool(
        profile.extra.get("nccl-tests", {}), options.nccl_tests_dir, options.launcher, options.hosts
    )  # fmt: skip


def _plan(tool: Tool, profile: Profile, options: RunOptions) -> NcclPlan:
    return make_plan(profile, options, external=True, provider=tool.provider)


def _planned(profile: Profile, options: RunOptions) -> tuple[NcclPlan, list[list[str]]]:
    tool = _tool(profile, options)
    plan = _plan(tool, profile, options)
    first = batches(plan, profile, 0, options.seed, options.iterations)
    return plan, [command(tool, batch, marker={}) for batch in first]


class _Run:
    """One execution: what is done, what was proven, what is left of the budget."""

    def __init__(
        self, tool: Tool, plan: NcclPlan, profile: Profile, options: RunOptions, writer: RunWriter,
        stop: Interruption,
    ) -> None:  # fmt: skip
        self._stop = stop
        self._tool, self._plan, self._profile, self._options = tool, plan, profile, options
        self._writer = writer
        self._started = time.monotonic()
        self._proofs: _Proofs = {}
        self._refused: dict[tuple[Any, ...], str] = {}
        self._json = knows_json(tool.binary(plan.groups[0][0].cell.collective))
        self._number, self._done = _state(writer.path)
        self._cells = len(self._done)

    def all(self) -> None:
        """Run every repetition."""
        if not self._number:
            for case, reason in self._plan.skipped:
                self._writer.write({"kind": "skipped", "case": case.to_json(), "reason": reason})
        with tempfile.TemporaryDirectory(prefix="collbench-") as folder:
            self._folder = Path(folder)
            for repetition in range(self._plan.launches):
                for batch in batches(
                    self._plan, self._profile, repetition, self._options.seed, self._options.iterations
                ):
                    self._batch(batch)
        if not self._cells:
            raise UnansweredError(
                f"{self._tool.name} measured nothing: see the failed and skipped lines in {self._writer.path}"
            )

    def _batch(self, batch: Batch) -> None:
        left = without(batch, self._finished(batch))
        budget = self._profile.budget_s
        for part in left:
            key = _key(part)
            if key in self._refused:
                self._skip(part, self._refused[key])
            elif budget is not None and time.monotonic() - self._started > budget:
                self._skip(part, "the time budget was spent")
            else:
                if self._options.prove and key not in self._proofs:
                    self._prove(part)
                if key in self._refused:
                    self._skip(part, self._refused[key])
                else:
                    self._measure(part)

    def _finished(self, batch: Batch) -> set[int]:
        """Return the sizes whose every asked form is in the file."""
        missing = {c.cell.nbytes for c in batch.cases if (batch.repetition, _bare(c)) not in self._done}
        return {nbytes for nbytes, _ in batch.sizes} - missing

    def _skip(self, batch: Batch, reason: str) -> None:
        for case in batch.cases:
            self._writer.write({"kind": "skipped", "case": case.to_json(), "reason": reason})

    def _prove(self, batch: Batch) -> None:
        """Run once untimed with NCCL's own account; remember what ran, or that NCCL refuses."""
        text, problem, _ = self._start(batch, proof=True)
        found = prove(text, batch)
        self._proofs[_key(batch)] = found
        said = refusal(text) if problem else None
        if said and not any(e.effective for e, _ in found.values()):
            self._refused[_key(batch)] = f"NCCL refuses it: {said}"
        self._launch_line(batch, None, purpose="proof", status=problem or "ok")
        for nbytes, (evidence, _) in found.items():
            case = next(c for c in batch.cases if c.cell.nbytes == nbytes)
            self._writer.write({"kind": "proof", "launch": self._number - 1, "key": f"{_key(batch)}/{nbytes}",
                                "case": case.to_json(), "effective": evidence.effective,
                                "evidence": evidence.to_json()})  # fmt: skip

    def _measure(self, batch: Batch) -> None:
        """Time a batch; after a hang or a crash the size in flight is failed and the rest goes on."""
        left, fruitless = [batch], 0
        while left:
            part = left.pop(0)
            text, problem, json_file = self._start(part)
            table = read_output(text, part, self._tool.name, json_file)
            said = refusal(text) if problem and table is None else None
            self._launch_line(part, table, purpose="measure", status=problem or "ok")
            if said:
                self._refused[_key(part)] = f"NCCL refuses it: {said}"
                self._skip(part, self._refused[_key(part)])
                continue
            rows = self._rows(part, table)
            missing = [n for n, _ in part.sizes if n not in rows]
            if not missing:
                continue
            reason = _reason(problem, text)
            fruitless = 0 if rows else fruitless + 1
            lost = missing if fruitless >= 2 or problem is None else missing[:1]
            for case in part.cases:
                if case.cell.nbytes in lost:
                    self._fail(case, problem or "no_row", reason)
            left = [*without(part, {*rows, *lost}), *left] if set(missing) - set(lost) else left

    def _rows(self, batch: Batch, table: Table | None) -> set[int]:
        """Write the rows of a table and return the sizes that had one."""
        if table is None:
            return set()
        cell = batch.case.cell
        sizes = {n for n, _ in batch.sizes}
        if table.ranks != cell.ranks:
            for case in batch.cases:
                self._fail(
                    case, "wrong_ranks", f"{table.ranks} ranks came up where {cell.ranks} were asked for"
                )
            return sizes
        found = {}
        for row in table.rows:
            if row.nbytes in sizes and row.collective == cell.collective:
                found[row.nbytes, row.in_place] = row
        for (nbytes, place), row in sorted(found.items()):
            self._row(
                replace(batch.case, cell=replace(cell, nbytes=nbytes, in_place=place)), row, table, batch
            )
        return {nbytes for nbytes, _ in found}

    def _row(self, case: Case, row: Row, table: Table, batch: Batch) -> None:
        if row.time_s is None:
            self._fail(case, row.reason, row.detail)
            return
        evidence, extra = self._proofs.get(_key(batch), {}).get(row.nbytes, (Evidence(), {}))
        self._cells += 1
        self._writer.write(
            Measurement(
                case, self._number - 1, row.time_s, percentiles_s=row.percentiles_s, iterations=batch.iterations,
                rank_reduction=REDUCTION, sync=table.sync, timer=table.timer, evidence=evidence,
                warnings=row.warnings, extra={**row.extra, **extra},
            ).to_json()
        )  # fmt: skip

    def _fail(self, case: Case, reason: str, detail: str) -> None:
        self._writer.write({"kind": "failed", "launch": self._number - 1, "case": case.to_json(),
                            "reason": reason, "detail": detail})  # fmt: skip

    def _launch_line(self, batch: Batch, table: Table | None, *, purpose: str, status: str) -> None:
        cell = batch.case.cell
        per_node = cell.ranks_per_node or cell.ranks
        self._writer.write({
            "kind": "launch", "launch": self._number, "purpose": purpose, "status": status,
            "repetition": batch.repetition, "variant": None, "ranks": cell.ranks,
            "nodes": table.nodes if table and table.nodes else -(-cell.ranks // per_node),
            "ranks_per_node": per_node, "node_sizes": list(table.node_sizes) if table else [],
            "library": table.library if table else {"name": self._tool.provider, "version": None, "string": ""},
            "thread_level": None, "settings": batch.environment(), "environment": table.environment if table else {},
            "gpu": table.gpu if table else None, "probe": None, "oversubscribed": False, "emulated": False,
        })  # fmt: skip
        self._number += 1

    def _start(self, batch: Batch, *, proof: bool = False) -> tuple[str, str | None, Path | None]:
        """Start one process and wait; return (what it printed, problem or None, its JSON file or None)."""
        log = self._folder / f"log{self._number}-{time.monotonic_ns()}"
        json_file = log.with_suffix(".json") if self._json and not proof else None
        marker = {MARKER: new_marker()}
        words = command(self._tool, batch, marker=marker, proof=proof, json_file=json_file)
        hardware = self._plan.request.hardware
        calls = sum(call_s(c, hardware) for c in batch.cases) * (batch.iterations + 10)
        limit = (
            self._options.timeout_s
            + hardware.start_s
            + 0.5 * batch.case.cell.ranks
            + SLOWER_THAN_ESTIMATED * calls
        )
        job = Job(words, {**os.environ, **marker}, log)
        deadline = time.monotonic() + limit
        try:
            while (status := job.poll()) is None and time.monotonic() < deadline:
                time.sleep(POLL_S)
                self._stop.check()
        finally:
            job.end()
        text = log.read_text(errors="replace")
        if status is None:
            return text, "timeout", json_file
        # The tools end with 1 when a check failed; the rows then say which, and all others are good.
        return text, None if status == 0 else f"exit status {status}", json_file


def _reason(problem: str | None, text: str) -> str:
    lines = [x.strip() for x in text.splitlines() if x.strip() and not x.lstrip().startswith("#")]
    told = next((x for x in reversed(lines) if re.search(r"fail|error|abort", x, re.IGNORECASE)), "")
    return f"{problem or 'the table has no row for it'}{f'; it said: {told[:200]}' if told else ''}"


def _key(batch: Batch) -> tuple[Any, ...]:
    cell = batch.case.cell
    return (cell.collective, cell.ranks, cell.dtype, cell.op, batch.case.label, batch.first, batch.last)


def _bare(case: Case) -> Case:
    return replace(case, cell=replace(case.cell, ranks_per_node=None))


def _state(path: Path) -> tuple[int, set[tuple[int, Case]]]:
    """Return the next launch number and the (repetition, case) that a run file already holds."""
    repetition: dict[int, int] = {}
    done = set()
    for line in parse_lines(path.read_bytes(), path)[0]:
        if line["kind"] == "launch":
            repetition[line["launch"]] = line.get("repetition", 0)
        elif line["kind"] in ("cell", "failed"):
            done.add((repetition.get(line["launch"], 0), _bare(Case.from_json(line["case"]))))
    return max(repetition, default=-1) + 1, done
