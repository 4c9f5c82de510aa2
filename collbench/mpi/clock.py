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
