"""Second launches for winners, and the end of a launch that takes far more than its time, with real ranks."""

import json
import math

import pytest

from collbench import budget, confirmation, watching
from collbench.resume import load

pytestmark = [pytest.mark.process, pytest.mark.once]

RACE = """
[[sweep]]
collectives = "allreduce"
ranks = 2
sizes = "8,1K"
algorithms = "library"
"""
LONG = """
[sampling]
mode = "fixed"
iterations = 2000000
[[sweep]]
collectives = "allreduce"
ranks = 2
sizes = "1M"
algorithms = "default"
"""


def test_winners_of_a_single_launch_are_measured_in_a_second_one(drive, monkeypatch):
    """Which algorithms win here is the machine's business: all that raced are let through. Nothing counts twice."""
    monkeypatch.setattr(confirmation, "LEAST_GAIN", math.expm1(-20))
    monkeypatch.setattr(confirmation, "SURE_Z", -math.inf)
    came, run, said = drive(RACE, confirm=True)
    assert (came.launches, came.confirming, came.repeated) == (2, 1, 0)
    assert [line["repetition"] for line in run.launches.values()] == [0, 1]
    first, second = ([c["case"] for c in run.cells if c["launch"] == n] for n in (0, 1))
    assert came.cells == len(first)
    assert {c["nbytes"] for c in second} == {8, 1024}
    assert [c["algorithm"] for c in second].count("default") == 2
    assert 2 < len(second) <= len(first)
    assert all(case in first for case in second)
    assert any(f"confirming {len(second)} cases" in line for line in said)


def test_going_on_with_a_run_takes_up_its_second_launch(drive, monkeypatch):
    """What the second launch holds already is not measured again."""
    monkeypatch.setattr(confirmation, "LEAST_GAIN", math.expm1(-20))
    monkeypatch.setattr(confirmation, "SURE_Z", -math.inf)
    _, run, _ = drive(RACE, confirm=True)
    lines = run.path.read_text().splitlines(keepends=True)
    last = max(i for i, line in enumerate(lines) if json.loads(line)["kind"] == "cell")
    lost = json.loads(lines.pop(last))["case"]
    run.path.write_text("".join(lines))
    again, run, _ = drive(RACE, job=load(run.path))
    assert (again.confirming, again.launches) == (1, 1)
    assert [c["case"] for c in run.cells if c["launch"] == 2] == [lost]
    third, _, _ = drive(RACE, job=load(run.path))
    assert third.launches == 0


def test_without_winners_or_where_declined_there_is_no_second_launch(drive):
    came, run, _ = drive(LONG.replace("2000000", "20"), confirm=True)
    assert (came.launches, came.confirming, len(run.cells)) == (1, 0, 1)


def test_a_launch_that_takes_far_more_than_its_time_is_ended(drive, monkeypatch):
    """One block of it alone is longer than the budget: the case is left out with the reason, and is no failure."""
    monkeypatch.setattr(watching, "GRACE_S", 0.5)
    monkeypatch.setattr(watching, "GRACE", 0.0)
    came, run, _ = drive(LONG, budget_s=1.0)
    assert (came.cells, came.skipped, came.failed) == (0, 1, [])
    assert [line["reason"] for line in run.skipped] == [budget.SPENT]
    ends = [json.loads(line) for line in run.path.read_text().splitlines()]
    assert [line["status"] for line in ends if line["kind"] == "launch_end"] == [watching.OVERDUE]


def test_the_dry_run_speaks_of_second_launches(cli, tmp_path):
    """Only where there will be any: with one launch a rank count, unless declined."""
    path = tmp_path / "race.toml"
    path.write_text(RACE)
    assert "up to 1 launches that measure default and winners" in cli("run", path, "--dry-run").stdout
    for words in (("--no-confirm",), ("--launches", "3"), ("--iterations", "9")):
        assert "once more" not in cli("run", path, "--dry-run", *words).stdout
