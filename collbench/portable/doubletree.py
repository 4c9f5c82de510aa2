"""Double binary tree all-reduce: two trees, each for half of the data, chunk after chunk up and down.

A rank that is inside one tree is a leaf of the other, so that every rank sends and receives about the same.
Source: Sanders, Speck, Träff, Two-tree algorithms for full bandwidth broadcast, reduction and scan (2009).
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from collbench.portable.patterns import copy, joined, tree_depths
from collbench.portable.pieces import chunked
from collbench.portable.schedule import (
    INPUT,
    NONE,
    OUTPUT,
    Longs,
    Phase,
    Round,
    Transfers,
    transfers,
)
from collbench.portable.shape import Built, Shape


def in_order_tree(size: int) -> Longs:
    """Return the parents of the balanced in-order tree on 0 … size − 1: every even number is a leaf."""
    number = np.arange(1, size + 1)
    low = number & -number
    root = 1 << (size.bit_length() - 1)
    parent = np.where(number & (2 * low), number - low, number + low)
    # Where the parent lies beyond the end, the next ancestor that exists takes over.
    while (beyond := (parent > size) & (number != root)).any():
        low_parent = parent & -parent
        above = np.where(parent & (2 * low_parent), parent - low_parent, parent + low_parent)
        parent = np.where(beyond, above, parent)
    return np.where(number == root, NONE, parent - 1)


def two_trees(size: int) -> tuple[Longs, Longs]:
    """Return both trees' parents: the second mirrored (even size) or moved on by one (odd size)."""
    first = in_order_tree(size)
    rank = np.arange(size)
    label = size - 1 - rank if size % 2 == 0 else (rank - 1) % size
    back = np.argsort(label)
    above = first[label]
    return first, np.where(above == NONE, NONE, back[above])


def double_binary_tree(shape: Shape) -> Built:
    """Reduce up and broadcast down both trees, pipelined."""
    if shape.ranks == 1:
        return Built(*shape.blocks(1), joined([copy(0, 0, 0, 1, read_buf=INPUT, write_buf=OUTPUT)]))
    half = -(-shape.elements // 2)
    chunk = shape.number("chunk_bytes")
    one = chunked(half, chunk, shape.itemsize)
    two = chunked(shape.elements - half, chunk, shape.itemsize)
    counts = (one[0].size, two[0].size)
    chunks = max(counts)
    parts: list[Transfers] = []
    depth = 0
    for index, parent in enumerate(two_trees(shape.ranks)):
        depths = tree_depths(parent)
        depth = max(depth, int(depths.max()))
        parts.extend(_tree(parent, depths, base=index * counts[0], chunks=counts[index], slot=2 * index))
    phase = Phase((Round(tuple(p for p in parts if p.src.size)),), chunks + 2 * depth - 1)
    starts = np.concatenate([one[0], two[0] + half * shape.itemsize])
    return Built(starts, np.concatenate([one[1], two[1]]), joined([phase]))


def _tree(parent: Longs, depth: Longs, *, base: int, chunks: int, slot: int) -> list[Transfers]:
    """Return the transfers of one tree: depth d sends chunk k up in round k + D − d and down in round k + D + d."""
    child = np.flatnonzero(parent != NONE)
    above = parent[child]
    deepest = int(depth.max())
    second = _second(above)
    inner = np.isin(child, above)
    common: dict[str, Any] = {
        "base": base, "read_step": 1, "write_step": 1, "wrap": chunks, "clip": True,
    }  # fmt: skip
    ups = []
    for which in (~second, second):
        i = np.flatnonzero(which)
        own = np.where(second[i], OUTPUT, INPUT)
        ups.append(
            transfers(
                child[i], above[i], depth[child[i]] - deepest, read_buf=np.where(inner[i], OUTPUT, INPUT),
                write_buf=OUTPUT, own_buf=own, slot=slot + second[i], **common,
            )
        )  # fmt: skip
    down = transfers(above, child, -depth[above] - deepest, read_buf=OUTPUT, write_buf=OUTPUT, **common)
    return [*ups, down]


def _second(above: Longs) -> npt.NDArray[np.bool_]:
    """Say of each child whether its parent has another one before it, which is then combined first."""
    order = np.argsort(above, kind="stable")
    second = np.zeros(above.size, bool)
    second[order[1:]] = above[order][1:] == above[order][:-1]
    return second
