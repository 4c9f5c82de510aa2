"""Which algorithm a trace belongs to, without MPI."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collbench.algorithms import algorithms
from collbench.mpi import exchanges, schedules
from collbench.mpi.signatures import _TABLES, judge, match_messages, match_ops, modelled

N = 131072
REDUCING = ("allreduce", "reduce", "reduce_scatter", "reduce_scatter_v")
RANKS = range(2, 18)


def traces(provider, collective, ranks, total):
    for name, models in _TABLES[provider][collective].items():
        for trace in models(ranks, total):
            yield name, trace


# Measured at 8 ranks with N doubles: (rank 0, rank 7).
MEASURED = {
    ("openmpi", "basic_linear"): ([N] * 7, []),
    ("openmpi", "recursive_doubling"): ([N] * 3, [N] * 3),
    ("openmpi", "ring"): ([N // 8] * 7, [N // 8] * 7),
    ("openmpi", "rabenseifner"): ([N // 2, N // 4, N // 8], [N // 2, N // 4, N // 8]),
    ("mpich", "tree"): ([N] * 3, []),
    ("mpich", "ring"): ([N // 8] * 7, [N // 8] * 7),
    ("mpich", "k_reduce_scatter_allgather"): ([N // 2, N // 4, N // 8], [N // 2, N // 4, N // 8]),
}


@pytest.mark.parametrize(("provider", "name"), MEASURED)
def test_models_agree_with_traces_measured_on_the_real_library(provider, name):
    """The operator calls that were seen at 8 ranks are the ones the model predicts."""
    trace = next(_TABLES[provider]["allreduce"][name](8, N))
    assert ([*trace.ops[0]], [*trace.ops[7]]) == MEASURED[provider, name]


def test_the_facts_message_counts_at_eight_ranks():
    """Messages each rank sends, as Open MPI's counters gave them."""
    expected = {
        ("bcast", "chain"): [4, 1, 0, 1, 0, 1, 0, 0],
        ("bcast", "pipeline"): [1, 1, 1, 1, 1, 1, 1, 0],
        ("bcast", "split_binary_tree"): [3, 3, 3, 2, 1, 1, 1, 0],
        ("bcast", "binary_tree"): [2, 2, 2, 1, 0, 0, 0, 0],
        ("bcast", "binomial"): [3, 2, 1, 1, 0, 0, 0, 0],
        ("bcast", "knomial"): [4, 0, 0, 0, 3, 0, 0, 0],
        ("allgather", "sparbit"): [7] * 8,
        ("allgather", "neighbor"): [4] * 8,
        ("barrier", "tree"): [3, 1, 2, 1, 3, 1, 2, 1],
        ("reduce", "in-order_binary"): [1] * 8,
        ("allreduce", "rabenseifner"): [6] * 8,
    }
    for (collective, name), counts in expected.items():
        trace = next(_TABLES["openmpi"][collective][name](8, N))
        assert trace.messages.sum(axis=1).tolist() == counts, (collective, name)


@pytest.mark.parametrize("provider", ["openmpi", "mpich"])
def test_every_row_of_a_traced_collective_has_a_model(provider):
    """No algorithm of the tables is left without an expected trace."""
    for collective in REDUCING:
        names = {row.name for row in algorithms(provider, collective)}
        assert names - set(modelled(provider, collective)) == set()


@pytest.mark.parametrize("ranks", RANKS)
def test_allreduce_models_reduce_everything(ranks):
    """Whatever the algorithm: every element is combined p − 1 times at least once per result."""
    for name, trace in traces("openmpi", "allreduce", ranks, 64 * ranks):
        assert sum(map(sum, trace.ops)) >= (ranks - 1) * 64 * ranks, name


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("collective", ["bcast", "allgather", "scatter"])
def test_everybody_receives_what_is_due(collective, ranks):
    """Bytes received in a broadcast, an all-gather, a scatter are at least the result's size."""
    total = 48 * ranks
    due = {"bcast": total, "allgather": total - 48, "scatter": 48}[collective]
    for name, trace in traces("openmpi", collective, ranks, total):
        assert all(trace.elements[:, r].sum() >= due for r in range(1, ranks)), name


@settings(deadline=None, derandomize=True, max_examples=60)
@given(st.sampled_from([2, 3, 4, 6, 8]), st.sampled_from(sorted(_TABLES["openmpi"])), st.integers(1, 64))
def test_a_model_always_matches_itself(ranks, collective, block):
    """Feeding a model's own trace back names it, alone or among those that look the same."""
    total = 0 if collective == "barrier" else block * ranks * 8
    for name, trace in traces("openmpi", collective, ranks, total):
        assert name in match_messages("openmpi", collective, trace.elements, trace.messages, total)


def test_segments_do_not_hide_an_algorithm():
    """More messages for the same bytes are segments; bytes to another rank are another algorithm."""
    trace = next(_TABLES["openmpi"]["bcast"]["pipeline"](8, N))
    assert match_messages("openmpi", "bcast", trace.elements, trace.messages * 8, N) == ("pipeline",)
    moved = trace.elements.copy()
    moved[0, 2] += 1
    assert match_messages("openmpi", "bcast", moved, trace.messages, N) == ()


def test_operator_calls_cut_into_segments_still_match():
    """release_gather combines in pieces of its cells."""
    ops = [[1024] * 16, [1024] * 16, [1024] * 16, [1024] * 8, [], [], [], []]
    assert match_ops("mpich", "allreduce", ops, 8192) == ("release_gather",)


def test_the_ring_that_fell_back_is_seen():
    """Ring asked for, recursive doubling's trace found: the row goes to recursive doubling."""
    ops = [[4, 4, 4]] * 8
    evidence = judge("ring", match_ops("openmpi", "allreduce", ops, 4), "operator_trace", "3 × 4")
    assert (evidence.status, evidence.effective) == ("contradicted", "recursive_doubling")
    assert "ring was asked for" in evidence.detail


def test_what_looks_the_same_is_called_not_separable():
    """Direct all-to-alls differ in order only, which no count shows."""
    trace = exchanges.direct_alltoall(4, 64)
    names = match_messages("openmpi", "alltoall", trace.elements, trace.messages, 64)
    evidence = judge("pairwise", names, "message_counts", "")
    assert evidence.status == "not_separable"
    assert evidence.effective == "pairwise"
    assert set(evidence.candidates) == {"linear", "pairwise", "linear_sync"}


def test_a_trace_that_fits_nothing_is_unknown():
    """No guess is made."""
    names = match_ops("openmpi", "allreduce", [[3], [5]], 64)
    assert judge("ring", names, "operator_trace", "").status == "unknown"


def test_default_is_named_by_what_ran():
    """The default's trace tells which algorithm the library chose."""
    trace = schedules.rabenseifner_allreduce(8, N)
    names = match_messages("openmpi", "allreduce", trace.elements, trace.messages, N)
    evidence = judge("default", names, "message_counts", "")
    assert (evidence.status, evidence.effective) == ("proven", "rabenseifner")


def test_an_operator_trace_alone_leaves_the_composed_algorithm_possible():
    """A reduce by halving followed by any broadcast combines the same pieces as Rabenseifner's allreduce."""
    ops = schedules.rabenseifner_allreduce(8, N).ops
    evidence = judge("default", match_ops("openmpi", "allreduce", ops, N), "operator_trace", "")
    assert (evidence.status, evidence.effective) == ("not_separable", "rabenseifner")
    assert evidence.candidates == ("rabenseifner", "nonoverlapping")


@pytest.mark.parametrize("ranks", RANKS)
def test_trees_reach_every_rank_once(ranks):
    """Each rank but the root has exactly one parent, and following parents ends at the root."""
    trees = {
        "flat": (schedules.flat_tree(ranks), 0),
        "chain": (schedules.chain_tree(ranks, 4), 0),
        "binary": (schedules.binary_tree(ranks), 0),
        "binomial": (schedules.binomial_tree(ranks), 0),
        "in-order binomial": (schedules.in_order_binomial_tree(ranks), 0),
        "in-order binary": (schedules.in_order_binary_tree(ranks), ranks - 1),
        "knomial": (schedules.knomial_tree(ranks, 4), 0),
        "heap": (exchanges.heap_tree(ranks, 4), 0),
        "preorder": (exchanges.preorder_binomial_tree(ranks), 0),
    }
    for name, (edges, root) in trees.items():
        parent = {child: up for up, child in edges}
        assert len(edges) == ranks - 1, name
        assert set(parent) == set(range(ranks)) - {root}, name
        for rank in range(ranks):
            steps, at = 0, rank
            while at != root:
                at, steps = parent[at], steps + 1
                assert steps < ranks, name


def test_blocks_cover_the_whole_message():
    """Uneven counts are spread over the first blocks."""
    assert schedules.split(10, 4) == [3, 3, 2, 2]
    assert np.sum(schedules.split(1000003, 7)) == 1000003
