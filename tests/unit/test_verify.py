"""Verify: paired launches, what is proven and what is not."""

import contextlib
import importlib.util
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from collbench import evidence, verify
from collbench.cli.verify import _conclude as conclude
from collbench.errors import AnswerIsNoError, UnansweredError
from collbench.evidence import Evidence
from collbench.installation import Installation
from collbench.records import Case, Cell
from collbench.results import COLUMNS
from collbench.tables.reading import LoadedTable, Stretch

_SPEC = importlib.util.spec_from_file_location("made_rows", Path(__file__).with_name("test_selection.py"))
made = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(made)

CELL = Cell("allreduce", 4, 4, 64, op="sum")
FOUND = Installation(Path("python"), None, "openmpi", "openmpi", (5, 0, 11), "Open MPI v5.0.11")
TABLE = LoadedTable(
    Path("t.conf"), "openmpi", {"KEY": "1"},
    (Stretch("allreduce", 4, 0, 1023, "ring"), Stretch("allreduce", 4, 1024, 2**62, "default"),
     Stretch("allreduce", 9, 0, 2**62, "default")),
)  # fmt: skip


def judged(ratio, *, noise=0.01, pairs=6, drift=0.5):
    """Speed-up found where the table takes 1/ratio of the time, while the machine drifts."""
    random = np.random.default_rng(1)
    rows, sides, repetitions = [], {}, {}
    for pair in range(pairs):
        state = np.exp(random.normal(0, drift))
        for side, factor in ((verify.UNTOUCHED, 1.0), (verify.WITH_TABLE, 1 / ratio)):
            launch = len(sides)
            sides[launch], repetitions[launch] = side, pair
            time = 1e-5 * state * factor * np.exp(random.normal(0, noise))
            rows.append(made.row("default", 64, float(time), launch=launch))
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    (found,) = verify.judge(frame, sides, [(CELL, "ring")], repetitions)
    return found


def test_pairing_takes_the_drift_of_the_machine_out():
    found = judged(1.5)
    assert 1.45 < found.low < found.ratio < found.high < 1.55


@pytest.mark.parametrize(("ratio", "slower"), [(0.8, True), (1.0, False), (1.2, False), (0.99, False)])
def test_slower_means_beyond_noise_and_margin(ratio, slower):
    assert slower == judged(ratio, noise=0.002).slower


def test_a_wide_interval_says_nothing():
    assert verify.Speedup(CELL, "ring", 1.0, 0.5, 2.0, 3).says_nothing
    assert not judged(1.0).says_nothing


def test_loaded_is_shown_by_another_algorithm_only():
    """What the proof cannot separate says nothing, neither for nor against the table."""
    key = ("allreduce", 4, 64)
    wanted = [(CELL, "ring")]
    old, ring, both = frozenset({"tree"}), frozenset({"ring"}), frozenset({"tree", "ring"})
    assert evidence.loaded(wanted, {key: old}, {key: ring}) is True
    assert evidence.loaded(wanted, {key: old}, {key: old}) is False
    assert evidence.loaded(wanted, {key: ring}, {key: ring}) is None
    assert evidence.loaded(wanted, {key: both}, {key: both}) is None
    assert evidence.loaded(wanted, {}, {key: ring}) is None
    assert evidence.loaded([(CELL, "default")], {key: old}, {key: old}) is None


@pytest.mark.parametrize(
    ("acts", "library", "started", "state", "loaded"),
    [
        (True, "openmpi", True, "ACTS", True), (False, "mpich", True, "IGNORED", False),
        (None, "mpich", True, "READ", True), (None, "mpich", False, "UNKNOWN", None),
        (None, "openmpi", True, "UNKNOWN", None), (None, "intelmpi", True, "UNKNOWN", None),
    ],
)  # fmt: skip
def test_a_start_is_evidence_only_for_a_library_that_refuses_bad_tables(
    acts, library, started, state, loaded
):
    found = evidence.judge(acts, library, started=started)
    assert found.name == state
    assert found.loaded is loaded


CONCLUSIONS = [
    (Evidence.ACTS, "openmpi", (), None), (Evidence.READ, "mpich", (), None),
    (Evidence.UNKNOWN, "openmpi", (), UnansweredError), (Evidence.IGNORED, "mpich", (), UnansweredError),
    (Evidence.ACTS, "openmpi", (0,), AnswerIsNoError), (Evidence.UNKNOWN, "intelmpi", (0,), AnswerIsNoError),
]  # fmt: skip


@pytest.mark.parametrize(("shown", "library", "slower", "error"), CONCLUSIONS)
def test_no_error_means_loaded_and_nowhere_proven_slower(shown, library, slower, error):
    """Where nothing tells whether the table is loaded, that is the answer, whatever the times."""
    found = [verify.Speedup(CELL, "ring", 0.8 if slower else 1.1, 0.7, 1.12, 6)]
    with contextlib.nullcontext() if error is None else pytest.raises(error):
        conclude(TABLE, shown, library, found, [found[i] for i in slower], None)


def test_sizes_lie_inside_the_stretches_and_bounding_entries_are_left_out():
    cells = verify.cells(TABLE)
    assert {4} == {c.ranks for c, _ in cells}
    assert [a for _, a in cells] == ["ring", "default"]
    assert 8 < cells[0][0].nbytes < 1024 < cells[1][0].nbytes


def test_a_table_that_changes_nothing_has_nothing_to_prove():
    with pytest.raises(UnansweredError, match="nothing to prove"):
        verify.cells(LoadedTable(Path("t"), "openmpi", {}, (Stretch("allreduce", 4, 0, 9, "default"),)))


def test_launches_alternate_and_only_one_side_has_the_table():
    plan = verify.measure_plan([(CELL, "ring")], FOUND, TABLE.environment, 4)
    assert [x.variant for x in plan.launches] == ["untouched", "table", "table", "untouched"] * 2
    for launch in plan.launches:
        assert ("KEY" in launch.settings) == (launch.variant == verify.WITH_TABLE)


def test_both_sides_run_the_same_calls_and_the_algorithms_have_launches_of_their_own():
    """An algorithm beside one side only would leave its traces (memory thresholds) in that side alone."""
    rivals = {CELL: [Case(CELL, "openmpi", "ring")]}
    sides = verify.measure_plan([(CELL, "ring")], FOUND, TABLE.environment, 4, first=3).launches
    forced = verify.rivals_plan(rivals, FOUND, 3).launches
    assert all(x.variant for x in sides)
    assert not any(x.variant for x in forced)
    assert {tuple(c.algorithm for c in x.cases) for x in sides} == {("default",)}
    assert [tuple(c.algorithm for c in x.cases) for x in forced] == [("default", "ring")] * 2
    assert all("KEY" not in x.settings for x in forced)


def test_regret_is_against_the_best_algorithm_of_the_launches_of_no_side():
    """Gains inside launches are compared: forced launches in a slow state of the machine leave the regret as it is."""
    rows = [made.row("default", 64, 1e-5, launch=launch, ranks=4) for launch in range(4)]
    for word, time in (("default", 1.5e-3), ("ring", 1e-3), ("bruck", 2e-3)):
        rows.append(made.row(word, 64, time, launch=4, ranks=4))
    sides = {n: (verify.UNTOUCHED, verify.WITH_TABLE)[n % 2] for n in range(4)}
    repetitions = {n: n // 2 for n in range(5)}
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    (found,) = verify.judge(frame, sides, [(CELL, "ring")], repetitions)
    assert (found.ratio, found.regret) == (pytest.approx(1), pytest.approx(0.5))
    slower = frame[frame["algorithm"].isin(["default", "bruck"])]
    (found,) = verify.judge(slower, sides, [(CELL, "ring")], repetitions)
    assert found.regret == pytest.approx(0), "the default is one of the algorithms"


def test_a_table_that_changes_the_barrier_is_measured_after_another_one():
    """Its barrier would be part of every other cell's time; without such a rule the library's own is used."""
    assert verify.synchronisation(TABLE) == "barrier"
    for algorithm, sync in (("bruck", "dissemination"), ("default", "barrier")):
        stretches = (*TABLE.stretches, Stretch("barrier", 4, 0, 2**62, algorithm))
        assert verify.synchronisation(LoadedTable(Path("t"), "openmpi", {}, stretches)) == sync


def test_suspects_judged_together_share_the_error():
    """Of many suspects one would seem slower by chance alone: their intervals widen with their number."""
    rows, sides = [], {}
    for pair in range(8):
        for n, time in enumerate((1e-5, 1.1e-5 * (1 + 0.05 * (-1) ** pair))):
            sides[2 * pair + n] = (verify.UNTOUCHED, verify.WITH_TABLE)[n]
            rows.append(made.row("default", 64, time, launch=2 * pair + n))
    frame, repetitions = pd.DataFrame(rows, columns=list(COLUMNS)), {n: n // 2 for n in range(16)}
    one, ten = (verify.judge(frame, sides, [(CELL, "ring")], repetitions, suspects=n)[0] for n in (1, 10))
    assert (one.slower, ten.slower) == (True, False)
