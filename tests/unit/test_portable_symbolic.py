"""The symbolic check: every schedule passes, and a schedule with one wrong step does not."""

from dataclasses import replace

import numpy as np
import pytest

from collbench.collectives import COLLECTIVES
from collbench.portable.catalogue import every_algorithm, schedule
from collbench.portable.schedule import NONE, Phase, Round, ShapeError, transfers
from collbench.portable.symbolic import check
from collbench.portable.topology import node_of

PARAMS = {
    "pipeline": {"chunk_bytes": 16},
    "pipelined_binary_tree": {"chunk_bytes": 16},
    "double_binary_tree": {"chunk_bytes": 16},
    "segmented_ring": {"segment_bytes": 4},
}
NODES = {"1x8": [8], "2x4": [4, 4], "4x3": [3] * 4, "8x8": [8] * 8, "5+3": [5, 3], "1+4+2": [1, 4, 2]}


def places(collective):
    return (False,) if collective in ("bcast", "barrier", "sendrecv") else (False, True)


def build(collective, algorithm, ranks, elements_per_rank=2.0, nodes=None, in_place=False):
    row = COLLECTIVES[collective]
    elements = int(elements_per_rank * ranks)
    elements = elements // ranks * ranks if row.per_rank else elements + 1
    nbytes = 4 * elements if row.sized else 0
    root = (ranks - 1) // 2 if row.rooted else 0
    return schedule(
        collective, algorithm, ranks, nbytes, 4,
        node_of=nodes, params=PARAMS.get(algorithm), root=root, in_place=in_place,
    )  # fmt: skip


def impossible(algorithm, collective, ranks):
    return (algorithm == "neighbor_exchange" and ranks % 2 == 1) or (collective == "sendrecv" and ranks == 1)


@pytest.mark.parametrize(("collective", "algorithm"), every_algorithm())
def test_every_schedule_is_right_for_1_to_64_ranks(collective, algorithm):
    """Every rank ends with the right contributions once, all messages meet, nobody waits for ever."""
    checked = 0
    for ranks in range(1, 65):
        # In place and not in turn, both for the small counts in which the special cases are.
        for in_place in (
            places(collective) if ranks <= 9 else places(collective)[ranks % len(places(collective)) :][:1]
        ):
            nodes = node_of(ranks, virtual_nodes=1 + ranks % 5)
            if impossible(algorithm, collective, ranks):
                with pytest.raises(ShapeError):
                    build(collective, algorithm, ranks, nodes=nodes, in_place=in_place)
                continue
            plan = build(collective, algorithm, ranks, nodes=nodes, in_place=in_place)
            assert check(plan) == []
            checked += 1
    assert checked >= 32


@pytest.mark.parametrize("nodes", NODES.values(), ids=NODES.keys())
def test_every_schedule_is_right_on_every_node_shape(nodes):
    """Even and uneven nodes, blocks of ranks and round robin."""
    ranks = sum(nodes)
    blocks = node_of(ranks, node_sizes=nodes)
    shuffled = tuple(np.random.default_rng(1).permutation(blocks).tolist())
    for collective, algorithm in every_algorithm():
        for placement in (blocks, shuffled):
            for in_place in places(collective):
                if algorithm == "neighbor_exchange" and ranks % 2:
                    continue
                plan = build(collective, algorithm, ranks, nodes=placement, in_place=in_place)
                assert check(plan) == [], (collective, algorithm, placement, in_place)


@pytest.mark.parametrize("elements_per_rank", [0, 0.2, 1, 1.7])
def test_few_elements_are_right(elements_per_rank):
    """Counts below the ranks, none at all, and counts that do not divide."""
    for collective, algorithm in every_algorithm():
        for ranks in (2, 3, 6, 8):
            if not (algorithm == "neighbor_exchange" and ranks % 2):
                assert check(build(collective, algorithm, ranks, elements_per_rank)) == []


def mutants(plan):
    """Yield schedules that differ from ``plan`` in one message of one round."""
    for number, phase in enumerate(plan.phases):
        for index, round_ in enumerate(phase.rounds):
            for at, part in enumerate(round_.messages):
                for changed in changes(part, plan):
                    messages = (*round_.messages[:at], changed, *round_.messages[at + 1 :])
                    rounds = (
                        *phase.rounds[:index],
                        Round(messages, round_.local),
                        *phase.rounds[index + 1 :],
                    )
                    phases = (*plan.phases[:number], Phase(rounds, phase.repeat), *plan.phases[number + 1 :])
                    yield replace(plan, phases=phases)


def changes(part, plan):
    """Yield ``part`` with its first message sent elsewhere, missing, stored instead of combined, of a wrong piece."""

    def first(name, value):
        array = getattr(part, name).copy()
        array[0] = value
        return replace(part, **{name: array})

    yield first("dst", (part.dst[0] + 1) % plan.ranks)
    names = ("src", "dst", "read", "write", "count", "base", "read_buf", "write_buf", "own_buf", "slot")
    yield replace(part, **{name: getattr(part, name)[1:] for name in names})
    if part.own_buf[0] != NONE:
        yield first("own_buf", NONE)
    if plan.starts.size > part.count[0]:
        yield first("read", part.read[0] + 1)


@pytest.mark.parametrize(
    ("collective", "algorithm"), [a for a in every_algorithm() if a[0] not in ("sendrecv", "barrier")]
)
def test_one_wrong_step_is_found(collective, algorithm):
    """A message to the wrong rank, of the wrong piece, missing, or stored instead of combined: all are noticed."""
    ranks = 8 if algorithm == "neighbor_exchange" else 6
    # Two elements in each block, so that no message is empty and none of them can be spared.
    plan = build(collective, algorithm, ranks, 2 - 1 / ranks, nodes=node_of(ranks, virtual_nodes=2))
    wrong = list(mutants(plan))
    assert wrong
    assert [m for m in wrong if not check(m)] == []


def test_a_barrier_without_its_last_round_is_found():
    plan = schedule("barrier", "dissemination", 6, 0, 4)
    assert check(replace(plan, phases=plan.phases[:-1]))[0].startswith("rank 0 can leave before rank")


def test_a_message_without_its_other_half_is_found():
    """As many sends as receives, of the same size, on every channel."""
    from collbench.portable.matching import Posts, unmatched

    a = np.array
    sends = Posts(a([0]), a([1]), a([0]), a([4]), a([0]))
    assert unmatched(sends, Posts(a([1]), a([0]), a([0]), a([4]), a([0]))) == []
    assert "from rank 0 to rank 1" in unmatched(sends, Posts(a([1]), a([0]), a([0]), a([8]), a([0])))[0]
    assert "from rank 0 to rank 1" in unmatched(sends, Posts(*(np.zeros(0, int),) * 5))[0]


def test_a_circle_of_waits_is_found():
    """Ranks that each wait for a message that the next one sends only afterwards wait for ever."""
    from collbench.portable.matching import Posts, deadlocked

    a = np.array
    # Rank 0 sends to 1 in its wait 0 and receives in 1; rank 1 sends to 0 in its wait 0 and receives in 1.
    sends = Posts(a([0, 1]), a([1, 0]), a([0, 0]), a([4, 4]), a([0, 1]))
    late = Posts(a([1, 0]), a([0, 1]), a([1, 1]), a([4, 4]), a([0, 1]))
    assert deadlocked(2, sends, late) == ["rank 0 and 1 others wait for ever"]
    assert deadlocked(2, sends, replace(late, block=a([0, 0]))) == []


def test_overwriting_data_under_way_is_found():
    """Two ranks that swap blocks in place in one buffer are refused."""
    swap = transfers([0, 1], [1, 0], 0, read_buf=1, write_buf=1)
    plan = schedule("allreduce", "ring", 2, 8, 4)
    wrong = replace(plan, phases=(*plan.phases, Phase((Round((swap,)),))))
    assert "overwrites data that is being sent" in check(wrong)[0]


def test_4096_ranks_take_less_than_100_mb():
    """Every description stays compact at 4,096 ranks."""
    nodes = node_of(4096, virtual_nodes=512)
    for collective, algorithm in every_algorithm():
        plan = schedule(
            collective, algorithm, 4096, 0 if collective == "barrier" else 4 << 22, 4, node_of=nodes
        )
        assert plan.memory < 100e6, (collective, algorithm)
        assert len(plan.rows(17).time) <= 3 * plan.rounds + 8192
