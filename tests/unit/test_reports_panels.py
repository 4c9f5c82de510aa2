"""Panels: what stands side by side, what is fastest, what cannot be told from it."""

import pytest

from collbench import results
from collbench.records import Evidence
from collbench.reports.panels import panels
from collbench.reports.samples import Filter, samples


def panels_of(path, **only):
    return panels(samples(results.read(path), Filter(**only)).usable)


def test_one_panel_per_collective_and_ranks(example):
    """Collectives come in one fixed order, rank counts ascending, the default first, then the table's order."""
    found = panels_of(example)
    assert [(p.key.collective, p.key.ranks) for p in found] == [
        ("allreduce", 2),
        ("allreduce", 4),
        ("barrier", 2),
    ]
    assert found[0].labels == ("default", "recursive_doubling", "ring")
    assert found[1].labels == ("default", "recursive_doubling", "segmented_ring[segment_bytes=65536]")
    assert found[0].sizes == (8, 65536)


def test_the_fastest_and_what_is_tied_with_it(example):
    """Interleaved blocks decide: equal within noise is a tie, clearly slower is not."""
    first = panels_of(example)[0]
    assert first.entries[8, "default"].fastest
    assert first.entries[8, "recursive_doubling"].tied
    assert first.entries[65536, "ring"].fastest
    assert not first.entries[65536, "default"].tied
    assert (first.winner(8), first.winner(65536)) == ("default", "ring")
    assert first.gain(65536) == pytest.approx(30.2 / 20.2 - 1)


def test_what_ran_as_something_else_is_in_no_panel(example):
    """The contradicted ring of 8 B is set apart, and its column has no entry there."""
    found = samples(results.read(example))
    assert [s.case.label for s in found.contradicted] == ["ring"]
    assert (8, "ring") not in panels(found.usable)[0].entries


@pytest.mark.parametrize(
    "change",
    [{"sync": "window"}, {"rank_reduction": "avg"}, {"timer": "mpi4py"}],
)
def test_rows_of_another_method_are_never_side_by_side(write_run, lines, change):
    """Another synchronisation, reduction or timer makes a panel of its own, whose title says so."""
    path = write_run([
        lines.launch(0, 2),
        lines.cell(0, "bcast", 2, 8, "default", [2.0, 2.0, 2.0]),
        lines.cell(0, "bcast", 2, 8, "binomial", [1.0, 1.0, 1.0], **change),
    ])  # fmt: skip
    found = panels_of(path)
    assert [p.labels for p in found] == [("default",), ("binomial",)]
    assert next(iter(change.values())) in found[1].apart


def test_variants_and_libraries_are_never_side_by_side(write_run, lines):
    """An ab run's variants and two library versions are separate panels."""
    newer = {"name": "openmpi", "version": "5.0.12"}
    path = write_run([
        lines.launch(0, 2, variant="A"), lines.cell(0, "bcast", 2, 8, "default", [2.0]),
        lines.launch(1, 2, variant="B"), lines.cell(1, "bcast", 2, 8, "default", [2.0]),
        lines.launch(2, 2, variant="B", library=newer), lines.cell(2, "bcast", 2, 8, "default", [2.0]),
    ])  # fmt: skip
    found = panels_of(path)
    assert [p.key.variant for p in found] == ["A", "B", "B"]
    assert [p.apart for p in found] == [(), ("openmpi 5.0.11",), ("openmpi 5.0.12",)]


def test_only_launches_of_one_machine_state_are_pooled(write_run, lines):
    """Two fast launches are pooled, the slow one is left out and named."""
    made = []
    for number, (state, time_us) in enumerate([("fast", 1.0), ("slow", 3.0), ("fast", 1.2)]):
        made += [
            lines.launch(number, 2, probe={"state": state}),
            lines.cell(number, "bcast", 2, 8, "default", [time_us]),
        ]
    (panel,) = panels_of(write_run(made))
    entry = panel.entries[8, "default"]
    assert (panel.launches, panel.left_out, panel.state) == ((0, 2), (1,), "fast")
    assert (entry.time_s, entry.low_s, entry.high_s, entry.launches) == (
        pytest.approx(1.1e-6), pytest.approx(1e-6), pytest.approx(1.2e-6), 2,
    )  # fmt: skip


def test_from_three_launches_on_the_launch_is_the_unit(write_run, lines):
    """Ring is faster in every block of two launches and slower in the others: over launches that is a tie."""
    made = []
    for number, ring_us in enumerate([1.9, 1.9, 2.3, 2.2]):
        made += [
            lines.launch(number, 2),
            lines.cell(number, "allreduce", 2, 8, "default", [2.0] * 9),
            lines.cell(number, "allreduce", 2, 8, "ring", [ring_us] * 9),
        ]
    (panel,) = panels_of(write_run(made))
    assert panel.entries[8, "default"].fastest
    assert panel.entries[8, "ring"].tied


def test_a_gain_below_the_margin_leaves_the_default(write_run, lines):
    """One percent is proven here and still no reason to leave the default, as for recommend."""
    path = write_run([
        lines.launch(0, 2),
        lines.cell(0, "bcast", 2, 8, "default", [1.01] * 9),
        lines.cell(0, "bcast", 2, 8, "binomial", [1.0] * 9),
    ])  # fmt: skip
    (panel,) = panels_of(path)
    assert panel.entries[8, "binomial"].fastest
    assert not panel.entries[8, "default"].tied
    assert panel.winner(8) == "default"


def test_a_single_contender_wins_nothing(write_run, lines):
    """With nothing beside it there is no fastest."""
    (panel,) = panels_of(write_run([lines.launch(0, 2), lines.cell(0, "bcast", 2, 8, "chain", [2.0])]))
    assert not panel.entries[8, "chain"].fastest
    assert panel.winner(8) is None


def test_words_are_qualified_only_where_they_are_ambiguous(write_run, lines):
    """A provider or component is named where two contenders would else have the same word."""
    own = Evidence("proven", "own_code", "ring")
    path = write_run([
        lines.launch(0, 2),
        lines.cell(0, "allreduce", 2, 8, "default", [2.0], component=None),
        lines.cell(0, "allreduce", 2, 8, "ring", [2.1]),
        lines.cell(0, "allreduce", 2, 8, "ring", [2.2], provider="portable", component=None, evidence=own),
    ])  # fmt: skip
    assert panels_of(path)[0].labels == ("default", "ring", "portable:ring")
    path = write_run([
        lines.launch(0, 2),
        lines.cell(0, "allreduce", 2, 8, "ring", [2.1]),
        lines.cell(0, "allreduce", 2, 8, "ring", [2.2], component="han"),
    ], name="components")  # fmt: skip
    assert sorted(panels_of(path)[0].labels) == ["ring@han", "ring@tuned"]


def test_filters(example):
    """Collectives, ranks and algorithms (with or without parameters) choose cells."""
    assert [p.key.ranks for p in panels_of(example, ranks=(4,))] == [4]
    assert [p.key.collective for p in panels_of(example, collectives=("barrier",))] == ["barrier"]
    assert panels_of(example, algorithms=("segmented_ring",))[0].labels == (
        "segmented_ring[segment_bytes=65536]",
    )


def test_lines_without_what_is_indispensable_are_counted(write_run, lines):
    """A cell line that lacks its case, its time or a positive time is not shown, and no traceback."""
    good = lines.cell(0, "bcast", 2, 8, "default", [1.0])
    path = write_run([
        {"kind": "cell"}, {"kind": "cell", "case": 3, "time_s": 1}, {**good, "time_s": None}, {**good, "time_s": 0}, good,
    ])  # fmt: skip
    found = samples(results.read(path))
    assert (len(found.usable), found.broken) == (1, 4)
