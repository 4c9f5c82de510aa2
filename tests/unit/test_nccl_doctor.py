"""What doctor says about GPUs, from answers as the driver's library gives them."""

import ctypes
from types import SimpleNamespace

import pytest

from collbench.backends import gpu, gpu_rails


class NVMLError(Exception):
    pass


class FabricInfo(ctypes.Structure):
    _fields_ = (("clusterUuid", ctypes.c_ubyte * 16), ("status", ctypes.c_uint), ("cliqueId", ctypes.c_uint),
                ("state", ctypes.c_uint))  # fmt: skip


def _no_fabric(_handle, _info):
    raise NVMLError("Not Supported")


def _fabric(_handle, info):
    info._obj.state, info._obj.cliqueId = 3, 7


def _nvml(**change):
    """A driver with two healthy GPUs; each keyword replaces one function or constant."""
    base = {
        "NVMLError": NVMLError, "nvmlInit": lambda: None, "nvmlShutdown": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: "580.65.06", "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda i: i, "nvmlDeviceGetName": lambda _: b"H100",
        "nvmlDeviceGetPciInfo": lambda h: SimpleNamespace(busId=f"00000000:0{h}:00.0"),
        "nvmlDeviceGetPersistenceMode": lambda _: 1, "NVML_FEATURE_ENABLED": 1, "NVML_FEATURE_DISABLED": 0,
        "nvmlDeviceGetMigMode": lambda _: (0, 0), "NVML_CLOCK_SM": 1, "nvmlDeviceGetClockInfo": lambda _h, _c: 1980,
        "nvmlDeviceGetMaxClockInfo": lambda _h, _c: 1980, "nvmlDeviceGetCurrentClocksThrottleReasons": lambda _: 2,
        "nvmlClocksThrottleReasonApplicationsClocksSetting": 2, "nvmlClocksThrottleReasonSwPowerCap": 4,
        "nvmlClocksThrottleReasonHwSlowdown": 8, "nvmlClocksThrottleReasonSwThermalSlowdown": 32,
        "nvmlClocksThrottleReasonHwThermalSlowdown": 64, "nvmlClocksThrottleReasonHwPowerBrakeSlowdown": 128,
        "NVML_NVLINK_MAX_LINKS": 18, "nvmlDeviceGetNvLinkState": lambda _h, _n: 1,
        "c_nvmlGpuFabricInfo_t": FabricInfo, "nvmlDeviceGetGpuFabricInfo": _fabric,
        "nvmlDeviceGetP2PStatus": lambda _a, _b, _i: 0, "NVML_P2P_CAPS_INDEX_READ": 0, "NVML_P2P_STATUS_OK": 0,
    }  # fmt: skip
    return SimpleNamespace(**{**base, **change})


def _find(found, check):
    return next(f for f in found if f["check"] == check)


def _ask(tmp_path, environ=None, **change):
    return gpu.findings(environ=environ or {}, nvml=_nvml(**change), sysfs=tmp_path)


def test_a_healthy_node_has_no_warning_about_its_gpus(tmp_path):
    """Driver, persistence, MIG, clocks, throttling, NVLink and peer access are all ok."""
    found = [f for f in _ask(tmp_path) if f["check"] not in ("NCCL", "rails")]
    assert {f["status"] for f in found} == {"ok"}
    assert _find(found, "GPU 1 NVLink")["detail"] == "18 links up, 0 down"
    assert _find(found, "GPU driver")["detail"] == "driver 580.65.06"


def _refuse(*_):
    raise NVMLError("Not Supported")


@pytest.mark.parametrize(
    ("change", "check", "status", "words", "mend"),
    [
        ({"nvmlDeviceGetPersistenceMode": lambda _: 0}, "GPU 0 persistence", "warn", "off", "nvidia-smi -pm 1"),
        ({"nvmlDeviceGetMigMode": lambda _: (1, 1)}, "GPU 0 MIG", "warn", "MIG is on", "-mig 0"),
        ({"nvmlDeviceGetCurrentClocksThrottleReasons": lambda _: 0}, "GPU 0 clocks", "warn", "not locked", "-lgc 1980"),
        ({"nvmlDeviceGetCurrentClocksThrottleReasons": lambda _: 64}, "GPU 0 throttling", "warn",
         "hardware thermal slowdown", "PERFORMANCE"),
        ({"nvmlDeviceGetNvLinkState": lambda _h, n: n % 2}, "GPU 0 NVLink", "warn", "9 links up, 9 down", "nvlink -s"),
        ({"nvmlDeviceGetNvLinkState": _refuse}, "GPU 0 NVLink", "skipped", "no NVLink", ""),
        ({"nvmlDeviceGetP2PStatus": lambda *_: 5}, "peer access", "warn", "0–1", "topo -p2p"),
        ({"nvmlDeviceGetPersistenceMode": _refuse}, "GPU 0 persistence", "skipped", "cannot be asked", ""),
        ({"nvmlDeviceGetClockInfo": _refuse}, "GPU 0 clocks", "skipped", "cannot be asked", ""),
        ({"nvmlDeviceGetGpuFabricInfo": _no_fabric}, "GPU 0 NVLink domain", "skipped", "this node at most", ""),
        ({}, "GPU 0 NVLink domain", "ok", "clique 7", ""),
        ({}, "rank 1 on its node", "ok", "GPU 1 at 00000000:01:00.0", ""),
        ({"nvmlInit": _refuse}, "GPUs", "skipped", "does not answer", ""),
        ({"nvmlDeviceGetCount": lambda: 0}, "GPUs", "fail", "no GPU", "nvidia-smi -L"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_command(tmp_path, change, check, status, words, mend):
    """And what cannot be asked is skipped in words."""
    found = _find(_ask(tmp_path, **change), check)
    assert found["status"] == status
    assert words in found["detail"]
    assert mend in found["mend"]


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"SLURM_GPUS_PER_TASK": "1"}, "--gpus-per-task"),
        ({"SLURM_TRES_PER_TASK": "gres/gpu:1"}, "--gpus-per-task"),
        ({"CUDA_VISIBLE_DEVICES": "0"}, "at most one GPU"),
        ({"NCCL_ALGO": "Ring"}, "NCCL_ALGO=Ring"),
    ],
)
def test_bindings_and_settings_that_spoil_a_measurement_are_named(environ, words):
    """Each with what mends it."""
    found = gpu.bindings(environ)
    assert len(found) == 1
    assert words in found[0]["detail"]
    assert found[0]["mend"]
    assert gpu.bindings({"CUDA_VISIBLE_DEVICES": "0,1", "SLURM_TRES_PER_TASK": "cpu=1"}) == []


def test_rails_are_read_from_the_kernel(tmp_path):
    """State, rate and NUMA node of each card, and whether GPUDirect's module is there."""
    card = tmp_path / "class" / "infiniband" / "mlx5_0"
    (card / "ports" / "1").mkdir(parents=True)
    (card / "device").mkdir()
    (card / "ports" / "1" / "state").write_text("4: ACTIVE\n")
    (card / "ports" / "1" / "rate").write_text("400 Gb/sec (4X NDR)\n")
    (card / "device" / "numa_node").write_text("1\n")
    device = tmp_path / "bus" / "pci" / "devices" / "0000:0a:00.0"
    device.mkdir(parents=True)
    (device / "numa_node").write_text("1\n")
    assert "NUMA node 1, cards there: mlx5_0" in gpu_rails.place(3, "00000000:0A:00.0", tmp_path)["detail"]
    found = gpu_rails.rails(tmp_path)
    assert _find(found, "rail mlx5_0")["detail"] == "4: ACTIVE, 400 Gb/sec (4X NDR), NUMA node 1"
    assert _find(found, "GPUDirect RDMA")["status"] == "warn"
    (tmp_path / "module" / "nvidia_peermem").mkdir(parents=True)
    assert _find(gpu_rails.rails(tmp_path), "GPUDirect RDMA")["status"] == "ok"


def test_a_file_that_is_no_nccl_is_refused(tmp_path):
    """--nccl-lib names a file that cannot be loaded."""
    path = tmp_path / "libnccl.so.2"
    path.write_text("no library")
    found = gpu.nccl_library(str(path))
    assert found["status"] == "fail"
    assert str(path) in found["detail"]
