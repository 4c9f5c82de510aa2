"""Winners of single launches: who is measured once more, and what the second launch does to the decision."""

import importlib.util
from pathlib import Path

import pytest

from collbench import confirmation, selection
from collbench.plan import Group, Launch, Plan
from collbench.profile import Sampling
from collbench.records import Case, Cell

_SPEC = importlib.util.spec_from_file_location("made_rows", Path(__file__).with_name("test_selection.py"))
made = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(made)

CELL = Cell("allreduce", 4, 4, 64, op="sum")
JITTER = (0.99, 1.0, 1.01, 1.0, 1.0, 0.995, 1.005)


def line(word, time_s, *, cell=CELL, provider="openmpi", jitter=JITTER):
    """A cell line of one launch."""
    case = Case(cell, provider, word)
    return {
        "kind": "cell",
        "case": case.to_json(),
        "time_s": time_s,
        "blocks_s": [time_s * j for j in jitter],
    }


def names(*lines):
    return [case.algorithm for case in confirmation.contenders(lines, 0.02)]


def test_default_and_the_clear_winner_are_measured_again():
    assert names(line("default", 2e-6), line("ring", 1e-6), line("tree", 3e-6)) == ["default", "ring"]


def test_all_that_may_be_the_fastest_are_measured_again():
    """Ring and tree cannot be told apart; bruck beats the default too but cannot be the fastest."""
    found = names(line("default", 2e-6), line("bruck", 1.5e-6), line("ring", 1e-6), line("tree", 1.01e-6))
    assert found == ["default", "ring", "tree"]


@pytest.mark.parametrize(
    "lines",
    [
        [line("default", 1e-6), line("ring", 1e-6)],
        [line("default", 1e-6), line("ring", 0.99e-6)],
        [line("ring", 1e-6), line("tree", 2e-6)],
        [line("default", 2e-6), line("ring", 1e-6, jitter=(0.2, 5.0, 0.1, 2.1, 9.0))],
        [line("default", 2e-6), line("ring", 1e-6, provider="portable")],
    ],
    ids=["equal", "below the margin", "no default", "within noise", "no library's algorithm"],
)
def test_where_nothing_would_leave_the_default_nothing_is_measured_again(lines):
    assert names(*lines) == []


def plan(repetitions=1, mode="race", variant=None, words=("default", "ring", "tree")):
    cells = [CELL, Cell("bcast", 4, 4, 64)]
    groups = tuple(Group(tuple(Case(cell, "openmpi", word) for word in words), 1) for cell in cells)
    launches = [Launch(4, 0, "proof", {}, groups)]
    launches += [Launch(4, n, "measure", {"A": "1"}, groups, variant) for n in range(repetitions)]
    return Plan(tuple(launches), (), Sampling(mode=mode))


def test_the_second_launch_has_the_settings_of_the_first_and_only_what_is_in_doubt():
    lines = [line("default", 2e-6), line("ring", 1e-6), line("tree", 3e-6)]
    lines += [line(word, 1e-6, cell=Cell("bcast", 4, 4, 64)) for word in ("default", "ring", "tree")]
    (launch,) = confirmation.launches(plan(), lines)
    assert (launch.ranks, launch.repetition, launch.purpose, launch.settings) == (4, 1, "measure", {"A": "1"})
    assert launch.confirms
    assert launch.groups == (Group((Case(CELL, "openmpi", "default"), Case(CELL, "openmpi", "ring"))),)


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, True), ({"repetitions": 3}, False), ({"mode": "fixed"}, False), ({"variant": "A"}, False)],
)
def test_it_is_for_single_launches_that_race_in_one_environment(given, expected):
    assert confirmation.applies(plan(**given)) is expected


def two_launches(first, second):
    """Rows of six sizes in two launches: how much faster than the default ring is at each."""

    def launch(number, factors):
        ring = {n: 2e-6 / factor for n, factor in zip(made.SIZES, factors, strict=True)}
        rows = made.planted({"default": dict.fromkeys(made.SIZES, 2e-6), "ring": ring}, seed=number)
        return [{**row, "launch": number} for row in rows]

    return made.table([*launch(0, first), *launch(1, second)])


def test_a_winner_that_wins_again_gets_its_rule():
    decided = selection.select(two_launches([2.0] * 6, [2.0, 2.1, 1.9, 2.0, 2.05, 1.95]))
    assert [r.algorithm for r in decided.rules] == ["ring", "default"]


def test_a_winner_that_loses_the_second_launch_gets_no_rule():
    """One size in six: the first launch alone would give it ring, and so would the mean of both."""
    rows = two_launches([1, 1, 2.0, 1, 1, 1], [1.0, 1.01, 0.8, 0.99, 1.0, 1.0])
    once = selection.select(rows[rows["launch"] == 0])
    assert "ring" in {r.algorithm for r in once.rules}
    assert {r.algorithm for r in selection.select(rows).rules} == {"default"}


def test_launches_that_differ_widen_the_intervals_of_what_was_measured_once():
    """The second launch holds half of the sizes only; what it says of the noise holds for the others."""
    quiet, wild = (
        selection.select(rows[(rows["launch"] == 0) | rows["nbytes"].isin(made.SIZES[:3])])
        for rows in (
            two_launches([2.0] * 6, [2.0] * 6),
            two_launches([2.0] * 6, [0.5, 3.0, 0.9, 2.0, 2.0, 2.0]),
        )
    )
    assert [r.algorithm for r in quiet.rules] == ["ring", "default"]
    assert {r.algorithm for r in wild.rules} == {"default"}
