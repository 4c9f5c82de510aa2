"""Barriers: nobody leaves before everybody has come."""

import numpy as np

from collbench.portable.patterns import joined, powers
from collbench.portable.schedule import INPUT, OUTPUT, once, transfers
from collbench.portable.shape import Built, Shape


def dissemination(shape: Shape) -> Built:
    """In round k rank r tells rank r + 2^k: ceil(log2 p) rounds for any p.

    Source: Hensgen, Finkel, Manber, Two algorithms for barrier synchronization (1988).
    """
    r = np.arange(shape.ranks)
    rounds = [
        once(transfers(r, (r + mask) % shape.ranks, 0, read_buf=INPUT, write_buf=OUTPUT))
        for mask in powers(shape.ranks)
    ]
    return Built(np.zeros(1, np.int64), np.zeros(1, np.int64), joined(rounds))


BUILDERS = {"dissemination": dissemination}
