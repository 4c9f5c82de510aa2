"""The blocks of a cell over NCCL, with given times: every rank plays what rank 0 decides."""

import threading

import numpy as np
import pytest

from collbench.backends import nccl_measure as measure
from collbench.backends import nccl_race
from collbench.profile import Sampling
from collbench.records import Case, Cell

NAMES = ("default", "ring", "tree")
CASES = [Case(Cell("allreduce", 2, 2, 1024, "float32", "sum", memory="cuda"), "nccl", name) for name in NAMES]


class Control:
    """Two ranks in this process: rank 0's bytes."""

    def __init__(self, rank, barrier, box):
        self.rank, self.ranks, self.barrier, self.box = rank, 2, barrier, box

    def share(self, value):
        self.barrier.wait()
        if self.rank == 0:
            self.box[0] = value
        self.barrier.wait()
        return self.box[0]


@pytest.fixture(name="play")
def _play(monkeypatch):
    """``play(times, …)`` → for each rank (race, lengths, played): times[rank][algorithm] are its block times."""

    def play(times, sampling=None, fixed=None):
        barrier, box, found = threading.Barrier(2, timeout=30), [b""], [None, None]
        played = [[], []]

        def block(session, entry, count, timing):
            rank, name = session.control.rank, entry.case.algorithm
            played[rank].append((name, count, timing))
            return np.array([times[rank][name] * (1 + 0.001 * (len(played[rank]) % 7))])

        monkeypatch.setattr(measure, "block", block)

        def one(rank):
            session = measure.Session(None, Control(rank, barrier, box), None, None, 2)
            ready = [measure.Ready(case, None, None) for case in CASES]
            found[rank] = nccl_race.race(session, ready, "events", sampling or Sampling(), fixed)

        threads = [threading.Thread(target=one, args=(r,)) for r in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=30)
        return [(race, lengths, played[r]) for r, (race, lengths) in enumerate(found)]

    return play


FAST_RING = {"default": 3.0, "ring": 1.0, "tree": 2.0}


def test_every_rank_plays_what_rank_0_decides(play):
    """Whatever another rank has seen: the same blocks in the same order, or the ranks would wait for each other."""
    first, second = play([FAST_RING, {"default": 1.0, "ring": 9.0, "tree": 1.0}])
    assert first[2] == second[2]
    assert first[0].stopped_by == "precision"


def test_a_clear_loser_gets_no_further_blocks_and_the_default_is_never_dropped(play):
    """Ring and the default go on while the default is not settled; tree has its five blocks."""
    near = {"default": 1.0, "ring": 1.0, "tree": 2.0}
    (race, _, played), _ = play([near, near], Sampling(precision=1e-9))
    blocks = [len(s.blocks) for s in race.series]
    assert blocks[2] == nccl_race.BLOCKS
    assert blocks[0] == blocks[1] > nccl_race.BLOCKS
    assert race.stopped_by == "rounds"
    assert {timing for _, _, timing in played[len(CASES) :]} == {"events"}


@pytest.mark.parametrize(
    ("sampling", "fixed"), [(Sampling(), 40), (Sampling(mode="fixed", iterations=40), None)]
)
def test_a_fixed_number_of_calls_is_no_race(play, sampling, fixed):
    """Every case gets all of them."""
    (race, lengths, _), _ = play([FAST_RING, FAST_RING], sampling, fixed)
    assert [length * len(s.blocks) for length, s in zip(lengths, race.series, strict=True)] == [40] * 3
