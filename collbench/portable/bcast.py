"""Broadcasts. The data are in INPUT on every rank: the root's are sent, the others' are overwritten."""

import numpy as np

from collbench.portable.patterns import (
    binomial_bcast,
    binomial_scatter,
    flat_bcast,
    joined,
    pipelined_bcast,
    ring_gather,
)
from collbench.portable.pieces import chunked
from collbench.portable.schedule import INPUT, NONE, Longs
from collbench.portable.shape import Built, Shape
from collbench.portable.topology import Groups, one_group


def flat(shape: Shape) -> Built:
    """The root sends to every rank."""
    return Built(*shape.blocks(1), joined(flat_bcast(shape.ranks, shape.root, 1, buffer=INPUT)))


def binomial(shape: Shape) -> Built:
    """Who has the data sends it on, at halving distances: ceil(log2 p) rounds."""
    groups = one_group(shape.ranks, shape.root)
    return Built(*shape.blocks(1), joined(binomial_bcast(groups, 1, buffer=INPUT)))


def chain(shape: Shape) -> Built:
    """Rank after rank, the whole message at once: the pipeline without chunks."""
    return _tree(shape, _path(shape.ranks), 0)


def pipeline(shape: Shape) -> Built:
    """Rank after rank in chunks, so that all links work at once: p − 2 + chunks rounds."""
    return _tree(shape, _path(shape.ranks), shape.number("chunk_bytes"))


def pipelined_binary_tree(shape: Shape) -> Built:
    """Down a balanced binary tree in chunks."""
    vertex = np.arange(shape.ranks)
    parent = np.where(vertex > 0, (vertex - 1) // 2, NONE)
    return _tree(shape, parent, shape.number("chunk_bytes"))


def scatter_allgather(shape: Shape) -> Built:
    """Binomial scatter of p blocks, then ring all-gather (van de Geijn): 2(p − 1)/p·S on each link."""
    members = one_group(shape.ranks, shape.root).members
    ring = ring_gather(members.reshape(1, -1), buffer=INPUT)
    return Built(*shape.blocks(), joined(binomial_scatter(members, buffer=INPUT), ring))


def hierarchical_leader(shape: Shape) -> Built:
    """Binomial among the leaders of the nodes (the root leads its own), then binomial inside each node."""
    groups = shape.groups()
    leaders = groups.leaders
    across = Groups(leaders, np.zeros(1, np.int64), np.array([leaders.size]))
    return Built(
        *shape.blocks(1),
        joined(binomial_bcast(across, 1, buffer=INPUT), binomial_bcast(groups, 1, buffer=INPUT)),
    )


def _path(ranks: int) -> Longs:
    return np.arange(-1, ranks - 1)


def _tree(shape: Shape, parent: Longs, chunk_bytes: int) -> Built:
    starts, sizes = chunked(shape.elements, chunk_bytes, shape.itemsize)
    members = one_group(shape.ranks, shape.root).members
    return Built(starts, sizes, joined(pipelined_bcast(members, parent, starts.size, buffer=INPUT)))


BUILDERS = {
    "flat": flat,
    "binomial": binomial,
    "chain": chain,
    "pipeline": pipeline,
    "pipelined_binary_tree": pipelined_binary_tree,
    "scatter_allgather": scatter_allgather,
    "hierarchical_leader": hierarchical_leader,
}
