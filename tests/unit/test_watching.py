"""Watching a launch: it ends, it hangs, or it takes far more time than it has."""

import json
import time

import pytest

from collbench import watching
from collbench.watching import Watch


class Job:
    """A job whose exit status is set by the test."""

    code = None
    alive = (1, 2, 3)

    def poll(self):
        return self.code

    def members(self):
        return list(self.alive)


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass only when the test says so."""
    now = {"s": 1000.0}
    monkeypatch.setattr(time, "monotonic", lambda: now["s"])
    monkeypatch.setattr(time, "time", lambda: now["s"])
    return now


def status(path, clock, state="measuring", case=None, timeout_s=60.0):
    path.write_text(json.dumps({"at": clock["s"], "state": state, "case": case, "timeout_s": timeout_s}))


def started(tmp_path, clock, *, measuring_s=None, ranks=2):
    job, path = Job(), tmp_path / "status"
    return job, path, Watch(job, path, ranks, 60.0, measuring_s)


@pytest.mark.parametrize(("code", "problem"), [(0, None), (3, ("crashed", "exit status 3"))])
def test_the_exit_status_tells_a_good_end_from_a_bad_one(tmp_path, clock, code, problem):
    job, _, watch = started(tmp_path, clock)
    assert not watch.ended()
    job.code = code
    assert watch.ended()
    assert watch.problem == problem


def test_silence_is_a_hang_at_its_own_limit(tmp_path, clock):
    """Before the first sign of life the start's limit counts, afterwards the one the worker names."""
    _, path, watch = started(tmp_path, clock)
    clock["s"] += watching.START_TIMEOUT_S - 1
    assert not watch.ended()
    status(path, clock, timeout_s=30.0)
    assert not watch.ended()
    assert watch.startup_s == watching.START_TIMEOUT_S - 1
    clock["s"] += 31
    assert watch.ended()
    assert watch.problem == ("timeout", "no sign of life for 30 s")


def test_a_start_without_a_sign_of_life_is_named_so(tmp_path, clock):
    _, _, watch = started(tmp_path, clock, ranks=1000)
    clock["s"] += 499
    assert not watch.ended()
    clock["s"] += 2
    assert watch.ended()
    assert watch.problem[0] == "start_timeout"


def test_processes_that_outlive_a_finished_launch_are_no_problem(tmp_path, clock):
    _, path, watch = started(tmp_path, clock, measuring_s=1.0)
    status(path, clock, state="done")
    assert not watch.ended()
    clock["s"] += watching.END_TIMEOUT_S + 1
    assert watch.ended()
    assert watch.problem is None


@pytest.mark.parametrize(("measuring_s", "allowed"), [(2.0, 7.0), (100.0, 125.0)])
def test_a_launch_that_takes_far_more_than_its_time_is_overdue(tmp_path, clock, measuring_s, allowed):
    """However lively it is; the time of its start does not count."""
    _, path, watch = started(tmp_path, clock, measuring_s=measuring_s)
    clock["s"] += 50
    status(path, clock)
    assert not watch.ended()
    clock["s"] += allowed - 1
    status(path, clock)
    assert not watch.ended()
    clock["s"] += 2
    status(path, clock)
    assert watch.ended()
    assert watch.problem[0] == watching.OVERDUE


@pytest.mark.parametrize("measuring", [False, True])
def test_a_launcher_that_outlives_its_ranks_is_not_waited_for(tmp_path, clock, measuring):
    """Whether they ended while MPI started or later; on other machines they were never seen, and nothing is concluded."""
    job, path, watch = started(tmp_path, clock)
    if measuring:
        status(path, clock)
    clock["s"] += watching.ALONE_S + 1
    assert not watch.ended()
    job.alive = (1,)
    for _ in range(3):
        clock["s"] += watching.ALONE_S - 1
        ended = watch.ended()
    assert ended
    assert watch.problem == ("crashed", "its ranks ended, the launcher did not")


def test_ranks_elsewhere_are_never_missed(tmp_path, clock):
    job, _, watch = started(tmp_path, clock)
    job.alive = (1,)
    for _ in range(20):
        clock["s"] += 5
        assert not watch.ended()


def test_without_a_budget_nothing_is_overdue(tmp_path, clock):
    _, path, watch = started(tmp_path, clock)
    for _ in range(100):
        clock["s"] += 50
        status(path, clock)
        assert not watch.ended()
