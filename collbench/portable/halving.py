"""Recursive halving and doubling for any number of ranks: the ranks above a power of two are folded in and out.

With q the largest power of two and e = p − q extra ranks, ranks 0 … 2e − 1 form pairs (even, odd). The even one
takes part for both; new number = rank / 2 in the pairs, rank − e behind them.
Source: Thakur, Rabenseifner, Gropp, Optimization of Collective Communication Operations in MPICH (2005).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from collbench.portable.patterns import powers
from collbench.portable.schedule import INPUT, Longs, Phase, once, transfers


@dataclass(frozen=True)
class Fold:
    """Which ranks take part in the power-of-two core, in the order of ``members``.

    Attributes:
        active: shape (q,), rank of each new number.
        kept: shape (e,), the even ranks of the pairs.
        folded: shape (e,), their odd partners.
        bounds: shape (q + 1,), first block of each new number when there is one block per rank.
    """

    active: Longs
    kept: Longs
    folded: Longs
    bounds: Longs

    @property
    def size(self) -> int:
        """The power of two q."""
        return int(self.active.size)


def fold(members: Longs) -> Fold:
    """Return the fold of ``members``; ``members[0]`` is always active and has number 0."""
    p = members.size
    q = 1 << (p.bit_length() - 1)
    extra = p - q
    number = np.arange(q)
    active = np.where(number < extra, 2 * number, number + extra)
    pairs = 2 * np.arange(extra)
    return Fold(members[active], members[pairs], members[pairs + 1], np.append(active, p))


def fold_in(folded: Fold, pieces: int, *, source: int, target: int) -> list[Phase]:
    """Return the round in which the folded ranks' vectors are combined into their partners' ``target``."""
    part = transfers(
        folded.folded, folded.kept, 0, count=pieces, read_buf=source, write_buf=target, own_buf=source
    )
    return [once(part)] if folded.kept.size else []


def fold_out(folded: Fold, pieces: int, *, buffer: int) -> list[Phase]:
    """Return the round in which the partners send the whole result to the folded ranks."""
    part = transfers(folded.kept, folded.folded, 0, count=pieces, read_buf=buffer, write_buf=buffer)
    return [once(part)] if folded.kept.size else []


def own_buffer(folded: Fold, *, source: int, target: int) -> Longs:
    """Return, for each active number, where its vector is after ``fold_in``."""
    return np.where(np.arange(folded.size) < folded.kept.size, target, source)


@dataclass(frozen=True)
class Split:
    """One halving step: number i keeps blocks ``keep`` … and gives ``give`` … to ``partner[i]``."""

    partner: Longs
    keep: Longs
    keep_count: Longs
    give: Longs
    give_count: Longs


def splits(size: int, bounds: Longs, *, near_first: bool) -> Iterator[Split]:
    """Yield the steps of recursive halving over ``size`` numbers; blocks of number i are bounds[i] … bounds[i+1].

    near_first exchanges the largest part with the nearest number (blocks end bit-reversed); otherwise the farthest
    comes first and number i ends with its own blocks.
    """
    number = np.arange(size)
    low, high = np.zeros(size, np.int64), np.full(size, size)
    masks = powers(size) if near_first else powers(size)[::-1]
    for mask in masks:
        middle = (low + high) // 2
        upper = number & mask > 0
        keep_low, keep_high = np.where(upper, middle, low), np.where(upper, high, middle)
        give_low, give_high = np.where(upper, low, middle), np.where(upper, middle, high)
        yield Split(
            number ^ mask,
            bounds[keep_low],
            bounds[keep_high] - bounds[keep_low],
            bounds[give_low],
            bounds[give_high] - bounds[give_low],
        )
        low, high = keep_low, keep_high


def halve(
    folded: Fold, bounds: Longs, *, near_first: bool, source: int, target: int, folded_in: int | None = None
) -> list[Phase]:
    """Return recursive halving: each step combines the kept half in ``target``.

    Args:
        folded: who takes part.
        bounds: first block of each number, and the end.
        near_first: see ``splits``.
        source: where the vectors are before the first step.
        target: where parts are combined.
        folded_in: buffer that holds the vectors of ranks that took in a partner; ``target`` if None.
    """
    held = own_buffer(folded, source=source, target=target if folded_in is None else folded_in)
    phases = []
    for split in splits(folded.size, bounds, near_first=near_first):
        part = transfers(
            folded.active, folded.active[split.partner], split.give, count=split.give_count,
            read_buf=held, write_buf=target, own_buf=held[split.partner],
        )  # fmt: skip
        phases.append(once(part))
        held = np.full(folded.size, target)
    return phases


def double(folded: Fold, bounds: Longs, *, near_first: bool, buffer: int) -> list[Phase]:
    """Return recursive doubling: the halving steps backwards, each side sending what it has."""
    phases = []
    for split in reversed(list(splits(folded.size, bounds, near_first=near_first))):
        part = transfers(
            folded.active, folded.active[split.partner], split.keep, count=split.keep_count,
            read_buf=buffer, write_buf=buffer,
        )  # fmt: skip
        phases.append(once(part))
    return phases


def exchange_all(folded: Fold, pieces: int, *, target: int) -> list[Phase]:
    """Return recursive doubling of whole vectors: every step combines all pieces in ``target``."""
    held = own_buffer(folded, source=INPUT, target=target)
    number = np.arange(folded.size)
    phases = []
    for mask in powers(folded.size):
        partner = number ^ mask
        part = transfers(
            folded.active, folded.active[partner], 0, count=pieces,
            read_buf=held, write_buf=target, own_buf=held[partner],
        )  # fmt: skip
        phases.append(once(part))
        held = np.full(folded.size, target)
    return phases
