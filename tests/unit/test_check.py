"""Acceptance: floors and ceilings, PASS only for what was measured."""

import pytest

from collbench import check, results
from collbench.errors import UsageError


@pytest.fixture(name="run")
def _run(write_run, lines):
    """4 ranks: allreduce 8 B in 2 µs and 1 MiB in 100 µs, a ring with parameters."""
    return results.read(write_run([
        lines.launch(0, 4),
        lines.cell(0, "allreduce", 4, 8, "default", [2.0]),
        lines.cell(0, "allreduce", 4, 1 << 20, "default", [100.0]),
        lines.cell(0, "allreduce", 4, 1 << 20, "ring", [90.0], params=(("segment_bytes", 4096),)),
    ]))  # fmt: skip


@pytest.fixture(name="expect")
def _expect(tmp_path):
    """``expect(text)`` writes an expectations file and reads it."""

    def make(text):
        path = tmp_path / "expect.toml"
        path.write_text(text)
        return check.read(path)

    return make


def row(cells, bound, **facts):
    extra = "".join(f"\n{k} = {v}" for k, v in facts.items())
    return f'[[expect]]\ncells = "{cells}"\n{bound}{extra}\n'


@pytest.mark.parametrize(
    ("bound", "answer"),
    [
        ("max_time_us = 95", "PASS"),  # 100 is within 10 %
        ("max_time_us = 90", "FAIL"),
        ("min_algbw_gbs = 11", "PASS"),  # 1 MiB in 100 µs is 10.49 GB/s
        ("min_algbw_gbs = 12", "FAIL"),
        ("min_busbw_gbs = 17", "PASS"),  # times 2·3/4: 15.7 GB/s
        ("min_busbw_gbs = 18", "FAIL"),
    ],
)
def test_bounds_hold_with_their_tolerance(run, expect, bound, answer):
    """A value may miss its limit by the tolerance, not by more."""
    (found,) = check.check(run, expect(row("allreduce/4/1048576/default", bound)))
    assert found.answer == answer
    assert check.status([found]) == (0 if answer == "PASS" else 1)


def test_what_was_not_measured_never_passes(run, expect):
    """A pattern without a measured cell is 3, and a failing cell beside it still 1."""
    text = row("bcast/*", "max_time_us = 5")
    found = check.check(run, expect(text))
    assert [f.answer for f in found] == ["NOT MEASURED"]
    assert check.status(found) == 3
    found = check.check(run, expect(text + row("allreduce/4/8/*", "max_time_us = 1")))
    assert check.status(found) == 1


def test_a_size_left_out_for_agreeing_neighbours_says_how_to_measure_it(write_run, lines, expect):
    """It has no answer either, but the next step is another one."""
    case = lines.cell(0, "allreduce", 4, 64, "default", [2.0])["case"]
    left = {"kind": "skipped", "launch": 0, "case": case, "reason": "its neighbours agree"}
    run = results.read(write_run([lines.launch(0, 4), left], "left"))
    findings = check.check(run, expect(row("allreduce/4/64/default", "max_time_us = 3")))
    assert check.status(findings) == 3
    assert "--no-refine" in findings[0].reason


def test_a_failed_cell_is_not_measured(run, expect, write_run, lines):
    """A failed cell has no number and cannot pass."""
    case = run.cells[0]["case"]
    bad = {"kind": "failed", "launch": 0, "case": case, "reason": "timeout", "detail": ""}
    new = results.read(write_run([lines.launch(0, 4), bad], "bad"))
    (found,) = check.check(new, expect(row("allreduce/4/8/default", "max_time_us = 50")))
    assert (found.answer, found.reason) == ("NOT MEASURED", "failed: timeout")


def test_a_pattern_covers_many_cells(run, expect):
    """One expectation is judged for each cell that it matches."""
    assert len(check.check(run, expect(row("allreduce/4/1048576/*", "max_time_us = 200")))) == 2


def test_a_good_run_passes_what_was_written_from_it(run, expect):
    """--write-expect of a run is a file that the run passes, parameters in brackets included."""
    expectations = expect(check.write(run))
    found = check.check(run, expectations)
    assert [f.answer for f in found] == ["PASS"] * 3
    assert {e.bound for e in expectations} == {"max_time_us", "min_busbw_gbs"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "at least one"),
        ("expekt = 1\n" + row("a", "max_time_us = 1"), "'expect'"),
        (row("a", "max_tim_us = 1"), "max_time_us"),
        (row("a", "max_time_us = 0"), "no number above 0"),
        (row("a", 'max_time_us = "5"'), "no number above 0"),
        (row("a", "tolerance = 0.1"), "states no bound"),
        (row("a", "max_time_us = 1", tolerance=1.5), "tolerance 1.5"),
        ("[[expect", "cannot read"),
    ],
)
def test_broken_files_name_the_fault(expect, text, words):
    """A broken file is one sentence with the key at fault."""
    with pytest.raises(UsageError, match=words):
        expect(text)


def test_the_command_exits_with_the_answer(cli, run, tmp_path):
    """check --write-expect and check --expect on the command line: 0, 1, 2 and 3."""
    limits = tmp_path / "limits.toml"
    assert cli("check", run.path, "--write-expect", "-o", limits) == 0
    shown = cli("check", run.path, "--expect", limits)
    assert shown == 0
    assert shown.stdout.splitlines()[-1].endswith("3 PASS [exit 0]")
    limits.write_text(row("allreduce/4/8/*", "max_time_us = 1"))
    assert cli("check", run.path, "--expect", limits, "--json") == 1
    limits.write_text(row("gather/*", "max_time_us = 1"))
    assert cli("check", run.path, "--expect", limits) == 3
    assert cli("check", run.path) == 2
