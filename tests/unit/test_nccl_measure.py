"""Building, composing, checking and proving of cases, on host memory with threads as ranks (no NCCL, no times)."""

import threading

import numpy as np
import pytest

from collbench.backends import nccl_data as data
from collbench.backends import nccl_measure as measure
from collbench.backends import nccl_worker
from collbench.records import ITEMSIZE, Case, Cell

PER_NODE = 2


class Meeting:
    """All ranks' agreement inside one process."""

    def __init__(self, ranks):
        self.barrier, self.values, self.ranks = threading.Barrier(ranks, timeout=30), [None] * ranks, ranks

    def gather(self, rank, value):
        self.values[rank] = value
        self.barrier.wait()
        found = list(self.values)
        self.barrier.wait()
        return found


class Control:
    """``nccl_control.Control`` over a meeting."""

    def __init__(self, meeting, rank):
        self.meeting, self.rank, self.ranks, self.local_rank = meeting, rank, meeting.ranks, rank % PER_NODE

    def share(self, value):
        return self.meeting.gather(self.rank, value)[0]

    def maximum(self, values):
        return np.max(self.meeting.gather(self.rank, values), axis=0)

    def barrier(self):
        self.meeting.gather(self.rank, None)


class Comm:
    """The members of a communicator and our index among them."""

    def __init__(self, members, index):
        self.members, self.index = members, index


class Memory:
    """Host memory with an address."""

    def __init__(self, nbytes):
        self.bytes = np.zeros(max(1, nbytes), np.uint8)
        self.handle = self.bytes.ctypes.data


def _view(address, count, dtype):
    import ctypes

    kind = data.codes(dtype).dtype
    raw = (ctypes.c_char * (count * kind.itemsize)).from_address(address)
    return np.frombuffer(raw, dtype=kind)


class HostGpu:
    """``nccl_bind.Gpu`` on host memory: the collectives by their definition."""

    def __init__(self, meeting, rank, spoil=None):
        self.meeting, self.rank, self.spoil = meeting, rank, spoil

    def communicator(self, identity, ranks, rank, channels):
        assert identity == b"id"
        return Comm(list(range(ranks)), rank)

    def split(self, comm, color, key):
        found = self.meeting.gather(self.rank, (color, key))
        members = sorted((k, r) for r, (c, k) in enumerate(found) if c == color)
        return Comm([r for _, r in members], [r for _, r in members].index(self.rank))

    def destroy(self, comm):
        comm.members.clear()

    def buffer(self, nbytes):
        return Memory(nbytes)

    def put(self, address, values):
        _view(address, len(values), _same(values))[:] = values

    def get(self, address, values):
        values[:] = _view(address, len(values), _same(values))

    def sync(self):
        pass

    def call(self, comm, cell, send, receive, count, select=None):
        return lambda: self._run(comm, cell, send, receive, count)

    def _run(self, comm, cell, send, receive, count):
        ranks, name = len(comm.members), cell.collective
        sizes = {"allgather": (count, count * ranks), "reduce_scatter": (count * ranks, count),
                 "alltoall": (count * ranks, count * ranks)}.get(name, (count, count))  # fmt: skip
        own = _view(send, sizes[0], cell.dtype).copy()
        everyone = self.meeting.gather(self.rank, own)
        parts = [everyone[m] for m in comm.members]
        out = _view(receive, sizes[1], cell.dtype)
        if name in ("allreduce", "reduce_scatter", "reduce"):
            reduce = {"sum": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply}[cell.op]
            total = reduce.reduce(parts)
            if name == "reduce_scatter":
                out[:] = total[comm.index * count :][:count]
            elif name == "allreduce" or comm.index == 0:
                out[:] = total
        elif name == "bcast":
            out[:] = parts[0]
        elif name == "allgather":
            out[:] = np.concatenate(parts)
        elif name == "alltoall":
            out[:] = np.concatenate([p[comm.index * count :][:count] for p in parts])
        else:
            out[:] = parts[(comm.index - 1) % ranks]
        if self.spoil == self.rank:
            out[len(out) // 2] += 1


def _same(values):
    return {"float32": "float32", "int8": "int8", "float64": "float64", "int32": "int32"}[values.dtype.name]


def _prepare(case, ranks, spoil=None):
    meeting, errors = Meeting(ranks), [None] * ranks

    def one(rank):
        control = Control(meeting, rank)
        session = measure.Session(
            HostGpu(meeting, rank, spoil), control, lambda _: None, lambda: b"id", PER_NODE
        )
        try:
            measure.prepare(session, case)
        except ValueError as error:
            errors[rank] = str(error)
        session.close()

    threads = [threading.Thread(target=one, args=(r,)) for r in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not any(t.is_alive() for t in threads)
    return errors


COLLECTIVES = ("allreduce", "bcast", "reduce", "allgather", "reduce_scatter", "alltoall", "sendrecv")


def _cell(name, ranks, **change):
    op = "sum" if name in ("allreduce", "reduce", "reduce_scatter") else None
    return Cell(
        name, ranks, PER_NODE, 4 * ranks * 30, **{"dtype": "float32", "op": op, "memory": "cuda", **change}
    )


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("name", COLLECTIVES)
def test_a_right_result_passes_and_a_wrong_element_is_found(name, in_place):
    """Buffers, offsets and counts of each collective fit its definition; one wrong element on one rank fails all."""
    in_place = in_place and name not in ("alltoall", "sendrecv")
    case = Case(_cell(name, 4, in_place=in_place), "nccl", "default")
    assert _prepare(case, 4) == [None] * 4
    errors = _prepare(case, 4, spoil=0)
    assert "is right" in errors[0]
    assert all(errors)


@pytest.mark.parametrize("op", ["sum", "max", "min", "prod"])
def test_every_operator_is_checked(op):
    """Whatever the operator leaves of the pattern."""
    assert _prepare(Case(_cell("allreduce", 4, op=op), "nccl", "default"), 4) == [None] * 4


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("algorithm", ["reduce_scatter_allgather", "hierarchical_sharded"])
def test_compositions_are_allreduces(algorithm, in_place):
    """Reduce-scatter and all-gather, also around an allreduce for each rail, give the allreduce's result."""
    case = Case(_cell("allreduce", 6, in_place=in_place), "portable", algorithm)
    assert _prepare(case, 6) == [None] * 6
    assert all(_prepare(case, 6, spoil=3))


@pytest.mark.parametrize("dtype", list(ITEMSIZE))
def test_patterns_are_small_exact_numbers_in_every_type(dtype):
    """0, 1, 2 and 3 differ, fit one element, and each element of a reduction comes from one rank alone."""
    assert len(set(data.codes(dtype).tolist())) == 4
    assert data.codes(dtype).itemsize == ITEMSIZE[dtype]
    cell = Cell("allreduce", 5, 5, 50 * ITEMSIZE[dtype], dtype, "sum")
    zero = data.codes(dtype)[0]
    sent = [data.sent(cell, r, 0, 50) for r in range(5)]
    assert all(sum(s[i] != zero for s in sent) == 1 for i in range(50))


def test_patterns_do_not_depend_on_where_a_chunk_starts():
    """Chunks of a long buffer are pieces of one pattern."""
    cell = _cell("reduce_scatter", 4)
    whole = data.sent(cell, 1, 0, 120)
    assert np.array_equal(np.concatenate([data.sent(cell, 1, 0, 50), data.sent(cell, 1, 50, 70)]), whole)


def test_long_buffers_are_compared_at_both_ends():
    """Everything up to eight chunks, then the first and the last four."""
    assert measure.checked_starts(3 * measure.CHUNK) == [0, measure.CHUNK, 2 * measure.CHUNK]
    far = measure.checked_starts(100 * measure.CHUNK)
    assert len(far) == 8
    assert far[-1] == 99 * measure.CHUNK


LINE = "h0:1:1 [0] NCCL INFO AllReduce: 4096 Bytes -> Algo {} proto {} channel{{Lo..Hi}}={{0..7}}\n"

SYMMETRIC = "h0:1:1 [0] NCCL INFO AllReduce [Symmetric]: 4096 Bytes -> Kernel X nchannels 8\n"


@pytest.mark.parametrize(
    ("asked", "text", "status", "effective"),
    [
        ("ring", LINE.format("RING", "LL"), "proven", "ring"),
        ("ring", LINE.format("TREE", "LL"), "contradicted", "tree"),
        ("ring", LINE.format("RING", "SIMPLE"), "contradicted", "ring"),
        ("default", LINE.format("NVLS", "SIMPLE"), "proven", "nvls"),
        ("default", SYMMETRIC, "proven", "symmetric"),
        ("symmetric", SYMMETRIC, "proven", "symmetric"),
        ("symmetric", LINE.format("RING", "LL"), "unknown", None),
        ("ring", "", "unknown", None),
    ],
)  # fmt: skip
def test_what_ran_is_read_from_nccls_own_lines(asked, text, status, effective):
    """Algorithm and protocol; a request alone proves nothing."""
    params = (("protocol", "ll"),) if asked == "ring" else ()
    case = Case(Cell("allreduce", 8, 8, 4096, "float32", "sum", memory="cuda"), "nccl", asked, None, params)
    evidence, _ = nccl_worker.read_proof(text, case)
    assert (evidence.status, evidence.effective) == (status, effective)
