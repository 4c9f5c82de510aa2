"""What machine, library settings and state produced a row: an allow-list, never everything. Needs no numpy."""

import os
import platform
import re
import socket
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from collbench.redaction import redact

__all__ = [
    "capture", "clock_mhz", "cpu_quota", "load", "redact", "state", "throttled", "usable_cores", "variables",
]  # fmt: skip

PREFIXES = (
    "OMPI_MCA_", "OMPI_ALLOW_", "PMIX_MCA_", "PRTE_MCA_", "MPIR_CVAR_", "MPICH_", "I_MPI_", "FI_", "UCX_", "UCC_",
    "HCOLL_", "NCCL_", "RCCL_", "MALLOC_", "OMP_", "KMP_", "GOMP_", "MV2_", "MVP_", "CUDA_VISIBLE", "HIP_VISIBLE",
)  # fmt: skip
NAMES = (
    "SLURM_JOB_ID", "SLURM_JOB_NUM_NODES", "SLURM_NTASKS", "SLURM_NTASKS_PER_NODE", "SLURM_JOB_PARTITION",
    "SLURM_CPU_BIND", "SLURM_CPUS_PER_TASK", "SLURM_DISTRIBUTION", "SLURM_GPUS_PER_TASK", "SLURM_MPI_TYPE",
    "PBS_JOBID", "LSB_JOBID", "LD_PRELOAD", "LD_LIBRARY_PATH", "MPI4PY_LIBMPI", "MPI4PY_MPIABI",
)  # fmt: skip
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|PRIVATE|API_?KEY|ACCESS_?KEY|AUTH|COOKIE", re.IGNORECASE)
# What mpiexec sets for its own use: it differs in every launch and holds addresses, not settings.
_LAUNCHER_OWN = re.compile(
    r"OMPI_MCA_(ess|orte_|prte_|initial_wdir|num_procs|cpu_type|PREFIXES|pmix$|shmem_RUNTIME|mpi_oversubscribe)"
    r"|PMIX_MCA_mca_base_component_show|I_MPI_(INFO_|HYDRA_UUID|INTERNAL_|RETURN_)"
)
_CPUS = Path("/sys/devices/system/cpu")
_CPUINFO = Path("/proc/cpuinfo")


def usable_cores(*, physical: bool = False) -> int:
    """Return the hardware threads that this process may run on (its affinity, not the machine's size).

    Args:
        physical: count cores, not their hardware threads: what MPI launchers take for slots.
    """
    allowed = os.sched_getaffinity(0)
    if not physical:
        return len(allowed)
    cores = {_read(_CPUS / f"cpu{cpu}/topology/thread_siblings_list") or str(cpu) for cpu in allowed}
    return len(cores)


def cpu_quota(root: Path = Path("/sys/fs/cgroup")) -> float | None:
    """Return the cores' worth of time that the container may use; None = no limit (cgroup v2, then v1)."""
    words = (_read(root / "cpu.max") or "").split()
    if len(words) == 2 and words[0].isdigit():
        return int(words[0]) / int(words[1])
    quota, period = _read(root / "cpu/cpu.cfs_quota_us"), _read(root / "cpu/cpu.cfs_period_us")
    if quota and period and quota.isdigit() and period.isdigit():
        return int(quota) / int(period)
    return None


def capture() -> dict[str, Any]:
    """Return the description of the machine under this process, from an allow-list. Unknown facts are None."""
    return {
        "hostname": socket.gethostname(),
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "usable_cores": usable_cores(),
        "physical_cores": usable_cores(physical=True),
        "cpu_quota": cpu_quota(),
        "numa_nodes": _count(Path("/sys/devices/system/node"), r"node\d+"),
        "memory_bytes": _memory_total(),
        "kernel": platform.release(),
        "system": _system(),
        "container": _container(),
        "virtual_machine": _virtual_machine(),
        "governor": _read(_CPUS / "cpu0/cpufreq/scaling_governor"),
        "clock_source": _read(Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")),
        **state(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in ("collbench", "mpi4py", "numpy")},
        "variables": variables(os.environ),
    }


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that can change what is measured; whatever looks like a secret is left out."""
    return {
        name: value
        for name, value in sorted(environ.items())
        if (name in NAMES or name.startswith(PREFIXES))
        and not _SECRET.search(name)
        and not _LAUNCHER_OWN.match(name)
    }


def _read(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip() or None
    except OSError:
        return None


def _cpu_model() -> str | None:
    text = _read(_CPUINFO) or ""
    found = re.search(r"^(?:model name|cpu model|Processor)\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1].strip() if found else platform.processor() or platform.machine() or None


def _count(folder: Path, pattern: str) -> int | None:
    try:
        return sum(bool(re.fullmatch(pattern, entry.name)) for entry in folder.iterdir()) or None
    except OSError:
        return None


def _memory_total() -> int | None:
    found = re.search(r"^MemTotal:\s+(\d+) kB", _read(Path("/proc/meminfo")) or "", re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def _system() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", sys.platform)
    except OSError:
        return sys.platform


def _container() -> str | None:
    if "SINGULARITY_NAME" in os.environ or "APPTAINER_NAME" in os.environ:
        return "apptainer"
    if Path("/.dockerenv").exists():
        return "docker"
    if Path("/run/.containerenv").exists():
        return "podman"
    return os.environ.get("container") or None  # noqa: SIM112 - as systemd and podman spell it


def _virtual_machine() -> bool | None:
    """Say whether the processor reports a hypervisor; None where it lists no features."""
    found = re.search(r"^flags\s*:(.*)$", _read(_CPUINFO) or "", re.MULTILINE)
    return "hypervisor" in found[1].split() if found else None


def clock_mhz(cpus: Path = _CPUS, cpuinfo: Path = _CPUINFO) -> list[float] | None:
    """Return the lowest and the highest current clock of all cores, MHz; None where the kernel does not tell."""
    found = [khz / 1000 for khz in _numbers(cpus, "cpufreq/scaling_cur_freq")]
    if not found:
        text = _read(cpuinfo) or ""
        found = [float(value) for value in re.findall(r"^cpu MHz\s*:\s*([\d.]+)$", text, re.MULTILINE)]
    return [round(min(found), 1), round(max(found), 1)] if found else None


def throttled(cpus: Path = _CPUS) -> int | None:
    """Return how often cores and packages were throttled since boot, summed; None where the kernel does not count."""
    names = ("core_throttle_count", "package_throttle_count")
    counts = [n for name in names for n in _numbers(cpus, f"thermal_throttle/{name}")]
    return sum(counts) if counts else None


def load() -> float | None:
    """Return the load average of the last minute; None where there is none."""
    try:
        return round(os.getloadavg()[0], 2)
    except OSError:
        return None


def state() -> dict[str, Any]:
    """Return what changes while one measures: ``clock_mhz``, ``throttled`` (events since boot) and ``load``."""
    return {"clock_mhz": clock_mhz(), "throttled": throttled(), "load": load()}


def _numbers(cpus: Path, name: str) -> list[int]:
    texts = [_read(path) for path in cpus.glob(f"cpu[0-9]*/{name}")]
    return [int(text) for text in texts if text and text.isdigit()]


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
