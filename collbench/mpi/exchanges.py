"""Expected traces, continued: all-gathers, all-to-alls, scatters and gathers, barriers, reduce-scatters."""

from collbench.mpi.schedules import (
    Edges,
    Trace,
    binary_tree,
    down,
    in_order_binary_tree,
    in_order_binomial_tree,
    power_below,
    rabenseifner_allreduce,
    ring_allgather,
    subtree_sizes,
    up,
)


def collect(p: int, edges: Edges, n: int) -> Trace:
    """Gather along a tree: a child passes on its whole subtree's blocks."""
    trace, below = Trace(p), subtree_sizes(p, edges)
    for parent, child in edges:
        trace.send(child, parent, below[child] * (n // p))
    return trace


def spread(p: int, edges: Edges, n: int) -> Trace:
    """Scatter along a tree: a child gets its whole subtree's blocks."""
    trace, below = Trace(p), subtree_sizes(p, edges)
    for parent, child in edges:
        trace.send(parent, child, below[child] * (n // p))
    return trace


def synchronised_gather(p: int, n: int) -> Trace:
    """Linear gather in which the root calls each rank with an empty message."""
    trace = Trace(p)
    for r in range(1, p):
        trace.send(0, r, 0)
        trace.send(r, 0, n // p)
    return trace


def split_binary_bcast(p: int, n: int) -> Trace:
    """Half the message goes down each side of a binary tree, then odd ranks swap halves with their successor."""
    halves = (n - n // 2, n // 2)
    trace = Trace(p)
    for parent, child in binary_tree(p):
        trace.send(parent, child, halves[0] if child % 2 else halves[1])
    for r in range(1, p - 1, 2):
        trace.send(r, r + 1, halves[0])
        trace.send(r + 1, r, halves[1])
    if p % 2 == 0:
        trace.send(0, p - 1, halves[1])
    return trace


def scatter_allgather_bcast(p: int, n: int, *, ring: bool) -> Trace:
    """Binomial scatter of blocks, then a ring or recursive-doubling all-gather."""
    block = -(-n // p)
    blocks = [max(0, min(block, n - i * block)) for i in range(p)]
    edges = in_order_binomial_tree(p)
    below = subtree_sizes(p, edges)
    trace = Trace(p)
    for parent, child in edges:
        trace.send(parent, child, sum(blocks[child : child + below[child]]))
    if ring:
        return trace + ring_allgather(p, blocks)
    return trace + doubling_allgather(p, n)


def doubling_allgather(p: int, n: int) -> Trace:
    """At distance d = 1, 2, 4 … everyone exchanges the d blocks it has (p a power of two)."""
    trace, distance = Trace(p), 1
    while distance < p:
        for r in range(p):
            trace.send(r, r ^ distance, distance * (n // p))
        distance *= 2
    return trace


def bruck_allgather(p: int, n: int) -> Trace:
    """At distance d = 1, 2, 4 … everyone sends min(d, p − d) blocks downwards."""
    trace, distance = Trace(p), 1
    while distance < p:
        for r in range(p):
            trace.send(r, (r - distance) % p, min(distance, p - distance) * (n // p))
        distance *= 2
    return trace


def neighbour_allgather(p: int, n: int) -> Trace:
    """One block to the first neighbour, then two blocks to the second and the first by turns (p even)."""
    block, trace = n // p, Trace(p)
    for r in range(p):
        near = ((r + 1) % p, (r - 1) % p) if r % 2 == 0 else ((r - 1) % p, (r + 1) % p)
        trace.send(r, near[0], block)
        for step in range(1, p // 2):
            trace.send(r, near[step % 2], 2 * block)
    return trace


def sparbit_allgather(p: int, n: int) -> Trace:
    """Halving distances, doubling numbers of single-block messages, minus those that would arrive twice."""
    trace, distance, held = Trace(p), 1 << ((p - 1).bit_length() - 1), 1
    shift = (p & -p).bit_length() - 1
    skip = (~(p >> shift) | 1) << shift
    while distance:
        without = int(skip & distance == distance)
        for r in range(p):
            for _ in range(held - without):
                trace.send(r, (r + distance) % p, n // p)
        held, distance = 2 * held - without, distance // 2
    return trace


def direct_alltoall(p: int, n: int) -> Trace:
    """Everyone sends a block to everyone."""
    trace = Trace(p)
    for r in range(p):
        for t in range(p):
            if r != t:
                trace.send(r, t, n // p)
    return trace


def bruck_alltoall(p: int, n: int) -> Trace:
    """At distance d = 1, 2, 4 … everyone sends the blocks whose number has that bit upwards."""
    trace, distance = Trace(p), 1
    while distance < p:
        blocks = sum(1 for i in range(1, p) if i & distance)
        for r in range(p):
            trace.send(r, (r + distance) % p, blocks * (n // p))
        distance *= 2
    return trace


def in_order_reduce(p: int, n: int) -> Trace:
    """Reduce up the in-order binary tree to the last rank, which sends the result to rank 0."""
    trace = up(p, in_order_binary_tree(p), n)
    if p > 1:
        trace.send(p - 1, 0, n)
    return trace


def doubling_reduce_scatter(p: int, n: int) -> Trace:
    """At distance d everyone exchanges all blocks but the d it has already combined (p a power of two)."""
    trace, distance, block = Trace(p), 1, n // p
    while distance < p:
        for r in range(p):
            partner = r ^ distance
            trace.send(r, partner, (p - distance) * block)
            # The receiver combines what lies before and behind its own blocks in two calls.
            before = (r // distance * distance) * block
            trace.ops[partner] += [part for part in (before, (p - distance) * block - before) if part]
        distance *= 2
    return trace


def butterfly_reduce_scatter(p: int, n: int) -> Trace:
    """Nearest partner first, it gets most; then blocks go to their owner by bit reversal (p a power of two)."""
    trace, bits, block = Trace(p), p.bit_length() - 1, n // p
    for step in range(bits):
        for r in range(p):
            trace.send(r, r ^ (1 << step), (p >> (step + 1)) * block, op=True)
    for r in range(p):
        owner = int(f"{r:0{bits}b}"[::-1], 2) if bits else r
        if owner != r:
            trace.send(r, owner, block)
    return trace


def pairwise_reduce_scatter(p: int, n: int) -> Trace:
    """Everyone sends each other rank its block, who combines them one by one."""
    trace = Trace(p)
    for r in range(p):
        for step in range(1, p):
            trace.send(r, (r + step) % p, n // p, op=True)
    return trace


def dissemination_barrier(p: int, _n: int) -> Trace:
    """An empty message to r + 1, r + 2, r + 4 and so on."""
    trace, distance = Trace(p), 1
    while distance < p:
        for r in range(p):
            trace.send(r, (r + distance) % p, 0)
        distance *= 2
    return trace


def doubling_barrier(p: int, _n: int) -> Trace:
    """Recursive doubling in the largest power of two; the others report to and hear from one rank of it."""
    pow2 = power_below(p)
    trace, distance = Trace(p), 1
    while distance < pow2:
        for r in range(pow2):
            trace.send(r, r ^ distance, 0)
        distance *= 2
    return trace + down(p, [(r - pow2, r) for r in range(pow2, p)], 0) + _reports(p, pow2)


def _reports(p: int, pow2: int) -> Trace:
    trace = Trace(p)
    for r in range(pow2, p):
        trace.send(r, r - pow2, 0)
    return trace


def double_ring(p: int, _n: int = 0) -> Trace:
    """An empty message goes round twice."""
    trace = Trace(p)
    for r in range(p):
        trace.send(r, (r + 1) % p, 0)
        trace.send(r, (r + 1) % p, 0)
    return trace


def heap_tree(p: int, k: int) -> Edges:
    """Each rank's children are k·r + 1 to k·r + k (MPICH's kary)."""
    return [((r - 1) // k, r) for r in range(1, p)]


def preorder_binomial_tree(p: int) -> Edges:
    """Binomial tree numbered depth first, the largest subtree first (MPICH's knomial_1 with k = 2)."""
    edges = Edges()

    def grow(root: int, end: int, size: int) -> None:
        child = root + 1
        while size > 1 and child < end:
            size //= 2
            edges.append((root, child))
            grow(child, min(end, child + size), size)
            child += size

    grow(0, p, 1 << (p - 1).bit_length())
    return edges


def folded_rabenseifner(p: int, n: int) -> Trace:
    """Rabenseifner's allreduce after whole vectors of the ranks beyond a power of two were folded in (MPICH)."""
    trace, pow2 = Trace(p), power_below(p)
    rest = p - pow2
    for r in range(0, 2 * rest, 2):
        trace.send(r, r + 1, n, op=True)
        trace.send(r + 1, r, n)
    real = [2 * v + 1 if v < rest else v + rest for v in range(pow2)]
    inner = rabenseifner_allreduce(pow2, n)
    for a in range(pow2):
        trace.ops[real[a]] += inner.ops[a]
        for b in range(pow2):
            trace.elements[real[a], real[b]] += inner.elements[a, b]
            trace.messages[real[a], real[b]] += inner.messages[a, b]
    return trace
