"""Measuring one cell over MPI: all its cases interleaved in blocks, validated and proven outside the timing."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from collbench.collectives import COLLECTIVES
from collbench.errors import CollbenchError
from collbench.mpi import calls, check, proof, switch, timed
from collbench.mpi.library import Library
from collbench.plan import proof_key
from collbench.portable import run as portable
from collbench.profile import Sampling
from collbench.records import Case, Evidence, Measurement
from collbench.samplers import Race, Series, Times, block_length, doubts, percentiles

Line = Mapping[str, Any]

WINDOW_FACTOR, WINDOW_EXTRA_S = 1.5, 5e-6
"""A start window is this many calls long, plus what the spin needs."""
LEAST_VALID = 0.5
LONGEST_WINDOW_S = 1.0


@dataclass
class Session:
    """What one launch works with; the same on every rank.

    Attributes:
        MPI: the module mpi4py.MPI.
        control: communicator for collbench's own agreement, never timed.
        library: the live library.
        switch: forces algorithms.
        sampling: how cells are sampled.
        launch: launch number, for the lines.
        node_of: node index of each rank (real or virtual).
        evidence: proof key → evidence found by the proof launch.
        emit: appends a line to the run file; does nothing on other ranks than 0.
        beat: tells the driver what is in flight: (case or None, timeout in seconds).
        sync: barrier or window.
        step_s: step of the clock; None = unknown.
        timeout_s: least time before a silent case counts as hung.
        warnings: doubts that hold for every row of this launch.
    """

    MPI: Any
    control: Any
    library: Library
    switch: switch.Switch
    sampling: Sampling
    launch: int
    node_of: Sequence[int]
    emit: Callable[[Line], None]
    beat: Callable[[Case | None, float], None]
    sync: str = "barrier"
    step_s: float | None = None
    timeout_s: float = 60.0
    evidence: dict[str, Evidence] = field(default_factory=dict)
    warnings: tuple[Line, ...] = ()

    @property
    def first(self) -> bool:
        """Say whether this is rank 0, the only one that reads the plan and writes the run file."""
        return bool(self.control.Get_rank() == 0)


@dataclass
class Ready:
    """A case that passed its checks and can be timed.

    Attributes:
        case: what was asked for.
        call: prepared buffers and arguments.
        evidence: which algorithm runs.
        length: calls in one block.
        window_s: distance of the start windows (sync "window" only).
        calls: timed calls so far, so that rotation goes on from block to block.
        late: of them, how many missed their window and were left out.
        messages: messages one after the other that one call stands for (sendrecv modes; otherwise 1).
    """

    case: Case
    call: calls.Call
    evidence: Evidence
    length: int = 3
    window_s: float = 0.0
    calls: int = 0
    late: int = 0
    messages: int = 1


def measure_group(session: Session, cases: Sequence[Case], share_s: float) -> None:
    """Measure the cases of one cell within about ``share_s`` seconds and emit one line for each.

    A case that cannot be forced, returns an MPI error or a wrong result ends as a ``failed`` line.
    """
    started = time.monotonic()
    ready = [r for r in (_prepare(session, case) for case in cases) if r is not None]
    if not ready:
        return
    race = _race(session.sampling, ready)
    _estimate(session, ready, race)
    while True:
        order = _agree(session, race.order() if session.first else [], len(ready))
        if not order:
            break
        _round(session, ready, race, order)
        late = time.monotonic() - started > share_s
        if session.first and race.end_round(out_of_time=late):
            for series in race.series:
                series.alive = False
    if session.first:
        for entry, series in zip(ready, race.series, strict=True):
            if series.blocks:
                session.emit(_row(session, entry, series, race))


def _prepare(session: Session, case: Case) -> Ready | None:
    """Force, validate and prove one case; None (and a failed line) when it cannot be measured."""
    session.beat(case, session.timeout_s)
    try:
        call, prepared = _call(session, case)
        if prepared is not None and case.cell.collective == "sendrecv":
            wrong = _validate_pair(session, call, prepared)
        else:
            wrong = check.validate(session.MPI, session.control, call, case)
        if wrong is None:
            evidence = _evidence(session, case)
            timed.block(call, session.sampling.warmup, sync="barrier")
            return Ready(case, call, evidence, messages=prepared.messages if prepared else 1)
        _fail(session, case, "wrong_result", wrong)
    except calls.MpiCallError as error:
        _fail(session, case, "mpi_error", str(error))
    except switch.SwitchError as error:
        _fail(session, case, "cannot_be_forced", str(error))
    except CollbenchError as error:
        _fail(session, case, "not_possible", str(error))
    return None


def _call(session: Session, case: Case) -> tuple[calls.Call, portable.Prepared | None]:
    comm = session.switch.select(case)
    if case.provider != "portable":
        return calls.prepare(session.MPI, comm, case), None
    prepared = portable.prepare(session.MPI, comm, case, node_of=session.node_of)
    call = calls.Call.from_pointer(
        prepared.function_address, prepared.state_address, prepared, sync_comm=comm, buffers=prepared.buffers
    )
    return call, prepared


def _validate_pair(session: Session, call: calls.Call, prepared: portable.Prepared) -> str | None:
    """Check a point-to-point mode: the receiving rank must hold its partner's bytes (agreed over all ranks)."""
    rank = session.control.Get_rank()
    pattern = np.arange(prepared.send.size) % 97
    prepared.send[:] = (pattern + rank).astype(prepared.send.dtype)
    prepared.recv.fill(0)
    timed.block(call, 1, sync="barrier")
    wrong = np.zeros(1, dtype=np.int64)
    if prepared.source is not None:
        expected = (pattern + prepared.source).astype(prepared.recv.dtype)
        wrong[0] = int((prepared.recv[: expected.size] != expected).sum())
    total = np.zeros_like(wrong)
    session.control.Allreduce(wrong, total, op=session.MPI.MAX)
    return f"expected the partner's data but found {total[0]} other elements" if total[0] else None


def _fail(session: Session, case: Case, reason: str, detail: str) -> None:
    session.emit(
        {
            "kind": "failed",
            "launch": session.launch,
            "case": case.to_json(),
            "reason": reason,
            "detail": detail,
        }
    )


def _evidence(session: Session, case: Case) -> Evidence:
    """Return what is known of the algorithm that runs; proven once a size class, outside the timing."""
    if case.provider == "portable":
        return Evidence("proven", by="own_code", effective=case.algorithm)
    key = proof_key(case)
    if key not in session.evidence:
        comm = session.switch.select(case)
        session.evidence[key] = proof.prove(session.MPI, comm, case, session.library, monitoring=False)
        session.switch.select(case)
    return session.evidence[key]


def prove_case(session: Session, case: Case, *, monitoring: bool) -> None:
    """Prove one case in a proof launch and emit a ``proof`` line (failures become evidence "unknown")."""
    session.beat(case, session.timeout_s)
    try:
        comm = session.switch.select(case)
        found = proof.prove(session.MPI, comm, case, session.library, monitoring=monitoring)
    except CollbenchError as error:
        found = Evidence("unknown", detail=str(error))
    session.emit(
        {
            "kind": "proof",
            "launch": session.launch,
            "case": case.to_json(),
            "key": proof_key(case),
            "effective": found.effective,
            "evidence": found.to_json(),
        }
    )


def _race(sampling: Sampling, ready: Sequence[Ready]) -> Race:
    fixed = sampling.mode == "fixed"
    return Race(
        len(ready),
        min_rounds=sampling.min_rounds,
        max_rounds=sampling.max_rounds,
        precision=sampling.precision,
        # The default is what gains are judged by; the modes of sendrecv measure different things and do not compete.
        protected=frozenset(
            i
            for i, r in enumerate(ready)
            if r.case.algorithm == "default" or r.case.cell.collective == "sendrecv"
        ),
        race=not fixed,
    )


def _estimate(session: Session, ready: Sequence[Ready], race: Race) -> None:
    """Set the block length (and window) of each case from a few timed calls; the same on every rank."""
    longest = np.zeros(len(ready))
    for index, entry in enumerate(ready):
        session.beat(entry.case, session.timeout_s)
        session.switch.select(entry.case)
        start, end = timed.block(entry.call, 3, sync="barrier")
        longest[index] = float(np.median(end - start)) * 1e-9
    agreed = np.zeros_like(longest)
    session.control.Allreduce(longest, agreed, op=session.MPI.MAX)
    sampling = session.sampling
    for entry, series, call_s in zip(ready, race.series, agreed, strict=True):
        entry.length = block_length(float(call_s), sampling.block_s)
        if sampling.mode == "fixed" and sampling.iterations:
            entry.length = math.ceil(sampling.iterations / sampling.max_rounds)
        entry.window_s = WINDOW_FACTOR * float(call_s) + WINDOW_EXTRA_S
        series.block_iterations = entry.length


def _agree(session: Session, order: list[int], count: int) -> list[int]:
    """Give every rank the order that rank 0 decided (empty = the cell is finished)."""
    message = np.full(count + 1, -1, dtype=np.int64)
    if session.first:
        message[0] = len(order)
        message[1 : 1 + len(order)] = order
    session.control.Bcast(message, root=0)
    return [int(i) for i in message[1 : 1 + message[0]]]


def _round(session: Session, ready: Sequence[Ready], race: Race, order: Sequence[int]) -> None:
    """Time one block of each case, reduce over ranks (max) and hand the times to the race on rank 0."""
    # One reduction serves the round: durations, ends, negated starts (for the global span), missed windows.
    own = np.zeros((4, sum(ready[i].length for i in order)))
    errors = np.zeros(len(ready), dtype=np.int64)
    details: dict[int, str] = {}
    at = 0
    for index in order:
        entry = ready[index]
        part = slice(at, at + entry.length)
        at += entry.length
        session.beat(entry.case, session.timeout_s)
        session.switch.select(entry.case)
        try:
            found = timed.block(
                entry.call, entry.length, sync=session.sync, window_s=entry.window_s, first=entry.calls
            )
        except calls.MpiCallError as error:
            errors[index], details[index] = 1, str(error)
        else:
            own[:, part] = found.end_ns - found.start_ns, found.end_ns, -found.start_ns, found.late
        entry.calls += entry.length
    most = np.zeros_like(own)
    session.control.Allreduce(own, most, op=session.MPI.MAX)
    failed = np.zeros_like(errors)
    session.control.Allreduce(errors, failed, op=session.MPI.MAX)
    at = 0
    for index in order:
        entry = ready[index]
        block = most[:, at : at + entry.length]
        at += entry.length
        if failed[index]:
            race.retire(index)
            race.series[index].blocks.clear()
            _fail(session, entry.case, "mpi_error", details.get(index, "an MPI error on another rank"))
        else:
            _keep(session, entry, race, index, block)


def _keep(session: Session, entry: Ready, race: Race, index: int, block: Times) -> None:
    """Add the valid iterations of a block; widen the window where too many ranks came late."""
    valid = block[3] == 0
    entry.late += int((~valid).sum())
    if valid.any():
        race.series[index].add(block[0, valid] * (1e-9 / entry.messages))
        race.series[index].spans.append(float(np.median(block[1, valid] + block[2, valid])) * 1e-9)
    if valid.mean() < LEAST_VALID:
        entry.window_s *= 2
        if entry.window_s > LONGEST_WINDOW_S:
            race.retire(index)
            race.series[index].blocks.clear()
            _fail(session, entry.case, "window_missed", f"{entry.late} of {entry.calls} calls started late")


def _row(session: Session, entry: Ready, series: Series, race: Race) -> Line:
    times = np.concatenate(series.times)
    extra: dict[str, Any] = {"stopped_by": race.stopped_by, "rounds": len(series.blocks)}
    if COLLECTIVES[entry.case.cell.collective].rooted and len(set(session.node_of)) == 1:
        # The root leaves early: first start to last end, on the node's one clock.
        extra["span_s"] = round(float(np.median(series.spans)), 12)
    if entry.messages != 1:
        extra["messages"] = entry.messages
    if session.sync == "window":
        extra["late_share"] = entry.late / max(1, entry.calls)
    warnings = [*session.warnings, *doubts(series, session.step_s)]
    if (
        COLLECTIVES[entry.case.cell.collective].rooted
        and len(set(session.node_of)) > 1
        and session.sync == "barrier"
    ):
        # Ranks leave the barrier at different times; without a common clock the maximum holds some of that.
        warnings.append({"kind": "upper_bound"})
    overhead = timed.overhead_s(session.MPI) if timed.timer_name() != "c" else None
    if overhead is not None:
        extra["overhead_s"] = overhead
    return Measurement(
        case=entry.case,
        launch=session.launch,
        time_s=float(np.median(times)),
        blocks_s=tuple(round(b, 12) for b in series.blocks),
        percentiles_s={k: round(v, 12) for k, v in percentiles(times).items()},
        iterations=len(times),
        sync=session.sync,
        timer=timed.timer_name(),
        evidence=entry.evidence,
        warnings=tuple(warnings),
        extra=extra,
    ).to_json()
