"""Notes: failures first, each thing said once, groups named and counted."""

from collbench import results
from collbench.reports import doubts
from collbench.reports.notes import counted, grouped, notes, skipped
from collbench.reports.overview import overview
from collbench.reports.samples import Filter, samples

ALL = Filter()
CROWDED = (
    "oversubscribed: 4 ranks shared fewer cores, so their times show the scheduler too; "
    "compare algorithms within a row, not with other machines"
)


def notes_of(path, only=ALL):
    run = results.read(path)
    return notes(run, samples(run, only), only)


def test_the_gravest_comes_first_and_everything_once(example):
    """Failed, ran as something else, oversubscribed, skipped, unproven, doubts: in this order."""
    said = notes_of(example)
    assert said == [
        "FAILED 1 × timeout: allreduce rabenseifner on 4 ranks at 64 KiB (no sign of life for 5 s)",
        "NOT SHOWN 1 cell asked for ring but ran as recursive_doubling: allreduce ring on 2 ranks at 8 B",
        CROWDED,
        "skipped 1 × needs at least one element per rank: allreduce ring on 4 ranks at 8 B",
        "unproven: for 1 of 6 cells nothing shows which algorithm ran",
        "not separable: in 1 of 6 cells the proof fits two algorithms or more (--evidence)",
        "1 cell: times fall into two groups: the median may sit in either; measure again with --launches 3",
    ]


def test_filters_hold_for_notes_too(example):
    """A note about cells that are not shown would only confuse."""
    assert notes_of(example, Filter(collectives=("barrier",))) == []


def test_many_failures_of_one_kind_are_one_line(example):
    """Forty timeouts of four algorithms: counted, three named, the rest counted."""
    (line,) = results.read(example).failed
    lines = [
        {**line, "case": {**line["case"], "algorithm": f"a{i % 4}", "nbytes": 8 << (i // 4)}}
        for i in range(40)
    ]
    (group,) = grouped(lines, ALL)
    assert group.sentence() == (
        "40 × timeout: allreduce a0 on 4 ranks at 8 B … 4 KiB; allreduce a1 on 4 ranks at 8 B … 4 KiB; "
        "allreduce a2 on 4 ranks at 8 B … 4 KiB; and 1 more (no sign of life for 5 s)"
    )


def test_a_failure_without_a_case_is_still_counted():
    """A broken line is not swallowed."""
    (group,) = grouped([{"kind": "failed"}], ALL)
    assert (group.reason, group.count, group.cases) == ("no reason given", 1, ())


def test_what_the_budget_left_out_is_one_line_with_the_next_step(write_run, lines):
    """Cases for which there was no time are counted, not listed, and the reader learns how to get them."""
    case = lines.cell(0, "bcast", 2, 8, "chain", [1.0])["case"]
    line = {"kind": "skipped", "case": case, "reason": "the time budget was spent"}
    other = {**line, "case": {**case, "nbytes": 64}}
    path = write_run([lines.launch(0, 2), line, other, other])
    assert notes_of(path) == [
        "NOT MEASURED 2 cases: the time budget was spent; go on with --resume, or raise --budget"
    ]


def test_what_was_measured_after_all_is_not_called_skipped(write_run, lines):
    """A resumed run measures what the first part had no time for; the old skipped line then says nothing."""
    cell = lines.cell(0, "bcast", 2, 8, "default", [1.0])
    line = {
        "kind": "skipped",
        "case": {**cell["case"], "ranks_per_node": None},
        "reason": "the time budget was spent",
    }
    assert notes_of(write_run([lines.launch(0, 2), line, cell])) == []


def test_emulated_nodes_are_said(write_run, lines):
    """Times over virtual nodes are no network's."""
    path = write_run([lines.launch(0, 2, emulated=True), lines.cell(0, "bcast", 2, 8, "default", [1.0])])
    assert any("emulated: the nodes of 2 ranks are virtual" in note for note in notes_of(path))


def test_warnings_get_words_and_are_counted():
    """Warnings are data in the rows; unknown kinds stand for themselves."""
    found = doubts.grouped(
        [{"kind": "bimodal"}, {"kind": "new_doubt"}, {"kind": "bimodal"}, {"kind": "oversubscribed"}]
    )
    assert [count for _, count in found] == [2, 1]
    assert found[1][0] == "new doubt"


def test_counts_agree_with_their_noun():
    """1 cell, 2 cells, 2 launches."""
    assert [counted(1, "cell"), counted(2, "cell"), counted(2, "launch")] == [
        "1 cell",
        "2 cells",
        "2 launches",
    ]


def test_sizes_whose_neighbours_agree_are_one_sentence(write_run, lines):
    """Hundreds of such lines are no failure, nothing left out and no list; a size measured elsewhere is not counted."""
    cases = [
        lines.cell(0, "allreduce", 2, 8 << n, name, [1.0])["case"]
        for n in range(9)
        for name in ("default", "ring")
    ]
    left = [{"kind": "skipped", "launch": 0, "case": c, "reason": "its neighbours agree"} for c in cases]
    path = write_run([lines.launch(0, 2), *left, lines.cell(0, "allreduce", 2, 8, "default", [1.0]),
                      lines.cell(0, "allreduce", 2, 8, "ring", [2.0])], "agreed")  # fmt: skip
    run = results.read(path)
    said = notes(run, samples(run), Filter())
    sentence = "at 8 sizes not every algorithm was measured: neighbours agree"
    assert [line for line in said if "neighbours" in line] == [sentence]
    assert skipped(run) == []
    assert not any("skipped" in line for line in overview(run, samples(run), Filter()))
