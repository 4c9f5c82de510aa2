"""Where GPUs and network cards sit, from the kernel's own files."""

import re
from pathlib import Path

Finding = dict[str, str]


def finding(check: str, status: str, detail: str, mend: str = "") -> Finding:
    """Return one finding: status is ok, warn, fail or skipped; ``mend`` is the command that helps, or empty."""
    return {"check": check, "status": status, "detail": detail, "mend": mend}


def place(index: int, bus: str | None, sysfs: Path) -> Finding:
    """Say where the GPU of rank ``index`` sits: its bus, its NUMA node, and the network cards on the same one.

    Args:
        index: number of the GPU; collbench gives GPU i to rank i of a node.
        bus: PCI bus id as the driver prints it; None = cannot be asked.
        sysfs: where the kernel shows devices.
    """
    check = f"rank {index} on its node"
    if bus is None:
        return finding(check, "skipped", f"GPU {index}: its place cannot be asked")
    # The driver prints eight digits of the PCI domain, the kernel four.
    short = re.sub(r"^0000(?=[0-9a-f]{4}:)", "", bus.lower())
    numa = _read(sysfs / "bus" / "pci" / "devices" / short / "numa_node")
    near = [
        card.name
        for card in _cards(sysfs)
        if numa is not None and _read(card / "device" / "numa_node") == numa
    ]
    cards = f"cards there: {', '.join(near)}" if near else "no InfiniBand or RoCE card there"
    return finding(
        check, "ok", f"GPU {index} at {bus}, NUMA node {numa if numa is not None else 'unknown'}, {cards}"
    )


def rails(sysfs: Path) -> list[Finding]:
    """Say which InfiniBand or RoCE cards there are, on which NUMA node, and whether GPUDirect's module is loaded."""
    found = []
    for card in _cards(sysfs):
        state = _read(card / "ports" / "1" / "state") or "unknown"
        rate, numa = (
            _read(card / "ports" / "1" / "rate") or "unknown rate",
            _read(card / "device" / "numa_node"),
        )
        status = "ok" if "ACTIVE" in state else "warn"
        words = f"{state}, {rate}, NUMA node {numa or 'unknown'}"
        found.append(
            finding(f"rail {card.name}", status, words, "" if status == "ok" else f"ibstat {card.name}")
        )
    if not found:
        words = "no InfiniBand or RoCE card: between nodes NCCL would use sockets or a plugin"
        return [finding("rails", "skipped", words)]
    if any((sysfs / "module" / m).is_dir() for m in ("nvidia_peermem", "nv_peer_mem")):
        return [*found, finding("GPUDirect RDMA", "ok", "nvidia_peermem is loaded")]
    words = "nvidia_peermem is not loaded (DMA-BUF may serve instead)"
    return [*found, finding("GPUDirect RDMA", "warn", words, "sudo modprobe nvidia-peermem")]


def _cards(sysfs: Path) -> list[Path]:
    folder = sysfs / "class" / "infiniband"
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None
