"""What each textbook algorithm sends and combines: the expected trace that a measured one is compared with.

Pure functions of rank count and element count, roots at rank 0. Closed forms follow the algorithms' definitions
(Thakur, Rabenseifner, Gropp 2005; Bruck et al. 1997; Traeff 2005 for the butterfly; Loch, Koslovski 2021 for
sparbit); tree shapes and the handling of rank counts that are no power of two follow Open MPI 4.1 and 5.0, and
were compared with its message counters at 2 to 8 ranks.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.int64]


@dataclass
class Trace:
    """Messages and operator calls of one collective call.

    Attributes:
        ranks: number of ranks p.
        elements: shape (p, p), elements sent from row to column.
        messages: shape (p, p), messages sent; a lower bound where an algorithm cuts messages into segments.
        ops: per rank, the element counts of its operator calls in order.
    """

    ranks: int
    elements: Matrix = field(init=False)
    messages: Matrix = field(init=False)
    ops: list[list[int]] = field(init=False)

    def __post_init__(self) -> None:
        self.elements = np.zeros((self.ranks, self.ranks), np.int64)
        self.messages = np.zeros((self.ranks, self.ranks), np.int64)
        self.ops = [[] for _ in range(self.ranks)]

    def send(self, source: int, target: int, elements: int, *, op: bool = False) -> None:
        """Count one message; with ``op`` the receiver combines it with what it has."""
        self.elements[source, target] += elements
        self.messages[source, target] += 1
        if op and elements:
            self.ops[target].append(elements)

    def __add__(self, other: "Trace") -> "Trace":
        both = Trace(self.ranks)
        both.elements = self.elements + other.elements
        both.messages = self.messages + other.messages
        both.ops = [a + b for a, b in zip(self.ops, other.ops, strict=True)]
        return both


Model = Callable[[int, int], Trace]
"""(ranks, total elements) → expected trace. Total means the whole message S, as everywhere (DESIGN §2)."""

# --- trees: (parent, child) edges with root 0 -----------------------------------------------------------------

Edges = list[tuple[int, int]]


def flat_tree(p: int) -> Edges:
    """Root to everyone."""
    return [(0, r) for r in range(1, p)]


def chain_tree(p: int, fanout: int) -> Edges:
    """``fanout`` chains hang on the root; the first ones are longer by one where p − 1 does not divide evenly."""
    fanout = min(fanout, p - 1)
    if fanout < 1:
        return []
    length, extra = divmod(p - 1, fanout)
    edges, start = Edges(), 1
    for i in range(fanout):
        members = [0, *range(start, start + length + (i < extra))]
        edges += list(pairwise(members))
        start += len(members) - 1
    return edges


def binary_tree(p: int) -> Edges:
    """Binary tree in which a child sits one level's width (or twice that) above its parent."""
    edges = Edges()
    for r in range(p):
        width = 1 << ((r + 1).bit_length() - 1)
        edges += [(r, c) for c in (r + width, r + 2 * width) if c < p]
    return edges


def binomial_tree(p: int) -> Edges:
    """Binomial tree for broadcasts: the parent of r lacks r's highest bit."""
    return [(r ^ (1 << (r.bit_length() - 1)), r) for r in range(1, p)]


def in_order_binomial_tree(p: int) -> Edges:
    """Binomial tree for gathers and reductions: the parent of r lacks r's lowest bit."""
    return [(r & (r - 1), r) for r in range(1, p)]


def in_order_binary_tree(p: int) -> Edges:
    """Binary tree that keeps operand order; its root is the last rank."""
    edges, todo = Edges(), [(0, p)]
    while todo:
        start, size = todo.pop()
        parent, right = start + size - 1, size // 2
        if size > 1:
            edges.append((parent, parent - 1))
            todo.append((start + right, size - right - 1))
            if size > 2:
                edges.append((parent, start + right - 1))
                todo.append((start, right))
    return edges


def knomial_tree(p: int, radix: int) -> Edges:
    """The parent of r lacks r's lowest digit (base ``radix``) that is not zero."""
    edges = Edges()
    for r in range(1, p):
        mask = 1
        while r % (radix * mask) == 0:
            mask *= radix
        edges.append((r // (radix * mask) * (radix * mask), r))
    return edges


def down(p: int, edges: Iterable[tuple[int, int]], n: int) -> Trace:
    """Send ``n`` elements along each edge from parent to child."""
    trace = Trace(p)
    for parent, child in edges:
        trace.send(parent, child, n)
    return trace


def up(p: int, edges: Sequence[tuple[int, int]], n: int) -> Trace:
    """Send ``n`` elements along each edge from child to parent, who combines them."""
    trace = Trace(p)
    for parent, child in edges:
        trace.send(child, parent, n, op=True)
    return trace


def subtree_sizes(p: int, edges: Iterable[tuple[int, int]]) -> list[int]:
    """Return the number of ranks below and including each rank, for trees whose parents have lower ranks."""
    sizes = [1] * p
    for parent, child in sorted(edges, key=lambda e: -e[1]):
        sizes[parent] += sizes[child]
    return sizes


# --- exchanges -------------------------------------------------------------------------------------------------


def split(n: int, p: int) -> list[int]:
    """Return n elements cut into p blocks, the first ones longer by one."""
    length, extra = divmod(n, p)
    return [length + (i < extra) for i in range(p)]


def power_below(p: int) -> int:
    """Return the largest power of two that is not above p."""
    return 1 << (p.bit_length() - 1)


def recursive_doubling(p: int, n: int) -> Trace:
    """Allreduce: everyone exchanges everything with the partner at distance 1, 2, 4 and so on."""
    trace, pow2 = Trace(p), power_below(p)
    extra = p - pow2
    for r in range(0, 2 * extra, 2):
        trace.send(r, r + 1, n, op=True)
    real = [2 * v + 1 if v < extra else v + extra for v in range(pow2)]
    mask = 1
    while mask < pow2:
        for v in range(pow2):
            trace.send(real[v], real[v ^ mask], n, op=True)
        mask *= 2
    for r in range(0, 2 * extra, 2):
        trace.send(r + 1, r, n)
    return trace


def ring_reduce_scatter(p: int, blocks: Sequence[int], first: int = 0) -> Trace:
    """In step k of p − 1, rank r passes block r − k − first on and the receiver combines it."""
    trace = Trace(p)
    for k in range(p - 1):
        for r in range(p):
            trace.send(r, (r + 1) % p, blocks[(r - k - first) % p], op=True)
    return trace


def ring_allgather(p: int, blocks: Sequence[int], first: int = 0) -> Trace:
    """In step k of p − 1, rank r passes block r − k + first on."""
    trace = Trace(p)
    for k in range(p - 1):
        for r in range(p):
            trace.send(r, (r + 1) % p, blocks[(r - k + first) % p])
    return trace


def ring_allreduce(p: int, n: int) -> Trace:
    """Allreduce: ring reduce-scatter, then ring all-gather of the finished blocks."""
    blocks = split(n, p)
    return ring_reduce_scatter(p, blocks) + ring_allgather(p, blocks, first=1)


def rabenseifner_allreduce(p: int, n: int) -> Trace:
    """Allreduce: halving (nearest partner gets most), then the same steps backwards."""
    return _rabenseifner(p, n, rooted=False)


def rabenseifner_reduce(p: int, n: int) -> Trace:
    """Reduce: halving, then a binomial gather of the pieces to rank 0."""
    return _rabenseifner(p, n, rooted=True)


def _rabenseifner(p: int, n: int, *, rooted: bool) -> Trace:
    trace, pow2 = Trace(p), power_below(p)
    rest = p - pow2
    low, high = n // 2, n - n // 2
    for r in range(0, 2 * rest, 2):
        trace.send(r + 1, r, low, op=True)
        trace.send(r, r + 1, high, op=True)
        trace.send(r + 1, r, high)
    real = [2 * v if v < rest else v + rest for v in range(pow2)]
    windows, steps = [(0, n)] * pow2, list[tuple[int, list[tuple[int, int]]]]()
    mask = 1
    while mask < pow2:
        steps.append((mask, windows))
        halves = [(a, a + (b - a) // 2, b) for a, b in windows]
        # The lower partner keeps the lower half and sends the upper one.
        keep = [(h[0], h[1]) if not v & mask else (h[1], h[2]) for v, h in enumerate(halves)]
        for v in range(pow2):
            other = keep[v ^ mask]
            trace.send(real[v], real[v ^ mask], other[1] - other[0], op=True)
        windows, mask = keep, mask * 2
    for mask, before in reversed(steps):
        for v in range(pow2):
            if not rooted or (v & mask and v < 2 * mask):
                trace.send(real[v], real[v ^ mask], windows[v][1] - windows[v][0])
        windows = before
    if not rooted:
        for r in range(0, 2 * rest, 2):
            trace.send(r, r + 1, n)
    return trace


def halving_reduce_scatter(p: int, n: int, *, far_first: bool = True) -> Trace:
    """Reduce-scatter by halving. Farthest partner first (it gets most), or nearest first (butterfly)."""
    trace, pow2, block = Trace(p), power_below(p), n // p
    if pow2 != p:
        return _halving_folded(p, n)
    masks = [pow2 >> k for k in range(1, pow2.bit_length())]
    for step, mask in enumerate(masks if far_first else reversed(masks), start=1):
        for r in range(p):
            trace.send(r, r ^ mask, (pow2 >> step) * block, op=True)
    return trace


def _halving_folded(p: int, n: int) -> Trace:
    """Halving where p is no power of two: even ranks below 2·(p − 2^k) fold into their odd neighbour first."""
    trace, pow2, block = Trace(p), power_below(p), n // p
    rest = p - pow2
    for r in range(0, 2 * rest, 2):
        trace.send(r, r + 1, n, op=True)
    real = [2 * v + 1 if v < rest else v + rest for v in range(pow2)]
    held = [2 * block if v < rest else block for v in range(pow2)]
    low, high, mask = [0] * pow2, [pow2] * pow2, pow2 // 2
    while mask:
        for v in range(pow2):
            other = v ^ mask
            start = low[other] + (mask if other & mask else 0)
            trace.send(real[v], real[other], sum(held[start : start + mask]), op=True)
        for v in range(pow2):
            low[v] += mask if v & mask else 0
            high[v] = low[v] + mask
        mask //= 2
    for v in range(rest):
        trace.send(real[v], real[v] - 1, block)
    return trace
