"""Messages and bytes of portable algorithms: counted from the schedules, against the textbook's formulas."""

import math

import numpy as np
import pytest

from collbench.errors import UsageError
from collbench.portable import volume
from collbench.portable.catalogue import every_algorithm, schedule
from collbench.portable.textbook import REMARKS, TEXTBOOK
from collbench.portable.topology import node_of

RANKS = [1, 2, 3, 5, 8, 12, 16, 33, 64]


def rows(ranks):
    return {(r["collective"], r["algorithm"], r["ranks"]): r for r in volume.table(ranks)}


def test_every_count_agrees_with_the_textbook_where_it_has_a_formula():
    found = volume.table(RANKS)
    assert [r for r in found if r["agrees"] is False] == []
    assert {(r["collective"], r["algorithm"]) for r in found if r["agrees"]} == set(TEXTBOOK)


@pytest.mark.parametrize("p", [2, 8, 64])
def test_the_textbook_s_four_lines(p):
    """Ring 2(p−1)/p·S per rank, tree 2·S·log₂p on the busiest path, broadcast S, all-gather (p−1)/p·S received."""
    found = rows([p])
    assert found["allreduce", "ring", p]["sent_busiest"] == pytest.approx(2 * (p - 1) / p)
    assert found["allreduce", "binomial", p]["moved_busiest"] == pytest.approx(2 * math.log2(p))
    assert found["bcast", "binomial", p]["received_busiest"] == pytest.approx(1)
    assert found["allgather", "ring", p]["received_busiest"] == pytest.approx((p - 1) / p)


def test_reduce_scatter_and_allgather_move_exactly_the_ring_s_bytes():
    """The composition saves nothing, and one line says so."""
    found = rows([8, 64])
    for p in (8, 64):
        ring, both = found["allreduce", "ring", p], found["allreduce", "reduce_scatter_allgather", p]
        assert (ring["total"], ring["sent_busiest"]) == (both["total"], both["sent_busiest"])
        parts = found["reduce_scatter", "ring", p]["total"] + found["allgather", "ring", p]["total"]
        assert parts == pytest.approx(ring["total"])
        assert both["remark"] == REMARKS["allreduce", "reduce_scatter_allgather"]


def test_the_total_of_an_allgather_grows_with_the_ranks():
    found = rows([8, 64])
    assert found["allgather", "ring", 64]["total"] / found["allgather", "ring", 8]["total"] == pytest.approx(
        63 / 7
    )


@pytest.mark.parametrize(("collective", "algorithm"), every_algorithm())
def test_counting_by_repetition_equals_counting_every_row(collective, algorithm):
    """Multiplying equal repetitions gives what expanding all of them gives, also where pieces differ in size."""
    for ranks, elements in ((6, 6 * 7), (8, 8 * 5)):
        uneven = collective in ("allreduce", "bcast", "reduce")
        nbytes = 0 if collective == "barrier" else 4 * (elements + 3 * uneven)
        nodes = node_of(ranks, virtual_nodes=2)
        plan = schedule(collective, algorithm, ranks, nbytes, 4, node_of=nodes)
        every = plan.rows()
        sent = np.bincount(every.src[~every.local], every.nbytes[~every.local], ranks)
        received = np.bincount(every.dst[~every.local], every.nbytes[~every.local], ranks)
        found = volume.totals(plan)
        assert found.sent.tolist() == sent.tolist()
        assert found.received.tolist() == received.tolist()
        assert int(found.messages.sum()) == int((~every.local).sum())


def test_a_rank_count_out_of_range_is_refused():
    with pytest.raises(UsageError, match="0 ranks are not possible"):
        volume.table([0])
