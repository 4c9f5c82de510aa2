"""Reduce-scatters of equal blocks: rank r ends with block r of the combination in OUTPUT."""

import numpy as np

from collbench.portable import halving
from collbench.portable.patterns import copy, joined, pairwise_reduce, ring_reduce
from collbench.portable.schedule import INPUT, OUTPUT, WORK, Phase, once, transfers
from collbench.portable.shape import Built, Shape


def _alone(shape: Shape) -> list[Phase]:
    return [copy(0, 0, 0, read_buf=INPUT, write_buf=OUTPUT)] if shape.ranks == 1 else []


def ring(shape: Shape) -> Built:
    """Partial blocks go round the ring, each rank adds its own: (p − 1)/p·S per rank."""
    rings = np.arange(shape.ranks).reshape(1, -1)
    phases = ring_reduce(rings, source=INPUT, partial=WORK, target=OUTPUT)
    return Built(*shape.blocks(), joined(_alone(shape), phases))


def pairwise(shape: Shape) -> Built:
    """In round k rank r sends its part of block r + k straight to its owner: (p − 1)/p·S per rank."""
    r, target = np.arange(shape.ranks), shape.collector
    finish = [copy(r, r, r, read_buf=WORK, write_buf=OUTPUT)] if target == WORK and r.size > 1 else []
    phases = pairwise_reduce(shape.ranks, source=INPUT, target=target)
    return Built(*shape.blocks(), joined(_alone(shape), phases, finish))


def recursive_halving(shape: Shape) -> Built:
    """Half, a quarter, an eighth … is exchanged at halving distances: log2 p rounds."""
    p = shape.ranks
    if p == 1:
        return Built(*shape.blocks(), joined(_alone(shape)))
    folded = halving.fold(np.arange(p))
    hand_out = transfers(folded.kept, folded.folded, folded.folded, read_buf=WORK, write_buf=OUTPUT)
    active = folded.active
    mine = transfers(active, active, active, read_buf=WORK, write_buf=OUTPUT)
    return Built(
        *shape.blocks(),
        joined(
            halving.fold_in(folded, p, source=INPUT, target=WORK),
            halving.halve(folded, folded.bounds, near_first=False, source=INPUT, target=WORK),
            [once(hand_out, local=[mine])],
        ),
    )


BUILDERS = {"ring": ring, "recursive_halving": recursive_halving, "pairwise": pairwise}
