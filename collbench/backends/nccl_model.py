"""A rough model of NCCL's times: how long a plan takes, and where a protocol cannot win. Never shown as a measurement.

Source: the constants of NCCL 2.30's own cost model (tuning.cc; facts: evidence §7), in seconds.
"""

import math
from dataclasses import dataclass

from collbench.collectives import COLLECTIVES
from collbench.records import Case, Cell

_BASE_S = {"ll": 6.6e-6, "ll128": 14.0e-6, "simple": 8.4e-6}
_LINK_S = {"ll": 0.6e-6, "ll128": 1.9e-6, "simple": 3.4e-6}
_NETWORK_S = {"ll": 2.7e-6, "ll128": 4.0e-6, "simple": 14.0e-6}
_TREE_NETWORK_S = {"ll": 5.0e-6, "ll128": 8.5e-6, "simple": 14.0e-6}
_EFFICIENCY = {"ll": 0.5, "ll128": 0.92, "simple": 1.0}
"""Share of the link's bandwidth that carries data: LL sends a flag with every 4 bytes, LL128 8 in 128."""

SAFETY = 4.0
"""A protocol is left out only where it loses by more than this many times what it could gain."""
FLOOR_S = 10e-6
"""Gain that the model may miss."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """What the estimates assume about the machine.

    Attributes:
        node_bytes_per_s: bus bandwidth inside a node (nccl-tests' busbw).
        network_bytes_per_s: a node's bandwidth to the network.
        memory_bytes: memory of one GPU.
        start_s: start of one launch, NCCL's and CUDA's initialisation included.
        communicator_s: creation of one communicator, and ``communicator_rank_s`` more for every rank.
        communicator_rank_s: see above.
    """

    node_bytes_per_s: float = 450e9
    network_bytes_per_s: float = 400e9
    memory_bytes: int = 80 << 30
    start_s: float = 8.0
    communicator_s: float = 0.6
    communicator_rank_s: float = 0.004

    def communicator(self, ranks: int) -> float:
        """Return the seconds that creating one communicator takes."""
        return self.communicator_s + self.communicator_rank_s * ranks


def _steps(cell: Cell) -> tuple[int, int]:
    """Return (steps inside nodes, steps between nodes) of a ring."""
    per_node = cell.ranks_per_node or cell.ranks
    nodes = math.ceil(cell.ranks / per_node)
    rounds = 2 if cell.collective == "allreduce" else 1
    if cell.collective == "sendrecv":
        return (1, 0) if nodes == 1 else (0, 1)
    between = rounds * (nodes - 1)
    return rounds * (cell.ranks - 1) - between, between


def _hops_s(cell: Cell, algorithm: str, protocol: str) -> float:
    per_node = cell.ranks_per_node or cell.ranks
    nodes = math.ceil(cell.ranks / per_node)
    if algorithm in ("tree", "nvls", "nvls_tree", "collnet_direct", "collnet_chain", "symmetric"):
        depth = math.log2(nodes) if nodes > 1 else 0.0
        local = per_node - 1 if algorithm in ("tree", "collnet_chain") else 2
        return 2 * (local * _LINK_S[protocol] + depth * _TREE_NETWORK_S[protocol])
    if algorithm == "pat":
        return math.log2(max(2, cell.ranks)) * _NETWORK_S[protocol]
    inside, between = _steps(cell)
    return inside * _LINK_S[protocol] + between * _NETWORK_S[protocol]


def _algbw(cell: Cell, hardware: Hardware) -> float:
    one_node = (cell.ranks_per_node or cell.ranks) >= cell.ranks
    bus = (
        hardware.node_bytes_per_s
        if one_node
        else min(hardware.node_bytes_per_s, hardware.network_bytes_per_s)
    )
    factor = COLLECTIVES[cell.collective].busbw_factor
    return bus / max(0.1, factor(cell.ranks) if factor else 1.0)


def call_s(case: Case, hardware: Hardware) -> float:
    """Return the estimated seconds of one call (the default: of a ring or a tree, whichever is shorter)."""
    cell = case.cell
    protocol = str(dict(case.params).get("protocol", "simple"))
    moving = cell.nbytes / (_algbw(cell, hardware) * _EFFICIENCY[protocol])
    if case.algorithm in ("default", "auto"):
        trees = ("ring", "tree") if cell.collective == "allreduce" else ("ring",)
        hops = min(_hops_s(cell, a, p) + _BASE_S[p] for a in trees for p in ("ll", "simple"))
        return hops + moving
    return _BASE_S[protocol] + _hops_s(cell, case.algorithm, protocol) + moving


def cannot_win(case: Case, hardware: Hardware) -> str | None:
    """Return why this protocol cannot beat Simple of the same algorithm at this size; None where it may."""
    protocol = str(dict(case.params).get("protocol", "simple"))
    if protocol == "simple":
        return None
    gain = max(
        0.0, _hops_s(case.cell, case.algorithm, "simple") - _hops_s(case.cell, case.algorithm, protocol)
    )
    loss = case.cell.nbytes / _algbw(case.cell, hardware) * (1 / _EFFICIENCY[protocol] - 1)
    if loss <= SAFETY * (gain + FLOOR_S):
        return None
    return f"{protocol.upper()} cannot win at this size: its overhead costs more than the latency it saves"


def buffer_bytes(cell: Cell) -> int:
    """Return the bytes that one rank needs for a cell: send, receive and a copy of the expected result."""
    share = cell.nbytes // cell.ranks
    send = share if cell.collective == "allgather" else cell.nbytes
    receive = share if cell.collective == "reduce_scatter" else cell.nbytes
    return (receive if cell.in_place else send + receive) + receive
