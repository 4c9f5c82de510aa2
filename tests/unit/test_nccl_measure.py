"""Building, composing, checking and proving of cases, on host memory with threads as ranks (no NCCL, no times)."""

import threading

import numpy as np
import pytest

from collbench.backends import nccl_check, nccl_worker
from collbench.backends import nccl_data as data
from collbench.backends import nccl_measure as measure
from collbench.records import ITEMSIZE, Case, Cell

PER_NODE = 2
OPS = ("sum", "max", "min", "prod")


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

    kind = data.kind(dtype)
    raw = (ctypes.c_char * (count * kind.itemsize)).from_address(address)
    return np.frombuffer(raw, dtype=kind)


class HostGpu:
    """``nccl_bind.Gpu`` on host memory: the collectives by their definition."""

    def __init__(self, meeting, rank, spoil=None, arrays=None):
        self.meeting, self.rank, self.spoil, self.arrays = meeting, rank, spoil, arrays

    def view(self, address, count, kind):
        import ctypes

        raw = (ctypes.c_char * (count * kind.itemsize)).from_address(address)
        return self.arrays.frombuffer(raw, dtype=kind)

    def free_scratch(self):
        pass

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


def _prepare(case, ranks, spoil=None, arrays=None, checked=None):
    meeting, errors = Meeting(ranks), [None] * ranks

    def one(rank):
        control = Control(meeting, rank)
        session = measure.Session(
            HostGpu(meeting, rank, spoil, arrays), control, lambda _: None, lambda: b"id", PER_NODE
        )
        try:
            found = measure.prepare(session, case).checked
            if checked is not None:
                checked.append(found)
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


@pytest.mark.parametrize("name", ["allreduce", "reduce_scatter"])
@pytest.mark.parametrize("op", OPS)
def test_every_operator_is_checked(op, name):
    """The right one passes; every other one fails in its place."""
    cell = _cell(name, 4, op=op)
    assert _prepare(Case(cell, "nccl", "default"), 4) == [None] * 4
    right = data.combined(op, "float32", 4)
    for other in set(OPS) - {op}:
        function = {"sum": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply}[other]
        assert (function.reduce([data.operand(op, "float32", 4, r) for r in range(4)]) != right).mean() > 0.5


class Arrays:
    """numpy under another name, in the part of cupy; ``full`` has no memory to spare."""

    def __init__(self, *, full=False):
        self.full = full

    def __getattr__(self, name):
        if self.full and name == "arange":
            raise MemoryError
        return getattr(np, name)


@pytest.mark.parametrize("name", COLLECTIVES)
def test_the_device_compares_where_it_can(name):
    """It finds the same; where it has no memory left the host does it; the row says which."""
    case = Case(_cell(name, 4), "nccl", "default")
    for arrays, where in ((None, "host"), (Arrays(), "device"), (Arrays(full=True), "host")):
        checked = []
        assert _prepare(case, 4, arrays=arrays, checked=checked) == [None] * 4
        # A rank of reduce without a result compares nothing, wherever it is.
        assert checked == [where] * 4
        errors = _prepare(case, 4, spoil=0, arrays=arrays)
        assert "is right" in errors[0]
        assert all(errors)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("algorithm", ["reduce_scatter_allgather", "hierarchical_sharded"])
def test_compositions_are_allreduces(algorithm, in_place):
    """Reduce-scatter and all-gather, also around an allreduce for each rail, give the allreduce's result."""
    case = Case(_cell("allreduce", 6, in_place=in_place), "portable", algorithm)
    assert _prepare(case, 6) == [None] * 6
    assert all(_prepare(case, 6, spoil=3))


@pytest.mark.parametrize("ranks", [1, 2, 3, 8, 40])
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", list(ITEMSIZE))
def test_reductions_are_exact_and_miss_no_rank(dtype, op, ranks):
    """Each number fits the type exactly; a rank that is left out or counted twice (sum, prod) changes the result."""
    inputs = [data.operand(op, dtype, ranks, r) for r in range(ranks)]
    right = data.combined(op, dtype, ranks)
    assert right.max() <= data.exact(dtype)
    assert min(x.min() for x in inputs) >= 0
    function = {"sum": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply}[op]
    assert np.array_equal(function.reduce(inputs), right)
    for rank in range(ranks if ranks > 1 else 0):
        others = function.reduce([x for r, x in enumerate(inputs) if r != rank])
        assert (others != right)[: 2 * ranks].any()
        if op in ("sum", "prod"):
            assert (function(right, inputs[rank]) != right)[: 2 * ranks].any()


@pytest.mark.parametrize(("dtype", "expected"), [
    ("float8e4m3", [0, 0x38, 0x40, 0x44, 0x48, 0x4A, 0x4C, 0x4E, 0x50]),
    ("float8e5m2", [0, 0x3C, 0x40, 0x42, 0x44, 0x45, 0x46, 0x47, 0x48]),
    ("bfloat16", [0, 0x3F80, 0x4000, 0x4040, 0x4080, 0x40A0, 0x40C0, 0x40E0, 0x4100]),
])  # fmt: skip
def test_types_that_numpy_lacks_are_written_in_bits(dtype, expected):
    """0 to 8, as their formats define them."""
    assert data.encode(np.arange(9), dtype).tolist() == expected


@pytest.mark.parametrize("dtype", list(ITEMSIZE))
def test_whole_numbers_differ_in_every_type(dtype):
    """All that are used, in elements of the right size."""
    values = np.arange(min(data.exact(dtype), 2048) + 1)
    assert len(set(data.encode(values, dtype).tolist())) == len(values)
    assert data.kind(dtype).itemsize == ITEMSIZE[dtype]


def test_patterns_do_not_depend_on_where_a_chunk_starts():
    """Chunks of a long buffer are pieces of one pattern."""
    cell = _cell("reduce_scatter", 4)
    whole = data.sent(cell, 1, 0, 120)
    assert np.array_equal(np.concatenate([data.sent(cell, 1, 0, 50), data.sent(cell, 1, 50, 70)]), whole)


def test_long_buffers_are_compared_at_both_ends():
    """Everything up to eight chunks, then the first and the last four."""
    assert nccl_check.checked_starts(3 * nccl_check.CHUNK) == [0, nccl_check.CHUNK, 2 * nccl_check.CHUNK]
    far = nccl_check.checked_starts(100 * nccl_check.CHUNK)
    assert len(far) == 8
    assert far[-1] == 99 * nccl_check.CHUNK


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
