"""What our timed loop costs against a native C loop, on the MPI of this environment; and against OSU where given.

    python tests/bench/timing_overhead.py [--ranks 2] [--pairs 40] [--osu DIR]

Prints, for 8 B, 1 KiB and 64 KiB, the ratio of median times of neighbouring blocks (ours / native, in one process, the
same buffers, order by a coin): median with its 95 % interval, and the mean of the middle half. With ``--osu DIR``
(a folder with somebody's built OSU micro-benchmarks) also p50 against p50 of the rank average over alternating launches.
"""

import argparse
import ctypes
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from math import comb
from pathlib import Path

SIZES = (8, 1024, 65536)
TARGET = 1.02
BLOCK_S = 500e-6

NATIVE = r"""
#include <mpi.h>
#include <stdint.h>
#include <time.h>
static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
int native(const void *send, void *recv, int count, int64_t handle, int iterations, int64_t *start, int64_t *end) {
    MPI_Comm comm = (MPI_Comm)(intptr_t)handle;
    for (int i = 0; i < iterations; i++) {
        MPI_Barrier(comm);
        start[i] = now();
        int code = MPI_Allreduce(send, recv, count, MPI_FLOAT, MPI_SUM, comm);
        end[i] = now();
        if (code) return code;
    }
    return 0;
}
"""

ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PYTHONSAFEPATH": "1",
}


def tool(name):
    own = Path(sys.prefix) / "bin" / name
    found = str(own) if own.exists() else shutil.which(name)
    if not found:
        sys.exit(f"no {name} in this environment: the native loop cannot be compared")
    return found


def interval(values):
    """Return the 95 % interval of the median from order statistics."""
    ordered, n = sorted(values), len(values)
    cover, low = 0.0, n // 2
    while low > 0 and cover < 0.95:
        low -= 1
        cover = sum(comb(n, k) for k in range(low + 1, n - low)) / 2**n
    return ordered[low], ordered[n - 1 - low]


def middle_half(values):
    ordered, n = sorted(values), len(values)
    return statistics.fmean(ordered[n // 4 : n - n // 4])


# --- inside the ranks ---------------------------------------------------------------------------------------------


def measure(library, pairs):
    import numpy as np

    from collbench.mpi import calls, start, timed
    from collbench.records import Case, Cell

    MPI = start.start()
    comm = MPI.COMM_WORLD.Dup()
    coin = random.Random(7)
    native = ctypes.CDLL(library).native if library != "none" else None
    out = {
        "timer": timed.timer_name(),
        "library": MPI.Get_library_version().splitlines()[0][:60],
        "sizes": {},
    }
    for nbytes in SIZES:
        case = Case(Cell("allreduce", comm.size, comm.size, nbytes, "float32", "sum"), "any", "default")
        call = calls.prepare(MPI, comm, case)
        send, recv = call.buffers.send, call.buffers.recv

        def ours(n, call=call):
            block = timed.block(call, n)
            return block.end_ns - block.start_ns

        def theirs(n, send=send, recv=recv, nbytes=nbytes):
            begin, end = np.zeros(n, np.int64), np.zeros(n, np.int64)
            pointers = [ctypes.c_void_p(a.ctypes.data) for a in (send, recv, begin, end)]
            handle = ctypes.c_int64(MPI._handleof(comm))
            code = native(pointers[0], pointers[1], nbytes // 4, handle, n, pointers[2], pointers[3])
            assert code == 0
            return end - begin

        def reduced(spent, op):
            total = np.zeros_like(spent)
            comm.Allreduce(spent, total, op)
            return float(np.median(total))

        ours(50)
        call_ns = comm.allreduce(float(np.median(ours(100))), MPI.MAX)
        length = int(max(20, min(2000, BLOCK_S * 1e9 / call_ns)))
        average = reduced(ours(2000 if call_ns < 1e5 else 200), MPI.SUM) / comm.size
        row = {"p50_of_average_ns": average, "ratios": [], "ours_ns": [], "native_ns": []}
        for _ in range(pairs if native else 0):
            # Libraries cycle through internal cells: a fixed order or length would tie one side to one phase.
            order = ("ours", "native") if coin.random() < 0.5 else ("native", "ours")
            times = {}
            for who in order:
                spent = (ours if who == "ours" else theirs)(length + coin.randrange(8))
                times[who] = reduced(spent, MPI.MAX)
            row["ratios"].append(times["ours"] / times["native"])
            row["ours_ns"].append(times["ours"])
            row["native_ns"].append(times["native"])
        out["sizes"][nbytes] = row
    if comm.rank == 0:
        print(json.dumps(out), flush=True)


# --- the driver ---------------------------------------------------------------------------------------------------


def launch(ranks, arguments, timeout=300):
    command = [tool("mpiexec"), "-n", str(ranks), *map(str, arguments)]
    environment = {**os.environ, **ENVIRONMENT}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=timeout, check=False
    )
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


def ours(ranks, library, pairs):
    arguments = [sys.executable, Path(__file__).resolve(), "--inside", library, "--pairs", pairs]
    text = launch(ranks, arguments)
    return json.loads(next(line for line in text.splitlines() if line.startswith("{")))


def osu_p50_us(text, nbytes):
    """Return the P50 column of OSU's output for one size; its header line names the columns."""
    header = next(line for line in text.splitlines() if line.startswith("# Size"))
    names = [part.strip() for part in header.lstrip("# ").split("  ") if part.strip()]
    column = next(i for i, name in enumerate(names) if name.startswith("P50"))
    row = next(line.split() for line in text.splitlines() if line.split()[:1] == [str(nbytes)])
    return float(row[column])


def compare_with_osu(folder, ranks, launches):
    found = sorted(Path(folder).rglob("osu_allreduce"))
    if not found:
        sys.exit(f"no osu_allreduce under {folder}")
    ratios = {nbytes: [] for nbytes in SIZES}
    for _ in range(launches):
        mine = ours(ranks, "none", 0)
        for nbytes in SIZES:
            text = launch(ranks, [found[0], "-m", f"{nbytes}:{nbytes}", "-f", "-z50"])
            theirs = osu_p50_us(text, nbytes) * 1e3
            ratios[nbytes].append(mine["sizes"][str(nbytes)]["p50_of_average_ns"] / theirs)
    print(f"\nagainst {found[0].name}: p50 of the rank average, {launches} alternating launches")
    for nbytes, values in ratios.items():
        bound = 0.05 if nbytes >= 1024 else 0.08
        median = statistics.median(values)
        verdict = "within" if abs(median - 1) <= bound else "outside"
        print(
            f"{nbytes:>7} B  ratio {median:.3f}  ({min(values):.3f} – {max(values):.3f})  {verdict} {bound:.0%}"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=40, help="alternated pairs of blocks for each size")
    parser.add_argument("--launches", type=int, default=5, help="alternating launches with --osu")
    parser.add_argument("--osu", help="folder with somebody's built OSU micro-benchmarks")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        measure(options.inside, options.pairs)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "native.c", Path(folder) / "native.so"
        source.write_text(NATIVE)
        command = [tool("mpicc"), "-O2", "-shared", "-fPIC", "-o", library, source]
        subprocess.run(command, check=True, timeout=120)
        found = ours(options.ranks, library, max(10, options.pairs))
    print(f"{found['library']}, {options.ranks} ranks, timer {found['timer']}, allreduce float32")
    print("  size      native      ours    median ratio (95 % interval)   mean of middle half")
    missed = False
    for nbytes, row in found["sizes"].items():
        low, high = interval(row["ratios"])
        median, middle = statistics.median(row["ratios"]), middle_half(row["ratios"])
        missed |= middle > TARGET
        times = [statistics.median(row[key]) / 1e3 for key in ("native_ns", "ours_ns")]
        print(
            f"{nbytes:>6} B {times[0]:>8.3f} µs {times[1]:>8.3f} µs   {median:.3f} ({low:.3f} – {high:.3f})"
            f"           {middle:.3f} {'>' if middle > TARGET else '≤'} {TARGET}"
        )
    if options.osu:
        compare_with_osu(options.osu, options.ranks, options.launches)
    else:
        print("\nagainst OSU: skipped, no --osu DIR given")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
