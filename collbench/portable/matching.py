"""Do the sends and receives of all ranks meet, and does nobody wait for ever?"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collbench.portable.schedule import Longs, Rows, Schedule


@dataclass(frozen=True, slots=True)
class Posts:
    """What the ranks post: one entry a send or receive. All arrays have shape (posts,).

    Attributes:
        rank: who posts.
        peer: the other side.
        block: number of the wait that ends it, counted per rank.
        nbytes: size.
        row: row of the schedule it comes from.
    """

    rank: Longs
    peer: Longs
    block: Longs
    nbytes: Longs
    row: Longs


def posts(schedule: Schedule, rows: Rows) -> tuple[Posts, Posts]:
    """Return all sends and all receives in the order in which each rank posts them."""
    index = np.flatnonzero(~rows.local)
    # The round whose wait ends what is posted in this round.
    waits = schedule.waits()
    ends = np.flatnonzero(waits)
    until = np.append(ends, waits.size)[np.searchsorted(ends, np.arange(waits.size))]
    end = until[rows.time[index]] if index.size else index
    src, dst, size = rows.src[index], rows.dst[index], rows.nbytes[index]
    return Posts(src, dst, end, size, index), Posts(dst, src, end, size, index)


def unmatched(sends: Posts, receives: Posts) -> list[str]:
    """Return the channels on which the n-th send is not the n-th receive of the same size."""

    def ordered(rank: Longs, peer: Longs, p: Posts) -> npt.NDArray[np.int64]:
        order = np.lexsort((np.arange(rank.size), peer, rank))
        return np.column_stack([rank[order], peer[order], p.nbytes[order]])

    out = ordered(sends.rank, sends.peer, sends)
    into = ordered(receives.peer, receives.rank, receives)
    if out.shape == into.shape and np.array_equal(out, into):
        return []
    ours, theirs = _counted(out), _counted(into)
    different = sorted(set(ours.items()) ^ set(theirs.items()))
    first = different[0][0] if different else tuple(out[0][:2])
    return [
        f"messages from rank {first[0]} to rank {first[1]} are not matched by as many receives of that size"
    ]


def _counted(table: npt.NDArray[np.int64]) -> dict[tuple[int, int], tuple[int, ...]]:
    found: dict[tuple[int, int], list[int]] = {}
    for source, target, size in table.tolist():
        found.setdefault((source, target), []).append(size)
    return {k: tuple(v) for k, v in found.items()}


def deadlocked(ranks: int, sends: Posts, receives: Posts) -> list[str]:
    """Return which ranks wait for ever if a send completes only when its receive is posted (rendezvous).

    Args:
        ranks: number of ranks.
        sends: matched with ``receives`` channel by channel, in order.
        receives: see ``sends``.
    """
    if not sends.rank.size:
        return []
    a = np.lexsort((np.arange(sends.rank.size), sends.peer, sends.rank))
    b = np.lexsort((np.arange(sends.rank.size), receives.rank, receives.peer))
    left, right = sends.rank[a], receives.rank[b]
    # Waits are numbered per rank, from 0, in the order in which the rank comes to them.
    ends = _waits_of(ranks, np.append(left, right), np.append(sends.block[a], receives.block[b]))
    mine, other = ends[: left.size], ends[left.size :]
    total = np.zeros(ranks, np.int64)
    np.maximum.at(total, left, mine + 1)
    np.maximum.at(total, right, other + 1)
    at = np.zeros(ranks, np.int64)
    open_ = np.ones(left.size, bool)
    while open_.any():
        # A message is done when both sides have come to its wait; a rank moves on when all of its messages are.
        done = open_ & (at[left] >= mine) & (at[right] >= other)
        open_ &= ~done
        held = np.full(ranks, np.iinfo(np.int64).max)
        np.minimum.at(held, left[open_], mine[open_])
        np.minimum.at(held, right[open_], other[open_])
        moved = np.minimum(np.maximum(at, held), total)
        if not done.any() and np.array_equal(moved, at):
            stuck = np.flatnonzero(at < total)
            return [f"rank {stuck[0]} and {stuck.size - 1} others wait for ever"]
        at = moved
    return []


def _waits_of(ranks: int, rank: Longs, end: Longs) -> Longs:
    """Number each rank's different wait rounds 0, 1, … ."""
    span = int(end.max()) + 1
    keys, inverse = np.unique(rank * span + end, return_inverse=True)
    owner = keys // span
    start = np.searchsorted(owner, np.arange(ranks))
    numbers: Longs = (np.arange(keys.size) - start[owner])[inverse.ravel()]
    return numbers
