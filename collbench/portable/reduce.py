"""Reductions to a root. Other ranks combine in WORK: their OUTPUT does not count."""

import numpy as np

from collbench.portable import halving
from collbench.portable.patterns import binomial_reduce, copy, flat_reduce, joined
from collbench.portable.schedule import INPUT, OUTPUT, WORK, Phase, once, transfers
from collbench.portable.shape import Built, Shape
from collbench.portable.topology import one_group


def flat(shape: Shape) -> Built:
    """Every rank sends to the root, which combines one after the other."""
    phases = flat_reduce(shape.ranks, shape.root, 1, source=INPUT, target=OUTPUT)
    return Built(*shape.blocks(1), joined(phases))


def binomial(shape: Shape) -> Built:
    """Pairs at doubling distances: ceil(log2 p) rounds."""
    groups = one_group(shape.ranks, shape.root)
    phases = binomial_reduce(groups, 1, source=INPUT, partial=WORK, target=OUTPUT)
    return Built(*shape.blocks(1), joined(phases))


def rabenseifner(shape: Shape) -> Built:
    """Recursive halving, then the parts are gathered to the root backwards: 2(1 − 1/q)·S at the root."""
    folded = halving.fold(one_group(shape.ranks, shape.root).members)
    q, bounds = folded.size, np.arange(folded.size + 1)
    if shape.ranks == 1:
        return Built(*shape.blocks(1), joined([copy(0, 0, 0, 1, read_buf=INPUT, write_buf=OUTPUT)]))
    halve = halving.halve(folded, bounds, near_first=True, source=INPUT, target=WORK)
    fold_in = halving.fold_in(folded, q, source=INPUT, target=WORK)
    return Built(*shape.blocks(q), joined(fold_in, halve, _gather(folded)))


def _gather(folded: halving.Fold) -> list[Phase]:
    """The halving steps backwards: what numbers mask … 2·mask − 1 have goes to numbers 0 … mask − 1."""
    q = folded.size
    steps = list(halving.splits(q, np.arange(q + 1), near_first=True))
    last = steps[-1]
    phases = [
        copy(
            folded.active[:1], last.keep[:1], last.keep[:1], last.keep_count[:1],
            read_buf=WORK, write_buf=OUTPUT,
        )
    ]  # fmt: skip
    for split in reversed(steps):
        mask = int(split.partner[0])
        sender = np.arange(mask, 2 * mask)
        part = transfers(
            folded.active[sender], folded.active[sender - mask], split.keep[sender], count=split.keep_count[sender],
            read_buf=WORK, write_buf=np.where(sender == mask, OUTPUT, WORK),
        )  # fmt: skip
        phases.append(once(part))
    return phases


BUILDERS = {"flat": flat, "binomial": binomial, "rabenseifner": rabenseifner}
