"""Started as ranks of a job (``mpirun -n 64 collbench run``): measure with the ranks that are here.

No launch is started, so there is one rank count, one environment and nobody outside to end a hang.
"""

import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from collbench import worker
from collbench.launching import worker_plan
from collbench.mpi import library, probe, start
from collbench.plan import Launch, Plan
from collbench.request import RunOptions


def run(
    ranks: int,
    options: RunOptions,
    prepare: Callable[[str, tuple[int, ...] | None], tuple[Plan, Path]],
) -> tuple[bool, Path | None, int]:
    """Measure as one rank of the surrounding job (collective over its ranks).

    Args:
        ranks: how many there are.
        options: how to measure.
        prepare: called on rank 0 only with the live library's name and version: makes plan and run file.

    Returns:
        Whether this is rank 0, the run file (rank 0 only), and the exit status.
    """
    MPI = start.start(options.thread_level)
    first = MPI.COMM_WORLD.Get_rank() == 0
    path: Path | None = None
    files: list[str] = []
    with tempfile.TemporaryDirectory(prefix="collbench-") as folder:
        if first:
            found = library.identify(MPI)
            plan, path = prepare(found.name, found.version)
            files = _write_plans(plan, options, path, Path(folder))
        status = 0
        for file in worker.share_text(MPI, MPI.COMM_WORLD, "\n".join(files)).splitlines():
            status = worker.run(MPI, Path(file), ranks) or status
    return first, path, status


def runnable(launch: Launch, environ: Mapping[str, str]) -> bool:
    """Say whether the job's own environment is what the launch needs."""
    return launch.purpose == "measure" and all(environ.get(k) == v for k, v in launch.settings.items())


def _write_plans(plan: Plan, options: RunOptions, path: Path, folder: Path) -> list[str]:
    files = []
    for number, launch in enumerate(plan.launches):
        flat = worker_plan(
            launch, launch.groups, options, plan.sampling, number=number, output=path, status=folder / "status",
            probe=probe.probe(), evidence={}, budget_s=options.budget_s, driver=False,
        )  # fmt: skip
        file = folder / f"plan{number}.json"
        file.write_text(json.dumps(flat))
        files.append(str(file))
    return files
