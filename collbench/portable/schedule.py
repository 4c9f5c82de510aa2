"""What a portable algorithm does, as numpy arrays by rounds: one description to run, count, check and cost.

A schedule is a sequence of phases; a phase repeats its rounds; a round holds transfers, vectorised over ranks.
Data are addressed in pieces: a piece is a run of whole elements, and a message covers ``count`` pieces that lie
one after the other in memory. In repetition k a transfer's ranks and pieces have moved on by k steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from collbench.errors import UsageError

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]

INPUT, OUTPUT, WORK, PACK, UNPACK = range(5)
"""Buffers: the caller's two, and three of the schedule's own. A broadcast works in INPUT on every rank."""
BUFFERS = 5
NONE = -1
EVERY_RANK = -1
"""As ``src`` and ``dst`` of a local copy: every rank does it."""


class ShapeError(UsageError):
    """The algorithm does not exist for this number of ranks, these nodes or these parameters."""


@dataclass(frozen=True, slots=True)
class Transfers:
    """Messages (or local copies, where src = dst) of one round. All arrays have shape (messages,).

    Attributes:
        src: sending rank in repetition 0.
        dst: receiving rank in repetition 0.
        read: first piece read on ``src``, relative to ``base``.
        write: first piece written on ``dst``, relative to ``base``.
        count: pieces.
        base: added to the moved piece numbers.
        read_buf: buffer read on ``src``.
        write_buf: buffer written on ``dst``.
        own_buf: NONE = the message is stored; else written = this buffer's pieces combined with the message.
        slot: where a message that is combined arrives; different for all such messages of a rank and round.
        src_step: ranks that ``src`` moves in each repetition (0, 1 or −1, modulo all ranks).
        dst_step: the same for ``dst``.
        read_step: pieces that ``read`` moves in each repetition.
        write_step: the same for ``write``.
        wrap: piece numbers before ``base`` live in 0 … wrap − 1; 0 = they do not move.
        clip: outside 0 … wrap − 1 there is no message (pipelines); otherwise they go round modulo ``wrap``.
    """

    src: Ints
    dst: Ints
    read: Ints
    write: Ints
    count: Ints
    base: Ints
    read_buf: Ints
    write_buf: Ints
    own_buf: Ints
    slot: Ints
    src_step: int = 0
    dst_step: int = 0
    read_step: int = 0
    write_step: int = 0
    wrap: int = 0
    clip: bool = False

    @property
    def nbytes(self) -> int:
        """Memory of the description itself."""
        return 10 * int(self.src.nbytes)


def transfers(
    src: Any,
    dst: Any,
    read: Any,
    write: Any = None,
    count: Any = 1,
    *,
    read_buf: Any,
    write_buf: Any,
    own_buf: Any = NONE,
    slot: Any = 0,
    base: Any = 0,
    **steps: Any,
) -> Transfers:
    """Return transfers with all arrays brought to one shape; ``write`` is ``read`` if None."""
    write = read if write is None else write
    arrays = np.broadcast_arrays(
        *(
            np.atleast_1d(np.asarray(a, dtype=np.int32))
            for a in (src, dst, read, write, count, base, read_buf, write_buf, own_buf, slot)
        )
    )
    s, d, r, w, n, b, rb, wb, ob, at = (np.ascontiguousarray(a) for a in arrays)
    return Transfers(s, d, r, w, n, b, rb, wb, ob, at, **steps)


@dataclass(frozen=True, slots=True)
class Round:
    """Transfers that are posted together: receives, sends, wait for all, combine, then local copies.

    Attributes:
        messages: between ranks, in the order posted.
        local: copies inside a rank, done after the wait.
        wait: False = go on without waiting; a later round waits.
    """

    messages: tuple[Transfers, ...] = ()
    local: tuple[Transfers, ...] = ()
    wait: bool = True


@dataclass(frozen=True, slots=True)
class Phase:
    """Rounds that are repeated together."""

    rounds: tuple[Round, ...]
    repeat: int = 1


def once(*messages: Transfers, local: Sequence[Transfers] = ()) -> Phase:
    """Return a phase of one round that runs once; transfers without messages are left out."""
    return Phase((Round(tuple(t for t in messages if t.src.size), tuple(t for t in local if t.src.size)),))


@dataclass(frozen=True, slots=True)
class Rows:
    """The transfers of a schedule one by one, in the order of rounds. All arrays have shape (rows,).

    Attributes:
        time: number of the round, counted over all repetitions.
        src: sending rank.
        dst: receiving rank; equal to ``src`` for a local copy.
        read: first piece read.
        write: first piece written.
        count: pieces.
        read_buf: buffer read.
        write_buf: buffer written.
        own_buf: buffer combined with the message, or NONE.
        slot: where it arrives when it is combined.
        nbytes: size.
    """

    time: Longs
    src: Longs
    dst: Longs
    read: Longs
    write: Longs
    count: Longs
    read_buf: Longs
    write_buf: Longs
    own_buf: Longs
    slot: Longs
    nbytes: Longs

    @property
    def local(self) -> npt.NDArray[np.bool_]:
        """Which rows are local copies."""
        same: npt.NDArray[np.bool_] = self.src == self.dst
        return same


@dataclass(frozen=True)
class Schedule:
    """One algorithm for one shape.

    Attributes:
        collective: name.
        algorithm: name.
        ranks: number of ranks.
        nbytes: total bytes S.
        itemsize: bytes of one element.
        starts: shape (pieces,), first byte of each piece in a buffer that holds all of S.
        sizes: shape (pieces,), bytes of each piece.
        phases: what is done, in order.
        root: root of rooted collectives.
        in_place: INPUT is OUTPUT (on the root alone for a reduce).
        keep_empty: messages of 0 bytes are sent (barrier), otherwise they are left out on both sides.
        own_block: buffers that hold this rank's block alone, at their beginning.
    """

    collective: str
    algorithm: str
    ranks: int
    nbytes: int
    itemsize: int
    starts: Longs
    sizes: Longs
    phases: tuple[Phase, ...]
    root: int = 0
    in_place: bool = False
    keep_empty: bool = False
    own_block: frozenset[int] = field(default_factory=frozenset)

    @property
    def rounds(self) -> int:
        """Rounds, all repetitions counted."""
        return sum(len(p.rounds) * p.repeat for p in self.phases)

    @property
    def memory(self) -> int:
        """Bytes that the description takes."""
        parts = (t.nbytes for p in self.phases for r in p.rounds for t in (*r.messages, *r.local))
        return int(self.starts.nbytes + self.sizes.nbytes) + sum(parts)

    def waits(self) -> npt.NDArray[np.bool_]:
        """Return shape (rounds,): whether the round waits for what was posted."""
        flags = [np.tile([r.wait for r in p.rounds], p.repeat) for p in self.phases]
        return np.concatenate(flags).astype(bool) if flags else np.zeros(0, bool)

    def rows(self, rank: int | None = None) -> Rows:
        """Return every transfer, or only those that one rank takes part in.

        Raises:
            ShapeError: one touches a piece that does not exist.
        """
        parts: list[tuple[Longs, ...]] = []
        first = 0
        for phase in self.phases:
            for index, round_ in enumerate(phase.rounds):
                for part in (*round_.messages, *round_.local):
                    columns = _expand(part, phase.repeat, self.ranks, rank)
                    parts.append((first + index + columns[0] * len(phase.rounds), *columns[1:]))
            first += len(phase.rounds) * phase.repeat
        if not parts:
            return Rows(*(np.zeros(0, np.int64) for _ in range(11)))
        columns = tuple(np.concatenate(c) for c in zip(*parts, strict=True))
        return self._ordered(columns)

    def _ordered(self, columns: tuple[Longs, ...]) -> Rows:
        """Sort by round, add the sizes and leave out what is empty."""
        read, count = columns[3], columns[5]
        last = read + count - 1
        ends = np.concatenate([read, last, columns[4], columns[4] + count - 1])
        if ends.size and (ends.min() < 0 or ends.max() >= self.starts.size):
            raise ShapeError(f"{self.algorithm} touches a piece outside 0 … {self.starts.size - 1}")
        nbytes = self.starts[last] + self.sizes[last] - self.starts[read]
        order = np.argsort(columns[0], kind="stable")
        if not self.keep_empty:
            order = order[nbytes[order] > 0]
        return Rows(*(c[order] for c in (*columns, nbytes)))


def _expand(part: Transfers, repeat: int, ranks: int, rank: int | None) -> tuple[Longs, ...]:
    """Return (k, src, dst, read, write, count, read_buf, write_buf, own_buf, slot) of all repetitions."""
    k, i = _chosen(part, repeat, ranks, rank)
    src, dst = part.src[i].astype(np.int64), part.dst[i].astype(np.int64)
    if part.src_step or part.dst_step:
        src, dst = (src + k * part.src_step) % ranks, (dst + k * part.dst_step) % ranks
    read, write = part.read[i] + k * part.read_step, part.write[i] + k * part.write_step
    keep = np.ones(len(k), bool)
    if part.clip:
        keep = (read >= 0) & (read < part.wrap)
    elif part.wrap:
        read, write = read % part.wrap, write % part.wrap
    read, write = read + part.base[i], write + part.base[i]
    rest = (part.count[i], part.read_buf[i], part.write_buf[i], part.own_buf[i], part.slot[i])
    columns = (k, src, dst, read, write, *(a.astype(np.int64) for a in rest))
    columns = tuple(c[keep] for c in columns)
    everyone = part.src.size and part.src[0] == EVERY_RANK
    return _every_rank(columns, ranks, rank) if everyone else columns


def _chosen(part: Transfers, repeat: int, ranks: int, rank: int | None) -> tuple[Longs, Longs]:
    """Return the pairs (repetition, message) that ``rank`` takes part in, in order."""
    m = part.src.size
    if rank is None:
        return np.repeat(np.arange(repeat), m), np.tile(np.arange(m), repeat)
    if not part.src_step and not part.dst_step:
        mine = np.flatnonzero((part.src == rank) | (part.dst == rank) | (part.src == EVERY_RANK))
        return np.repeat(np.arange(repeat), mine.size), np.tile(mine, repeat)
    pairs = [_meets(part.src, part.src_step, repeat, ranks, rank)]
    pairs.append(_meets(part.dst, part.dst_step, repeat, ranks, rank))
    both = np.unique(np.concatenate(pairs), axis=0)
    return both[:, 0], both[:, 1]


def _meets(start: Ints, step: int, repeat: int, ranks: int, rank: int) -> Longs:
    """Return the pairs (k, message) with start + k·step ≡ rank, for steps 0, 1 and −1 and up to ``ranks`` repetitions."""
    if step == 0:
        mine = np.flatnonzero(start == rank)
        return np.column_stack([np.repeat(np.arange(repeat), mine.size), np.tile(mine, repeat)])
    k = (rank - start.astype(np.int64)) * step % ranks
    mine = np.flatnonzero(k < repeat)
    return np.column_stack([k[mine], mine])


def _every_rank(columns: tuple[Longs, ...], ranks: int, rank: int | None) -> tuple[Longs, ...]:
    who = np.arange(ranks) if rank is None else np.array([rank])
    k, _, _, *rest = (np.tile(c, who.size) for c in columns)
    owner = np.repeat(who, len(columns[0]))
    return (k, owner, owner, *rest)
