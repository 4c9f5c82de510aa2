"""What all nodes' processors are doing right now, and throttling counted while one measures."""

import json
import socket
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from collbench import environment

_TEXT = 512


def gather(comm: Any, node_of: Sequence[int]) -> list[dict[str, Any]]:
    """Return each node's state with its host name, in order of nodes, on every rank (collective)."""
    leads = is_leader(comm.Get_rank(), node_of)
    text = json.dumps({"host": socket.gethostname(), **environment.state()} if leads else {}).encode()
    mine = np.frombuffer(text[:_TEXT].ljust(_TEXT), dtype=np.uint8).copy()
    everyone = np.empty((comm.Get_size(), _TEXT), dtype=np.uint8)
    comm.Allgather(mine, everyone)
    return [json.loads(row.tobytes()) for i, row in enumerate(everyone) if is_leader(i, node_of)]


def is_leader(rank: int, node_of: Sequence[int]) -> bool:
    """Say whether a rank is its node's first one."""
    return list(node_of).index(node_of[rank]) == rank


class Throttling:
    """Counts throttle events on all nodes from one look to the next.

    Args:
        comm: all ranks.
        node_of: rank → number of its real node; each node's first rank reads.
        count: reads this node's counters, for tests.

    Attributes:
        counted: whether any node counts at all; if not, nothing is ever sent.
    """

    def __init__(
        self, comm: Any, node_of: Sequence[int], count: Callable[[], int | None] = environment.throttled
    ) -> None:
        self._comm, self._count = comm, count
        self._reads = is_leader(comm.Get_rank(), node_of)
        self._last = self._read()
        seen = np.array([self._last is not None], dtype=np.int64)
        anywhere = np.zeros_like(seen)
        comm.Allreduce(seen, anywhere)
        self.counted = bool(anywhere[0])

    def _read(self) -> int | None:
        return self._count() if self._reads else None

    def events(self) -> int:
        """Return how many events all nodes counted since the last look (collective); 0 where nothing counts."""
        if not self.counted:
            return 0
        now = self._read()
        own = np.array(
            [max(0, now - self._last) if now is not None and self._last is not None else 0], np.int64
        )
        self._last = now
        total = np.zeros_like(own)
        self._comm.Allreduce(own, total)
        return int(total[0])
