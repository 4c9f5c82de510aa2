"""What each portable algorithm sends, counted from its schedule, beside the textbook's formula."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from collbench.errors import UsageError
from collbench.portable.catalogue import every_algorithm, schedule
from collbench.portable.schedule import Longs, Phase, Schedule, ShapeError, Transfers
from collbench.portable.textbook import FOLDED, REMARKS, TEXTBOOK, Textbook
from collbench.portable.topology import node_of

_ITEM = 4
_PART = 1 << 20
_MOST_RANKS = 4096
RANKS_PER_NODE = 8


@dataclass(frozen=True, slots=True)
class Totals:
    """Counts of one schedule. All arrays have shape (ranks,).

    Attributes:
        messages: messages sent.
        sent: bytes sent.
        received: bytes received.
    """

    messages: Longs
    sent: Longs
    received: Longs


def totals(plan: Schedule) -> Totals:
    """Count messages and bytes of every rank; equal repetitions are counted once and multiplied."""
    found = np.zeros((3, plan.ranks))
    for phase in plan.phases:
        for part in (t for r in phase.rounds for t in r.messages):
            for src, dst, nbytes, times in _messages(plan, phase, part):
                keep = slice(None) if plan.keep_empty else nbytes > 0
                for row, who, weight in ((0, src, np.ones_like(nbytes)), (1, src, nbytes), (2, dst, nbytes)):
                    found[row] += times * np.bincount(who[keep], weight[keep], plan.ranks)
    return Totals(*(np.rint(row).astype(np.int64) for row in found))


def _messages(plan: Schedule, phase: Phase, part: Transfers) -> Iterator[tuple[Longs, Longs, Longs, int]]:
    """Yield (src, dst, bytes, how many times) of a transfer over all repetitions, in parts that fit in memory."""
    standing = not (part.src_step or part.dst_step or part.clip) and len(set(plan.sizes.tolist())) == 1
    if standing or phase.repeat == 1:
        yield (*_moved(plan, part, np.zeros((1, 1), np.int64)), phase.repeat)
        return
    step = max(1, _PART // part.src.size)
    for first in range(0, phase.repeat, step):
        k = np.arange(first, min(first + step, phase.repeat)).reshape(-1, 1)
        yield (*_moved(plan, part, k), 1)


def _moved(plan: Schedule, part: Transfers, k: Longs) -> tuple[Longs, Longs, Longs]:
    src, dst = (part.src + k * part.src_step) % plan.ranks, (part.dst + k * part.dst_step) % plan.ranks
    read = part.read + k * part.read_step
    inside: npt.NDArray[np.bool_] = np.ones(read.shape, bool)
    if part.clip:
        inside = (read >= 0) & (read < part.wrap)
        read = np.clip(read, 0, part.wrap - 1)
    elif part.wrap:
        read = read % part.wrap
    read = read + part.base
    last = read + part.count - 1
    nbytes = np.where(inside, plan.starts[last] + plan.sizes[last] - plan.starts[read], 0)
    return src.ravel(), dst.ravel(), nbytes.ravel()


def table(ranks: Sequence[int], nodes_of: int = RANKS_PER_NODE) -> list[dict[str, Any]]:
    """Return one row per algorithm and rank count; bytes are in units of S.

    Args:
        ranks: rank counts, 1 … 4096.
        nodes_of: ranks on a node, for hierarchical algorithms.

    Each row: collective, algorithm, ranks, rounds, messages (all ranks), messages_busiest, sent_busiest,
    received_busiest, moved_busiest, total; textbook (formula or None), textbook_value, agrees (None without a formula
    for this count) and remark.

    Raises:
        UsageError: a rank count out of range.
    """
    for p in ranks:
        if not 1 <= p <= _MOST_RANKS:
            raise UsageError(f"{p} ranks are not possible here: give 1 … {_MOST_RANKS}")
    pairs = [(c, a) for c, a in every_algorithm() if c != "sendrecv"]
    return [row for c, a in pairs for p in ranks if (row := _row(c, a, p, nodes_of)) is not None]


def _row(name: str, algorithm: str, ranks: int, nodes_of: int) -> dict[str, Any] | None:
    # Divisible by all pieces that algorithms make of it, whatever the number of ranks.
    nbytes = 0 if name == "barrier" else _ITEM * ranks * ranks * nodes_of
    nodes = node_of(ranks, virtual_nodes=-(-ranks // nodes_of))
    try:
        plan = schedule(name, algorithm, ranks, nbytes, _ITEM, node_of=nodes)
    except ShapeError:
        return None
    count = totals(plan)
    unit = nbytes or 1
    amounts = {
        "sent": count.sent.max() / unit,
        "received": count.received.max() / unit,
        "moved": (count.sent + count.received).max() / unit,
        "total": count.sent.sum() / unit,
    }
    row: dict[str, Any] = {
        "collective": name, "algorithm": algorithm, "ranks": ranks, "rounds": plan.rounds,
        "messages": int(count.messages.sum()), "messages_busiest": int(count.messages.max()),
        "sent_busiest": float(amounts["sent"]), "received_busiest": float(amounts["received"]),
        "moved_busiest": float(amounts["moved"]), "total": float(amounts["total"]),
    }  # fmt: skip
    return {
        **row,
        **_against(TEXTBOOK.get((name, algorithm)), ranks, amounts, REMARKS.get((name, algorithm), "")),
    }


def _against(book: Textbook | None, ranks: int, amounts: dict[str, Any], remark: str) -> dict[str, Any]:
    if book is None:
        return {"textbook": None, "textbook_value": None, "quantity": None, "agrees": None, "remark": remark}
    value = book.value(ranks)
    if book.powers_only and ranks & (ranks - 1):
        return {
            "textbook": book.formula, "textbook_value": None, "quantity": book.quantity, "agrees": None,
            "remark": "; ".join(filter(None, (remark, FOLDED))),
        }  # fmt: skip
    agrees = bool(np.isclose(float(amounts[book.quantity]), value, rtol=1e-9, atol=0))
    return {
        "textbook": book.formula, "textbook_value": value, "quantity": book.quantity, "agrees": agrees, "remark": remark,
    }  # fmt: skip
