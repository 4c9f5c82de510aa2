"""All-to-alls of equal blocks: block d of rank s's INPUT ends as block s of rank d's OUTPUT."""

import numpy as np

from collbench.portable.patterns import copy, copy_everywhere, joined, powers
from collbench.portable.schedule import INPUT, OUTPUT, PACK, UNPACK, WORK, Phase, Round, once, transfers
from collbench.portable.shape import Built, Shape


def _source(shape: Shape) -> tuple[list[Phase], int]:
    """Return where the data to send are: in place they are saved first."""
    if not shape.in_place:
        return [], INPUT
    return [copy_everywhere(0, 0, shape.ranks, read_buf=INPUT, write_buf=WORK)], WORK


def _rounds(shape: Shape, source: int, *, wait: bool) -> list[Phase]:
    """In round k rank r sends to r + k and receives from r − k."""
    p = shape.ranks
    r = np.arange(p)
    part = transfers(
        r, (r + 1) % p, (r + 1) % p, r, read_buf=source, write_buf=OUTPUT, dst_step=1, read_step=1, wrap=p
    )
    return [Phase((Round((part,), wait=wait),), p - 1)]


def _self(shape: Shape, source: int) -> list[Phase]:
    r = np.arange(shape.ranks)
    return [] if shape.in_place else [copy(r, r, r, read_buf=source, write_buf=OUTPUT)]


def linear(shape: Shape) -> Built:
    """All messages are posted at once."""
    save, source = _source(shape)
    done = Phase((Round((), (), wait=True),))
    phases = joined(save, _self(shape, source), _rounds(shape, source, wait=False))
    return Built(*shape.blocks(), (*phases, done) if shape.ranks > 1 else phases)


def pairwise(shape: Shape) -> Built:
    """P − 1 rounds, one partner each way at a time."""
    save, source = _source(shape)
    return Built(*shape.blocks(), joined(save, _self(shape, source), _rounds(shape, source, wait=True)))


def bruck(shape: Shape) -> Built:
    """Blocks travel by the bits of their distance: ceil(log2 p) rounds of about S/2 each.

    Source: Bruck et al., Efficient Algorithms for All-to-All Communications (1997).
    """
    p = shape.ranks
    r = np.arange(p)
    turn = [
        copy(r, r, 0, p - r, read_buf=INPUT, write_buf=WORK),
        copy(r[1:], 0, p - r[1:], r[1:], read_buf=INPUT, write_buf=WORK),
    ]
    steps = []
    for mask in powers(p):
        first = np.arange(mask, p, 2 * mask)
        count = np.minimum(mask, p - first)
        place = np.cumsum(count) - count
        total = int(count.sum())
        steps.append(copy_everywhere(first, place, count, read_buf=WORK, write_buf=PACK))
        back = transfers(-1, -1, place, first, count, read_buf=UNPACK, write_buf=WORK)
        steps.append(
            once(transfers(r, (r + mask) % p, 0, 0, total, read_buf=PACK, write_buf=UNPACK), local=[back])
        )
    # WORK's block i now came from rank r − i.
    final = transfers(r, r, 0, r, read_buf=WORK, write_buf=OUTPUT, read_step=1, write_step=-1, wrap=p)
    return Built(*shape.blocks(), joined(turn, steps, [Phase((Round((), (final,)),), p)]))


BUILDERS = {"linear": linear, "pairwise": pairwise, "bruck": bruck}
