"""The timed blocks of one cell over NCCL: all its cases in turn, clear losers dropped, the same on every rank."""

import json
from collections.abc import Sequence

from collbench.backends import nccl_measure as measure
from collbench.backends.nccl_model import Hardware
from collbench.backends.nccl_plan import RACE_FACTOR, WARMUP, iterations
from collbench.profile import Sampling
from collbench.samplers import Race

BLOCKS = 5
"""Blocks of each case before anything is decided; a race takes RACE_FACTOR times as many at most."""


def race(
    session: measure.Session,
    ready: Sequence[measure.Ready],
    timing: str,
    sampling: Sampling,
    fixed: int | None,
) -> tuple[Race, list[int]]:
    """Time the cases of a cell; rank 0 decides, every rank follows; return the race and the calls in a block of each.

    Args:
        session: the launch.
        ready: prepared cases, the same on every rank.
        timing: host, events or graph.
        sampling: the profile's rules.
        fixed: calls per case; None = the race decides.
    """
    if fixed is None and sampling.mode == "fixed":
        fixed = sampling.iterations
    lengths = [max(1, -(-iterations(r.case, Hardware(), fixed) // BLOCKS)) for r in ready]
    open_ended = fixed is None and sampling.mode != "fixed"
    found = Race(
        len(ready), min_rounds=BLOCKS, max_rounds=BLOCKS * (RACE_FACTOR if open_ended else 1),
        precision=sampling.precision, race=open_ended,
        protected=frozenset(i for i, r in enumerate(ready) if r.case.algorithm == "default"),
    )  # fmt: skip
    first = session.control.rank == 0
    for entry in ready:
        measure.block(session, entry, WARMUP, "host")
    while True:
        order = json.loads(session.control.share(json.dumps(found.order()).encode() if first else b""))
        if not order:
            return found, lengths
        for index in order:
            found.series[index].add(measure.block(session, ready[index], lengths[index], timing))
        if first and found.end_round():
            for series in found.series:
                series.alive = False
