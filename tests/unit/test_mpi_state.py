"""The state of nodes while one measures: planted counters, and communicators of our own making."""

import numpy as np
import pytest

from collbench import environment
from collbench.backends import mpi
from collbench.mpi.state import Throttling, gather


class Ranks:
    """Two ranks that do in turn what mpi4py would do at once: sums hold the other rank's part."""

    def __init__(self, rank, others):
        self._rank, self._others = rank, iter(others)

    def Get_rank(self):  # noqa: N802 - as mpi4py spells it
        return self._rank

    def Get_size(self):  # noqa: N802
        return 1

    def Allreduce(self, own, total):  # noqa: N802
        np.copyto(total, own + next(self._others))

    def Allgather(self, mine, everyone):  # noqa: N802
        everyone[:] = mine


def _counters(tmp_path, **values):
    for name, value in values.items():
        cpu, _, counter = name.partition("_")
        path = tmp_path / cpu / "thermal_throttle" / f"{counter}_throttle_count"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n")


def test_throttle_events_of_cores_and_packages_are_summed(tmp_path):
    """Of all processors; None where the kernel does not count."""
    assert environment.throttled(tmp_path) is None
    _counters(tmp_path, cpu0_core=2, cpu0_package=1, cpu11_core=4)
    (tmp_path / "cpuidle").mkdir()
    assert environment.throttled(tmp_path) == 7


@pytest.mark.parametrize(
    ("scaling", "info", "expected"),
    [
        ({"cpu0": 2_400_000, "cpu1": 3_100_500}, "cpu MHz\t\t: 1000.0\n", [2400.0, 3100.5]),
        ({}, "cpu MHz\t\t: 2596.122\nflags : x\ncpu MHz\t\t: 1800.06\n", [1800.1, 2596.1]),
        ({}, "model name : an arm\n", None),
    ],
)
def test_the_clock_is_the_scaled_one_then_the_kernels_then_unknown(tmp_path, scaling, info, expected):
    """Lowest and highest of all cores."""
    for cpu, khz in scaling.items():
        (tmp_path / cpu / "cpufreq").mkdir(parents=True)
        (tmp_path / cpu / "cpufreq/scaling_cur_freq").write_text(f"{khz}\n")
    (tmp_path / "cpuinfo").write_text(info)
    assert environment.clock_mhz(tmp_path, tmp_path / "cpuinfo") == expected


def test_nothing_to_read_is_unknown_and_no_error(tmp_path):
    """A container hides what it likes."""
    assert environment.clock_mhz(tmp_path, tmp_path / "gone") is None


def test_events_since_the_last_look_are_counted_over_all_nodes(tmp_path):
    """This node's counter moves by 3, another node reports 2; then nothing."""
    _counters(tmp_path, cpu0_core=5)
    watch = Throttling(Ranks(0, [1, 2, 0]), (0, 1), lambda: environment.throttled(tmp_path))
    assert watch.counted
    _counters(tmp_path, cpu0_core=8)
    assert watch.events() == 5
    assert watch.events() == 0


def test_where_no_node_counts_nothing_is_asked_again():
    """One agreement at the start, then no message."""
    watch = Throttling(Ranks(0, [0]), (0,), lambda: None)
    assert not watch.counted
    assert watch.events() == 0


def test_only_a_nodes_first_rank_reads():
    """Rank 1 of the same node adds nothing, or events would count twice."""
    asked = []
    watch = Throttling(Ranks(1, [1, 4]), (0, 0), lambda: asked.append(1) or 9)
    assert watch.events() == 4
    assert not asked


def test_each_node_tells_its_state():
    """A launch line can hold it: host, clock, throttled so far, load."""
    (one,) = gather(Ranks(0, []), (0,))
    assert set(one) == {"host", "clock_mhz", "throttled", "load"}


def test_a_moved_counter_is_a_warning_in_the_row():
    """As data, with the number of events."""
    assert mpi.throttled_doubt(0) == []
    assert mpi.throttled_doubt(3) == [{"kind": "throttled", "events": 3}]
