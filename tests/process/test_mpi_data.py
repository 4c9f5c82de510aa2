"""Every collective gives the right data through both loops, and a wrong result is caught, on real ranks."""

import shutil
import subprocess

import pytest

pytestmark = pytest.mark.process

EVERYTHING = """
    import sys
    from collbench.collectives import COLLECTIVES
    from collbench.mpi import calls, check, library, start, switch, timed
    from collbench.records import Case, Cell

    MPI = start.start()
    world = MPI.COMM_WORLD
    p = world.size
    lib = library.identify(MPI)
    comm = switch.Switch(MPI, world, lib).default_comm
    dtypes, ops = sys.argv[1].split(","), sys.argv[2].split(",")
    done = 0
    for name, row in COLLECTIVES.items():
        for dtype in dtypes if row.sized else dtypes[:1]:
            for op in ops if row.reduces else [None]:
                for in_place in (False, True) if row.sized else (False,):
                    for blocks in map(int, sys.argv[3].split(",")):
                        cell = Cell(name, p, p, blocks * 8 * p if row.sized else 0, dtype, op, in_place)
                        case = Case(cell, lib.name, "default")
                        for root in (0, p - 1) if row.rooted else (0,):
                            call = calls.prepare(MPI, comm, case, root=root)
                            for timer in sys.argv[4].split(","):
                                wrong = check.validate(MPI, world, call, case, timer=timer)
                                done += 1
                                if wrong and world.rank == 0:
                                    print("WRONG", cell, root, timer, wrong)
    if world.rank == 0:
        print("checked", done, len(COLLECTIVES))
"""


@pytest.mark.parametrize(
    ("ranks", "dtypes", "ops", "blocks", "timers"),
    [
        (2, "int8,uint8,int32,uint32,int64,uint64,float32,float64", "sum,prod,max,min", "8", "c"),
        (4, "int32,float64", "sum", "8,1016", "c,mpi4py"),
    ],
)
def test_every_collective_dtype_and_form_is_right(launch, ranks, dtypes, ops, blocks, timers):
    """All 13 collectives, in place too, at both ends of the roots, through the C and the mpi4py loop."""
    done = launch(ranks, EVERYTHING, args=[dtypes, ops, blocks, timers], timeout=120)
    assert done.returncode == 0, done.stderr
    assert "WRONG" not in done.stdout, done.stdout
    assert "checked" in done.stdout
    assert int(done.stdout.split()[1]) > 150


FAULTY = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
typedef int (*allreduce)(const void *, void *, int, long, long, long);
int MPI_Allreduce(const void *send, void *recv, int count, long type, long op, long comm) {
    void *library = dlopen(getenv("REAL_MPI"), RTLD_NOW | RTLD_NOLOAD);
    allreduce real = (allreduce)dlsym(library, "PMPI_Allreduce");
    int code = real(send, recv, count, type, op, comm);
    if (count == 64 && getenv("BREAK")) ((float *)recv)[5] += 1024.0f;
    return code;
}
"""

VALIDATE_ONE = """
    import os
    from collbench.mpi import calls, check, library, start
    from collbench.records import Case, Cell

    MPI = start.start()
    lib = library.identify(MPI)
    os.environ["REAL_MPI"] = lib.path
    import ctypes
    ctypes.CDLL(None).setenv(b"REAL_MPI", lib.path.encode(), 1)
    world = MPI.COMM_WORLD
    case = Case(Cell("allreduce", world.size, world.size, 256, "float32", "sum"), lib.name, "default")
    found = check.validate(MPI, world.Dup(), calls.prepare(MPI, world, case), case)
    everyone = world.gather(found)
    if world.rank == 0:
        print(everyone)
"""


def test_an_interposed_faulty_algorithm_is_caught(launch, tmp_path):
    """A preloaded allreduce that spoils one element fails with what was expected and found, on every rank."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        pytest.skip("no C compiler to build the faulty library with")
    source, shim = tmp_path / "faulty.c", tmp_path / "faulty.so"
    source.write_text(FAULTY)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", shim, source, "-ldl"], check=True, timeout=60)
    spoilt = launch(2, VALIDATE_ONE, env={"LD_PRELOAD": str(shim), "BREAK": "1"})
    assert spoilt.returncode == 0, spoilt.stderr
    assert spoilt.stdout.count("expected") == 2, spoilt.stdout
    assert spoilt.stdout.count("at element 5 (1 of 64 wrong)") == 2
    sound = launch(2, VALIDATE_ONE, env={"LD_PRELOAD": str(shim)})
    assert sound.stdout.count("None") == 2, sound.stdout + sound.stderr


def test_a_faulty_schedule_behind_a_pointer_is_caught(launch):
    """collbench's own schedules go through the same check: one that forgets to combine is found out."""
    done = launch(
        2,
        """
        import ctypes
        from collbench.mpi import calls, check, start
        from collbench.mpi.buffers import Buffers
        from collbench.records import Case, Cell

        MPI = start.start()
        world = MPI.COMM_WORLD
        case = Case(Cell("allreduce", 2, 2, 256, "int32", "sum"), "portable", "lazy")
        buffers = Buffers(256, 256, "int32")

        @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
        def lazy(_state):
            buffers.recv[:] = buffers.send
            return 0

        address = ctypes.cast(lazy, ctypes.c_void_p).value
        call = calls.Call.from_pointer(address, 0, lazy, sync_comm=world, buffers=buffers)
        found = world.gather(check.validate(MPI, world, call, case))
        if world.rank == 0:
            print(found)
        """,
    )
    assert done.stdout.count("expected") == 2, done.stdout + done.stderr
