"""Measuring NCCL's collectives on this rank: communicators for each setting, checks, blocks of timed calls."""

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from collbench.backends import nccl_data as data
from collbench.backends.nccl_check import CHUNK, checked_starts, compare
from collbench.backends.nccl_control import Control, Values
from collbench.backends.nccl_plan import COMPOSED, environment, setting
from collbench.records import ITEMSIZE, Case, Cell

Call = Callable[[], None]


class RefusedError(Exception):
    """NCCL cannot run a case (on any rank): the sentence says what it answered."""


@dataclass
class Session:
    """What one launch works with.

    Attributes:
        gpu: ``nccl_bind.Gpu`` of this rank.
        control: agreement between ranks.
        choose: sets the variables that the next communicator reads.
        unique_id: makes the identity of a communicator (rank 0's counts).
        ranks_per_node: for compositions.
    """

    gpu: Any
    control: Control
    choose: Callable[[dict[str, str]], None]
    unique_id: Callable[[], bytes]
    ranks_per_node: int
    communicators: dict[tuple[Any, ...], list[Any]] = field(default_factory=dict)
    memory: dict[Cell, tuple[Any, ...]] = field(default_factory=dict)
    windows: list[Any] = field(default_factory=list)

    def agree(self, work: Callable[[], Any]) -> Any:
        """Do ``work`` on every rank; when it fails on any, it counts as failed on all.

        Raises:
            RefusedError: on every rank.
        """
        problem, done = "", None
        try:
            done = work()
        except (RuntimeError, ValueError, OSError) as error:
            problem = f"{type(error).__name__}: {error}"
        except Exception as error:
            # The bindings' own exceptions share no base class with Python's; anything else is our own fault.
            if not type(error).__module__.startswith(("nccl", "cuda")):
                raise
            problem = f"{type(error).__name__}: {error}"
        if self.control.maximum(np.array([float(bool(problem))]))[0]:
            raise RefusedError(problem or "another rank could not do it")
        return done

    def of(self, case: Case) -> list[Any]:
        """Return the communicators of a case: the world's, and for a hierarchy those of the node and of the rail."""
        key = (
            (case.provider, *setting(case))
            if case.provider != "portable"
            else (case.provider, case.algorithm)
        )
        if key not in self.communicators:
            self.communicators[key] = self.agree(lambda: self._create(case))
        return self.communicators[key]

    def _create(self, case: Case) -> list[Any]:
        control = self.control
        self.choose(environment(case))
        identity = control.share(self.unique_id() if control.rank == 0 else b"")
        world = self.gpu.communicator(identity, control.ranks, control.rank, setting(case)[2])
        if case.algorithm != COMPOSED[1]:
            return [world]
        node, local = divmod(control.rank, self.ranks_per_node)
        return [world, self.gpu.split(world, node, local), self.gpu.split(world, local, node)]

    def release(self) -> None:
        """Give the buffers of the last cell back: the cases of one cell share theirs."""
        for window in self.windows:
            window.close()
        self.windows.clear()
        self.memory.clear()

    def close(self) -> None:
        """Give everything back and end all communicators."""
        self.release()
        for found in self.communicators.values():
            for comm in reversed(found):
                self.gpu.destroy(comm)
        self.communicators.clear()


@dataclass
class Ready:
    """A case with its buffers, checked and ready to be timed; ``checked`` says where results were compared."""

    case: Case
    issue: Call
    keep: "_Buffers"
    checked: str = ""


def prepare(session: Session, case: Case) -> Ready:
    """Allocate, fill, call once, and compare the result bit by bit.

    Raises:
        RefusedError: NCCL cannot run it.
        ValueError: the result is wrong; the sentence says where.
    """
    comms = session.of(case)
    ready: Ready = session.agree(lambda: _build(session, case, comms))
    cell, gpu = case.cell, session.gpu
    send, receive = ready.keep.send, ready.keep.receive
    if not cell.in_place:
        # The cases of a cell share buffers: an earlier case's right result must not pass for this one's.
        _clear(gpu, cell, receive)
    _fill(gpu, cell, session.control.rank, send)

    def once() -> None:
        ready.issue()
        gpu.sync()

    session.agree(once)
    wrong, on_host = compare(gpu, cell, session.control.rank, receive)
    agreed = session.control.maximum(np.array([float(wrong is not None), float(on_host)]))
    if agreed[0]:
        raise ValueError(wrong or "another rank has a wrong result")
    whole = len(checked_starts(data.counts(cell)[1])) * CHUNK >= data.counts(cell)[1]
    ready.checked = ("host" if whole else "host, both ends") if agreed[1] else "device"
    return ready


@dataclass
class _Buffers:
    """Device addresses of one rank."""

    send: int
    receive: int


def _build(session: Session, case: Case, comms: Sequence[Any]) -> Ready:
    cell, gpu, rank = case.cell, session.gpu, session.control.rank
    itemsize = ITEMSIZE[cell.dtype]
    send_count, receive_count = data.counts(cell)
    share = data.elements(cell) // cell.ranks * itemsize
    if cell not in session.memory:
        sizes = [max(send_count, receive_count), *(() if cell.in_place else (receive_count,))]
        session.memory[cell] = tuple(gpu.buffer(size * itemsize) for size in sizes)
    memory = session.memory[cell]
    send = receive = int(memory[0].handle)
    if not cell.in_place:
        receive = int(memory[1].handle)
    elif cell.collective == "allgather":
        send += rank * share
    elif cell.collective == "reduce_scatter":
        receive += rank * share
    if case.algorithm == "symmetric":
        session.windows.extend(gpu.register(comms[0], buffer) for buffer in memory)
    buffers = _Buffers(send, receive)
    if case.provider == "portable":
        return Ready(case, _composed(session, case, comms, buffers), buffers)
    count = {"allgather": send_count, "reduce_scatter": receive_count}.get(cell.collective, send_count)
    if cell.collective == "alltoall":
        count //= cell.ranks
    select = "symk" if case.algorithm == "symmetric" else None
    return Ready(case, gpu.call(comms[0], cell, send, receive, count, select), buffers)


def _composed(session: Session, case: Case, comms: Sequence[Any], buffers: _Buffers) -> Call:
    """Compose an allreduce of NCCL's calls; each rank's part lies where the all-gather expects it."""
    cell, gpu = case.cell, session.gpu
    total, itemsize = data.elements(cell), ITEMSIZE[cell.dtype]
    group = comms[0] if case.algorithm == COMPOSED[0] else comms[1]
    size = cell.ranks if case.algorithm == COMPOSED[0] else session.ranks_per_node
    index = session.control.rank % size
    part, own = total // size, buffers.receive + index * (total // size) * itemsize

    def as_(name: str) -> Cell:
        return Cell(name, size, size, cell.nbytes, cell.dtype, cell.op, memory=cell.memory)

    steps = [gpu.call(group, as_("reduce_scatter"), buffers.send, own, part)]
    if case.algorithm == COMPOSED[1]:
        steps.append(gpu.call(comms[2], as_("allreduce"), own, own, part))
    steps.append(gpu.call(group, as_("allgather"), own, buffers.receive, part))

    def issue() -> None:
        for step in steps:
            step()

    return issue


def _fill(gpu: Any, cell: Cell, rank: int, send: int) -> None:
    count, itemsize = data.counts(cell)[0], ITEMSIZE[cell.dtype]
    for start in range(0, count, CHUNK):
        gpu.put(send + start * itemsize, data.sent(cell, rank, start, min(CHUNK, count - start)))


def _clear(gpu: Any, cell: Cell, receive: int) -> None:
    count, itemsize = data.counts(cell)[1], ITEMSIZE[cell.dtype]
    zeros = np.zeros(min(CHUNK, count), dtype=data.kind(cell.dtype))
    for start in range(0, count, CHUNK):
        gpu.put(receive + start * itemsize, zeros[: min(CHUNK, count - start)])


def block(session: Session, ready: Ready, count: int, timing: str) -> Values:
    """Time ``count`` calls on every rank and return the maximum over ranks, seconds.

    Args:
        session: the launch.
        ready: what to time.
        count: timed calls.
        timing: host (one mean of back-to-back calls), events (every call), graph (one mean of a graph's calls).
    """
    own = {"host": _host, "events": _events, "graph": _graph}[timing](session, ready, count)
    return session.control.maximum(own)


def _host(session: Session, ready: Ready, count: int) -> Values:
    session.control.barrier()
    start = time.perf_counter_ns()
    for _ in range(count):
        ready.issue()
    session.gpu.sync()
    return np.array([(time.perf_counter_ns() - start) * 1e-9 / count])


def _events(session: Session, ready: Ready, count: int) -> Values:
    gpu = session.gpu
    marks = gpu.events(count + 1)
    session.control.barrier()
    gpu.record(marks[0])
    for mark in marks[1:]:
        ready.issue()
        gpu.record(mark)
    gpu.sync()
    return np.array([gpu.elapsed_s(a, b) for a, b in itertools.pairwise(marks)])


def _graph(session: Session, ready: Ready, count: int) -> Values:
    launch = session.gpu.graph(ready.issue, count)
    launch()
    session.gpu.sync()
    session.control.barrier()
    start = time.perf_counter_ns()
    launch()
    session.gpu.sync()
    return np.array([(time.perf_counter_ns() - start) * 1e-9 / count])
