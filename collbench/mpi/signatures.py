"""Which traces each provider's algorithms leave, and which algorithm a measured trace belongs to. No MPI."""

from collections.abc import Callable, Iterator, Sequence
from itertools import product

import numpy as np

from collbench.mpi import exchanges as x
from collbench.mpi import schedules as s
from collbench.mpi.schedules import Matrix, Model, Trace
from collbench.records import Evidence


def _only(model: Model) -> Callable[[int, int], Iterator[Trace]]:
    def one(p: int, n: int) -> Iterator[Trace]:
        yield model(p, n)

    return one


def _power_of_two(model: Model) -> Callable[[int, int], Iterator[Trace]]:
    def one(p: int, n: int) -> Iterator[Trace]:
        if p & (p - 1) == 0:
            yield model(p, n)

    return one


def _even(model: Model) -> Callable[[int, int], Iterator[Trace]]:
    def one(p: int, n: int) -> Iterator[Trace]:
        if p % 2 == 0:
            yield model(p, n)

    return one


def _two(model: Model) -> Callable[[int, int], Iterator[Trace]]:
    def one(p: int, n: int) -> Iterator[Trace]:
        if p == 2:
            yield model(p, n)

    return one


Models = Callable[[int, int], Iterator[Trace]]


def _sum_of(first: str, second: str, *, apart: tuple[str, str] | None = None) -> Models:
    """Return the traces of one collective made of two, each by any of its algorithms (except one pair)."""

    def combined(p: int, n: int) -> Iterator[Trace]:
        for (a, left), (b, right) in product(_TUNED[first].items(), _TUNED[second].items()):
            if (a, b) != apart:
                for one, other in product(left(p, n), right(p, n)):
                    yield one + other

    return combined


_TUNED: dict[str, dict[str, Models]] = {
    "bcast": {
        "basic_linear": _only(lambda p, n: s.down(p, s.flat_tree(p), n)),
        "chain": _only(lambda p, n: s.down(p, s.chain_tree(p, 4), n)),
        "pipeline": _only(lambda p, n: s.down(p, s.chain_tree(p, 1), n)),
        "split_binary_tree": _only(x.split_binary_bcast),
        "binary_tree": _only(lambda p, n: s.down(p, s.binary_tree(p), n)),
        "binomial": _only(lambda p, n: s.down(p, s.binomial_tree(p), n)),
        "knomial": _only(lambda p, n: s.down(p, s.knomial_tree(p, 4), n)),
        "scatter_allgather": _power_of_two(lambda p, n: x.scatter_allgather_bcast(p, n, ring=False)),
        "scatter_allgather_ring": _only(lambda p, n: x.scatter_allgather_bcast(p, n, ring=True)),
    },
    "reduce": {
        "linear": _only(lambda p, n: s.up(p, s.flat_tree(p), n)),
        "chain": _only(lambda p, n: s.up(p, s.chain_tree(p, 4), n)),
        "pipeline": _only(lambda p, n: s.up(p, s.chain_tree(p, 1), n)),
        "binary": _only(lambda p, n: s.up(p, s.binary_tree(p), n)),
        "binomial": _only(lambda p, n: s.up(p, s.in_order_binomial_tree(p), n)),
        "in-order_binary": _only(x.in_order_reduce),
        "rabenseifner": _only(s.rabenseifner_reduce),
    },
    "gather": {
        "basic_linear": _only(lambda p, n: x.collect(p, s.flat_tree(p), n)),
        "binomial": _only(lambda p, n: x.collect(p, s.in_order_binomial_tree(p), n)),
        "linear_sync": _only(x.synchronised_gather),
    },
    "scatter": {
        "basic_linear": _only(lambda p, n: x.spread(p, s.flat_tree(p), n)),
        "binomial": _only(lambda p, n: x.spread(p, s.in_order_binomial_tree(p), n)),
        "linear_nb": _only(lambda p, n: x.spread(p, s.flat_tree(p), n)),
    },
}
# Algorithms made of two others come last: they can look like a simpler one.
_TUNED |= {
    "allreduce": {
        "basic_linear": _only(lambda p, n: s.up(p, s.flat_tree(p), n) + s.down(p, s.flat_tree(p), n)),
        "recursive_doubling": _only(s.recursive_doubling),
        "ring": _only(s.ring_allreduce),
        "segmented_ring": _only(s.ring_allreduce),
        "rabenseifner": _only(s.rabenseifner_allreduce),
        "nonoverlapping": _sum_of("reduce", "bcast", apart=("linear", "basic_linear")),
    },
    "allgather": {
        "bruck": _only(x.bruck_allgather),
        "recursive_doubling": _power_of_two(x.doubling_allgather),
        "ring": _only(lambda p, n: s.ring_allgather(p, [n // p] * p)),
        "neighbor": _even(x.neighbour_allgather),
        "two_proc": _two(x.doubling_allgather),
        "sparbit": _only(x.sparbit_allgather),
        "linear": _sum_of("gather", "bcast"),
    },
    "reduce_scatter": {
        "recursive_doubling": _power_of_two(x.doubling_reduce_scatter),
        "recursive_halving": _only(s.halving_reduce_scatter),
        "butterfly": _power_of_two(lambda p, n: s.halving_reduce_scatter(p, n, far_first=False)),
        "basic_linear": _sum_of("reduce", "scatter"),
    },
    "reduce_scatter_v": {
        "recursive_halving": _only(s.halving_reduce_scatter),
        "ring": _only(lambda p, n: s.ring_reduce_scatter(p, [n // p] * p)),
        "butterfly": _power_of_two(x.butterfly_reduce_scatter),
        "non-overlapping": _sum_of("reduce", "scatter"),
    },
    "alltoall": {
        "linear": _only(x.direct_alltoall),
        "pairwise": _only(x.direct_alltoall),
        "modified_bruck": _only(x.bruck_alltoall),
        "linear_sync": _only(x.direct_alltoall),
        "two_proc": _two(x.direct_alltoall),
    },
    "barrier": {
        "linear": _only(lambda p, _n: s.down(p, s.flat_tree(p), 0) + s.up(p, s.flat_tree(p), 0)),
        "double_ring": _only(x.double_ring),
        "recursive_doubling": _only(x.doubling_barrier),
        "bruck": _only(x.dissemination_barrier),
        "two_proc": _two(x.dissemination_barrier),
        "tree": _only(
            lambda p, _n: s.down(p, s.in_order_binomial_tree(p), 0) + s.up(p, s.in_order_binomial_tree(p), 0)
        ),
    },
}


def _heaps(p: int, n: int) -> Iterator[Trace]:
    """MPICH's shared-memory reductions: kary trees, k = 4 for small and 2 for large messages."""
    for k in (2, 4):
        yield s.up(p, x.heap_tree(p, k), n)


_MPICH: dict[str, dict[str, Models]] = {
    "allreduce": {
        "smp": _only(lambda p, n: s.up(p, s.in_order_binomial_tree(p), n)),
        "recursive_doubling": _only(s.recursive_doubling),
        "recursive_multiplying": _power_of_two(s.recursive_doubling),
        "reduce_scatter_allgather": _only(x.folded_rabenseifner),
        "tree": _only(lambda p, n: s.up(p, x.preorder_binomial_tree(p), n)),
        "recexch": _only(s.recursive_doubling),
        "ring": _only(s.ring_allreduce),
        "k_reduce_scatter_allgather": _only(x.folded_rabenseifner),
        "release_gather": _heaps,
    },
    "reduce": {
        "binomial": _only(lambda p, n: s.up(p, s.in_order_binomial_tree(p), n)),
        "smp": _only(lambda p, n: s.up(p, s.in_order_binomial_tree(p), n)),
        "reduce_scatter_gather": _only(s.rabenseifner_reduce),
        "release_gather": _heaps,
    },
    "reduce_scatter": {
        "recursive_doubling": _power_of_two(x.doubling_reduce_scatter),
        "pairwise": _only(x.pairwise_reduce_scatter),
        "recursive_halving": _only(s.halving_reduce_scatter),
        "noncommutative": _power_of_two(s.halving_reduce_scatter),
    },
}
_MPICH["reduce_scatter_v"] = _MPICH["reduce_scatter"]


def _intel_reduce_bcast(p: int, n: int) -> Iterator[Trace]:
    """Intel's reduce + bcast: a segmented chain for large messages, halving for small ones."""
    yield s.up(p, s.chain_tree(p, 1), n)
    if p & (p - 1) == 0:
        yield s.rabenseifner_reduce(p, n)


# Presets without a name look like one of these textbook algorithms, or like none.
_INTEL: dict[str, dict[str, Models]] = {
    "allreduce": {
        "recursive_doubling": _only(s.recursive_doubling),
        "preset_9": _only(s.recursive_doubling),
        "rabenseifner": _only(x.folded_rabenseifner),
        "reduce_bcast": _intel_reduce_bcast,
        "ring": _only(s.ring_allreduce),
    },
    "reduce": _TUNED["reduce"],
    "reduce_scatter": _MPICH["reduce_scatter"],
    "reduce_scatter_v": _MPICH["reduce_scatter"],
}

_TABLES = {"openmpi": _TUNED, "mpich": _MPICH, "intelmpi": _INTEL}


def modelled(provider: str, collective: str) -> tuple[str, ...]:
    """Return the algorithms of a provider whose traces are known."""
    return tuple(_TABLES.get(provider, {}).get(collective, {}))


def match_messages(
    provider: str, collective: str, elements: Matrix, messages: Matrix, total: int
) -> tuple[str, ...]:
    """Return the algorithms whose expected messages agree with the measured ones.

    Every pair of ranks must exchange exactly the expected elements, and messages just where they are expected;
    more messages than expected mean segments.

    Args:
        provider: whose algorithms.
        collective: name.
        elements: measured, shape (ranks, ranks), sender in the row.
        messages: measured, the same shape.
        total: elements of the whole message S.
    """
    ranks = len(messages)

    def fits(trace: Trace) -> bool:
        return (
            np.array_equal(trace.elements, elements)
            and np.array_equal(trace.messages > 0, messages > 0)
            and bool((messages >= trace.messages).all())
        )

    table = _TABLES.get(provider, {}).get(collective, {})
    return tuple(name for name, models in table.items() if any(fits(t) for t in models(ranks, total)))


def match_ops(provider: str, collective: str, ops: Sequence[Sequence[int]], total: int) -> tuple[str, ...]:
    """Return the algorithms whose expected operator calls agree with the measured ones on every rank.

    First by the exact counts of the calls in any order; if nothing fits, with calls cut into segments: the same
    sum on every rank in more and smaller calls.
    """
    ranks = len(ops)
    found = [sorted(rank) for rank in ops]
    table = _TABLES.get(provider, {}).get(collective, {})

    def exact(trace: Trace) -> bool:
        return [sorted(rank) for rank in trace.ops] == found

    def segmented(trace: Trace) -> bool:
        return all(
            sum(have) == sum(want) and len(have) >= len(want) and max(have, default=0) <= max(want, default=0)
            for have, want in zip(found, trace.ops, strict=True)
        )

    for fits in (exact, segmented):
        names = tuple(name for name, models in table.items() if any(fits(t) for t in models(ranks, total)))
        if names:
            return names
    return ()


def judge(requested: str, names: Sequence[str], by: str, detail: str) -> Evidence:
    """Turn matches into evidence.

    Args:
        requested: the algorithm asked for; ``default`` agrees with anything.
        names: the algorithms that the trace fits.
        by: operator_trace or message_counts.
        detail: the finding in a few words.
    """
    if not names:
        return Evidence("unknown", by, None, (), f"{detail}: fits no known algorithm")
    if requested == "default":
        status = "proven" if len(names) == 1 else "not_separable"
        return Evidence(status, by, names[0], tuple(names) if len(names) > 1 else (), detail)
    if requested in names:
        if len(names) == 1:
            return Evidence("proven", by, requested, (), detail)
        return Evidence("not_separable", by, requested, tuple(names), detail)
    if len(names) == 1:
        return Evidence("contradicted", by, names[0], (), f"{detail}: {requested} was asked for")
    return Evidence("contradicted", by, names[0], tuple(names), f"{detail}: {requested} was asked for")
