"""All-gathers of equal blocks: rank r's INPUT ends as block r of every rank's OUTPUT."""

import numpy as np

from collbench.portable import halving
from collbench.portable.patterns import (
    binomial_bcast,
    copy,
    copy_everywhere,
    joined,
    powers,
    ring_gather,
)
from collbench.portable.schedule import INPUT, OUTPUT, WORK, Longs, Phase, Round, ShapeError, once, transfers
from collbench.portable.shape import Built, Shape


def _own(shape: Shape) -> list[Phase]:
    r = np.arange(shape.ranks)
    return [copy(r, r, r, read_buf=INPUT, write_buf=OUTPUT)]


def ring(shape: Shape) -> Built:
    """Blocks go round the ring: (p − 1)/p·S received per rank in p − 1 rounds."""
    rings = np.arange(shape.ranks).reshape(1, -1)
    return Built(*shape.blocks(), joined(_own(shape), ring_gather(rings, buffer=OUTPUT)))


def recursive_doubling(shape: Shape) -> Built:
    """Exchange of all that is known at doubling distances: log2 p rounds."""
    folded = halving.fold(np.arange(shape.ranks))
    hand_in = transfers(folded.folded, folded.kept, folded.folded, read_buf=INPUT, write_buf=OUTPUT)
    return Built(
        *shape.blocks(),
        joined(
            _own(shape),
            [once(hand_in)],
            halving.double(folded, folded.bounds, near_first=False, buffer=OUTPUT),
            halving.fold_out(folded, shape.ranks, buffer=OUTPUT),
        ),
    )


def bruck(shape: Shape) -> Built:
    """Known blocks go to the rank 2^k before; at the end they are turned into place: ceil(log2 p) rounds."""
    p = shape.ranks
    r = np.arange(p)
    rounds = [
        once(transfers(r, (r - known) % p, 0, known, min(known, p - known), read_buf=WORK, write_buf=WORK))
        for known in powers(p)
    ]
    into = [
        copy(r, 0, r, p - r, read_buf=WORK, write_buf=OUTPUT),
        copy(r[1:], p - r[1:], 0, r[1:], read_buf=WORK, write_buf=OUTPUT),
    ]
    # In WORK the own block comes first; INPUT holds it as block r.
    start = [copy(r, r, 0, read_buf=INPUT, write_buf=WORK)]
    return Built(*shape.blocks(), joined(start, rounds, into))


def neighbor_exchange(shape: Shape) -> Built:
    """Pairs of neighbours swap two blocks at a time, alternating sides: p/2 rounds; an even number of ranks.

    Source: Chen et al., Performance Evaluation of Allgather Algorithms on Terascale Linux Cluster (2005).
    """
    p = shape.ranks
    if p % 2:
        raise ShapeError(f"neighbor_exchange needs an even number of ranks, not {p}")
    r = np.arange(p)
    even = r % 2 == 0
    pair = r ^ 1
    other = np.where(even, r - 1, r + 1) % p
    first = once(transfers(r, pair, r, read_buf=OUTPUT, write_buf=OUTPUT))
    # After the first exchange each rank holds the two blocks of its pair and sends them to its other side.
    low = r - r % 2

    def turn(to: Longs, start: Longs, step: int) -> Round:
        parts = []
        for side, move in ((even, step), (~even, -step)):
            i = np.flatnonzero(side)
            parts.append(
                transfers(
                    r[i], to[i], start[i] % p, count=2, read_buf=OUTPUT, write_buf=OUTPUT,
                    read_step=move, write_step=move, wrap=p,
                )
            )  # fmt: skip
        return Round(tuple(parts))

    # Round 2 sends the own pair; afterwards each round passes on what the round before brought.
    second = turn(other, low, 2)
    third = turn(pair, np.where(even, low - 2, low + 2), -2)
    pairs, rest = divmod(p // 2 - 1, 2)
    steps = [Phase((second, third), pairs)]
    tail = [_tail(second, pairs)] if rest else []
    return Built(*shape.blocks(), joined(_own(shape), [first], steps, tail))


def _tail(round_: Round, after: int) -> Phase:
    """Return one more of a repeated round, as it would be in repetition ``after``."""
    moved = tuple(
        transfers(
            t.src, t.dst, (t.read + after * t.read_step) % t.wrap, count=t.count,
            read_buf=t.read_buf, write_buf=t.write_buf,
        )
        for t in round_.messages
    )  # fmt: skip
    return Phase((Round(moved),))


def hierarchical_leader(shape: Shape) -> Built:
    """Blocks to the node's leader, ring of node blocks among the leaders, broadcast of all inside the nodes."""
    groups = shape.groups()
    p = shape.ranks
    place = np.empty(p, np.int64)
    place[groups.members] = np.arange(p)
    sorted_already = bool((groups.members == np.arange(p)).all())
    buffer = OUTPUT if sorted_already else WORK
    leader = np.repeat(groups.leaders, groups.size)
    others = groups.position > 0
    members = groups.members
    start = copy(groups.leaders, groups.leaders, groups.begin, read_buf=INPUT, write_buf=buffer)
    inside = once(
        transfers(
            members[others], leader[others], members[others], place[members[others]],
            read_buf=INPUT, write_buf=buffer,
        )
    )  # fmt: skip
    finish = (
        [] if sorted_already else [copy_everywhere(place, np.arange(p), 1, read_buf=WORK, write_buf=OUTPUT)]
    )
    return Built(
        *shape.blocks(),
        joined(
            [start, inside], _ring_of_nodes(groups.leaders, groups.begin, groups.size, buffer),
            binomial_bcast(groups, p, buffer=buffer), finish,
        ),
    )  # fmt: skip


def _ring_of_nodes(leaders: Longs, begin: Longs, size: Longs, buffer: int) -> list[Phase]:
    """Return the ring in which node k's blocks go from leader to leader; nodes may differ in size."""
    n = leaders.size
    here = np.arange(n)
    if n == 1:
        return []
    if (size == size[0]).all():
        return ring_gather(leaders.reshape(1, -1), buffer=buffer, block=int(size[0]))
    phases = []
    for k in range(n - 1):
        node = (here - k) % n
        part = transfers(
            leaders, np.roll(leaders, -1), begin[node], count=size[node], read_buf=buffer, write_buf=buffer
        )
        phases.append(once(part))
    return phases


BUILDERS = {
    "ring": ring,
    "recursive_doubling": recursive_doubling,
    "bruck": bruck,
    "neighbor_exchange": neighbor_exchange,
    "hierarchical_leader": hierarchical_leader,
}
