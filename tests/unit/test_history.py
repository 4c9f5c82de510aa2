"""Which launches are started again, from the lines of a run file."""

import pytest

from collbench.history import History
from collbench.plan import Group, Launch, Plan
from collbench.records import Case, Cell

SIZES = (8, 1024)


def case(nbytes, ranks=2, per_node=None):
    return Case(Cell("allreduce", ranks, per_node, nbytes, op="sum"), "openmpi", "default")


def planned(launches, level=0, variant=None):
    groups = tuple(Group((case(s),), level) for s in SIZES)
    return Plan(tuple(Launch(2, n, "measure", {"A": str(n)}, groups, variant) for n in range(launches)))


def lines(number, repetition, moved, sizes=SIZES, seconds=5.0, **more):
    """Return the lines of one launch whose probe moved by a ratio (None = it never ended)."""
    return list(_lines(number, repetition, moved, sizes, seconds, more))


def _lines(number, repetition, moved, sizes, seconds, more):
    yield {"kind": "launch", "launch": number, "ranks": 2, "repetition": repetition, "purpose": "measure",
           "probe": {"pingpong_ns": 40.0}, **more}  # fmt: skip
    for nbytes in sizes:
        flat = case(nbytes, per_node=2).to_json()
        yield {"kind": "cell", "launch": number, "case": flat, "time_s": 1e-6, "blocks_s": [1e-6]}
    if moved:
        yield {
            "kind": "launch_end",
            "launch": number,
            "probe": {"pingpong_ns": 40.0 * moved},
            "seconds": seconds,
        }


def history(plan, *launches):
    found = History(plan)
    for launch in launches:
        for line in launch:
            found.take(line)
    return found


def test_calm_launches_are_not_repeated():
    """Nor are those whose probe is not known."""
    found = history(planned(3), lines(0, 0, 1.1), lines(1, 1, 1.9), lines(2, 2, None))
    assert found.again(None, 1.0) is None


def test_a_disturbed_launch_is_repeated_as_it_was_planned():
    """Same ranks, repetition and settings, all its measured cases, every size in any case; the first try is named."""
    found = history(planned(3, level=2), lines(0, 0, 1.1), lines(1, 1, 4.0, sizes=(1024,)))
    again = found.again(None, 1.0)
    assert (again.ranks, again.repetition, again.settings, again.replaces) == (2, 1, {"A": "1"}, 1)
    assert again.groups == (Group((case(1024),)),)


def test_the_most_disturbed_comes_first_then_those_repeated_least():
    """And a launch whose repeat was calm is done with."""
    first = [
        lines(0, 0, 3.0),
        lines(1, 1, 9.0),
        lines(2, 2, 1.0),
        lines(3, 3, 1.0),
        lines(4, 4, 1.0),
        lines(5, 5, 1.0),
    ]
    assert history(planned(6), *first).again(None, 1.0).replaces == 1
    noisy = [*first, lines(6, 1, 8.0, replaces=1)]
    assert history(planned(6), *noisy).again(None, 1.0).replaces == 0
    calm = [*noisy, lines(7, 0, 1.0, replaces=0)]
    assert history(planned(6), *calm).again(None, 1.0).replaces == 1
    done = [*calm, lines(8, 1, 1.0, replaces=1)]
    assert history(planned(6), *done).again(None, 1.0) is None


@pytest.mark.parametrize(("launches", "allowed"), [(1, 1), (2, 1), (3, 1), (4, 2), (8, 4)])
def test_half_as_many_repeats_as_launches_at_least_one(launches, allowed):
    """Everything is disturbed all the time: it ends anyway."""
    found = history(planned(launches), *(lines(n, n, 5.0) for n in range(launches)))
    number = launches
    while again := found.again(None, 1.0):
        for line in lines(number, again.repetition, 5.0, replaces=again.replaces):
            found.take(line)
        number += 1
    assert number - launches == found.allowed == allowed


def test_one_launch_is_repeated_twice_at_most():
    """Even where more repeats are allowed."""
    found = history(planned(8), lines(0, 0, 5.0), *(lines(n, n, 1.0) for n in range(1, 8)))
    assert found.again(None, 1.0).replaces == 0
    for number in (8, 9):
        for line in lines(number, 0, 5.0, replaces=0):
            found.take(line)
    assert found.again(None, 1.0) is None


def test_a_repeat_needs_the_time_that_the_first_try_took():
    """Where that is not known (an older file) the time of a start."""
    found = history(planned(1), lines(0, 0, 5.0, seconds=5.0))
    assert found.again(4.9, 1.0) is None
    assert found.again(5.1, 1.0) is not None
    older = history(planned(1), lines(0, 0, 5.0, seconds=None))
    assert older.again(0.9, 1.0) is None
    assert older.again(1.1, 1.0) is not None


def test_environments_under_comparison_are_left_alone():
    """Their partners would have to be repeated too."""
    found = history(planned(2, variant="A"), lines(0, 0, 5.0, variant="A"))
    assert found.allowed == 0
    assert found.again(None, 1.0) is None


def test_an_earlier_start_of_a_launch_is_known_where_sizes_may_be_left_out():
    """Only the same repetition's, and only where there is something to leave out."""
    found = history(planned(2, level=1), lines(0, 0, 1.0), lines(1, 1, 1.0, sizes=(8,)))
    assert [line["case"]["nbytes"] for line in found.known(planned(2, level=1).launches[1])] == [8]
    assert found.known(planned(2).launches[1]) == []
