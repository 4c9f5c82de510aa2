"""All-reduces: every rank ends with the combination of all INPUTs in OUTPUT."""

import numpy as np

from collbench.portable import halving
from collbench.portable.doubletree import double_binary_tree
from collbench.portable.patterns import (
    binomial_bcast,
    binomial_reduce,
    copy,
    flat_bcast,
    flat_reduce,
    joined,
    pairwise_reduce,
    ring_gather,
    ring_reduce,
)
from collbench.portable.schedule import INPUT, OUTPUT, Longs, Phase, once, transfers
from collbench.portable.shape import Built, Shape
from collbench.portable.topology import one_group


def _alone(shape: Shape, pieces: int = 1) -> list[Phase]:
    return [copy(0, 0, 0, pieces, read_buf=INPUT, write_buf=OUTPUT)] if shape.ranks == 1 else []


def flat(shape: Shape) -> Built:
    """Every rank sends to rank 0, which combines and sends the result to every rank."""
    p = shape.ranks
    return Built(
        *shape.blocks(1),
        joined(flat_reduce(p, 0, 1, source=INPUT, target=OUTPUT), flat_bcast(p, 0, 1, buffer=OUTPUT)),
    )


def binomial(shape: Shape) -> Built:
    """Binomial reduce, then binomial broadcast ("tree")."""
    groups = one_group(shape.ranks)
    return Built(
        *shape.blocks(1),
        joined(
            binomial_reduce(groups, 1, source=INPUT, partial=OUTPUT, target=OUTPUT),
            binomial_bcast(groups, 1, buffer=OUTPUT),
        ),
    )


def recursive_doubling(shape: Shape) -> Built:
    """Whole vectors are exchanged at doubling distances: log2 p rounds."""
    folded = halving.fold(np.arange(shape.ranks))
    return Built(
        *shape.blocks(1),
        joined(
            _alone(shape),
            halving.fold_in(folded, 1, source=INPUT, target=OUTPUT),
            halving.exchange_all(folded, 1, target=OUTPUT),
            halving.fold_out(folded, 1, buffer=OUTPUT),
        ),
    )


def rabenseifner(shape: Shape) -> Built:
    """Recursive halving (nearest first), then recursive doubling: 2(1 − 1/q)·S in 2·log2 q rounds."""
    folded = halving.fold(np.arange(shape.ranks))
    q, bounds = folded.size, np.arange(folded.size + 1)
    return Built(
        *shape.blocks(q),
        joined(
            _alone(shape),
            halving.fold_in(folded, q, source=INPUT, target=OUTPUT),
            halving.halve(folded, bounds, near_first=True, source=INPUT, target=OUTPUT),
            halving.double(folded, bounds, near_first=True, buffer=OUTPUT),
            halving.fold_out(folded, q, buffer=OUTPUT),
        ),
    )


def ring(shape: Shape) -> Built:
    """Ring reduce-scatter, then ring all-gather: 2(p − 1)/p·S per rank in 2(p − 1) rounds."""
    return Built(*shape.blocks(), joined(_alone(shape), _ring(np.arange(shape.ranks).reshape(1, -1))))


def _ring(rings: Longs, base: Longs | int = 0) -> list[Phase]:
    reduce = ring_reduce(rings, source=INPUT, partial=OUTPUT, target=OUTPUT, base=base, first=0)
    return [*reduce, *ring_gather(rings, buffer=OUTPUT, base=base, first=1)]


def segmented_ring(shape: Shape) -> Built:
    """The ring's blocks in segments: one reduce-scatter ring a segment, so that what is combined is still in cache."""
    p = shape.ranks
    starts, sizes = shape.blocks()
    unit = max(1, shape.number("segment_bytes") // shape.itemsize) * shape.itemsize
    largest = int(sizes.max(initial=0))
    segments = max(1, min(-(-largest // unit), 256)) if shape.number("segment_bytes") else 1
    unit = max(unit, -(-largest // segments // shape.itemsize) * shape.itemsize)
    offset = np.minimum(np.arange(segments)[:, None] * unit, sizes)
    piece = np.minimum(unit, sizes - offset)
    rings = np.arange(p).reshape(1, -1)
    phases = [
        phase
        for s in range(segments)
        for phase in ring_reduce(rings, source=INPUT, partial=OUTPUT, target=OUTPUT, base=s * p, first=0)
    ]
    gathers = [
        phase for s in range(segments) for phase in ring_gather(rings, buffer=OUTPUT, base=s * p, first=1)
    ]
    return Built((starts + offset).ravel(), piece.ravel(), joined(_alone(shape, segments), phases, gathers))


def reduce_scatter_allgather(shape: Shape) -> Built:
    """The composition a user could write: pairwise reduce-scatter, then ring all-gather."""
    return Built(
        *shape.blocks(),
        joined(
            _alone(shape),
            pairwise_reduce(shape.ranks, source=INPUT, target=OUTPUT),
            ring_gather(np.arange(shape.ranks).reshape(1, -1), buffer=OUTPUT),
        ),
    )


def hierarchical_leader(shape: Shape) -> Built:
    """Reduce to each node's leader, ring among the leaders, broadcast inside the nodes."""
    groups = shape.groups()
    nodes = groups.size.size
    across = ring_reduce(groups.leaders.reshape(1, -1), source=OUTPUT, partial=OUTPUT, target=OUTPUT, first=0)
    return Built(
        *shape.blocks(nodes),
        joined(
            binomial_reduce(groups, nodes, source=INPUT, partial=OUTPUT, target=OUTPUT),
            across,
            ring_gather(groups.leaders.reshape(1, -1), buffer=OUTPUT, first=1),
            binomial_bcast(groups, nodes, buffer=OUTPUT),
        ),
    )


def hierarchical_sharded(shape: Shape) -> Built:
    """Reduce-scatter in the node, all-reduce rings across nodes in parallel (one a shard), all-gather in the node.

    With uneven nodes the smallest node's size is the number of shards; the ranks beyond it hand their data to a rank
    of their node before, and get the result from it afterwards.
    """
    groups = shape.groups()
    g, nodes = int(groups.size.min()), groups.size.size
    table = groups.members[groups.begin[:, None] + np.arange(g)]
    whole = g * nodes
    before, after, holds = [], [], np.full(shape.ranks, INPUT)
    for wave in range(1, -(-int(groups.size.max()) // g)):
        extra = np.flatnonzero(groups.position // g == wave)
        rank, keeper = groups.members[extra], groups.members[extra - wave * g]
        into = transfers(
            rank, keeper, 0, count=whole, read_buf=INPUT, write_buf=OUTPUT, own_buf=holds[keeper]
        )
        before.append(once(into))
        after.append(once(transfers(keeper, rank, 0, count=whole, read_buf=OUTPUT, write_buf=OUTPUT)))
        holds[keeper] = OUTPUT
    shards = np.arange(g) * nodes
    inside = ring_reduce(table, source=holds[table], partial=OUTPUT, target=OUTPUT, block=nodes)
    held = OUTPUT if g > 1 else holds[table.T]
    across = ring_reduce(table.T, source=held, partial=OUTPUT, target=OUTPUT, base=shards, first=0)
    across += ring_gather(table.T, buffer=OUTPUT, base=shards, first=1)
    gather = ring_gather(table, buffer=OUTPUT, block=nodes)
    return Built(*shape.blocks(whole), joined(_alone(shape), before, inside, across, gather, after))


BUILDERS = {
    "flat": flat,
    "binomial": binomial,
    "double_binary_tree": double_binary_tree,
    "recursive_doubling": recursive_doubling,
    "rabenseifner": rabenseifner,
    "ring": ring,
    "segmented_ring": segmented_ring,
    "hierarchical_leader": hierarchical_leader,
    "hierarchical_sharded": hierarchical_sharded,
    "reduce_scatter_allgather": reduce_scatter_allgather,
}
