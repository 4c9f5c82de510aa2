"""The timed rounds of one cell: block lengths, one block of each case, reduction over ranks."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from collbench.backends.session import Ready, Session, fail
from collbench.mpi import calls, timed
from collbench.samplers import Race, Times, block_length, fixed_blocks

WINDOW_FACTOR, WINDOW_EXTRA_S = 1.5, 5e-6
"""A start window is this many calls long, plus what the spin needs."""
LEAST_VALID = 0.5
LONGEST_WINDOW_S = 1.0


def estimate(session: Session, ready: Sequence[Ready], race: Race) -> None:
    """Set the block length (and window) of each case from a few timed calls; the same on every rank."""
    longest = np.zeros(len(ready))
    for index, entry in enumerate(ready):
        session.beat(entry.case, session.timeout_s)
        session.switch.select(entry.case)
        start, end = timed.block(entry.call, 3)
        longest[index] = float(np.median(end - start)) * 1e-9
    agreed = np.zeros_like(longest)
    session.control.Allreduce(longest, agreed, op=session.MPI.MAX)
    sampling = session.sampling
    for entry, series, call_s in zip(ready, race.series, agreed, strict=True):
        entry.length = block_length(float(call_s), sampling.block_s)
        if sampling.mode == "fixed" and sampling.iterations:
            _, entry.length = fixed_blocks(sampling.iterations, sampling.max_rounds)
            entry.jitter = False
        entry.window_s = WINDOW_FACTOR * float(call_s) + WINDOW_EXTRA_S
        series.block_iterations = entry.length


def agree(session: Session, order: list[int], count: int) -> list[int]:
    """Give every rank the order that rank 0 decided (empty = the cell is finished)."""
    message = np.full(count + 1, -1, dtype=np.int64)
    if session.first:
        message[0] = len(order)
        message[1 : 1 + len(order)] = order
    session.control.Bcast(message, root=0)
    return [int(i) for i in message[1 : 1 + message[0]]]


def play_round(session: Session, ready: Sequence[Ready], race: Race, order: Sequence[int]) -> None:
    """Time one block of each case, reduce over ranks (max) and hand the times to the race on rank 0."""
    # One reduction serves the round: durations, ends, negated starts (on rank 0's clock), missed windows.
    lengths = {i: ready[i].length + _jitter(ready[i], i) for i in order}
    own = np.zeros((4, sum(lengths.values())))
    errors = np.zeros((2, len(ready)), dtype=np.int64)
    details: dict[int, str] = {}
    session.refresh_clock()
    at = 0
    for index in order:
        entry = ready[index]
        part = slice(at, at + lengths[index])
        at += lengths[index]
        session.beat(entry.case, session.timeout_s)
        session.switch.select(entry.case)
        clock = session.clock()
        errors[1, index] = clock.error_ns
        try:
            found = timed.block(
                entry.call, lengths[index], sync=session.sync, window_s=entry.window_s, first=entry.calls,
                offset_ns=clock.offset_ns,
            )  # fmt: skip
        except calls.MpiCallError as error:
            errors[0, index], details[index] = 1, str(error)
        else:
            start_ns, end_ns = found.start_ns - clock.offset_ns, found.end_ns - clock.offset_ns
            own[:, part] = end_ns - start_ns, end_ns, -start_ns, found.late
        entry.calls += lengths[index]
        entry.blocks += 1
    most, failed = _largest(session, own), _largest(session, errors)
    at = 0
    for index in order:
        entry = ready[index]
        block = most[:, at : at + lengths[index]]
        at += lengths[index]
        entry.clock_error_ns = max(entry.clock_error_ns, int(failed[1, index]))
        if failed[0, index]:
            _give_up(
                session, entry, race, index, "mpi_error", details.get(index, "an MPI error on another rank")
            )
        else:
            _keep(session, entry, race, index, block)


def _largest(session: Session, own: Any) -> Any:
    """Return the elementwise maximum over all ranks (collective)."""
    most = np.zeros_like(own)
    session.control.Allreduce(own, most, op=session.MPI.MAX)
    return most


def _jitter(entry: Ready, index: int) -> int:
    """Return 0 … 7 further calls, the same on every rank.

    With blocks of one length an algorithm always meets the same phase of the library's internal buffers: on MPICH
    that alone showed differences of 5 % between identical loops. Short blocks are left alone, they are slow calls.
    """
    return (5 * entry.blocks + 3 * index) % 8 if entry.jitter and entry.length >= 16 else 0


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
            _give_up(session, entry, race, index, "window_missed", missed(entry))


def missed(entry: Ready) -> str:
    """Say how many windows a case missed."""
    return f"{entry.late} of {entry.calls} calls started late"


def _give_up(session: Session, entry: Ready, race: Race, index: int, reason: str, detail: str) -> None:
    entry.failed = True
    race.retire(index)
    race.series[index].blocks.clear()
    fail(session, entry.case, reason, detail)
