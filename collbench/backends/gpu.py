"""What ``collbench doctor`` says about GPUs, through nvidia-ml-py; what cannot be asked is skipped in words."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from ctypes import byref
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from collbench.backends import gpu_rails
from collbench.backends.gpu_rails import Finding, finding

_TIMEOUT_S = 20
_FABRIC_COMPLETED = 3
"""NVML_GPU_FABRIC_STATE_COMPLETED."""


def findings(
    nccl_lib: str | None = None,
    environ: Mapping[str, str] | None = None,
    nvml: Any = None,
    sysfs: Path = Path("/sys"),
) -> list[Finding]:
    """Return all findings about GPUs, NCCL and the network cards beside them.

    Args:
        nccl_lib: libnccl to ask instead of the one that would be loaded (``--nccl-lib``).
        environ: variables; None = this process's.
        nvml: the module ``pynvml``; None = import it.
        sysfs: where the kernel shows devices.
    """
    variables = os.environ if environ is None else environ
    found = [nccl_library(nccl_lib), *bindings(variables)]
    if nvml is None:
        try:
            nvml = import_module("pynvml")
        except ImportError:
            return [
                *found,
                finding("GPUs", "skipped", "nvidia-ml-py is not installed", "pip install 'collbench[nccl]'"),
            ]
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return [*found, finding("GPUs", "skipped", f"the NVIDIA driver does not answer: {error}")]
    try:
        return [*found, *_all_gpus(nvml, sysfs), *gpu_rails.rails(sysfs)]
    finally:
        nvml.nvmlShutdown()


def nccl_library(path: str | None) -> Finding:
    """Say which NCCL file is loaded and its version; it is loaded in a process of its own and needs no GPU."""
    if not path and find_spec("nccl") is None:
        return finding("NCCL", "skipped", "nccl4py is not installed", "pip install 'collbench[nccl]'")
    code = (
        "import ctypes, sys\n"
        "path = sys.argv[1]\n"
        "if not path:\n"
        "    import nccl.core as core\n"
        "    print(core.get_version().libnccl.version, core.get_version().libnccl.path)\n"
        "else:\n"
        "    number = ctypes.c_int()\n"
        "    assert ctypes.CDLL(path).ncclGetVersion(ctypes.byref(number)) == 0\n"
        "    n = number.value\n"
        "    print(f'{n // 10000}.{n // 100 % 100}.{n % 100}', path)\n"
    )
    try:
        shown = subprocess.run(
            [sys.executable, "-c", code, path or ""],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return finding("NCCL", "skipped", f"NCCL could not be asked: {error}")
    if shown.returncode == 0:
        version, _, file = shown.stdout.strip().partition(" ")
        return finding("NCCL", "ok", f"NCCL {version} from {file}")
    last = (shown.stderr.strip().splitlines() or ["no message"])[-1]
    if path:
        return finding(
            "NCCL", "fail", f"{path} cannot be loaded as NCCL: {last}", "name another file with --nccl-lib"
        )
    return finding(
        "NCCL", "fail", f"NCCL cannot be loaded: {last}", "pip install --force-reinstall nvidia-nccl-cu13"
    )


def bindings(environ: Mapping[str, str]) -> list[Finding]:
    """Name settings that hide GPUs from ranks or from each other, or that fix NCCL's choice."""
    found = []
    for name in ("SLURM_GPUS_PER_TASK", "SLURM_TRES_PER_TASK"):
        value = environ.get(name, "")
        if (name == "SLURM_GPUS_PER_TASK" and value) or "gpu" in value:
            found.append(finding(
                "GPU binding", "warn", f"{name}={value}: with --gpus-per-task each rank may see its own GPU only, which "
                "takes peer access over NVLink away from NCCL",
                "srun --gpus-per-node=8 --ntasks-per-node=8 --gpu-bind=none"))  # fmt: skip
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and "," not in visible:
        found.append(finding("GPU binding", "warn", f"CUDA_VISIBLE_DEVICES={visible!r} leaves at most one GPU visible",
                             "unset CUDA_VISIBLE_DEVICES"))  # fmt: skip
    fixed = [f"{n}={environ[n]}" for n in ("NCCL_ALGO", "NCCL_PROTO", "NCCL_P2P_DISABLE", "NCCL_IB_DISABLE",
                                           "NCCL_NVLS_ENABLE", "NCCL_TUNER_PLUGIN") if n in environ]  # fmt: skip
    if fixed:
        found.append(finding("NCCL settings", "warn", f"set in this shell: {', '.join(fixed)}: the default under test has "
                             "them too", "unset " + " ".join(f.partition("=")[0] for f in fixed)))  # fmt: skip
    return found


def _all_gpus(nvml: Any, sysfs: Path) -> list[Finding]:
    found = [finding("GPU driver", "ok", f"driver {_text(nvml.nvmlSystemGetDriverVersion())}")]
    handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
    if not handles:
        return [*found, finding("GPUs", "fail", "the driver shows no GPU", "nvidia-smi -L")]
    for index, handle in enumerate(handles):
        found.extend(_one_gpu(nvml, index, handle))
        bus = _asker(nvml)(partial(nvml.nvmlDeviceGetPciInfo, handle))
        found.append(gpu_rails.place(index, _text(bus.busId) if bus else None, sysfs))
    return [*found, *_peers(nvml, handles)]


def _one_gpu(nvml: Any, index: int, handle: Any) -> Iterable[Finding]:
    name, ask = f"GPU {index}", _asker(nvml)
    yield finding(name, "ok", ask(lambda: _text(nvml.nvmlDeviceGetName(handle))) or "a GPU without a name")
    yield _domain(nvml, index, handle)
    mode = ask(lambda: nvml.nvmlDeviceGetPersistenceMode(handle))
    yield _state(
        f"{name} persistence", mode, nvml.NVML_FEATURE_ENABLED, "persistence mode", "sudo nvidia-smi -pm 1"
    )
    mig = ask(lambda: nvml.nvmlDeviceGetMigMode(handle)[0])
    if mig:
        yield finding(f"{name} MIG", "warn", "MIG is on: no NVLink between instances, NCCL times are not those of a GPU",
                      f"sudo nvidia-smi -i {index} -mig 0")  # fmt: skip
    else:
        yield finding(
            f"{name} MIG", "skipped" if mig is None else "ok", "cannot be asked" if mig is None else "off"
        )
    yield _clocks(nvml, handle, index)
    yield _throttle(nvml, handle, index)
    links = [
        ask(partial(nvml.nvmlDeviceGetNvLinkState, handle, n)) for n in range(nvml.NVML_NVLINK_MAX_LINKS)
    ]
    up = sum(state == nvml.NVML_FEATURE_ENABLED for state in links)
    down = sum(state == nvml.NVML_FEATURE_DISABLED for state in links)
    status = "warn" if up and down else ("ok" if up else "skipped")
    yield finding(f"{name} NVLink", status, f"{up} links up, {down} down" if up or down else "no NVLink",
                  f"nvidia-smi nvlink -s -i {index}" if status == "warn" else "")  # fmt: skip


def _domain(nvml: Any, index: int, handle: Any) -> Finding:
    """Say which NVLink domain (several nodes on one NVSwitch fabric) the GPU belongs to."""
    check, info = f"GPU {index} NVLink domain", nvml.c_nvmlGpuFabricInfo_t()
    try:
        nvml.nvmlDeviceGetGpuFabricInfo(handle, byref(info))
    except nvml.NVMLError:
        return finding(check, "skipped", "the driver knows no fabric: the domain is this node at most")
    if info.state != _FABRIC_COMPLETED:
        return finding(check, "ok", "no fabric beyond this node")
    return finding(check, "ok", f"fabric {bytes(info.clusterUuid).hex()}, clique {info.cliqueId}")


def _state(check: str, value: Any, good: Any, what: str, mend: str) -> Finding:
    if value is None:
        return finding(check, "skipped", f"{what} cannot be asked")
    return (
        finding(check, "ok", f"{what} is on")
        if value == good
        else finding(check, "warn", f"{what} is off", mend)
    )


def _clocks(nvml: Any, handle: Any, index: int) -> Finding:
    ask, check = _asker(nvml), f"GPU {index} clocks"
    now = ask(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))
    most = ask(lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM))
    if now is None or most is None:
        return finding(check, "skipped", "clocks cannot be asked")
    reasons = ask(lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)) or 0
    locked = bool(reasons & nvml.nvmlClocksThrottleReasonApplicationsClocksSetting)
    words = f"SM {now} of {most} MHz, {'set by the user' if locked else 'not locked'}"
    return finding(
        check, "ok" if locked else "warn", words, "" if locked else f"sudo nvidia-smi -i {index} -lgc {most}"
    )


def _throttle(nvml: Any, handle: Any, index: int) -> Finding:
    check = f"GPU {index} throttling"
    value = _asker(nvml)(lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
    if value is None:
        return finding(check, "skipped", "throttle reasons cannot be asked")
    known = {"power cap": nvml.nvmlClocksThrottleReasonSwPowerCap,
             "hardware slowdown": nvml.nvmlClocksThrottleReasonHwSlowdown,
             "software thermal slowdown": nvml.nvmlClocksThrottleReasonSwThermalSlowdown,
             "hardware thermal slowdown": nvml.nvmlClocksThrottleReasonHwThermalSlowdown,
             "power brake": nvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown}  # fmt: skip
    active = [name for name, bit in known.items() if value & bit]
    if active:
        return finding(
            check,
            "warn",
            f"clocks are lowered: {', '.join(active)}",
            f"nvidia-smi -q -d PERFORMANCE -i {index}",
        )
    return finding(check, "ok", "no reason active")


def _peers(nvml: Any, handles: list[Any]) -> list[Finding]:
    """Say whether all pairs of GPUs reach each other directly."""
    if len(handles) < 2:
        return [finding("peer access", "skipped", "one GPU only")]
    without, unknown, ask = [], 0, _asker(nvml)
    for one in range(len(handles)):
        for two in range(one + 1, len(handles)):
            question = partial(
                nvml.nvmlDeviceGetP2PStatus, handles[one], handles[two], nvml.NVML_P2P_CAPS_INDEX_READ
            )
            state = ask(question)
            unknown += state is None
            if state is not None and state != nvml.NVML_P2P_STATUS_OK:
                without.append(f"{one}–{two}")
    if without:
        return [
            finding(
                "peer access",
                "warn",
                f"no direct access between GPUs {', '.join(without)}",
                "nvidia-smi topo -p2p r",
            )
        ]
    if unknown:
        return [finding("peer access", "skipped", f"{unknown} pairs cannot be asked")]
    return [finding("peer access", "ok", f"all {len(handles)} GPUs reach each other")]


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _asker(nvml: Any) -> Callable[[Callable[[], Any]], Any]:
    def ask(question: Callable[[], Any]) -> Any:
        try:
            return question()
        except nvml.NVMLError:
            # Not supported on this model or in this container: the caller says "cannot be asked".
            return None

    return ask
