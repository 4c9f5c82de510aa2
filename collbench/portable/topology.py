"""Which node each rank is on: from sizes, from virtual nodes, or from the running job."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from collbench.errors import UsageError
from collbench.records import Topology

Longs = npt.NDArray[np.int64]


def node_of(
    ranks: int, *, node_sizes: Sequence[int] | None = None, virtual_nodes: int | None = None
) -> tuple[int, ...]:
    """Return the node index of each rank; blocks of consecutive ranks are nodes.

    Args:
        ranks: number of ranks.
        node_sizes: ranks of each node in order (uneven is fine).
        virtual_nodes: this many blocks, the first ones larger by one where it does not divide.

    With neither, all ranks are on node 0.

    Raises:
        UsageError: sizes that do not add up, both given, or no node at all.
    """
    if node_sizes is not None and virtual_nodes is not None:
        raise UsageError("give either the sizes of the nodes or a number of virtual nodes, not both")
    if virtual_nodes is not None:
        if virtual_nodes < 1:
            raise UsageError(f"{virtual_nodes} virtual nodes are not possible: give 1 or more")
        nodes = min(virtual_nodes, ranks)
        small, longer = divmod(ranks, nodes)
        node_sizes = [small + (i < longer) for i in range(nodes)]
    if node_sizes is None:
        return (0,) * ranks
    if min(node_sizes, default=0) < 1 or sum(node_sizes) != ranks:
        raise UsageError(f"nodes of {list(node_sizes)} ranks do not make {ranks} ranks")
    return tuple(int(n) for n in np.repeat(np.arange(len(node_sizes)), node_sizes))


def shape(nodes: Sequence[int]) -> Topology:
    """Return the topology record of a node index per rank."""
    sizes = np.unique(np.asarray(nodes), return_counts=True)[1]
    return Topology(len(nodes), len(sizes), int(sizes.max()), tuple(int(s) for s in sizes))


def detect(MPI: Any, comm: Any) -> tuple[int, ...]:
    """Return the node index of each rank of the running job, numbered by first rank (collective).

    Ranks are on one node when ``MPI_Comm_split_type(MPI_COMM_TYPE_SHARED)`` puts them together.
    """
    local = comm.Split_type(MPI.COMM_TYPE_SHARED)
    mine = np.array([comm.Get_rank()], dtype=np.int64)
    leader = np.zeros_like(mine)
    local.Allreduce(mine, leader, op=MPI.MIN)
    local.Free()
    leaders = np.zeros(comm.Get_size(), dtype=np.int64)
    comm.Allgather(leader, leaders)
    return tuple(int(n) for n in numbered(leaders))


def numbered(labels: Sequence[int] | Longs) -> Longs:
    """Return labels replaced by 0, 1, … in order of first appearance."""
    _, first, inverse = np.unique(np.asarray(labels), return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse.ravel()]


@dataclass(frozen=True, slots=True)
class Groups:
    """Ranks in groups (nodes, or all of them), each group in an order of its own.

    Attributes:
        members: shape (ranks,), rank numbers, group after group; the first of a group is its leader.
        begin: shape (groups,), where each group starts in ``members``.
        size: shape (groups,).
    """

    members: Longs
    begin: Longs
    size: Longs

    @property
    def leaders(self) -> Longs:
        """The first rank of each group."""
        return self.members[self.begin]

    @property
    def position(self) -> Longs:
        """Index within its group of each entry of ``members``."""
        return np.arange(self.members.size) - np.repeat(self.begin, self.size)

    @property
    def group_size(self) -> Longs:
        """Size of the group of each entry of ``members``."""
        return np.repeat(self.size, self.size)


def one_group(ranks: int, root: int = 0) -> Groups:
    """Return all ranks as one group that begins with ``root``."""
    members = (np.arange(ranks) + root) % ranks
    return Groups(members, np.zeros(1, np.int64), np.array([ranks]))


def node_groups(nodes: Sequence[int] | Longs, root: int = 0) -> Groups:
    """Return the nodes as groups; the root's node comes first and the root leads it."""
    labels = np.asarray(nodes, dtype=np.int64)
    ranks = np.arange(labels.size)
    keys = (ranks != root, numbered(labels), labels != labels[root])
    members = np.lexsort((ranks, *keys))
    size = np.unique(labels[members], return_index=True, return_counts=True)
    order = np.argsort(size[1])
    return Groups(members, size[1][order], size[2][order])
