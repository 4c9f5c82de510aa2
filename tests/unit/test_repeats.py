"""Which tries of a disturbed launch count, case by case."""

import pytest

from collbench import pairing, results
from collbench.repeats import DISTURBED, movement, outdone

CALM, WILD, WILDER = (40.0, 41.0), (40.0, 200.0), (40.0, 400.0)


def launch(probes, **facts):
    return {"probe": {"pingpong_ns": probes[0]}, "probe_after": {"pingpong_ns": probes[1]}, **facts}


def cell(number, nbytes):
    return {"launch": number, "case": {"nbytes": nbytes}}


def test_the_movement_is_the_ratio_of_both_probes_whichever_is_larger():
    """Unknown without either probe."""
    assert movement(launch((40.0, 100.0))) == movement(launch((100.0, 40.0))) == 2.5
    assert movement({"probe": {"pingpong_ns": 40.0}}) is None
    assert movement({"probe": None, "probe_after": {"pingpong_ns": None}}) is None


@pytest.mark.parametrize("ratio", [1.0, 1.5, DISTURBED * 0.99, DISTURBED * 1.01, 5.0])
def test_what_comparisons_leave_out_is_what_is_repeated(ratio):
    """One limit serves both."""
    line = launch((40.0, 40.0 * ratio))
    assert pairing.classify([line])[0].disturbed is (movement(line) > DISTURBED)


def test_a_calm_repeat_replaces_its_cases_only():
    """A case that the repeat does not hold still counts from the first try."""
    launches = {0: launch(WILD), 1: launch(CALM, replaces=0)}
    assert outdone(launches, [cell(0, 8), cell(0, 64), cell(1, 8)]) == [True, False, False]


@pytest.mark.parametrize(
    ("repeat", "expected"),
    [
        (WILDER, [False, True]),
        (WILD, [False, True]),
        ((40.0, 90.0), [True, False]),
        ((40.0, None), [False, True]),
    ],
)
def test_of_two_disturbed_tries_the_less_disturbed_counts(repeat, expected):
    """The earlier one of equals; a try that never ended counts as disturbed most."""
    launches = {0: launch(WILD), 1: launch(repeat, replaces=0)}
    assert outdone(launches, [cell(0, 8), cell(1, 8)]) == expected


def test_three_tries_keep_one_time_a_case():
    """All repeats name the first try."""
    launches = {
        3: launch(WILDER),
        5: launch(WILD, replaces=3),
        6: launch(WILDER, replaces=3),
        4: launch(WILDER),
    }
    cells = [cell(3, 8), cell(4, 8), cell(5, 8), cell(6, 8)]
    assert outdone(launches, cells) == [True, False, False, True]


def test_a_run_without_repeats_keeps_everything():
    """Disturbed launches that nothing replaces stay."""
    assert outdone({0: launch(WILDER)}, [cell(0, 8), cell(0, 64)]) == [False, False]


@pytest.fixture(name="repeated")
def _repeated(write_run, lines):
    """A run whose launch 0 was disturbed and repeated as launch 2, but for 64 KiB."""
    out = []
    for number, probes, more, factor in ((0, WILD, {}, 3), (1, CALM, {}, 1), (2, CALM, {"replaces": 0}, 1)):
        out.append(
            lines.launch(number, 2, **more) | {"probe": {"pingpong_ns": probes[0]}, "repetition": number % 2}
        )
        out.append(lines.cell(number, "allreduce", 2, 8, "default", [factor * 1.0]))
        if number < 2:
            out.append(lines.cell(number, "allreduce", 2, 65536, "default", [factor * 20.0]))
        out.append(
            {"kind": "launch_end", "launch": number, "probe": {"pingpong_ns": probes[1]}, "status": "ok"}
        )
    return write_run(out, "repeated")


def test_a_run_is_read_without_the_replaced_rows(repeated):
    """They are kept apart, and come back on demand."""
    run = results.read(repeated)
    assert [(c["launch"], c["case"]["nbytes"]) for c in run.cells] == [(0, 65536), (1, 8), (1, 65536), (2, 8)]
    assert [(c["launch"], c["case"]["nbytes"]) for c in run.replaced] == [(0, 8)]
    assert len(results.frame(run)) == 4
    assert len(results.frame(run, replaced=True)) == 5


def test_show_says_what_was_repeated(repeated, cli):
    """One note, and the replaced time in no table."""
    shown = cli("show", repeated)
    assert shown.status == 0
    assert "repeated: 1 launch ran while the machine's state changed" in " ".join(shown.stdout.split())
    assert "3 µs" not in shown.stdout
