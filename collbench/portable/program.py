"""One rank's part of a schedule as a flat list of operations for the interpreter."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collbench.portable.schedule import (
    BUFFERS,
    INPUT,
    NONE,
    OUTPUT,
    PACK,
    UNPACK,
    WORK,
    Longs,
    Rows,
    Schedule,
)

RECEIVE, SEND, WAIT, COMBINE, COPY = range(5)
"""Operation codes, the same as in ``_schedule.c``."""
FIELDS = 6
"""code, peer, target, left, right, bytes; target, left and right are addresses."""
ALIGN = 4096


@dataclass(frozen=True)
class Layout:
    """Where a rank's buffers are.

    Attributes:
        base: shape (5,), address of each buffer's byte 0 as the schedule counts them.
        slots: address of the first slot for messages that are combined.
        slot_bytes: distance of the slots.
    """

    base: Longs
    slots: int
    slot_bytes: int


@dataclass(frozen=True, slots=True)
class Needs:
    """Scratch memory that one rank's part needs.

    Attributes:
        work: shape (5,), bytes of each buffer (0 for the caller's two).
        slots: how many slots.
        slot_bytes: bytes of one, a multiple of ALIGN.
    """

    work: Longs
    slots: int
    slot_bytes: int


def needs(schedule: Schedule, rows: Rows, rank: int) -> Needs:
    """Return the scratch memory for a rank's rows."""
    work = np.zeros(BUFFERS, np.int64)
    for buffer in (WORK, PACK, UNPACK):
        for who, buf, first in (
            (rows.src, rows.read_buf, rows.read),
            (rows.dst, rows.write_buf, rows.write),
            (rows.dst, rows.own_buf, rows.write),
        ):
            used = (who == rank) & (buf == buffer)
            ends = schedule.starts[first[used]] + rows.nbytes[used] if used.any() else np.zeros(1, np.int64)
            work[buffer] = max(int(work[buffer]), int(ends.max()))
    combined = (rows.dst == rank) & (rows.own_buf != NONE)
    largest = int(rows.nbytes[combined].max(initial=0))
    slots = int(rows.slot[combined].max(initial=-1)) + 1
    return Needs(work, slots, -(-largest // ALIGN) * ALIGN)


def layout(schedule: Schedule, rank: int, need: Needs, send: int, recv: int, scratch: int) -> Layout:
    """Return where everything is, given the addresses of the caller's buffers and of the scratch memory."""
    base = np.zeros(BUFFERS, np.int64)
    in_place = schedule.in_place and (schedule.collective != "reduce" or rank == schedule.root)
    base[INPUT], base[OUTPUT] = (recv if in_place else send), recv
    for buffer in schedule.own_block:
        if not (in_place and buffer == INPUT):
            base[buffer] -= schedule.starts[rank]
    at = scratch
    for buffer in (WORK, PACK, UNPACK):
        base[buffer] = at
        at += -(-int(need.work[buffer]) // ALIGN) * ALIGN
    return Layout(base, at, need.slot_bytes)


def scratch_bytes(need: Needs) -> int:
    """Return the size of the scratch memory that ``layout`` divides."""
    return int(sum(-(-int(w) // ALIGN) * ALIGN for w in need.work)) + need.slots * need.slot_bytes


def program(schedule: Schedule, rows: Rows, rank: int, where: Layout) -> npt.NDArray[np.int64]:
    """Return shape (operations, 6): per round receives, sends, a wait, combinations, then copies."""
    local = rows.local
    read = where.base[rows.read_buf] + schedule.starts[rows.read] if rows.read.size else rows.read
    write = where.base[rows.write_buf] + schedule.starts[rows.write] if rows.read.size else rows.read
    own = (
        where.base[np.maximum(rows.own_buf, 0)] + schedule.starts[rows.write] if rows.read.size else rows.read
    )
    combine = rows.own_buf != NONE
    slot = where.slots + rows.slot * where.slot_bytes
    size, zero = rows.nbytes, np.zeros(rows.src.size, np.int64)
    into = (rows.dst == rank) & ~local
    out = (rows.src == rank) & ~local
    copies = local & (rows.src == rank) & (read != write)
    flags = schedule.waits()
    waits = np.unique(rows.time[(into | out)])
    waits = np.union1d(waits[flags[waits]] if waits.size else waits, _bare_waits(schedule, flags))
    blank = np.zeros(waits.size, np.int64)
    parts = [
        _ops(RECEIVE, rows.time, rows.src, np.where(combine, slot, write), zero, zero, size, into),
        _ops(SEND, rows.time, rows.dst, zero, read, zero, size, out),
        _ops(WAIT, waits, blank, blank, blank, blank, blank, np.ones(waits.size, bool)),
        _ops(COMBINE, rows.time, zero, write, own, slot, size, into & combine),
        _ops(COPY, rows.time, zero, write, read, zero, size, copies),
    ]
    table = np.concatenate(parts)
    return np.ascontiguousarray(table[np.argsort(table[:, 0], kind="stable")][:, 1:])


def _ops(code: int, time: Longs, *columns: npt.NDArray[np.generic]) -> npt.NDArray[np.int64]:
    """Return (time, code, peer, target, left, right, bytes) of the chosen rows (last column)."""
    *fields, chosen = columns
    table: npt.NDArray[np.int64] = np.column_stack([time, np.full(time.size, code), *fields]).astype(np.int64)
    kept: npt.NDArray[np.int64] = table[chosen.astype(bool)]
    return kept


def _bare_waits(schedule: Schedule, flags: npt.NDArray[np.bool_]) -> Longs:
    """Return the rounds without messages that wait for what rounds before them posted."""
    found, first = [], 0
    for phase in schedule.phases:
        for index, round_ in enumerate(phase.rounds):
            if round_.wait and not round_.messages and not round_.local:
                found.append(first + index)
        first += len(phase.rounds) * phase.repeat
    return np.array([f for f in found if flags[f]], np.int64)
