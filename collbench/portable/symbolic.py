"""Checking a schedule without running it: matching, deadlock, overwritten data, and the result on every rank.

Data are random 64-bit tokens, one for each rank and piece, combined by addition modulo 2^64: the sum of the right
tokens each once is what must come out. A wrong schedule passes with a probability of about 2^-64 a piece
(Freivalds' argument). Ranks' programs are taken one by one, as the interpreter gets them.
"""

import itertools

import numpy as np
import numpy.typing as npt

from collbench.portable.matching import deadlocked, posts, unmatched
from collbench.portable.schedule import BUFFERS, INPUT, NONE, OUTPUT, Longs, Rows, Schedule, ShapeError

Tokens = npt.NDArray[np.uint64]
_SEED = 20051018


def check(schedule: Schedule) -> list[str]:
    """Return what is wrong with a schedule, in words; an empty list when nothing is.

    Checks that every message has its other half of the same size, that no rank waits for ever when sends complete
    only once they are received, that no message is overwritten or changed while it is under way, and that every
    rank ends with the right contributions, each once.
    """
    try:
        rows = schedule.rows()
    except ShapeError as error:
        return [str(error)]
    if np.any((rows.src < 0) | (rows.src >= schedule.ranks) | (rows.dst < 0) | (rows.dst >= schedule.ranks)):
        return ["a message goes to or comes from a rank that does not exist"]
    sends, receives = posts(schedule, rows)
    problems = unmatched(sends, receives)
    if not problems:
        problems += deadlocked(schedule.ranks, sends, receives)
    problems += overlapping(schedule, rows)
    if not problems:
        problems += wrong_result(schedule, rows)
    return problems


def _pieces(rows: Rows, first: Longs) -> tuple[Longs, Longs]:
    """Return (row, piece) of every piece that the rows touch, in order."""
    row = np.repeat(np.arange(first.size), rows.count)
    inside = np.arange(row.size) - np.repeat(np.cumsum(rows.count) - rows.count, rows.count)
    return row, first[row] + inside


def place(schedule: Schedule, rank: Longs, buffer: Longs, piece: Longs) -> Longs:
    """Return a number for the memory that a piece of a buffer of a rank is in: two that overlie get the same."""
    buffer, piece = buffer.copy(), piece.copy()
    if schedule.in_place:
        aliased = buffer == INPUT
        if schedule.collective == "reduce_scatter":
            out = buffer == OUTPUT
            buffer[out], piece[out] = INPUT, 0
        elif schedule.collective == "reduce":
            buffer[aliased & (rank == schedule.root)] = OUTPUT
        elif schedule.collective in ("allreduce", "allgather", "alltoall"):
            buffer[aliased] = OUTPUT
    return (rank * BUFFERS + buffer) * max(1, schedule.starts.size) + piece


def overlapping(schedule: Schedule, rows: Rows) -> list[str]:
    """Return where a message arrives in memory that another one of the same wait is sent from or arrives in."""
    direct = ~rows.local & (rows.own_buf == NONE)
    row, piece = _pieces(rows, rows.write)
    keep = direct[row] & (schedule.sizes[piece] > 0)
    writes = place(schedule, rows.dst[row], rows.write_buf[row], piece)[keep]
    wtime = rows.time[row][keep]
    row, piece = _pieces(rows, rows.read)
    keep = ~rows.local[row] & (schedule.sizes[piece] > 0)
    reads = place(schedule, rows.src[row], rows.read_buf[row], piece)[keep]
    rtime = rows.time[row][keep]
    waits = schedule.waits()
    block: Longs = np.cumsum(waits) - waits
    span = schedule.ranks * BUFFERS * max(1, schedule.starts.size)
    written = block[wtime] * span + writes
    unique, counts = np.unique(written, return_counts=True)
    problems = []
    if (counts > 1).any():
        problems.append(
            f"two messages arrive in the same memory in round {int(unique[counts > 1][0] // span)}"
        )
    both = np.intersect1d(unique, block[rtime] * span + reads)
    if both.size:
        problems.append(f"a message overwrites data that is being sent in round {int(both[0] // span)}")
    return problems + _slots(rows)


def _slots(rows: Rows) -> list[str]:
    combined = np.flatnonzero(~rows.local & (rows.own_buf != NONE))
    keys = np.column_stack([rows.time[combined], rows.dst[combined], rows.slot[combined]])
    if len(np.unique(keys, axis=0)) == len(keys):
        return []
    return ["two messages that are combined arrive in the same slot of a rank in one round"]


def wrong_result(schedule: Schedule, rows: Rows) -> list[str]:
    """Return the first rank and piece with wrong contributions after all rounds."""
    if schedule.collective == "barrier":
        return _unheard(schedule, rows)
    given, memory = _start(schedule)
    _execute(schedule, rows, memory)
    rank, buffer, piece, value = _expected(schedule, given)
    found = memory[place(schedule, rank, buffer, piece)]
    wrong = np.flatnonzero((found != value) & (schedule.sizes[piece] > 0))
    if not wrong.size:
        return []
    at = wrong[0]
    return [
        f"rank {rank[at]} ends with wrong contributions in piece {piece[at]} ({wrong.size} pieces in all)"
    ]


def _start(schedule: Schedule) -> tuple[Tokens, Tokens]:
    """Return the tokens that rank r puts in for piece i, and memory with garbage everywhere else."""
    rng = np.random.default_rng(_SEED)
    p, n = schedule.ranks, schedule.starts.size
    given = rng.integers(0, 2**64, (p, n), dtype=np.uint64)
    memory = rng.integers(0, 2**64, p * BUFFERS * n, dtype=np.uint64)
    rank, piece = (a.ravel() for a in np.indices((p, n)))
    if schedule.collective == "allgather":
        mine = rank == piece
        rank, piece = rank[mine], piece[mine]
    if schedule.collective == "bcast":
        mine = rank == schedule.root
        rank, piece = rank[mine], piece[mine]
    where = place(schedule, rank, np.full(rank.size, INPUT), piece)
    memory[where] = given[rank, piece]
    return given, memory


def _execute(schedule: Schedule, rows: Rows, memory: Tokens) -> None:
    """Do all rounds: messages are read, stored or combined in order of slots, then local copies are made."""
    row, piece = _pieces(rows, rows.read)
    source = place(schedule, rows.src[row], rows.read_buf[row], piece)
    _, piece = _pieces(rows, rows.write)
    target = place(schedule, rows.dst[row], rows.write_buf[row], piece)
    own = place(schedule, rows.dst[row], np.maximum(rows.own_buf[row], 0), piece)
    combine, local, slot = rows.own_buf[row] != NONE, rows.local[row], rows.slot[row]
    bounds = np.searchsorted(rows.time[row], np.arange(schedule.rounds + 1))
    slots = range(int(rows.slot.max(initial=0)) + 1)
    any_local, any_combined, any_stored = local.any(), combine.any(), (~combine & ~local).any()
    for begin, end in itertools.pairwise(bounds):
        part = slice(begin, end)
        s, t, o = source[part], target[part], own[part]
        c, here = combine[part], local[part]
        value = memory[s]
        if any_stored:
            plain = ~c & ~here
            memory[t[plain]] = value[plain]
        if any_combined:
            for number in slots:
                i = c if len(slots) == 1 else c & (slot[part] == number)
                memory[t[i]] = memory[o[i]] + value[i]
        if any_local and here.any():
            memory[t[here]] = memory[s[here]]


def _expected(schedule: Schedule, given: Tokens) -> tuple[Longs, Longs, Longs, Tokens]:
    """Return (rank, buffer, piece, token) of everything that the collective promises."""
    p, n = given.shape
    rank, piece = (a.ravel() for a in np.indices((p, n)))
    buffer = np.full(rank.size, OUTPUT)
    total = given.sum(axis=0, dtype=np.uint64)
    name = schedule.collective
    keep = np.ones(rank.size, bool)
    if name == "allreduce":
        value = total[piece]
    elif name == "reduce":
        value, keep = total[piece], rank == schedule.root
    elif name == "reduce_scatter":
        value, keep = total[piece], rank == piece
    elif name == "bcast":
        value, buffer = given[schedule.root, piece], np.full(rank.size, INPUT)
    elif name == "allgather":
        value = given[piece, piece]
    elif name == "alltoall":
        value = given[piece, rank]
    else:
        value, keep = _pair_values(schedule, given)[rank], piece == 0
        keep &= np.isin(rank, _receivers(schedule))
    return rank[keep], buffer[keep], piece[keep], value[keep]


def _receivers(schedule: Schedule) -> Longs:
    rows = schedule.rows()
    return np.unique(rows.dst[(rows.write_buf == OUTPUT)])


def _pair_values(schedule: Schedule, given: Tokens) -> Tokens:
    """Return, for each rank, the token of the rank that sends to its OUTPUT."""
    rows = schedule.rows()
    value = np.zeros(schedule.ranks, np.uint64)
    out = rows.write_buf == OUTPUT
    value[rows.dst[out]] = given[rows.src[out], 0]
    return value


def _unheard(schedule: Schedule, rows: Rows) -> list[str]:
    """Barrier: every rank must have heard, directly or not, of every rank's coming."""
    heard = np.eye(schedule.ranks, dtype=bool)
    for time in range(schedule.rounds):
        now = rows.time == time
        news = heard.copy()
        news[rows.dst[now]] |= heard[rows.src[now]]
        heard = news
    silent = np.argwhere(~heard)
    return [f"rank {silent[0][0]} can leave before rank {silent[0][1]} has come"] if silent.size else []
