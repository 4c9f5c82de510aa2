"""One mpirun per (ranks, algorithm, repetition): the usual way to a table, with a C loop of our own that times as OSU does.

Used by ``time_to_table.py``. A barrier after every timed call, OSU 7's iteration counts, one launch sweeps all sizes.
"""

import json
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from collbench import forcing, launchers
from collbench.collectives import COLLECTIVES
from collbench.installation import Installation
from collbench.mpi.forcing import DEVICE, FALLBACK, mpich_writes, openmpi_writes
from collbench.processes import MARKER, Job, new_marker
from collbench.records import Case

SMALL, LARGE, LARGE_ABOVE = (1000, 100), (100, 10), 8192
"""OSU 7's (timed, warm-up) calls up to and above this size (COLL_LOOP_SMALL … LARGE_MESSAGE_SIZE of osu_util.h)."""
POLL_S = 0.005

SOURCE = r"""
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static void *src, *dst;
static int ranks;
#define W MPI_COMM_WORLD
#define F MPI_FLOAT
static void allreduce(int n) { MPI_Allreduce(src, dst, n, F, MPI_SUM, W); }
static void bcast(int n) { MPI_Bcast(src, n, F, 0, W); }
static void allgather(int n) { MPI_Allgather(src, n / ranks, F, dst, n / ranks, F, W); }
static void reduce_scatter(int n) { MPI_Reduce_scatter_block(src, dst, n / ranks, F, MPI_SUM, W); }
static void reduce(int n) { MPI_Reduce(src, dst, n, F, MPI_SUM, 0, W); }
static void alltoall(int n) { MPI_Alltoall(src, n / ranks, F, dst, n / ranks, F, W); }
static void gather(int n) { MPI_Gather(src, n / ranks, F, dst, n / ranks, F, 0, W); }
static void scatter(int n) { MPI_Scatter(src, n / ranks, F, dst, n / ranks, F, 0, W); }
static const struct { const char *name; void (*call)(int); } table[] = {
    {"allreduce", allreduce}, {"bcast", bcast}, {"allgather", allgather}, {"reduce_scatter", reduce_scatter},
    {"reduce", reduce}, {"alltoall", alltoall}, {"gather", gather}, {"scatter", scatter}};

static void measure(void (*call)(int), long bytes, int timed, int warmup) {
    double spent = 0, sum = 0, most = 0;
    MPI_Barrier(W);
    for (int i = -warmup; i < timed; i++) {
        double start = MPI_Wtime();
        call((int)(bytes / sizeof(float)));
        double end = MPI_Wtime();
        if (i >= 0) spent += end - start;
        MPI_Barrier(W);
    }
    spent /= timed;
    MPI_Reduce(&spent, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, W);
    MPI_Reduce(&spent, &most, 1, MPI_DOUBLE, MPI_MAX, 0, W);
    int rank;
    MPI_Comm_rank(W, &rank);
    if (rank == 0) { printf("cell %ld %.12f %.12f\n", bytes, sum / ranks, most); fflush(stdout); }
}

int main(int argc, char **argv) { /* COLLECTIVE LARGEST (BYTES TIMED WARMUP)... */
    MPI_Init(&argc, &argv);
    double start = MPI_Wtime();
    int rank;
    MPI_Comm_size(W, &ranks);
    MPI_Comm_rank(W, &rank);
    size_t room = (size_t)atol(argv[2]) + 4096;
    if (posix_memalign(&src, 4096, room) || posix_memalign(&dst, 4096, room)) MPI_Abort(W, 1);
    memset(src, 0, room);
    memset(dst, 0, room);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!strcmp(table[i].name, argv[1]))
            for (int a = 3; a + 2 < argc; a += 3)
                measure(table[i].call, atol(argv[a]), atoi(argv[a + 1]), atoi(argv[a + 2]));
    MPI_Barrier(W);
    if (rank == 0) { printf("sweep %.6f\n", MPI_Wtime() - start); fflush(stdout); }
    MPI_Finalize();
    return 0;
}
"""


def build(folder: Path, found: Installation) -> Path:
    """Compile the loop with the library's own mpicc, once."""
    program, source = folder / "osu_like", folder / "osu_like.c"
    mpicc = found.mpiexec.parent / "mpicc"
    if not mpicc.exists():
        raise SystemExit(f"no mpicc beside {found.mpiexec.name}: brute force needs a compiler of this MPI")
    if not program.exists() or source.read_text() != SOURCE:
        source.write_text(SOURCE)
        subprocess.run([mpicc, "-O2", "-o", program, source], check=True, timeout=120)
    return program.resolve()


def counts(case: Case) -> tuple[int, int]:
    """Return (timed, warm-up) calls; OSU's size is one rank's block where there are blocks (its reduce_scatter: all)."""
    cell = case.cell
    blocks = COLLECTIVES[cell.collective].per_rank and cell.collective != "reduce_scatter"
    return SMALL if cell.nbytes // (cell.ranks if blocks else 1) <= LARGE_ABOVE else LARGE


def forced(case: Case, found: Installation) -> dict[str, str]:
    """Return the environment that makes the library run this algorithm from the first call on."""
    if case.algorithm == "default":
        return {}
    if found.library == "openmpi":
        writes = {f"OMPI_MCA_{name}": str(value) for name, value in openmpi_writes(case).items()}
        return {forcing.DYNAMIC_RULES: "1", **writes}
    if found.library == "mpich":
        # With "error" in place of the silent fall-back the library's own calls in MPI_Init abort some algorithms.
        writes = {name: value for name, value in mpich_writes(case).items() if name != FALLBACK}
        return {name: _mpich_word(case, name, value) for name, value in writes.items()}
    return dict(forcing.settings(case, found.library, found.version))


def _mpich_word(case: Case, name: str, value: int | str) -> str:
    """Return what MPICH's environment takes where MPI_T takes a number: names."""
    if name.endswith("_ALGORITHM"):
        return case.algorithm
    return ("all", "none")[value] if name == DEVICE else str(value)


def wait(
    argv: Sequence[str],
    env: dict[str, str],
    log: Path,
    timeout_s: float,
    watch: Callable[[], object] | None = None,
) -> tuple[float, int | None, str]:
    """Run one command in a session of its own; return (wall seconds, exit status or None = timed out, its last words).

    Whatever ends the waiting, Ctrl-C included, also ends the command with all its processes.
    """
    log.unlink(missing_ok=True)
    started = time.perf_counter()
    job = Job(argv, {**os.environ, MARKER: new_marker(), **env}, log)
    try:
        while (code := job.poll()) is None and time.perf_counter() - started < timeout_s:
            if watch:
                watch()
            time.sleep(POLL_S)
        wall = time.perf_counter() - started
    finally:
        job.end(grace_s=30)
    if watch:
        watch()
    return wall, code, job.tail(4)


def sweep(
    program: Path, found: Installation, cases: Sequence[Case], log: Path, timeout_s: float
) -> dict[str, object]:
    """Launch one algorithm of one collective over all sizes; return wall, sweep time and seconds per size."""
    cell = cases[0].cell
    ordered = sorted(cases, key=lambda c: c.cell.nbytes)
    words = [cell.collective, str(ordered[-1].cell.nbytes)]
    for case in ordered:
        words += [str(n) for n in (case.cell.nbytes, *counts(case))]
    planned = {**found.env, **forced(cases[0], found), MARKER: new_marker()}
    command = launchers.choose(found, environ=os.environ).command(
        launchers.LaunchSpec(cell.ranks, (str(program), *words), planned)
    )
    wall, code, said = wait(command.argv, {**planned, **command.env}, log, timeout_s)
    lines = [line.split() for line in log.read_text(errors="replace").splitlines()]
    swept = [float(w[1]) for w in lines if len(w) == 2 and w[0] == "sweep"]
    times = {w[1]: [float(w[2]), float(w[3])] for w in lines if len(w) == 4 and w[0] == "cell"}
    problem = (
        None
        if code == 0
        else f"no end within {timeout_s:.0f} s"
        if code is None
        else f"status {code}: {said}"
    )
    return {"wall_s": wall, "sweep_s": swept[0] if swept else wall, "times": times, "problem": problem}


def write_json(path: Path, value: object) -> None:
    """Write a file whole or not at all."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(value))
    part.rename(path)
