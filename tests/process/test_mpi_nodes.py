"""Several nodes, played by the ranks of one machine: clocks between them, and what rows say about it."""

import json
import os
import shutil
import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.process

PROGRAM = """
    import itertools, json
    from collbench.backends import mpi, session
    from collbench.mpi import library, start, state, switch
    from collbench.mpi.clock import Clocks
    from collbench.profile import Sampling
    from collbench.records import Case, Cell

    MPI = start.start()
    world = MPI.COMM_WORLD
    lib = library.identify(MPI)
    rows = []

    def measure(sync, nodes, collective="bcast"):
        # One machine has one clock: each node of the map reads it over messages, as real nodes would.
        here = session.Session(
            MPI=MPI, control=world.Dup(), library=lib, switch=switch.Switch(MPI, world, lib),
            sampling=Sampling(mode="fixed", iterations=90, max_rounds=30), launch=0, node_of=(0,) * world.size,
            emit=rows.append, beat=lambda case, timeout_s: None, sync=sync,
            clocks=Clocks(world.Dup(), nodes, rounds=50, max_age_s=0.001),
            throttling=state.Throttling(world.Dup(), nodes, itertools.count().__next__),
        )
        op = "sum" if collective == "allreduce" else None
        case = Case(Cell(collective, 2, 2, 1024, "float32", op), lib.name, "default")
        for _ in range(5):  # on a busy machine a rank can miss every window
            mpi.measure_group(here, [case], 60.0)
            if world.bcast(bool(rows) and rows[-1]["kind"] == "cell"):
                return here.clock()
            rows.pop()
"""


def test_windows_across_nodes_have_offsets_and_their_error_in_the_row(launch):
    """Offsets between "nodes" on one machine are 0 within the stated error, and the row carries the largest error."""
    done = launch(
        2,
        PROGRAM
        + """
    found = measure("window", (0, 1))
    right = abs(found.offset_ns) <= found.error_ns and (found.error_ns > 0) == (world.rank > 0)
    one = measure("window", (0, 0))
    everyone = world.gather((right, one.offset_ns, one.error_ns))
    if world.rank == 0:
        print(json.dumps([everyone, rows]))
    """,
    )
    assert done.returncode == 0, done.stderr
    ranks, (several, single) = json.loads(done.stdout)
    assert ranks == [[True, 0, 0]] * 2
    assert several["clock_error_s"] > 0
    assert several["span_s"] > 0
    assert not {"upper_bound"} & {w["kind"] for w in several["warnings"]}
    doubted = any(w["kind"] == "clock_error" for w in several["warnings"])
    assert doubted == (several["clock_error_s"] > 0.1 * several["time_s"])
    assert single["clock_error_s"] == 0
    throttled = [
        [w["events"] for w in row["warnings"] if w["kind"] == "throttled"] for row in (several, single)
    ]
    assert throttled == [[2], [1]]  # each node's counter moves by one at each look


def test_rooted_collectives_over_nodes_without_windows_are_upper_bounds(launch):
    """A barrier gives no common clock: the row says so and has no global span; unrooted ones carry no such doubt."""
    done = launch(
        2,
        PROGRAM
        + """
    for nodes in ((0, 1), (0, 0)):
        for name in ("bcast", "allreduce"):
            measure("barrier", nodes, name)
    if world.rank == 0:
        print(json.dumps(rows))
    """,
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    doubts = [("upper_bound" in {w["kind"] for w in row["warnings"]}, "span_s" in row) for row in rows]
    assert doubts == [(True, False), (False, False), (False, True), (False, False)]
    assert not any("clock_error_s" in row for row in rows)


APART_S = 100
NAMESPACE = [
    "unshare",
    *([] if os.geteuid() == 0 else ["--map-root-user"]),
    "--time",
    "--monotonic",
    str(APART_S),
    "--fork",
]
"""Runs a program in a time namespace of its own: its CLOCK_MONOTONIC is that far ahead."""


def test_windows_start_together_though_the_clocks_are_far_apart(launch, tmp_path):
    """Two ranks whose clocks really differ by 100 s: the offset is found within its error, windows are met, spans short."""
    if (
        not shutil.which("unshare")
        or subprocess.run([*NAMESPACE, "true"], check=False, capture_output=True).returncode
    ):
        pytest.skip("this machine gives no time namespace")
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(
            PROGRAM
            + """
    here = measure("window", (0, 1))
    everyone = world.gather((here.offset_ns, here.error_ns))
    if world.rank == 0:
        print(json.dumps([everyone, rows]))
    """
        )
    )
    ahead = ["-n", "1", *NAMESPACE, sys.executable, str(program), ":"]
    done = launch(1, program, mpiexec_args=ahead)
    assert done.returncode == 0, done.stderr
    ranks, (row,) = json.loads(done.stdout)
    assert ranks[0] == [0, 0]
    offset_ns, error_ns = ranks[1]
    assert abs(offset_ns + APART_S * 10**9) <= error_ns
    assert 0 < error_ns < 10**9
    assert row["late_share"] < 1
    assert row["span_s"] < 1
