"""How the ranks of the NCCL back end agree: through MPI where they came from it, else over TCP through rank 0.

torchrun, srun and collbench's own launch give RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT.
"""

import contextlib
import os
import socket
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from collbench.errors import UnansweredError

PORT_OFFSET = 17
"""torchrun's own store listens on MASTER_PORT itself."""
CONNECT_S = 120.0
_LENGTH = struct.Struct("!Q")
Values = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Place:
    """Who this process is: rank, world size, rank on its node, and where rank 0 listens (None = ask MPI)."""

    rank: int
    ranks: int
    local_rank: int
    address: tuple[str, int] | None = None


_MPI_MARKS = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MPI_LOCALRANKID")


def place(environ: Mapping[str, str]) -> Place | None:
    """Return what the environment says; None = started by MPI.

    Raises:
        UnansweredError: neither MPI nor RANK … MASTER_PORT nor Slurm with MASTER_ADDR.
    """
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
    if not all(n in environ for n in names):
        if any(n in environ for n in _MPI_MARKS):
            return None
        names = ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID")
    if not all(n in environ for n in names) or "MASTER_ADDR" not in environ:
        raise UnansweredError(
            "this process was started neither by MPI nor with RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT: "
            "start it through 'collbench run', mpirun, srun or torchrun"
        )
    try:
        rank, ranks, local = (int(environ[n]) for n in names)
        port = int(environ.get("MASTER_PORT", "29500")) + PORT_OFFSET
    except ValueError:
        raise UnansweredError(f"{', '.join(names)} and MASTER_PORT must be whole numbers") from None
    if not 0 <= rank < ranks:
        raise UnansweredError(f"rank {rank} is outside a world of {ranks}")
    return Place(rank, ranks, local, (environ["MASTER_ADDR"], port))


class Control(Protocol):
    """Agreement between all ranks, outside every timed part."""

    rank: int
    ranks: int
    local_rank: int

    def share(self, data: bytes) -> bytes:
        """Return rank 0's bytes on every rank."""

    def maximum(self, values: Values) -> Values:
        """Return the element-wise maximum over ranks, on every rank."""

    def barrier(self) -> None:
        """Return when every rank has come."""

    def close(self) -> None:
        """Give the connections back."""


class SocketControl:
    """A star of TCP connections to rank 0.

    Args:
        where: this process's place; its address must be known.

    Raises:
        UnansweredError: the ranks do not find each other in time.
    """

    def __init__(self, where: Place, connect_s: float = CONNECT_S) -> None:
        assert where.address is not None
        self.rank, self.ranks, self.local_rank = where.rank, where.ranks, where.local_rank
        self._peers: list[socket.socket] = []
        try:
            if self.rank == 0:
                self._listen(where.address, connect_s)
            else:
                self._peers = [self._connect(where.address, connect_s)]
        except OSError as error:
            self.close()
            host, port = where.address
            raise UnansweredError(
                f"rank {self.rank} of {self.ranks}: the ranks do not find each other at {host}:{port} "
                f"({error}); set MASTER_ADDR and MASTER_PORT to an address of rank 0's node and a free port"
            ) from None

    def _listen(self, address: tuple[str, int], connect_s: float) -> None:
        found: dict[int, socket.socket] = {}
        with socket.create_server(("", address[1]), backlog=self.ranks) as server:
            deadline = time.monotonic() + connect_s
            while len(found) < self.ranks - 1:
                server.settimeout(max(0.01, deadline - time.monotonic()))
                peer, _ = server.accept()
                peer.settimeout(None)
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                found[_LENGTH.unpack(_exactly(peer, _LENGTH.size))[0]] = peer
        self._peers = [found[r] for r in sorted(found)]

    def _connect(self, address: tuple[str, int], connect_s: float) -> socket.socket:
        deadline = time.monotonic() + connect_s
        while True:
            try:
                peer = socket.create_connection(address, timeout=5)
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)  # rank 0 is not up yet
                continue
            peer.settimeout(None)
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            peer.sendall(_LENGTH.pack(self.rank))
            return peer

    def share(self, data: bytes) -> bytes:
        """Return rank 0's bytes on every rank."""
        if self.rank:
            return _receive(self._peers[0])
        for peer in self._peers:
            _send(peer, data)
        return data

    def maximum(self, values: Values) -> Values:
        """Return the element-wise maximum over ranks, on every rank."""
        own = np.ascontiguousarray(values, dtype=np.float64)
        if self.rank:
            _send(self._peers[0], own.tobytes())
        else:
            for peer in self._peers:
                own = np.maximum(own, np.frombuffer(_receive(peer)).reshape(own.shape))
        return np.frombuffer(self.share(own.tobytes())).reshape(own.shape).copy()

    def barrier(self) -> None:
        """Return when every rank has come."""
        self.maximum(np.zeros(1))

    def close(self) -> None:
        """Close all connections."""
        for peer in self._peers:
            with contextlib.suppress(OSError):
                peer.close()
        self._peers = []


class MpiControl:
    """Agreement through MPI; ``comm`` is a duplicate of MPI.COMM_WORLD."""

    def __init__(self, MPI: Any) -> None:
        self._MPI = MPI
        self._comm = MPI.COMM_WORLD.Dup()
        self.rank, self.ranks = int(self._comm.Get_rank()), int(self._comm.Get_size())
        local = self._comm.Split_type(MPI.COMM_TYPE_SHARED)
        self.local_rank = int(local.Get_rank())
        local.Free()

    def share(self, data: bytes) -> bytes:
        """Return rank 0's bytes on every rank."""
        size = np.array([len(data)], dtype=np.int64)
        self._comm.Bcast(size, root=0)
        buffer = np.frombuffer(data, np.uint8).copy() if self.rank == 0 else np.empty(int(size[0]), np.uint8)
        self._comm.Bcast([buffer, self._MPI.BYTE], root=0)
        return buffer.tobytes()

    def maximum(self, values: Values) -> Values:
        """Return the element-wise maximum over ranks, on every rank."""
        own = np.ascontiguousarray(values, dtype=np.float64)
        most = np.empty_like(own)
        self._comm.Allreduce(own, most, op=self._MPI.MAX)
        return most

    def barrier(self) -> None:
        """Return when every rank has come."""
        self._comm.Barrier()

    def close(self) -> None:
        """Give the duplicate back."""
        self._comm.Free()


def connect(environ: Mapping[str, str] | None = None) -> Control:
    """Return the control of this process, by what started it.

    Raises:
        UnansweredError: nothing did, or the ranks do not find each other.
    """
    where = place(os.environ if environ is None else environ)
    if where is not None:
        return SocketControl(where)
    from collbench.mpi import start  # noqa: PLC0415 - MPI is loaded only where it started us

    return MpiControl(start.start("single"))


def _send(peer: socket.socket, data: bytes) -> None:
    peer.sendall(_LENGTH.pack(len(data)) + data)


def _receive(peer: socket.socket) -> bytes:
    return _exactly(peer, _LENGTH.unpack(_exactly(peer, _LENGTH.size))[0])


def _exactly(peer: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        data = peer.recv(min(1 << 20, count - len(parts)))
        if not data:
            raise UnansweredError("another rank has gone: see its message above")
        parts += data
    return bytes(parts)
