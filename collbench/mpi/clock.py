"""How far each rank's clock is from rank 0's, with the error, so that windows and spans work across nodes.

Ranks of one node share CLOCK_MONOTONIC. Between nodes the offset is estimated by message round trips: the quickest
trip bounds the error by half its length (Cristian 1989); node leaders measure along a binomial tree, so that p nodes
need log2(p) steps and errors add up along at most log2(p) edges (as in HCA: Hunold, Carpen-Amarie 2018).
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

ROUNDS = 200
MAX_AGE_S = 1.0
"""An estimate older than this is measured anew before the next round."""
ASSUMED_DRIFT = 1e-6
"""How fast two nodes' clocks part as long as no second estimate says it (1 µs a second)."""
_TAG = 78


@dataclass(frozen=True, slots=True)
class Clock:
    """One rank's clock against rank 0's.

    Attributes:
        offset_ns: this rank's CLOCK_MONOTONIC minus rank 0's at the same moment.
        error_ns: bound of the offset's error; 0 where the clock is the same one.
    """

    offset_ns: int = 0
    error_ns: int = 0


def relative(remote_ns: int, sent_ns: int, received_ns: int) -> tuple[int, int]:
    """Return (offset, error bound) of a remote clock from one round trip, in nanoseconds.

    Args:
        remote_ns: what the remote clock showed in between.
        sent_ns: own clock when the request left.
        received_ns: own clock when the answer came.
    """
    half = (received_ns - sent_ns + 1) // 2
    return remote_ns - sent_ns - half, half


def edges(nodes: int) -> list[tuple[int, int]]:
    """Return (reference, client) pairs of a binomial tree over nodes, in an order in which each can be measured."""
    return [(client ^ (1 << (client.bit_length() - 1)), client) for client in range(1, nodes)]


def synchronise(
    comm: Any,
    node_of: Sequence[int],
    *,
    rounds: int = ROUNDS,
    clock_ns: Callable[[], int] = time.monotonic_ns,
) -> Clock:
    """Measure this rank's clock against rank 0's (collective; nothing is sent when all share a node).

    Clocks drift (1 ppm is 1 µs a second): measure anew for each launch, or more often.

    Args:
        comm: all ranks.
        node_of: rank → number of its node.
        rounds: round trips an edge; the quickest counts.
        clock_ns: the clock, for tests.
    """
    numbers = sorted(set(node_of), key=list(node_of).index)
    leaders = [list(node_of).index(number) for number in numbers]
    found = np.zeros(2, dtype=np.int64)
    for reference, client in edges(len(leaders)):
        if comm.rank == leaders[reference]:
            _answer(comm, leaders[client], rounds, clock_ns)
        elif comm.rank == leaders[client]:
            found[:] = _ask(comm, leaders[reference], rounds, clock_ns)
    everyone = np.zeros((comm.size, 2), dtype=np.int64)
    comm.Allgather(found, everyone)
    mine = numbers.index(node_of[comm.rank])
    offset = error = 0
    while mine:
        offset += int(everyone[leaders[mine], 0])
        error += int(everyone[leaders[mine], 1])
        mine ^= 1 << (mine.bit_length() - 1)
    return Clock(offset, error)


def drift(first: Clock, last: Clock, elapsed_ns: int) -> tuple[float, float]:
    """Return (drift, bound of its error) in ns per ns from two estimates of one clock ``elapsed_ns`` apart.

    For a constant drift the bound is sure, since each offset is within its own bound.
    """
    return (last.offset_ns - first.offset_ns) / elapsed_ns, (first.error_ns + last.error_ns) / elapsed_ns


class Clocks:
    """This rank's clock against rank 0's over a launch: measured again when old, extrapolated in between.

    Args:
        comm: all ranks.
        node_of: rank → number of the real node whose clock it reads.
        rounds: round trips an edge.
        max_age_s: age from which ``refresh`` measures anew.
        clock_ns: the clock, for tests.

    Attributes:
        several: whether there is more than one clock; if not, nothing is ever sent.
    """

    def __init__(
        self,
        comm: Any,
        node_of: Sequence[int],
        *,
        rounds: int = ROUNDS,
        max_age_s: float = MAX_AGE_S,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._comm, self._node_of = comm, tuple(node_of)
        self._rounds, self._max_age_ns, self._clock_ns = rounds, round(max_age_s * 1e9), clock_ns
        self._first: tuple[int, Clock] | None = None
        self._last: tuple[int, Clock] | None = None
        self._drift = (0.0, 0.0)
        self.several = len(set(self._node_of)) > 1

    def refresh(self) -> bool:
        """Measure anew when the last estimate is old (collective; rank 0 decides); say whether it was."""
        if not self.several:
            return False
        old = np.array(
            [self._last is None or self._clock_ns() - self._last[0] > self._max_age_ns], dtype=np.int64
        )
        self._comm.Bcast(old, root=0)
        if old[0]:
            found = synchronise(self._comm, self._node_of, rounds=self._rounds, clock_ns=self._clock_ns)
            self.learn(self._clock_ns(), found)
        return bool(old[0])

    def learn(self, at_ns: int, found: Clock) -> None:
        """Take in an estimate made at ``at_ns`` of this rank's clock; the drift counts from the first one."""
        self._last = at_ns, found
        if self._first is None:
            self._first = self._last
            self._drift = (0.0, ASSUMED_DRIFT if self._node_of[self._comm.rank] != self._node_of[0] else 0.0)
        else:
            self._drift = drift(self._first[1], found, max(1, at_ns - self._first[0]))

    def now(self) -> Clock:
        """Return this rank's clock as it should be now; the error grows with the estimate's age."""
        if self._last is None:
            return Clock()
        at_ns, found = self._last
        age = self._clock_ns() - at_ns
        rate, error = self._drift
        return Clock(found.offset_ns + round(rate * age), found.error_ns + round(error * age))


def _answer(comm: Any, client: int, rounds: int, clock_ns: Callable[[], int]) -> None:
    message = np.zeros(1, dtype=np.int64)
    for _ in range(rounds):
        comm.Recv(message, client, _TAG)
        message[0] = clock_ns()
        comm.Send(message, client, _TAG)


def _ask(comm: Any, reference: int, rounds: int, clock_ns: Callable[[], int]) -> tuple[int, int]:
    """Return (own clock minus the reference's, error bound)."""
    message = np.zeros(1, dtype=np.int64)
    best: tuple[int, int] | None = None
    for _ in range(rounds):
        sent = clock_ns()
        comm.Send(message, reference, _TAG)
        comm.Recv(message, reference, _TAG)
        offset, error = relative(int(message[0]), sent, clock_ns())
        if best is None or error < best[1]:
            best = -offset, error
    assert best is not None
    return best
