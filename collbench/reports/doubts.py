"""Sentences for doubts about measurements: the rows hold them as data, here they get words and a next step."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

_SENTENCES = {
    "oversubscribed": "",  # said once, with the rank counts, by the notes
    "coarse_clock": "the clock's step is more than 5 % of the time: read small differences with care",
    "drifting": "times moved during the launch (first half against second): measure again with --launches 3",
    "preempted": "the mean is over twice the median (preempted): the machine is shared; trust medians only",
    "bimodal": "times fall into two groups: the median may sit in either; measure again with --launches 3",
    "cpu_time": "the log's times are CPU times, not times of the call",
    "sockets": "the log shows NCCL on sockets: the fabric was not used",
    "derived_from_rate": "the time was computed from a printed rate",
    "time_falls": "the time falls while the size grows: an algorithm or protocol switches badly here",
    "below_links": "the bandwidth is far under what such links carry: check that the fabric is used",
    "below_neighbours": "the bandwidth is far under that of neighbouring rows",
    "slow_latency": "the smallest messages are far slower than such links need: check the transport",
    "label_is_request": "the log's algorithm label is only a request: shown as default",
    "mpi4py_loop": "no compiled loop: the time holds the interpreter's overhead; install with a compiler",
    "clock_error": "the nodes' clocks are known only to over 10 % of the time: prefer --sync barrier for such sizes",
    "throttled": "cores were throttled (heat or power) while this was measured: cool down and measure again",
    "upper_bound": "a rooted collective without synchronised clocks: the time is an upper bound",
}
"""Kind of warning → one sentence; an empty one is said elsewhere."""


def sentence(kind: str) -> str:
    """Return the sentence for a kind of warning; an unknown kind stands for itself."""
    return _SENTENCES.get(kind, kind.replace("_", " "))


def grouped(warnings: Iterable[Mapping[str, Any]]) -> list[tuple[str, int]]:
    """Return (sentence, number of rows) for the warnings of many rows, most frequent first."""
    counted = Counter(str(warning.get("kind", "unnamed")) for warning in warnings)
    return [(sentence(kind), count) for kind, count in counted.most_common() if sentence(kind)]
