"""Phases that several algorithms are made of: trees, rings and exchanges over groups of ranks."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from collbench.portable.schedule import EVERY_RANK, NONE, Phase, Round, once, transfers
from collbench.portable.topology import Groups

Longs = npt.NDArray[np.int64]


def copy(who: Any, read: Any, write: Any, count: Any = 1, *, read_buf: int, write_buf: int) -> Phase:
    """Return local copies on the ranks ``who``."""
    return once(local=[transfers(who, who, read, write, count, read_buf=read_buf, write_buf=write_buf)])


def copy_everywhere(read: Any, write: Any, count: Any, *, read_buf: int, write_buf: int) -> Phase:
    """Return local copies of the same pieces on every rank, described once."""
    part = transfers(EVERY_RANK, EVERY_RANK, read, write, count, read_buf=read_buf, write_buf=write_buf)
    return once(local=[part])


def powers(limit: int) -> list[int]:
    """Return 1, 2, 4 … below ``limit``."""
    return [1 << k for k in range((limit - 1).bit_length())] if limit > 1 else []


def binomial_reduce(groups: Groups, pieces: int, *, source: int, partial: Any, target: int) -> list[Phase]:
    """Return the binomial reduction of all pieces to each group's leader.

    Args:
        groups: who reduces together.
        pieces: how many pieces the vector has.
        source: buffer with each rank's own data.
        partial: buffer that other ranks than the leader combine in.
        target: buffer that the leader combines in.
    """
    members, position = groups.members, groups.position
    has = np.zeros(members.size, bool)  # has this entry combined anything yet?
    phases = []
    for mask in powers(int(groups.size.max())):
        sender = np.flatnonzero((position & mask > 0) & (position % mask == 0))
        receiver = sender - mask
        into = np.where(position[receiver] == 0, target, partial)
        phases.append(
            once(
                transfers(
                    members[sender], members[receiver], 0, count=pieces,
                    read_buf=np.where(has[sender], partial, source), write_buf=into,
                    own_buf=np.where(has[receiver], into, source),
                )
            )
        )  # fmt: skip
        has[receiver] = True
    alone = groups.leaders[groups.size == 1]
    if alone.size:
        phases.append(copy(alone, 0, 0, pieces, read_buf=source, write_buf=target))
    return phases


def binomial_bcast(groups: Groups, pieces: int, *, buffer: int) -> list[Phase]:
    """Return the binomial broadcast of all pieces from each group's leader."""
    members, position, size = groups.members, groups.position, groups.group_size
    phases = []
    for mask in reversed(powers(int(groups.size.max()))):
        sender = np.flatnonzero((position % (2 * mask) == 0) & (position + mask < size))
        phases.append(
            once(
                transfers(
                    members[sender],
                    members[sender + mask],
                    0,
                    count=pieces,
                    read_buf=buffer,
                    write_buf=buffer,
                )
            )
        )
    return phases


def binomial_scatter(members: Longs, *, buffer: int) -> list[Phase]:
    """Return the binomial scatter of piece i to ``members[i]``, from ``members[0]``."""
    size = members.size
    phases = []
    for mask in reversed(powers(size)):
        sender = np.arange(0, size - mask, 2 * mask)
        count = np.minimum(2 * mask, size - sender) - mask
        part = transfers(
            members[sender],
            members[sender + mask],
            sender + mask,
            count=count,
            read_buf=buffer,
            write_buf=buffer,
        )
        phases.append(once(part))
    return phases


def ring_reduce(
    rings: Longs, *, source: Any, partial: int, target: int, base: Any = 0, block: int = 1, first: int = -1
) -> list[Phase]:
    """Return the ring reduce-scatter along the rows of ``rings``, all rows at once.

    Rank i of a row ends with block (i + 1 + first) modulo the row's length, in ``target``.

    Args:
        rings: shape (rings, length), rank numbers.
        source: buffer with each rank's own data, one number or one for each entry of ``rings``.
        partial: buffer for what is passed on.
        target: buffer for the finished block.
        base: first piece of each row's blocks, shape (rings,) or one number.
        block: pieces of one block.
        first: block that rank i sends first is i + first.
    """
    n = rings.shape[1]
    if n == 1:
        return []
    here = np.broadcast_to(np.arange(n), rings.shape).ravel()
    bases = np.broadcast_to(np.asarray(base).reshape(-1, 1), rings.shape).ravel()
    src, dst = rings.ravel(), np.roll(rings, -1, axis=1).ravel()
    sources = np.broadcast_to(source, rings.shape)
    own = np.roll(sources, -1, axis=1).ravel()

    def step(start: int, repeat: int, read_buf: Any, write_buf: int) -> Phase:
        part = transfers(
            src, dst, (here + first - start) % n * block, count=block, read_buf=read_buf, write_buf=write_buf,
            own_buf=own, base=bases, read_step=-block, write_step=-block, wrap=n * block,
        )  # fmt: skip
        return Phase((Round((part,)),), repeat)

    if n == 2:
        return [step(0, 1, sources.ravel(), target)]
    middle = [step(1, n - 3, partial, partial)] if n > 3 else []
    return [step(0, 1, sources.ravel(), partial), *middle, step(n - 2, 1, partial, target)]


def ring_gather(rings: Longs, *, buffer: int, base: Any = 0, block: int = 1, first: int = 0) -> list[Phase]:
    """Return the ring all-gather along the rows of ``rings``; rank i of a row starts with block i + ``first``."""
    n = rings.shape[1]
    if n == 1:
        return []
    here = np.broadcast_to(np.arange(n), rings.shape).ravel()
    bases = np.broadcast_to(np.asarray(base).reshape(-1, 1), rings.shape).ravel()
    part = transfers(
        rings.ravel(), np.roll(rings, -1, axis=1).ravel(), (here + first) % n * block, count=block,
        read_buf=buffer, write_buf=buffer, base=bases, read_step=-block, write_step=-block, wrap=n * block,
    )  # fmt: skip
    return [Phase((Round((part,)),), n - 1)]


def pairwise_reduce(ranks: int, *, source: int, target: int) -> list[Phase]:
    """Return the pairwise reduce-scatter: in round k rank r sends block r + k to its owner; combined in ``target``."""
    if ranks == 1:
        return []
    r = np.arange(ranks)

    def step(k: int, repeat: int, own: int) -> Phase:
        part = transfers(
            r, (r + k) % ranks, (r + k) % ranks, read_buf=source, write_buf=target, own_buf=own,
            dst_step=1, read_step=1, write_step=1, wrap=ranks,
        )  # fmt: skip
        return Phase((Round((part,)),), repeat)

    return [step(1, 1, source), *([step(2, ranks - 2, target)] if ranks > 2 else [])]


def flat_reduce(ranks: int, root: int, pieces: int, *, source: int, target: int) -> list[Phase]:
    """Return the reduction in which every rank sends to the root, which combines one after the other."""

    def step(k: int, repeat: int, own: int) -> Phase:
        part = transfers(
            (root + k) % ranks,
            root,
            0,
            count=pieces,
            read_buf=source,
            write_buf=target,
            own_buf=own,
            src_step=1,
        )
        return Phase((Round((part,)),), repeat)

    if ranks == 1:
        return [copy(0, 0, 0, pieces, read_buf=source, write_buf=target)]
    return [step(1, 1, source), *([step(2, ranks - 2, target)] if ranks > 2 else [])]


def flat_bcast(ranks: int, root: int, pieces: int, *, buffer: int) -> list[Phase]:
    """Return the broadcast in which the root sends to every rank at once."""
    others = (root + np.arange(1, ranks)) % ranks
    return (
        [once(transfers(root, others, 0, count=pieces, read_buf=buffer, write_buf=buffer))]
        if ranks > 1
        else []
    )


def tree_depths(parent: Longs) -> Longs:
    """Return the depth of each vertex of a tree given by parents (the root's is NONE)."""
    depth = np.zeros(parent.size, np.int64)
    at = parent.copy()
    while (at != NONE).any():
        depth[at != NONE] += 1
        at = np.where(at != NONE, parent[at], NONE)
    return depth


def pipelined_bcast(members: Longs, parent: Longs, chunks: int, *, buffer: int) -> list[Phase]:
    """Return the broadcast of chunk after chunk down a tree: depth d sends chunk k in round k + d.

    Args:
        members: rank of each vertex.
        parent: vertex → its parent's vertex; NONE for the root.
        chunks: how many.
        buffer: where the data are.
    """
    child = np.flatnonzero(parent != NONE)
    if not child.size:
        return []
    depth = tree_depths(parent)
    part = transfers(
        members[parent[child]], members[child], -depth[parent[child]], read_buf=buffer, write_buf=buffer,
        read_step=1, write_step=1, wrap=chunks, clip=True,
    )  # fmt: skip
    return [Phase((Round((part,)),), chunks + int(depth.max()) - 1)]


def joined(*parts: Iterable[Phase]) -> tuple[Phase, ...]:
    """Return phases one after the other, without those in which nothing happens."""
    return tuple(
        phase
        for part in parts
        for phase in part
        if phase.repeat > 0 and any(r.messages or r.local for r in phase.rounds)
    )
