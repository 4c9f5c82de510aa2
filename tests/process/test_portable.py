"""Portable algorithms on real ranks: against the library's results, point-to-point modes, topology, errors."""

from pathlib import Path

import pytest

pytestmark = pytest.mark.process

COMPARE = Path(__file__).with_name("portable_compare.py")


@pytest.fixture(autouse=True)
def _built():
    """Without a compiler there is nothing to run."""
    from collbench.portable.run import available

    if available():
        pytest.skip(available())


def test_every_algorithm_agrees_with_the_library(launch):
    """Random ranks (1–9), counts, types, operators, roots, nodes, in place and not."""
    done = launch(9, COMPARE, args=["5"], timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "algorithms 32 of 32" in done.stdout


POINT_TO_POINT = """
    import numpy as np
    from mpi4py import MPI
    from collbench.mpi import calls, timed
    from collbench.portable import run
    from collbench.records import Case, Cell

    comm = MPI.COMM_WORLD
    nodes = (0, 0, 1, 1)
    for mode, params, source in (
        ("pingpong", (), {0: 2, 2: 0}),
        ("pingpong", (("pair", "intra_node"),), {0: 1, 1: 0}),
        ("bandwidth", (("window", 8),), {2: 0}),
        ("bidirectional_bandwidth", (("window", 8),), {0: 2, 2: 0}),
        ("message_rate", (("pair", "inter_node"),), {2: 0, 3: 1}),
        ("message_rate", (("pair", "intra_node"),), {1: 0, 3: 2}),
    ):
        for nbytes in (8, 1 << 18):
            case = Case(Cell("sendrecv", 4, None, nbytes, "float64"), "portable", mode, None, params)
            ready = run.prepare(MPI, comm, case, node_of=nodes)
            ready.send[:] = comm.Get_rank() + 1
            call = calls.Call.from_pointer(ready.function_address, ready.state_address, ready, sync_comm=comm)
            timed.block(call, 3)
            mine = source.get(comm.Get_rank())
            assert ready.source == mine, (mode, params, ready.source, mine)
            assert (ready.recv == (0 if mine is None else mine + 1)).all(), (mode, params, ready.recv)
            assert ready.messages == {"pingpong": 2}.get(mode, 8 if params[:1] == (("window", 8),) else 64)
    if comm.Get_rank() == 0:
        print("all modes deliver")
"""


def test_point_to_point_modes_deliver_between_the_chosen_pairs(launch):
    """Ping-pong, bandwidth one and both ways, message rate; pairs inside a node and across nodes."""
    done = launch(4, POINT_TO_POINT)
    assert done.returncode == 0, done.stderr
    assert "all modes deliver" in done.stdout


def test_ranks_of_one_machine_are_one_node(launch):
    done = launch(
        3,
        """
        from mpi4py import MPI
        from collbench.portable.topology import detect
        import sys
        sys.stdout.write(f"nodes {detect(MPI, MPI.COMM_WORLD)}\\n")
        """,
    )
    assert done.stdout.count("nodes (0, 0, 0)") == 3, done.stdout + done.stderr


ERROR = """
    from mpi4py import MPI
    import numpy as np
    from collbench.mpi import calls, timed
    from collbench.portable import run
    from collbench.records import Case, Cell

    comm = MPI.COMM_WORLD
    ready = run.prepare(MPI, comm, Case(Cell("bcast", 2, None, 64), "portable", "flat"))
    state = ready.keepalive[0]
    state[5] = -77  # a tag that MPI refuses
    call = calls.Call.from_pointer(ready.function_address, ready.state_address, ready, sync_comm=comm)
    try:
        timed.block(call, 1)
    except calls.MpiCallError as error:
        print("refused", error.code > 0)
"""


def test_an_mpi_error_inside_a_schedule_is_an_error_not_a_time(launch):
    done = launch(2, ERROR)
    assert done.stdout.count("refused True") == 2, done.stdout + done.stderr


def test_only_one_duplicate_is_made_of_a_communicator(launch):
    """Hundreds of prepared cases must not use up the library's communicators."""
    done = launch(
        2,
        """
        from mpi4py import MPI
        from collbench.portable import run
        from collbench.records import Case, Cell
        comm = MPI.COMM_WORLD
        made = [
            run.prepare(MPI, comm, Case(Cell("allreduce", 2, None, 64, "int32", "sum"), "portable", "ring"))
            for _ in range(3000)
        ]
        print("communicators", len({ready.keepalive[4].handle for ready in made}))
        """,
    )
    assert done.stdout.count("communicators 1") == 2, done.stdout + done.stderr
