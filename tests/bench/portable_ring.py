"""How fast is the portable ring? Time over that of Open MPI's own ring, interleaved, 2, 4 and 8 ranks.

    python tests/bench/portable_ring.py            # starts mpiexec of this environment itself
    python tests/bench/portable_ring.py --ranks 2 --rounds 40

Prints, per size, the ratio portable / Open MPI of interleaved block medians with its 95 % interval. The aim is
1.25 or less at 2 ranks from 64 KiB to 16 MiB; with more ranks than cores the figures only show that nothing is
grossly wrong.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

SIZES = tuple(1 << k for k in range(16, 25, 2))
ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "PYTHONSAFEPATH": "1",
}


def launch(ranks: int, rounds: int) -> int:
    """Run this file on ``ranks`` ranks and return the exit status."""
    mpiexec = Path(sys.prefix) / "bin" / "mpiexec"
    command = [str(mpiexec), "-n", str(ranks), sys.executable, __file__, "--inside", "--rounds", str(rounds)]
    return subprocess.run(command, env={**os.environ, **ENVIRONMENT}, timeout=900, check=False).returncode


def inside(rounds: int) -> None:
    """Measure on the ranks that are here; rank 0 prints."""
    from collbench.mpi import calls, library, start, switch, timed
    from collbench.portable import run
    from collbench.records import Case, Cell
    from collbench.stats import paired_log_median
    from collbench.units import format_bytes, format_time

    MPI = start.start("single")
    comm = MPI.COMM_WORLD
    lib = library.identify(MPI)
    forced = switch.Switch(MPI, comm, lib)
    for nbytes in SIZES:
        cell = Cell("allreduce", comm.Get_size(), None, nbytes, "float32", "sum")
        own, theirs = Case(cell, "portable", "ring"), Case(cell, lib.name, "ring", "tuned")
        prepared = run.prepare(MPI, comm, own)
        timed_calls = (
            calls.Call.from_pointer(
                prepared.function_address,
                prepared.state_address,
                prepared,
                sync_comm=comm,
                buffers=prepared.buffers,
            ),
            calls.prepare(MPI, forced.select(theirs), theirs, sync_comm=comm),
        )
        for call in timed_calls:
            timed.warm_up(call)
        length = int(min(200, max(3, (32 << 20) // nbytes)))
        blocks: tuple[list[float], list[float]] = ([], [])
        for number in range(rounds):
            for which in (0, 1) if number % 2 else (1, 0):
                start_ns, end_ns = timed.block(timed_calls[which], length)
                most = np.zeros(length)
                comm.Allreduce((end_ns - start_ns) * 1e-9, most, op=MPI.MAX)
                blocks[which].append(float(np.median(most)))
        if comm.Get_rank() == 0:
            ratio = paired_log_median(*blocks)
            interval = f"{ratio.low:.3f} … {ratio.high:.3f}" if ratio.low and ratio.high else "no interval"
            print(
                f"{comm.Get_size():2} ranks  {format_bytes(nbytes):>8}  portable {format_time(np.median(blocks[0]))}  "
                f"{lib.name} {format_time(np.median(blocks[1]))}  ratio {ratio.value:.3f} [{interval}]",
                flush=True,
            )


def main() -> int:
    """Measure at each rank count and return the worst exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--ranks", type=int, nargs="*", default=[2, 4, 8])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        inside(options.rounds)
        return 0
    return max(launch(ranks, options.rounds) for ranks in options.ranks)


if __name__ == "__main__":
    sys.exit(main())
