"""Measuring one cell over MPI: all its cases interleaved in blocks, validated and proven outside the timing."""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from collbench.backends import preparing
from collbench.backends.rounds import agree, estimate, missed, play_round
from collbench.backends.session import Line, Ready, Session, fail
from collbench.collectives import COLLECTIVES
from collbench.errors import CollbenchError
from collbench.mpi import calls, proof, switch, timed
from collbench.plan import proof_key
from collbench.profile import Sampling
from collbench.records import Case, Evidence, Measurement
from collbench.samplers import Race, Series, doubts, fixed_blocks, percentiles

CLOCK_ERROR_SHARE = 0.1
"""Share of a call's time from which the error of the clocks between nodes is a doubt."""


def measure_group(session: Session, cases: Sequence[Case], share_s: float) -> None:
    """Measure the cases of one cell within about ``share_s`` seconds and emit one line for each.

    A case that cannot be forced, returns an MPI error or a wrong result ends as a ``failed`` line.
    """
    started = time.monotonic()
    session.refresh_clock()
    ready = [r for r in (_prepare(session, case) for case in cases) if r is not None]
    if not ready:
        return
    race = _race(session.sampling, ready)
    estimate(session, ready, race)
    while True:
        order = agree(session, race.order() if session.first else [], len(ready))
        if not order:
            break
        play_round(session, ready, race, order)
        late = time.monotonic() - started > share_s
        if session.first and race.end_round(out_of_time=late):
            for series in race.series:
                series.alive = False
    # Since the last cell's look: nothing but this cell was done in between.
    throttled = session.throttling.events() if session.throttling else 0
    if session.first:
        for entry, series in zip(ready, race.series, strict=True):
            if series.blocks:
                session.emit(_row(session, entry, series, race, throttled))
            elif not entry.failed:
                fail(session, entry.case, "window_missed", missed(entry))


def _prepare(session: Session, case: Case) -> Ready | None:
    """Force, validate and prove one case; None (and a failed line) when it cannot be measured."""
    session.beat(case, session.timeout_s)
    try:
        call, prepared = preparing.call(session, case)
        wrong = preparing.validate(session, case, call, prepared)
        if wrong is None:
            evidence = _evidence(session, case)
            timed.block(call, max(session.sampling.warmup, len(call.argument_sets)))
            return Ready(case, call, evidence, messages=prepared[0].messages if prepared else 1)
        fail(session, case, "wrong_result", wrong)
    except calls.MpiCallError as error:
        fail(session, case, "mpi_error", str(error))
    except switch.SwitchError as error:
        fail(session, case, "cannot_be_forced", str(error))
    except CollbenchError as error:
        fail(session, case, "not_possible", str(error))
    return None


def _evidence(session: Session, case: Case) -> Evidence:
    """Return what is known of the algorithm that runs; proven once a size class, outside the timing."""
    if case.provider == "portable":
        return Evidence("proven", by="own_code", effective=case.algorithm)
    key = proof_key(case)
    if key not in session.evidence:
        comm = session.switch.select(case)
        found = proof.prove(session.MPI, comm, case, session.library, monitoring=False)
        session.evidence[key] = _served(session, case, found)
        session.switch.select(case)
    return session.evidence[key]


def _served(session: Session, case: Case, found: Evidence) -> Evidence:
    """Return the evidence with the component that serves the case."""
    several = session.several_clocks
    return proof.served(case, found, session.switch.selected(case), several_nodes=several)


def prove_case(session: Session, case: Case, *, monitoring: bool) -> None:
    """Prove one case in a proof launch and emit a ``proof`` line (failures become evidence "unknown")."""
    session.beat(case, session.timeout_s)
    try:
        comm = session.switch.select(case)
        found = proof.prove(session.MPI, comm, case, session.library, monitoring=monitoring)
        found = _served(session, case, found)
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
    rounds = sampling.max_rounds
    if fixed and sampling.iterations:
        rounds, _ = fixed_blocks(sampling.iterations, rounds)
    return Race(
        len(ready),
        min_rounds=sampling.min_rounds,
        max_rounds=rounds,
        precision=sampling.precision,
        # The default is what gains are judged by; the modes of sendrecv measure different things and do not compete.
        protected=frozenset(
            i
            for i, r in enumerate(ready)
            if r.case.algorithm == "default" or r.case.cell.collective == "sendrecv"
        ),
        race=not fixed,
    )


def _row(session: Session, entry: Ready, series: Series, race: Race, throttled: int) -> Line:
    times = np.concatenate(series.times)
    time_s = float(np.median(times))
    extra: dict[str, Any] = {"stopped_by": race.stopped_by, "rounds": len(series.blocks)}
    extra.update(_of_the_method(session, entry, series))
    warnings = [*session.warnings, *doubts(series, session.step_s), *_clock_doubts(session, entry, time_s)]
    warnings += throttled_doubt(throttled)
    return Measurement(
        case=entry.case,
        launch=session.launch,
        time_s=time_s,
        blocks_s=tuple(round(b, 12) for b in series.blocks),
        percentiles_s={k: round(v, 12) for k, v in percentiles(times).items()},
        iterations=len(times),
        sync=session.sync,
        timer=timed.timer_name(),
        evidence=entry.evidence,
        warnings=tuple(warnings),
        extra=extra,
    ).to_json()


def _of_the_method(session: Session, entry: Ready, series: Series) -> dict[str, Any]:
    """Return what a row says beside its time about how that was measured."""
    found: dict[str, Any] = {}
    if COLLECTIVES[entry.case.cell.collective].rooted and _one_clock(session):
        # The root leaves early: first start to last end, on one clock or on clocks with known offsets.
        found["span_s"] = round(float(np.median(series.spans)), 12)
    if entry.call.rotation:
        found["rotation"] = entry.call.rotation
    if entry.messages != 1:
        found["messages"] = entry.messages
    if session.sync == "window":
        found["late_share"] = entry.late / max(1, entry.calls)
        found["clock_error_s"] = entry.clock_error_ns * 1e-9
    if timed.timer_name() != "c":
        found["overhead_s"] = timed.overhead_s(session.MPI)
    return found


def throttled_doubt(events: int) -> list[Line]:
    """Return the warning that cores were throttled ``events`` times while the cell was measured; none for 0."""
    return [{"kind": "throttled", "events": events}] if events else []


def _one_clock(session: Session) -> bool:
    return session.sync == "window" or not session.several_clocks


def _clock_doubts(session: Session, entry: Ready, time_s: float) -> list[Line]:
    """Return what the clocks of several nodes spoil."""
    if COLLECTIVES[entry.case.cell.collective].rooted and not _one_clock(session):
        # Ranks leave the barrier at different times; without a common clock the maximum holds some of that.
        return [{"kind": "upper_bound"}]
    error_s = entry.clock_error_ns * 1e-9
    if error_s > CLOCK_ERROR_SHARE * time_s:
        return [{"kind": "clock_error", "error_s": error_s, "share": error_s / time_s}]
    return []
