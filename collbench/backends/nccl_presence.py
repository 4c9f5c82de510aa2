"""Is there what the NCCL back end needs? Asked before anything is started; imports nothing of CUDA."""

from importlib.util import find_spec
from pathlib import Path

from collbench.errors import UnansweredError

DEVICES = Path("/dev")
PACKAGES = {"nccl": "nccl4py", "cuda": "cuda-bindings"}


def gpus(devices: Path = DEVICES) -> int:
    """Return the number of NVIDIA GPUs that the driver shows on this node."""
    return sum(p.name.removeprefix("nvidia").isdigit() for p in devices.glob("nvidia[0-9]*"))


def missing(devices: Path = DEVICES) -> list[str]:
    """Return what is missing for measuring NCCL here, in words; empty when nothing is."""
    found = []
    if not gpus(devices):
        found.append("an NVIDIA GPU (the driver shows none on this node)")
    packages = [package for module, package in PACKAGES.items() if find_spec(module) is None]
    if packages:
        found.append(f"the packages {' and '.join(packages)} (pip install 'collbench[nccl]')")
    return found


def require(ranks: int, devices: Path = DEVICES) -> None:
    """Refuse a run that cannot work on this node.

    Args:
        ranks: GPUs needed on this node; 0 = the GPUs are elsewhere, behind a launcher.
        devices: where the driver's device files are.

    Raises:
        UnansweredError: one sentence with everything that is missing.
    """
    absent = missing(devices)
    if not ranks:
        # The node that starts a launcher may have no GPU itself.
        absent = [text for text in absent if "GPU (" not in text]
    if absent:
        raise UnansweredError(
            f"NCCL cannot be measured here: missing {' and '.join(absent)}; 'collbench run … --dry-run' plans without them"
        )
    if ranks > gpus(devices):
        raise UnansweredError(
            f"the profile needs {ranks} GPUs on this node and the driver shows {gpus(devices)}: "
            "give --ranks, or --launcher for several nodes"
        )
