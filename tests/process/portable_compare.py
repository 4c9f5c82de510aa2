"""Run by test_portable.py on several ranks: random cases of every portable algorithm against the library's result.

Hypothesis runs on every rank with the same seeds, hence the same examples; each verdict is agreed before it is
raised, so all ranks go on, fail and shrink together.
"""

import sys
from dataclasses import replace

import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from mpi4py import MPI

from collbench.collectives import COLLECTIVES
from collbench.mpi import calls
from collbench.mpi.timed import block
from collbench.portable import run
from collbench.portable.catalogue import every_algorithm
from collbench.portable.topology import node_of
from collbench.records import ITEMSIZE, Case, Cell

WORLD = MPI.COMM_WORLD
RANK = WORLD.Get_rank()
MEMBERS = {p: WORLD.Split(0 if p > RANK else MPI.UNDEFINED, RANK) for p in range(1, WORLD.Get_size() + 1)}
WHOLE = [(c, a) for c, a in every_algorithm() if c != "sendrecv"]
done = {"compared": 0, "names": set()}


def fill(array, rank, case):
    """Values that differ by rank and element; floats near one so that products stay finite."""
    index = np.arange(array.size)
    if array.dtype.kind == "i":
        array[:] = 1 + (index * 7 + rank * 13) % 5
    else:
        array[:] = (1 + ((index * 31 + rank * 17) % 97) / 97) / (1 if case.cell.op != "prod" else 1.4)


def prepare_input(case, send, recv, rank, root, block_size):
    fill(send, rank, case)
    recv.fill(0)
    if case.cell.collective == "bcast" and rank != root:
        send.fill(0)
    if case.cell.in_place:
        if case.cell.collective == "allgather":
            recv[rank * block_size : (rank + 1) * block_size] = send[:block_size]
        else:
            recv[:] = send[: recv.size]


def result(case, send, recv, rank, root, block_size):
    if case.cell.collective == "bcast":
        return send.copy()
    if case.cell.collective == "reduce" and rank != root:
        return recv[:0].copy()
    return recv[:block_size].copy() if case.cell.collective == "reduce_scatter" else recv.copy()


def compare(comm, case, root, nodes):
    """Return what differs between the portable algorithm and the library on this rank."""
    rank, size = comm.Get_rank(), comm.Get_size()
    prepared = run.prepare(MPI, comm, case, root=root, node_of=nodes)
    call = calls.Call.from_pointer(
        prepared.function_address, prepared.state_address, prepared, sync_comm=comm, buffers=prepared.buffers
    )
    if case.cell.nbytes == 0:
        block(call, 2)
        return ""
    part = case.cell.nbytes // ITEMSIZE[case.cell.dtype] // size
    library = calls.prepare(
        MPI, comm, replace(case, provider="library", algorithm="default", params=()), root=root
    )
    results = []
    for each in (library, call, call):  # twice: a schedule must leave itself ready to run again
        prepare_input(case, each.buffers.send, each.buffers.recv, rank, root, part)
        before = each.buffers.send.copy()
        block(each, 1, sync="none")
        results.append(result(case, each.buffers.send, each.buffers.recv, rank, root, part))
        if case.cell.collective != "bcast" and not np.array_equal(before, each.buffers.send):
            return "the send buffer was changed"
    bound = 0 if results[0].dtype.kind == "i" else 64 * np.finfo(results[0].dtype).eps
    for got in results[1:]:
        if not np.allclose(got, results[0], rtol=bound, atol=0):
            return f"{got[:8]} is not {results[0][:8]}"
    return ""


def agrees(collective, algorithm, data):
    """One random case."""
    ranks = data.draw(st.integers(1, WORLD.Get_size()))
    if algorithm == "neighbor_exchange":  # exists for even counts only
        ranks = max(2, ranks // 2 * 2)
    row = COLLECTIVES[collective]
    dtype = data.draw(st.sampled_from(run.TYPES))
    op = data.draw(st.sampled_from(run.OPERATORS)) if row.reduces else None
    count = data.draw(st.one_of(st.integers(0, 3 * ranks), st.integers(0, 5000)))
    elements = count * ranks if row.per_rank else count
    in_place = data.draw(st.booleans()) and collective not in ("bcast", "barrier")
    nodes = node_of(ranks, virtual_nodes=data.draw(st.integers(1, 4)))
    params = ()
    if algorithm in ("pipeline", "pipelined_binary_tree", "double_binary_tree"):
        params = (("chunk_bytes", data.draw(st.sampled_from([0, 8, 100, 4096]))),)
    if algorithm == "segmented_ring":
        params = (("segment_bytes", data.draw(st.sampled_from([0, 8, 1000]))),)
    root = data.draw(st.integers(0, ranks - 1)) if row.rooted else 0
    nbytes = elements * ITEMSIZE[dtype] if row.sized else 0
    case = Case(
        Cell(collective, ranks, None, nbytes, dtype, op, in_place), "portable", algorithm, None, params
    )
    wrong = ""
    if ranks > RANK:
        wrong = compare(MEMBERS[ranks], case, root, nodes)
        done["compared"] += RANK == 0 and nbytes > 0
        done["names"].add((collective, algorithm))
    everyone = [w for w in WORLD.allgather(wrong) if w]
    assert not everyone, f"{case} root {root} nodes {nodes}: {everyone[0]}"


def random_cases(number, collective, algorithm):
    """Run the drawn cases of one algorithm."""

    @seed(number)
    @settings(
        deadline=None,
        max_examples=int(sys.argv[1]),
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(data=st.data())
    def each_agrees(data):
        agrees(collective, algorithm, data)

    each_agrees()


for number, (collective, algorithm) in enumerate(WHOLE):
    random_cases(number, collective, algorithm)
if RANK == 0:
    print("compared", done["compared"], "algorithms", len(done["names"]), "of", len(WHOLE))
