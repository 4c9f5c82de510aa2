"""From a schedule to one rank's operations, and what is refused before anything runs."""

import numpy as np
import pytest

from collbench import algorithms
from collbench.errors import UsageError
from collbench.portable import program, run
from collbench.portable.catalogue import every_algorithm, schedule
from collbench.portable.pieces import chunked, partition
from collbench.portable.schedule import ShapeError
from collbench.portable.topology import node_of
from collbench.records import Cell


def operations(plan, rank):
    rows = plan.rows(rank)
    need = program.needs(plan, rows, rank)
    return program.program(plan, rows, rank, program.layout(plan, rank, need, 1 << 30, 2 << 30, 3 << 30))


@pytest.mark.parametrize(("collective", "algorithm"), every_algorithm())
def test_the_rows_of_one_rank_are_those_of_all_that_it_takes_part_in(collective, algorithm):
    """Picking a rank's rows without expanding the others gives the same rows in the same order."""
    ranks = 6
    nbytes = 0 if collective == "barrier" else 4 * ranks * 5
    plan = schedule(collective, algorithm, ranks, nbytes, 4, node_of=node_of(ranks, node_sizes=[4, 2]))
    every = plan.rows()
    for rank in range(ranks):
        mine = (every.src == rank) | (every.dst == rank)
        for name in (
            "time",
            "src",
            "dst",
            "read",
            "write",
            "nbytes",
            "read_buf",
            "write_buf",
            "own_buf",
            "slot",
        ):
            assert getattr(plan.rows(rank), name).tolist() == getattr(every, name)[mine].tolist()


def test_a_round_receives_sends_waits_and_then_combines():
    ops = operations(schedule("allreduce", "ring", 2, 16, 4), 0)
    codes = [program.RECEIVE, program.SEND, program.WAIT, program.COMBINE]
    assert ops[:, 0].tolist() == [*codes, *codes[:3]]
    assert ops[:, 5].tolist() == [8, 8, 0, 8, 8, 8, 0]


def test_the_first_combination_reads_the_input_so_that_nothing_is_copied_before():
    """Out of place the ring makes no copy: it combines the input with what arrives, into the output."""
    ops = operations(schedule("allreduce", "ring", 4, 64, 4), 1)
    assert program.COPY not in ops[:, 0]
    combined = ops[ops[:, 0] == program.COMBINE]
    assert (combined[:, 3] - (1 << 30)).tolist() == (combined[:, 2] - (2 << 30)).tolist()


def test_a_copy_onto_itself_is_left_out_in_place():
    plan = schedule("allgather", "ring", 4, 64, 4, in_place=True)
    assert program.COPY not in operations(plan, 2)[:, 0]


def test_all_messages_of_a_linear_alltoall_are_posted_before_one_wait():
    codes = operations(schedule("alltoall", "linear", 5, 100, 4), 3)[:, 0].tolist()
    assert codes.count(program.WAIT) == 1
    assert codes[-1] == program.WAIT
    assert codes.count(program.RECEIVE) == codes.count(program.SEND) == 4


@pytest.mark.parametrize("elements", [0, 1, 7, 8, 100])
@pytest.mark.parametrize("parts", [1, 3, 8])
def test_pieces_cover_the_message_once(elements, parts):
    starts, sizes = partition(elements, parts, 4)
    assert sizes.sum() == 4 * elements
    assert starts.tolist() == np.concatenate([[0], np.cumsum(sizes)[:-1]]).tolist()
    assert sizes.max() - sizes.min() <= 4


def test_chunks_are_whole_elements_and_never_too_many():
    assert chunked(10, 10, 4)[1].tolist() == [8] * 5
    assert chunked(10, 0, 4)[1].tolist() == [40]
    assert chunked(10, 1, 4)[1].tolist() == [4] * 10
    assert chunked(1 << 20, 4, 4)[0].size == 4096


def test_the_table_of_algorithms_names_exactly_what_can_be_built():
    rows = {(row.collective, row.name) for row in algorithms.algorithms("portable")}
    assert rows == set(every_algorithm())


def test_tree_is_another_word_for_binomial():
    assert schedule("allreduce", "tree", 4, 64, 4).algorithm == "binomial"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("allreduce", "rng", 4, 64, 4), "did you mean 'ring'"),
        (("allgather", "ring", 4, 20, 4), "no whole number of 16 B on 4 ranks"),
        (("allgather", "neighbor_exchange", 3, 24, 4), "needs an even number of ranks"),
    ],
)
def test_what_does_not_exist_is_refused_with_the_reason(arguments, message):
    with pytest.raises(UsageError, match=message):
        schedule(*arguments)


def test_parameters_are_checked():
    with pytest.raises(UsageError, match="chunk_bytes"):
        schedule("bcast", "pipeline", 4, 64, 4, params={"chunk_byte": 8})
    with pytest.raises(ShapeError, match="whole number"):
        schedule("bcast", "pipeline", 4, 64, 4, params={"chunk_bytes": "big"})


def test_limits_are_known_before_anything_runs():
    """The planner turns these reasons into skipped lines."""

    def reason(collective, name, **cell):
        return algorithms.find("portable", collective, name).impossible(
            Cell(**{"collective": collective, "ranks": 6, "ranks_per_node": 6, "nbytes": 96, **cell})
        )

    assert reason("allgather", "neighbor_exchange", ranks=5) == "needs an even number of ranks"
    assert reason("allreduce", "hierarchical_leader", op="sum") == "needs more than one node"
    assert reason("allreduce", "hierarchical_leader", op="sum", ranks_per_node=3) is None
    assert "combines int32" in reason("allreduce", "ring", dtype="int8", op="sum")
    assert reason("allreduce", "ring", op="prod") is None


def test_without_the_extension_the_reason_is_given(monkeypatch):
    """No compiler at installation: the planner gets a sentence instead of an algorithm."""
    monkeypatch.setattr(run, "_extension", lambda: None)
    assert "install a C compiler" in run.available()
